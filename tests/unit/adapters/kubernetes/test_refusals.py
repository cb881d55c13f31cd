"""What fixes a refusal of the API: by its own words, which the real one has."""

from __future__ import annotations

import pytest

from overspan.adapters.kubernetes.api.answers import ApiAnswer
from overspan.adapters.kubernetes.api.refusals import find_remedy


@pytest.mark.parametrize(
    ("message", "words"),
    [
        ('pods is forbidden: User "system:serviceaccount:a:b" cannot create resource "pods" in API group ""', "check"),
        ('pods "x" is forbidden: exceeded quota: q, requested: cpu=2, used: cpu=1, limited: cpu=2', "describe quota"),
        ('pods "x" is forbidden: failed quota: q: must specify limits.cpu for: main', "wants each pod to name"),
        ('pods "x" is forbidden: maximum cpu usage per Container is 2, but limit is 4', "describe limits"),
        ('pods "x" is forbidden: minimum memory usage per Pod is 1Gi, but request is 1Mi', "describe limits"),
        (
            'pods "x" is forbidden: violates PodSecurity "baseline:latest": host namespaces',
            "`kubernetes` of this cluster",
        ),
        ('pods "x" is forbidden: no PriorityClass with name fast was found', "get priorityclasses"),
        (
            'pods "x" is forbidden: error looking up service account a/b: serviceaccount "b" not found',
            "serviceaccounts",
        ),
        ('admission webhook "policy.site" denied the request: no label `team`', "administrators"),
    ],
)
def test_each_refusal_has_its_own_remedy(message: str, words: str) -> None:
    remedy = find_remedy(ApiAnswer(403, {"message": message}))
    assert words in remedy
    assert ("span check" in remedy) is (words == "check")


def test_a_setting_that_is_made_already_is_not_asked_for() -> None:
    answer = ApiAnswer(403, {"message": 'pods "x" is forbidden: violates PodSecurity "restricted:latest"'})
    assert "`security: restricted`" in find_remedy(answer)
    assert "`security: restricted`" not in find_remedy(answer, "restricted")
    assert find_remedy(ApiAnswer(422, {"message": "spec.containers: Invalid value"})) == ""

"""What a restricted namespace wants is filled in, and what somebody wrote stays."""

from __future__ import annotations

from overspan.adapters.kubernetes.manifests.security import restrict_pod


def test_every_container_is_restricted_and_what_is_written_stays() -> None:
    written = {"runAsUser": 1000, "seccompProfile": {"type": "Localhost"}}
    pod = {
        "spec": {
            "securityContext": written,
            "initContainers": [{"name": "files"}],
            "containers": [{"name": "main", "securityContext": {"capabilities": {"drop": ["ALL"], "add": ["CHOWN"]}}}],
        }
    }
    spec = restrict_pod(pod)["spec"]
    assert spec["securityContext"] == {"runAsNonRoot": True, **written}
    files, main = spec["initContainers"][0]["securityContext"], spec["containers"][0]["securityContext"]
    assert files == {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    assert main == {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"], "add": ["CHOWN"]}}
    # What was given is not changed.
    assert pod["spec"]["initContainers"] == [{"name": "files"}]


def test_a_pod_that_says_nothing_is_as_the_standard_wants_it() -> None:
    spec = restrict_pod({"spec": {"containers": [{"name": "main"}]}})["spec"]
    assert spec["securityContext"] == {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}

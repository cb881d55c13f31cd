"""`span top` on a real Kubernetes: the queue, logs of pods, earlier attempts, details, a cancel."""

from __future__ import annotations

from tests.system.kubernetes.conftest import KubeSpan
from tests.system.top.top_stories import play_day


def test_a_day_with_a_group(kube: KubeSpan) -> None:
    """TU03, TU04, UX04: in pods."""
    play_day(kube, kube.submit, "kind: Pod")

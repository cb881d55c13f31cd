"""`span top` on a real Kubernetes: the queue, logs of pods, earlier attempts, details, a shell, a cancel."""

from __future__ import annotations

import os
from pathlib import Path

from tests.system.kubernetes.conftest import KubeSpan
from tests.system.top.top_stories import play_day, play_missing_program, play_shell


def test_a_day_with_a_group(kube: KubeSpan) -> None:
    """TU03, TU04, UX04: in pods."""
    play_day(kube, kube.submit, "kind: Pod")


def test_a_shell_beside_the_work(kube: KubeSpan, tmp_path: Path) -> None:
    """TU05: what `span shell` runs has the terminal, in the pod; without kubectl a note names it."""
    job = kube.submit("name: fit\nresources: {cpus: 0.1}\nenvs: {COST: 5 euros}\nrun: echo up; sleep 600\n")
    kube.wait_until(lambda: "up" in kube.log(job), 60, "it to say up")
    path = {"PATH": f"{kube.rig.programs}:{os.environ['PATH']}"}
    play_shell(kube, job, 'echo "told=$COST"', "told=5 euros", path)
    play_missing_program(kube, job, "kubectl", str(tmp_path))

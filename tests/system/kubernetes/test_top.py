"""`span top` on a real Kubernetes: the queue, logs of pods, earlier attempts, details, a shell, a cancel."""

from __future__ import annotations

from tests.system.kubernetes.conftest import KubeSpan
from tests.system.top.terminal import open_terminal
from tests.system.top.top_stories import play_day


def test_a_day_with_a_group(kube: KubeSpan) -> None:
    """TU03, TU04, UX04: in pods."""
    play_day(kube, kube.submit, "kind: Pod")


def test_a_shell_beside_the_work(kube: KubeSpan) -> None:
    """TU05: what `span shell` runs has the terminal, in the pod; its end is not the work's."""
    job = kube.submit("name: fit\nresources: {cpus: 0.1}\nrun: echo up; sleep 600\n")
    kube.wait_until(lambda: "up" in kube.log(job), 60, "it to say up")
    [pod] = kube.pods()
    with open_terminal(["top", "-j", str(job)], {**kube.environment, "TERM": "xterm"}) as terminal:
        terminal.wait_for("fit", "kube")
        terminal.press("!")
        terminal.wait_for("the job goes on", seconds=60)
        terminal.press("echo pod=$(cat /proc/sys/kernel/hostname); exit 0\n")
        terminal.wait_for(f"pod={pod}"[:30], seconds=60)
        terminal.wait_for("JOBID", seconds=60)
        terminal.press("q")
        assert terminal.wait_end() == 0 and terminal.screen.clean
    assert kube.job(job)["state"] == "RUNNING"

"""What a task prints while it is being ended and the daemon goes: it is there afterwards, or its absence is said."""

from __future__ import annotations

import json

from tests.system.kubernetes.conftest import WAITS, KubeSpan

TALKS = "trap 'echo got TERM; sleep 3; echo saved; exit 0' TERM; echo up; while :; do sleep 0.1; done"


def start(kube: KubeSpan) -> int:
    task = {"name": "talks", "resources": {"cpus": 0.01}, "grace_period": "20s", "run": TALKS}
    number = kube.submit(json.dumps(task))
    kube.until(number, "RUNNING", timeout=60)
    kube.wait_until(lambda: "up" in kube.log(number), 20, "its first line")
    return number


def said(kube: KubeSpan, number: int, task: str = "") -> list[str]:
    """What the program printed, without its shell's words about the sleep that TERM ended."""
    return [line for line in kube.log(number, task).splitlines() if line != "Terminated"]


def cancel(kube: KubeSpan, number: int) -> None:
    """Have it end, and go on when its pod has heard of that."""
    kube.run("scancel", str(number))
    (name,) = kube.pods()
    kube.wait_until(lambda: kube.pods()[name]["metadata"].get("deletionTimestamp"), 20, "its end to begin")


def test_an_ordinary_shutdown_loses_no_last_line(kube: KubeSpan) -> None:
    number = start(kube)
    cancel(kube, number)
    kube.run("shutdown")
    kube.until(number, "CANCELLED", timeout=60)
    assert said(kube, number) == ["up", "got TERM", "saved"]


def test_a_crash_says_that_last_lines_are_missing(kube: KubeSpan) -> None:
    number = start(kube)
    cancel(kube, number)
    kube.kill_daemon()
    (name,) = kube.pods()

    def has_ended() -> bool:
        status = kube.pods()[name]["status"].get("containerStatuses") or [{}]
        return "terminated" in status[0].get("state", {})

    kube.wait_until(has_ended, 60, "its end while no daemon is there")
    kube.until(number, "CANCELLED", timeout=60)
    lines = kube.log(number).splitlines()
    assert lines[0] == "up" and ("saved" in lines or "overspan: what was printed after this is not known" in lines[-1])


def test_an_auxiliary_ends_after_its_delay_without_a_daemon_and_its_log_is_whole(kube: KubeSpan) -> None:
    small = {"resources": {"cpus": 0.01}, "grace_period": "10s"}
    head = {"name": "pair", "execution": "parallel", "primary_tasks": ["main"], "termination_delay": "6s"}
    tasks = [{"name": "main", "run": WAITS, **small}, {"name": "server", "run": TALKS, **small}]
    number = kube.submit("\n---\n".join(map(json.dumps, [head, *tasks])))
    kube.until(number, "RUNNING", timeout=60)
    kube.wait_until(lambda: "up" in kube.log(number, "server"), 20, "the server's first line")
    (primary,) = [name for name in kube.pods() if "-main-" in name]
    (server,) = [name for name in kube.pods() if "-server-" in name]
    before = kube.pods()[server]["spec"]["activeDeadlineSeconds"]
    kube.let_go(primary)
    kube.wait_until(lambda: kube.pods()[server]["spec"]["activeDeadlineSeconds"] < before, 20, "its deadline to be set")
    kube.kill_daemon()

    def state() -> dict[str, object]:
        found: dict[str, object] = kube.pods()[server]["status"]["containerStatuses"][0]["state"]
        return found

    kube.wait_until(lambda: "terminated" in state(), 40, "its node to end it")
    assert "deletionTimestamp" not in kube.pods()[server]["metadata"]
    kube.until(number, "COMPLETED", timeout=60)
    assert said(kube, number, "server") == ["up", "got TERM", "saved"]

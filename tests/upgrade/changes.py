"""The change from the old version to this one, and what must not change with it."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest
from tests.upgrade.installation import NEW, Installation
from tests.upgrade.old_version import CannotBuild, OldVersion, build_old_version
from tests.waiting import wait_until


@pytest.fixture(scope="session")
def old() -> OldVersion:
    """The old version's commands."""
    try:
        return build_old_version()
    except CannotBuild as error:
        pytest.skip(f"the old version cannot be built here: {error}")


def change(span: Installation, killed: bool = False) -> None:
    """End the old daemon, or kill it, and have the next command start the new one."""
    pid = find_daemon(span)
    assert find_program(pid).startswith(str(span.program.parent))
    if killed:
        os.kill(pid, signal.SIGKILL)
    else:
        span.run("shutdown")
    wait_until(lambda: not find_program(pid), 20, "its end")
    span.program = NEW
    assert find_program(find_daemon(span)).startswith(str(NEW.parent))


def find_daemon(span: Installation) -> int:
    """The pid of the daemon, which is started where there is none."""
    return int(json.loads(span.run("ping", "--json").stdout)["pid"])


def find_program(pid: int) -> str:
    """What a process is run by; empty where it is gone."""
    try:
        return Path("/proc", str(pid), "cmdline").read_text().split("\0")[0]
    except OSError:
        return ""


def list_accounts(span: Installation, *jobs: int) -> list[list[str]]:
    """Row, state and exit code of each task, by sacct."""
    words = ("sacct", "-XnP", "-o", "JobID,State,ExitCode", "-j", ",".join(map(str, jobs)))
    return [line.split("|") for line in span.run(*words).stdout.splitlines()]


def list_starts(span: Installation, *jobs: int) -> list[object]:
    """When each attempt of each task has begun."""
    return [
        (job, task["name"], [attempt["started_at"] for attempt in task["attempts"]])
        for job in jobs
        for task in span.show(job)["tasks"]
    ]

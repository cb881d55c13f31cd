"""The change from the old version to this one, and what must not change with it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.upgrade.installation import NEW, Installation
from tests.upgrade.old_version import CannotBuild, OldVersion, build_old_version


@pytest.fixture(scope="session")
def old() -> OldVersion:
    """The old version's commands."""
    try:
        return build_old_version()
    except CannotBuild as error:
        pytest.skip(f"the old version cannot be built here: {error}")


def change(span: Installation) -> None:
    """End the old daemon, and have the next command start the new one."""
    assert find_program(span).startswith(str(span.program.parent))
    span.run("shutdown")
    span.program = NEW
    assert find_program(span).startswith(str(NEW.parent))


def find_program(span: Installation) -> str:
    """What the daemon is run by."""
    pid = json.loads(span.run("ping", "--json").stdout)["pid"]
    return Path("/proc", str(pid), "cmdline").read_text().split("\0")[0]


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

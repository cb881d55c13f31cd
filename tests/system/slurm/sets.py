"""Sets, and their native jobs."""

from __future__ import annotations

import re
from typing import Any

from tests.system.conftest import Span
from tests.system.slurm.conftest import Site
from tests.system.slurm.groups import group


def name_run(span: Span, site: Site, job: int) -> str:
    """The name of a set's run directory, which begins the tokens of its native jobs."""
    native = str(span.wait_until(lambda: span.job(job).get("native_id"), 20, "a native id"))
    comment = site.slurm("squeue", "-hat", "all", "-j", native, "-O", "Comment:200")
    found = re.search(r"overspan=(\S+)-\d+/", comment)
    assert found, comment
    return found[1]


def stop(span: Span, site: Site, job: int) -> None:
    """Tell the tasks that look for it to end."""
    path = f"/home/researcher/.overspan/runs/{name_run(span, site, job)}/stop"
    assert site.rig.run(["touch", path]).rc == 0


FAST = {"backoff": {"first": 0.1}}


def make_set(tasks: dict[str, dict[str, Any]], **header: Any) -> str:
    """A group's YAML that asks to be a set."""
    return group({name: {**FAST, **task} for name, task in tasks.items()}, restart="task", **header)


def natives(span: Span, site: Site, job: int) -> dict[str, list[int]]:
    """The native jobs of a set by task, oldest first, those that ended a short while ago too."""
    run = re.escape(name_run(span, site, job))
    found: dict[str, list[int]] = {}
    for line in site.slurm("squeue", "-hat", "all", "-O", "JobID:20,Comment:200").splitlines():
        number, _, comment = line.partition(" ")
        match = re.search(rf"overspan={run}-\d+/([\w-]+)/\d+", comment)
        if match:
            found.setdefault(match[1], []).append(int(number))
    return {task: sorted(numbers) for task, numbers in found.items()}


def until_nothing_left(span: Span, site: Site, job: int) -> None:
    """Wait until Slurm has no live job of the set."""

    def left() -> bool:
        numbers = ",".join(str(number) for listed in natives(span, site, job).values() for number in listed)
        return not site.slurm("squeue", "-hj", numbers, "-o", "%i").strip()

    span.wait_until(left, 20, "nothing to be left")

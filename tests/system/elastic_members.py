"""Further members of elastic tasks, on every kind of cluster."""

from __future__ import annotations

from typing import Any

from tests.system.conftest import Span


def list_members(span: Span, group: int) -> dict[str, dict[str, Any]]:
    """The live jobs of a group's further members, by name."""
    jobs = map(span.job, span.job(group)["joined"])
    return {job["name"]: job for job in jobs if job["ended_at"] is None}


def await_members(span: Span, group: int, *names: str, timeout: float = 20) -> dict[str, dict[str, Any]]:
    """Wait until just these further members run."""

    def look() -> bool:
        found = list_members(span, group)
        return found.keys() == set(names) and all(job["state"] == "RUNNING" for job in found.values())

    span.wait_until(look, timeout, f"the members {', '.join(names) or 'to be none'}")
    return list_members(span, group)

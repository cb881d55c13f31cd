"""Handles with a prefix that names their owner, as whom the cluster is asked. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from urllib.parse import quote, unquote

from overspan.adapters.contract import Unmet
from overspan.bridge.model.errors import NotFound
from overspan.bridge.model.job import Job


def join_owner(user: str, handle: str) -> str:
    """The handle of a user's launch."""
    return f"{quote(user, safe='')}/{handle}"


def split_owner(handle: str) -> tuple[str, str]:
    """The owner of a launch, and its handle as that user's cluster knows it. NotFound for one without an owner."""
    user, slash, own = handle.partition("/")
    if not slash or not user:
        raise NotFound(f"{handle!r} names no user's job", remedy="it was submitted by another daemon")
    return unquote(user), own


def group_handles(handles: Iterable[str]) -> dict[str, list[str]]:
    """The handles by user, as each user's cluster knows them; those without an owner are left out."""
    found: dict[str, list[str]] = {}
    for handle in handles:
        user, slash, own = handle.partition("/")
        if slash and user:
            found.setdefault(unquote(user), []).append(own)
    return found


def split_cursors(since: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """The cursors by user, as each user's cluster knows the handles."""
    found: dict[str, dict[str, str]] = {}
    for handle, cursor in since.items():
        user, slash, own = handle.partition("/")
        if slash and user:
            found.setdefault(unquote(user), {})[own] = cursor
    return found


def owner_of(job: Job) -> str:
    """The owner of a job, as the daemon recorded it at the submission."""
    return job.spec.origin.user


def own_needs(user: str, needs: Sequence[Unmet]) -> tuple[Unmet, ...] | None:
    """The needs as the user's cluster knows them; None if one is about another user's job."""
    found = []
    for unmet in needs:
        jobs = []
        for one in unmet.jobs:
            owner, handle = split_owner(one.handle) if one.handle else (user, "")
            if owner != user:
                return None
            jobs.append(replace(one, handle=handle))
        found.append(replace(unmet, jobs=tuple(jobs)))
    return tuple(found)

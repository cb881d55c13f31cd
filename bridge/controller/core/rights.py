"""Rights: every user may see the queue; all else about a job is its owner's, or an operator's. Pure.

The daemon of one user serves that user alone, who may do everything.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from overspan.bridge.controller.core.references import JobTarget
from overspan.bridge.model.errors import Denied, OverspanError
from overspan.bridge.model.job import Job

DENIED = "Access/permission denied"
"""Slurm's words (ESLURM_ACCESS_DENIED)."""
_ORDER = "only its owner and operators may do this"
_INSIDE = "commands inside a job reach that job, its group and what was submitted from inside it"
NOBODY = frozenset({""})
"""The users of a selection that no job can pass."""


@dataclass(frozen=True)
class Requester:
    """A user, as the kernel tells it. `alone`: the daemon's own user, on a daemon of one user."""

    name: str
    uid: int
    operator: bool = False
    alone: bool = False
    job: int = 0
    """The job whose token this is: it reaches itself, what has joined it and what it has submitted."""

    @property
    def within(self) -> str:
        """Whose jobs this user may give orders to; empty for all users'."""
        return "" if self.operator or self.alone else self.name

    def check_order(self, owner: str) -> None:
        """Raise Denied unless a job of that owner may be changed, and its history and its script be read."""
        if self.within not in ("", owner):
            raise deny(_ORDER)

    def check_files(self, owner: str) -> None:
        """Raise Denied unless files of that owner may be read: an operator is no reader of users' files."""
        if not (self.alone or self.uid == 0 or self.name == owner):
            raise deny("only its owner may read what a job has written, or enter it")

    def check_user(self) -> None:
        """Raise Denied for a job."""
        if self.job:
            raise deny(_INSIDE)

    def check_job(self, job: Job) -> None:
        """Raise Denied for a job that has nothing to do with this one."""
        if not is_within(job, self.job):
            raise deny(_INSIDE)

    def check_operator(self) -> None:
        """Raise Denied unless the user is an operator, or the daemon's own user."""
        if self.within:
            raise deny("only operators of the shared daemon may do this")

    def narrow(self, users: Collection[str]) -> frozenset[str]:
        """The users that a listing of the history may be about, of those that are asked for (none: all)."""
        if not self.within:
            return frozenset(users)
        return frozenset({self.name}) if not users or self.name in users else NOBODY


def is_within(job: Job, inside: int) -> bool:
    """Whether commands inside the job `inside` may act on a job; 0 is a command outside of jobs, which always may."""
    origin = job.spec.origin.job
    return not inside or inside in (job.id, job.spec.parent, origin)


def split_allowed(
    chosen: Iterable[tuple[str, JobTarget]], within: str, inside: int = 0
) -> tuple[list[tuple[str, JobTarget]], list[tuple[str, OverspanError]]]:
    """Of the chosen jobs those of one user (empty: of all), and a refusal for each id of another user's.

    `inside` is the job whose commands choose.
    """
    allowed: list[tuple[str, JobTarget]] = []
    refused: dict[str, OverspanError] = {}
    for ref, target in chosen:
        if within not in ("", target.entry.user):
            refused[ref] = deny(_ORDER)
        elif not is_within(target.entry.job, inside):
            refused[ref] = deny(_INSIDE)
        else:
            allowed.append((ref, target))
    return allowed, list(refused.items())


def deny(remedy: str) -> Denied:
    """The refusal of a right."""
    return Denied(DENIED, remedy=remedy)

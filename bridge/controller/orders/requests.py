"""Requests to change jobs, as the API passes them on, and their outcomes. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from overspan.bridge.controller.core.registry import JobEntry
from overspan.bridge.model.errors import OverspanError


@dataclass(frozen=True)
class Filters:
    """Which live jobs a cancel is about; an empty field means any."""

    states: frozenset[str] = frozenset()
    users: frozenset[str] = frozenset()
    names: frozenset[str] = frozenset()
    partitions: frozenset[str] = frozenset()
    clusters: frozenset[str] = frozenset()
    accounts: frozenset[str] = frozenset()
    qos: frozenset[str] = frozenset()
    nodes: frozenset[str] = frozenset()

    def fits(self, entry: JobEntry) -> bool:
        """Whether the job passes."""
        job = entry.job
        if self.nodes and not any(place.node in self.nodes for place in job.placements):
            return False
        facts = (
            (self.states, job.state.value),
            (self.users, entry.user),
            (self.names, job.labels.get("name", job.spec.name)),
            (self.partitions, job.partition or job.spec.partition),
            (self.clusters, entry.cluster),
            (self.accounts, job.spec.account),
            (self.qos, job.spec.qos),
        )
        return all(not wanted or value in wanted for wanted, value in facts)


@dataclass(frozen=True)
class CancelRequest:
    """Jobs to end or to signal. No refs: every live job that passes the filters."""

    refs: Sequence[str] = ()
    task: str = ""
    filters: Filters = Filters()
    signal: str = ""
    batch_only: bool = False
    by: str = ""
    full: bool = False
    within: str = ""
    """Whose jobs may be meant; empty for all users'."""
    inside: int = 0
    """The job whose commands ask; 0 for a user's."""
    flush: bool = True
    """Whether data that is on its way to an object store is waited for."""


class CancelOutcome(NamedTuple):
    """What was asked of each job: refs that it was done for, and the errors of the others."""

    done: list[str]
    errors: list[tuple[str, OverspanError]]
    note: str = ""
    """A remark about the whole request."""


@dataclass(frozen=True)
class Update:
    """New values for a job, only those that were given."""

    values: Mapping[str, Any] = field(default_factory=dict)
    by: str = ""

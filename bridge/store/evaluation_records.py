"""Records of watches and evaluations that the store takes and returns. Standard library only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from overspan.bridge.model.evaluations import EvaluationSpec


@dataclass(frozen=True)
class WatchFacts:
    """A watch: what is wanted, and what is known of its job for as long as it is watched.

    `file` is where its messages point to; `ended` whether the job was over when it was looked at last.
    """

    spec: EvaluationSpec
    created_at: float
    cluster: str = ""
    note: str = ""
    """What hinders it: a folder that cannot be read, names that do not fit."""
    note_at: float | None = None


@dataclass(frozen=True)
class StoredWatch:
    """A watch as it is stored; `id` is 0 for one that is not yet."""

    id: int
    job_id: int
    name: str
    user: str
    closed: bool
    facts: WatchFacts


@dataclass(frozen=True)
class EvaluationFacts:
    """What is known of one evaluation. `state` is its job's, or WAITING, REFUSED; `score` is None without one."""

    step: float | None = None
    fields: Mapping[str, Any] = field(default_factory=dict)
    size: int = 0
    files: tuple[str, ...] = ()
    """The files that the checkpoint had when it was complete; kept where changes count."""
    layout: str = ""
    guess: bool = False
    """Whether only a quiet period says that the checkpoint was complete."""
    ready_at: float = 0.0
    submitted_at: float | None = None
    ended_at: float | None = None
    state: str = ""
    score: float | None = None
    values: Mapping[str, Any] = field(default_factory=dict)
    trouble: str = ""
    """Why there is no result, or no job."""
    reason: str = ""
    """The reason that its job ended with, as squeue shows it; empty while it is not over."""
    cluster: str = ""
    """Where its job was submitted to."""


@dataclass(frozen=True)
class StoredEvaluation:
    """An evaluation as it is stored; `id` is 0 for one that is not yet."""

    id: int
    watch_id: int
    checkpoint: str
    content: str
    run: int
    job_id: int
    over: bool
    facts: EvaluationFacts


@dataclass(frozen=True)
class JobLabel:
    """What a list of watches shows of the job that is watched; all empty for one that was dropped."""

    name: str = ""
    state: str = ""


@dataclass(frozen=True)
class EvaluationTally:
    """The evaluations of a watch that ended in one state: how many, their scores' bounds, and when the last ended."""

    watch_id: int
    state: str
    count: int
    highest: float | None = None
    lowest: float | None = None
    ended_at: float | None = None

"""Evaluations as the user asked for them: which checkpoints of a job, found how, and what is run for each."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any, Optional

from overspan.bridge.model.records import dataclass, field

DEFAULT_QUIET = 30.0
"""Seconds without a change after which a checkpoint of an unknown layout counts as complete."""
MAX_PARALLEL = 1
"""Evaluations of one watch at the same time, unless it says more."""
RESULT_FILE = "result.json"
"""The file that a result is read from, unless the watch names another."""


class ReadyRule(str, Enum):
    """How a checkpoint is known to be complete."""

    LAYOUT = "layout"
    """The file that its layout writes last decides; where no layout is recognised, a quiet period (a guess)."""
    MARKER = "marker"
    RENAME = "rename"
    """The name appears when everything is there."""
    QUIET = "quiet"


class Select(str, Enum):
    """Which complete checkpoints are evaluated; the last one always is."""

    ALL = "all"
    LATEST = "latest"
    """The newest one when there is room; those it overtook are passed over."""
    EVERY = "every"
    MILESTONES = "milestones"


class EvaluationOrder(str, Enum):
    """Which of the waiting checkpoints is evaluated next."""

    OLDEST = "oldest"
    NEWEST = "newest"


class Again(str, Enum):
    """Whether a checkpoint that was replaced under the same name is evaluated again."""

    NEVER = "never"
    ON_CHANGE = "on_change"


class ResultKind(str, Enum):
    """Where an evaluation's result is read."""

    FILE = "file"
    LINE = "line"
    EXIT = "exit"


@dataclass(frozen=True)
class Readiness:
    """The rule, with the marker's name (MARKER) or the seconds of quiet (QUIET, and LAYOUT for unknown layouts)."""

    rule: ReadyRule = ReadyRule.LAYOUT
    marker: str = ""
    quiet: float = DEFAULT_QUIET


@dataclass(frozen=True)
class CheckpointSelection:
    """The rule, with N of EVERY or the numbers of MILESTONES."""

    rule: Select = Select.ALL
    every: int = 1
    milestones: tuple[float, ...] = ()


@dataclass(frozen=True)
class ResultSource:
    """Where the result is: a JSON file in the evaluation's run directory, the last line with a prefix, the exit code.

    `score` is the key of the number that counts; empty takes `score`, or the only number.
    """

    kind: ResultKind = ResultKind.LINE
    file: str = RESULT_FILE
    """Below the evaluation's run directory."""
    line: str = "RESULT "
    score: str = ""
    lowest: bool = False
    """Whether lower scores are better (a loss)."""


@dataclass(frozen=True)
class EvaluationSpec:
    """One watch: an entry of `on_checkpoint`."""

    name: str
    path: str
    """The folder where checkpoints appear, absolute, as the watched task sees it."""
    pattern: str
    task: str = ""
    """The task that writes them; its cluster is where they are looked for."""
    ready: Readiness = Readiness()
    select: CheckpointSelection = CheckpointSelection()
    order: EvaluationOrder = EvaluationOrder.OLDEST
    max_parallel: int = MAX_PARALLEL
    again: Again = Again.NEVER
    last_after_failure: bool = True
    """Whether the last checkpoint is also evaluated when the job has failed."""
    result: ResultSource = ResultSource()
    job_name: str = ""
    """What its jobs are called, with fields; empty for the evaluation's name and the step."""
    template: Mapping[str, Any] = field(default_factory=dict)
    """The evaluation's job as a document of a JobSpec, with `{checkpoint}` and the pattern's fields unfilled."""


class StopRule(str, Enum):
    """What ends the watched job as done."""

    SCORE = "score"
    NO_GAIN = "no_gain"


@dataclass(frozen=True)
class StopWhen:
    """The watched job ends as COMPLETED when a score is reached, or none of `count` results was a gain.

    `above` is whether SCORE means at least `score`, else at most.
    """

    rule: StopRule
    evaluation: str
    """Whose results count."""
    score: float = 0.0
    above: bool = True
    count: int = 0


@dataclass(frozen=True)
class EvaluationOf:
    """In a job that is an evaluation: what it evaluates."""

    job: int
    """The watched job."""
    watch: int
    evaluation: int
    """The number of its row in the store."""
    name: str
    checkpoint: str
    path: str
    step: Optional[float] = None

"""Questions about many jobs, and their answers. NamedTuples: dataclasses would cost each command 9 ms of imports.

No future import here: NamedTuple would compile each annotation, which costs every command 2 ms.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Optional

from overspan.bridge.listings.rows import WHOLE, JobRow, StepRow, find_missing, rows_from_document, steps_from_document


class Stale(NamedTuple):
    """A cluster that does not answer: what is shown of it was true at `since`.

    `partial`: it answers, except for what `message` says.
    """

    cluster: str
    since: float
    message: str = ""
    partial: bool = False


class Listing(NamedTuple):
    """Rows, the daemon's time, the clusters whose rows are old, and the jobs' steps where they were asked for."""

    now: float
    rows: list[JobRow]
    stale: tuple[Stale, ...] = ()
    steps: Sequence[StepRow] = ()
    header: str = ""
    """The header of squeue's default table, where that was asked for; the rows are its lines then."""
    lines: Sequence[str] = ()
    missing: tuple[str, ...] = ()
    """Columns that a daemon of another version does not tell; the rows have defaults there."""


class QueueChanges(NamedTuple):
    """What is new of a queue: the rows, a task each, of the jobs `changed`. One that has no rows is gone.

    `whole`: the rows are the whole queue, and `changed` is empty. `version` asks for what comes after this answer.
    """

    now: float
    version: str
    whole: bool
    changed: Sequence[int]
    rows: Sequence[JobRow]
    stale: tuple[Stale, ...] = ()


class JobFilter(NamedTuple):
    """Which jobs to list or cancel; an empty field asks for nothing. `states` holds full names or `all`.

    `nodes` is for a cancel alone. `tasks` lists groups task by task; `finished_within` are the seconds for which a
    queue still shows finished jobs; `since`, `until` (epoch) and `limit` are for the history. With an
    `extent` of `core` or `usual` the rows of a queue are short: what stands behind `expected_start`, or `dependency`,
    keeps its default.
    """

    states: tuple[str, ...] = ()
    users: tuple[str, ...] = ()
    ids: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    partitions: tuple[str, ...] = ()
    clusters: tuple[str, ...] = ()
    accounts: tuple[str, ...] = ()
    qos: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()
    tasks: bool = False
    finished_within: Optional[int] = None
    since: Optional[float] = None
    until: Optional[float] = None
    limit: Optional[int] = None
    extent: str = WHOLE
    steps: bool = False
    """Whether the steps of the jobs are told too."""

    @property
    def empty(self) -> bool:
        """Whether it lets every job pass."""
        some = (self.states, self.users, self.ids, self.names, self.partitions, self.clusters)
        return not any((*some, self.accounts, self.qos, self.nodes))


def list_asked(wanted: JobFilter, lines: Optional[int] = None) -> dict[str, Any]:
    """The parameters of a listing's query; None for one that is left out. `lines` asks for squeue's default table."""
    asked: dict[str, Any] = {
        name: ",".join(value) if isinstance(value, tuple) else value for name, value in wanted._asdict().items()
    }
    asked["lines"] = lines
    asked["tasks"] = 1 if wanted.tasks else None
    asked["steps"] = 1 if wanted.steps else None
    asked["extent"] = None if wanted.extent == WHOLE else wanted.extent
    return asked


def read_listing(document: Mapping[str, Any], extent: str) -> Listing:
    """The daemon's answer with a listing. Raises LookupError, TypeError or ValueError for another document."""
    stale = _read_stale(document)
    if "lines" in document:
        return Listing(float(document["now"]), [], stale, (), document["header"], document["lines"])
    columns = document["columns"]
    rows = rows_from_document(columns, document["rows"])
    steps = document.get("steps")
    told = steps_from_document(document["step_columns"], steps) if steps else []
    missing = find_missing(columns, extent) if rows else ()
    return Listing(float(document["now"]), rows, stale, told, missing=missing)


def read_changes(document: Mapping[str, Any]) -> QueueChanges:
    """The daemon's answer about changes. Raises LookupError, TypeError or ValueError for another document."""
    return QueueChanges(
        float(document["now"]),
        str(document["version"]),
        bool(document["whole"]),
        tuple(document["changed"]),
        rows_from_document(document["columns"], document["rows"]),
        _read_stale(document),
    )


def _read_stale(document: Mapping[str, Any]) -> tuple[Stale, ...]:
    return tuple(
        Stale(
            str(row.get("cluster", "")),
            float(row.get("since") or 0),
            str(row.get("message") or ""),
            bool(row.get("partial")),
        )
        for row in document.get("stale") or ()
    )

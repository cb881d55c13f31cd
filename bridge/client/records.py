"""Records of listings. NamedTuples: dataclasses would cost each command 9 ms of imports.

No future import here: NamedTuple would compile each annotation, which costs every command 2 ms.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

EXTENTS = ("core", "usual", "all")
"""How much of each row a queue's listing has."""


class JobRow(NamedTuple):
    """One line of a listing: a job, or a task of a group. Times are seconds since the epoch, memory is MiB per node.

    `task_offset` is k of `N+k`, None for a job of one task; `name` is then the task's name and `group` the job's.
    """

    id: int = 0
    task_offset: int | None = None
    raw_id: int = 0
    name: str = ""
    group: str = ""
    user: str = ""
    state: str = "PENDING"
    reason: str = "None"
    partition: str = ""
    cluster: str = ""
    nodes: int = 1
    cpus: int = 1
    node_list: str = ""
    submitted_at: float | None = None
    started_at: float | None = None
    ended_at: float | None = None
    time_limit: int | None = None
    """Seconds; None is no limit."""
    priority: int | None = None
    begin: float | None = None
    array_id: int | None = None
    """N for an element `N_i` and for the row of an array's pending elements."""
    array_index: int | None = None
    array_waiting: str = ""
    """The indices, with the throttle, that an array's row stands for: `3-9%2`."""
    paused: float = 0
    """Seconds for which what runs, or ran, was suspended before; they count neither as time used nor to the limit."""
    paused_at: float | None = None
    """Since when it is suspended."""
    expected_start: float | None = None
    """When its cluster thinks that the pending job starts, at the latest."""
    account: str = ""
    qos: str = ""
    comment: str = ""
    work_dir: str = ""
    command: str = ""
    """The script's path; empty where there was none."""
    dependency: str = ""
    memory: int = 0
    gpus: float = 0
    exit_code: int = 0
    signal: int = 0
    restarts: int = 0
    attempt: int = 0
    stdout: str = ""
    stderr: str = ""
    tasks: int = 1
    uid: int | None = None
    ended_by_uid: int | None = None
    end_limit: float | None = None
    """When the time limit will end it."""
    nice: int = 0
    parent: int | None = None
    """The group that the job has joined."""
    stdin: str = ""
    submit_line: str = ""
    deadline: float | None = None
    requeue: bool = True
    ntasks: int | None = None
    ntasks_per_node: int | None = None
    cpus_per_task: int | None = None
    memory_per_cpu: int | None = None
    gpu_kind: str = ""
    host: str = ""
    gid: int | None = None
    batch: bool = True
    options: Mapping[str, Any] = {}
    """Options of sbatch that only Slurm knows, by their long names."""
    array_throttle: int | None = None

    @property
    def ref(self) -> str:
        """The id as users write it: `N`, `N+k` for a task of a group, `N_i` for an element, `N_[a-b]` for several."""
        if self.array_id is not None:
            if self.array_waiting:
                return f"{self.array_id}_[{self.array_waiting}]"
            return str(self.id) if self.array_index is None else f"{self.array_id}_{self.array_index}"
        return str(self.id) if self.task_offset is None else f"{self.id}+{self.task_offset}"


class StepRow(NamedTuple):
    """A step that srun ran in a job, or one component of it: the job's `task_offset`, the step's `component`.

    `cpus` 0 is all that the job has on the step's nodes. Neither running nor with an end: it was killed unseen.
    """

    job_id: int = 0
    task_offset: int | None = None
    number: int = 0
    component: int | None = None
    name: str = ""
    started_at: float = 0
    ended_at: float | None = None
    running: bool = False
    exit_code: int = 0
    signal: int = 0
    cancelled: bool = False
    """Whether a user had it ended by its number."""
    ntasks: int = 1
    cpus: int = 0
    nodes: int = 1
    node_list: str = ""
    layout: str = ""
    submit_line: str = ""
    host: str = ""
    pid: int = 0


class Stale(NamedTuple):
    """A cluster that does not answer: what is shown of it was true at `since`.

    `partial`: it answers, but for what `message` says.
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
    finished_within: int | None = None
    since: float | None = None
    until: float | None = None
    limit: int | None = None
    extent: str = EXTENTS[-1]
    steps: bool = False
    """Whether the steps of the jobs are told too."""

    @property
    def empty(self) -> bool:
        """Whether it lets every job pass."""
        some = (self.states, self.users, self.ids, self.names, self.partitions, self.clusters)
        return not any((*some, self.accounts, self.qos, self.nodes))


def steps_from_document(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> list[StepRow]:
    """Read the rows of steps; columns of a newer daemon are left out."""
    known = frozenset(StepRow._fields)
    found = (zip(columns, row, strict=True) for row in rows)
    return [StepRow(**{name: value for name, value in pairs if name in known}) for pairs in found]


def rows_from_document(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> list[JobRow]:
    """Read compact rows; columns of a newer daemon are left out, those of an older one take their defaults."""
    fields = JobRow._fields
    make = JobRow._make
    if tuple(columns) == fields:
        return list(map(make, rows))
    known = len(columns)
    if tuple(columns) == fields[:known]:
        rest = tuple(JobRow._field_defaults[name] for name in fields[known:])
        return [make((*row, *rest)) for row in rows]
    places = {name: place for place, name in enumerate(columns)}
    plan = [(places.get(name), JobRow._field_defaults[name]) for name in fields]
    return [make([default if place is None else row[place] for place, default in plan]) for row in rows]

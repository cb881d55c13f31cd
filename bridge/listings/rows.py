"""The rows of listings: the one definition of what the daemon sends, and its clients read, of each job and step.

A row travels as a bare list, in the order of the fields here; the names travel once, so that another version is seen.
NamedTuples, without a future import, which would compile each annotation: dataclasses would cost a command 9 ms.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Optional


class JobRow(NamedTuple):
    """One line of a listing: a job, or a task of a group. Times are seconds since the epoch, memory is MiB per node.

    `task_offset` is k of `N+k`, None for a job of one task; `name` is then the task's name and `group` the job's.
    """

    id: int = 0
    task_offset: Optional[int] = None
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
    submitted_at: Optional[float] = None
    started_at: Optional[float] = None
    ended_at: Optional[float] = None
    time_limit: Optional[int] = None
    """Seconds; None is no limit."""
    priority: Optional[int] = None
    begin: Optional[float] = None
    array_id: Optional[int] = None
    """N for an element `N_i` and for the row of an array's pending elements."""
    array_index: Optional[int] = None
    array_waiting: str = ""
    """The indices, with the throttle, that an array's row stands for: `3-9%2`."""
    paused: float = 0
    """Seconds for which what runs, or ran, was suspended before; they count neither as time used nor to the limit."""
    paused_at: Optional[float] = None
    """Since when it is suspended."""
    expected_start: Optional[float] = None
    """When its cluster thinks that the pending job starts, at the latest."""
    member_of: str = ""
    """`N+TASK`, the elastic task of a group whose further member the job is; `group` is then the name of N."""
    members: str = ""
    """Of a live elastic task: how many members have a place, of the least and the most: `3 of 1-8`."""
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
    uid: Optional[int] = None
    ended_by_uid: Optional[int] = None
    end_limit: Optional[float] = None
    """When the time limit will end it."""
    nice: int = 0
    parent: Optional[int] = None
    """The group that the job has joined."""
    stdin: str = ""
    submit_line: str = ""
    deadline: Optional[float] = None
    requeue: bool = True
    ntasks: Optional[int] = None
    ntasks_per_node: Optional[int] = None
    cpus_per_task: Optional[int] = None
    memory_per_cpu: Optional[int] = None
    gpu_kind: str = ""
    host: str = ""
    gid: Optional[int] = None
    batch: bool = True
    options: Mapping[str, Any] = {}
    """Options of sbatch that only Slurm knows, by their long names."""
    array_throttle: Optional[int] = None

    @property
    def ref(self) -> str:
        """The id as users write it: `N`, `N+k` for a task of a group, `N_i` for an element, `N_[a-b]` for several."""
        if self.array_id is not None:
            if self.array_waiting:
                return f"{self.array_id}_[{self.array_waiting}]"
            return str(self.id) if self.array_index is None else f"{self.array_id}_{self.array_index}"
        return str(self.id) if self.task_offset is None else f"{self.id}+{self.task_offset}"

    @property
    def family(self) -> int:
        """The job that it is shown below: its array, the group that it is a further member of, else itself."""
        if self.array_id is not None:
            return self.array_id
        group = self.member_of.partition("+")[0]
        return int(group) if group.isdecimal() else self.id


class StepRow(NamedTuple):
    """A step that srun ran in a job, or one component of it: the job's `task_offset`, the step's `component`.

    Times are epoch seconds. `cpus` 0 is all that the job has on the step's nodes. Neither running nor with an end: it
    was killed at an unknown time.
    """

    job_id: int = 0
    task_offset: Optional[int] = None
    number: int = 0
    component: Optional[int] = None
    name: str = ""
    started_at: float = 0
    ended_at: Optional[float] = None
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


COLUMNS: tuple[str, ...] = JobRow._fields
CORE = COLUMNS[: COLUMNS.index("members") + 1]
"""What squeue's default columns and its order need: short rows, for queues of many thousand jobs."""
USUAL = COLUMNS[: COLUMNS.index("dependency") + 1]
"""What people put into formats of their own."""
WHOLE = "all"
EXTENTS: dict[str, tuple[str, ...]] = {"core": CORE, "usual": USUAL, WHOLE: COLUMNS}
"""How much of each row may be asked for, the least first."""


def join_extents(extents: Iterable[str]) -> str:
    """The least extent that has all of these."""
    return max(extents, key=list(EXTENTS).index)


def find_missing(columns: Sequence[str], extent: str = WHOLE) -> tuple[str, ...]:
    """The columns of an extent that a daemon of another version does not tell."""
    known = frozenset(columns)
    return tuple(name for name in EXTENTS[extent] if name not in known)


def steps_from_document(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> list[StepRow]:
    """Read the rows of steps; columns of a newer daemon are left out."""
    known = frozenset(StepRow._fields)
    found = (zip(columns, row) for row in rows)
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

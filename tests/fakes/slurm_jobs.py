"""Native jobs of the fake Slurm as records, and what the program of a job does. No clock, no decisions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

ENDED = frozenset(
    {"COMPLETED", "CANCELLED", "FAILED", "TIMEOUT", "NODE_FAIL", "PREEMPTED", "OUT_OF_MEMORY", "DEADLINE", "BOOT_FAIL"}
)


@dataclass(frozen=True)
class Behaviour:
    """What the program of one run does: how long it takes (None: for ever), and how it ends.

    `on_term` is how many seconds after TERM it ends, None where it ignores that. `launch` is what becomes of its start:
    `prolog` (the prolog fails there) or `silent` (the node does not answer); empty where it starts.
    """

    seconds: float | None = 1.0
    code: int = 0
    signal: int = 0
    on_term: float | None = 0.0
    launch: str = ""
    output: str = ""


@dataclass(frozen=True)
class Request:
    """What sbatch was given, for one component. Memory is MiB a node, `limit` seconds (None: the partition's)."""

    name: str = "sbatch"
    user: str = "ada"
    partition: str = "main"
    comment: str = ""
    script: str = ""
    submit_line: str = ""
    workdir: str = ""
    output: str = ""
    error: str = ""
    nodes: int = 1
    cpus: int = 1
    memory: int = 0
    gpus: int = 0
    nodelist: tuple[str, ...] = ()
    limit: int | None = None
    requeue: bool = True
    hold: bool = False
    begin: float = 0.0
    dependency: str = ""
    kill_on_invalid_dep: bool = False
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(eq=False)
class NativeJob:
    """A job, an element of an array, the waiting rest of one (`indices`), or a component of a hetjob.

    `state` is the base; `flag` is shown in its place. Times are seconds since 1970, 0 where there is none. `status` is
    a wait status. `run` counts the starts, so that what belongs to an earlier one is known.
    """

    id: int
    request: Request
    submit: float
    state: str = "PENDING"
    flag: str = ""
    reason: str = "None"
    held: str = ""
    begin: float = 0.0
    start: float = 0.0
    end: float = 0.0
    limit: int | None = None
    priority: int = 1000
    restarts: int = 0
    status: int = 0
    by: int | None = None
    nodes: tuple[str, ...] = ()
    array_job: int = 0
    index: int | None = None
    indices: tuple[int, ...] = ()
    throttle: int = 0
    het_job: int = 0
    het_offset: int = 0
    dependency: str = ""
    run: int = 0
    record: int = 0
    """Which of its records in the accounting is the present one."""
    again: str = ""
    """What it waits for when its nodes are free: `BeginTime`, or the reason of a hold; empty where it has ended."""
    ends_at: float | None = None
    behaviour: Behaviour | None = None
    """Of the present run; None where its program has not started."""
    signals: list[tuple[float, int]] = field(default_factory=list)
    """What it was sent, and when."""

    @property
    def waits(self) -> bool:
        """Whether it is PENDING and nothing else."""
        return self.state == "PENDING" and not self.flag

    @property
    def over(self) -> bool:
        """Whether it has ended and has given its nodes back."""
        return self.state in ENDED and not self.flag

    @property
    def name(self) -> str:
        """Its id as Slurm writes it."""
        if self.index is not None:
            return f"{self.array_job}_{self.index}"
        if self.indices:
            return f"{self.array_job}_[{format_indices(self.indices)}{f'%{self.throttle}' if self.throttle else ''}]"
        return f"{self.het_job}+{self.het_offset}" if self.het_job else str(self.id)

    def split(self, index: int, number: int) -> NativeJob:
        """One waiting element as a job of its own; the last one keeps the array's own number."""
        self.indices = tuple(one for one in self.indices if one != index)
        return replace(self, id=number, index=index, indices=(), signals=[])


@dataclass(frozen=True)
class AccountingRow:
    """What slurmdbd keeps of one run."""

    job: int
    name: str
    request: Request
    state: str
    reason: str
    by: int | None
    status: int
    submit: float
    start: float
    end: float
    limit: int | None
    nodes: tuple[str, ...]


def take_row(job: NativeJob, state: str, reason: str) -> AccountingRow:
    """A job's present run for the accounting."""
    return AccountingRow(
        job.id,
        job.name,
        job.request,
        state or job.state,
        reason.partition(",")[0],
        job.by,
        job.status,
        job.submit,
        job.start,
        job.end,
        job.limit,
        job.nodes,
    )


def format_indices(indices: tuple[int, ...]) -> str:
    """Indices as ranges: 1-3,7."""
    ranges: list[list[int]] = []
    for index in sorted(indices):
        if ranges and index == ranges[-1][1] + 1:
            ranges[-1][1] = index
        else:
            ranges.append([index, index])
    return ",".join(f"{first}-{last}" if last > first else str(first) for first, last in ranges)


def read_indices(text: str) -> tuple[tuple[int, ...], int]:
    """Indices and throttle of an --array value such as 0-9:2,20%4."""
    listed, _, throttle = text.partition("%")
    indices: list[int] = []
    for part in listed.split(","):
        span, _, step = part.partition(":")
        first, _, last = span.partition("-")
        indices += range(int(first), int(last or first) + 1, int(step or 1))
    return tuple(indices), int(throttle or 0)

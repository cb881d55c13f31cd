"""A source in memory: rows that a test sets, orders that it reads; one for all threads of an application."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from overspan.bridge.client.log_reading import key_of
from overspan.bridge.client.messages import (
    Accepted,
    Cancelled,
    CancelOrder,
    FoundLine,
    LogFinds,
    LogPart,
    LogSearch,
    SentForm,
    Stream,
    StreamKey,
    Transition,
    Variable,
)
from overspan.bridge.client.records import JobFilter, Listing, QueueChanges, Stale
from overspan.bridge.listings.rows import JobRow
from overspan.bridge.model.errors import NotFound, OverspanError, Unreachable
from overspan.bridge.model.log_matching import find_lines, make_matcher
from overspan.tui.daemon.source import Source

NOW = 1_800_000_000.0
ANY = JobFilter()
NOTHING: Mapping[str, str] = {}
VALUES = {"time": "1:00:00", "mem": "8G", "nodes": "1", "partition": "gpu", "account": "", "job-name": "fit"}
"""What a resubmission of job 7 and array 44 may change, where a test says nothing else."""


def job(number: int, name: str = "fit", state: str = "RUNNING", **more: Any) -> JobRow:
    """A row of a job that started a minute ago, or waits."""
    given = {"user": "ana", "cluster": "leo", "partition": "gpu", "raw_id": number, **more}
    if state != "PENDING":
        given.setdefault("started_at", NOW - 60)
        given.setdefault("node_list", "n1")
    return JobRow(id=number, name=name, state=state, submitted_at=NOW - 100, **given)


def evaluation(number: int, step: int, state: str = "COMPLETED", **more: Any) -> dict[str, Any]:
    """An evaluation of a checkpoint, as the daemon tells it; its job is a hundred more."""
    over = state not in ("RUNNING", "PENDING", "WAITING")
    known = {"job": 100 + number if state not in ("WAITING", "REFUSED") else None, "cluster": "leo", "reason": ""}
    times = {"ready_at": NOW - 900, "submitted_at": NOW - 890, "ended_at": NOW - 1000 + number * 60 if over else None}
    facts: dict[str, Any] = {
        "run": 0,
        "score": None,
        "best": False,
        "values": {},
        "trouble": "",
        "layout": "",
        "guess": False,
    }
    fields = {"checkpoint": f"step_{step}", "step": step, "fields": {"step": step}, "size": 1}
    return {"id": number, "state": state, **fields, **known, **times, **facts, **more}


def watch(job: int, name: str = "gsm8k", *evaluations: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A watch with its evaluations, as the daemon tells it, with what only the list of all has."""
    place = {"path": "/scratch/ana/run/ckpt", "pattern": "step_{step:int}", "cluster": "leo", "max_parallel": 2}
    facts = {"closed": False, "note": "", "guess": False, "lowest_is_best": False, "incomplete": [], "passed": 0}
    own = {"job_name": "rl-math", "job_state": "RUNNING", "user": "ana"}
    return {"name": name, "job": job, **place, **facts, **own, "evaluations": list(evaluations), **more}


def sum_up(watch: Mapping[str, Any]) -> dict[str, Any]:
    """A watch as the list of all has it."""
    known = watch["evaluations"]
    scores = [one["score"] for one in known if one["score"] is not None]
    named = ("name", "job", "job_name", "job_state", "user", "cluster", "closed", "note", "lowest_is_best")
    states: dict[str, int] = {}
    for one in known:
        states[one["state"]] = states.get(one["state"], 0) + 1
    return {
        **{key: watch[key] for key in named},
        "states": states,
        "best_score": (min if watch["lowest_is_best"] else max)(scores, default=None),
        "incomplete_count": len(watch["incomplete"]),
        "ended_at": max((one["ended_at"] for one in known if one["ended_at"]), default=None),
    }


class LogFile:
    """A log in memory; one of any size overrides `size` and `read`."""

    def __init__(self, data: bytes = b"") -> None:
        self.data = data
        self.size = len(data)

    def read(self, offset: int, limit: int) -> bytes:
        """Bytes of it."""
        return self.data[offset : offset + limit]


class FakeSource:
    """A lab whose daemon answers at once; `lost` makes it silent."""

    def __init__(self, rows: Sequence[JobRow] = ()) -> None:
        self._changed = threading.Condition()
        self._rows: dict[int, list[JobRow]] = {}
        self._revisions: dict[int, int] = {}
        self._revision = 0
        self.autostart = True
        self.timeout = 0.0
        self.stale: tuple[Stale, ...] = ()
        self.lost: OverspanError | None = None
        self.now = NOW
        self.orders: list[tuple[str, Any]] = []
        """What was ordered: the method's name and its arguments."""
        self.refusal: OverspanError | None = None
        """What every order is answered with."""
        self.logs: dict[tuple[str, str], bytes] = {}
        """By job and stream."""
        self.streams_of: dict[str, dict[StreamKey, Stream]] = {}
        """By job, the logs that `write` made."""
        self.files: dict[tuple[str, StreamKey], LogFile] = {}
        self.over = False
        """Whether logs get no more."""
        self.log_trouble: OverspanError | None = None
        """What every question about logs is answered with."""
        self.searches: list[tuple[StreamKey, LogSearch]] = []
        self.search_block = 1 << 20
        """Bytes that one search goes through."""
        self.search_seconds = 0.0
        """How long it takes."""
        self.details: dict[str, dict[str, Any]] = {}
        self.scripts: dict[str, str] = {}
        self.sent_forms: dict[str, SentForm] = {}
        self.variables_of: dict[str, list[Variable]] = {}
        self.values = {"7": VALUES, "44": VALUES}
        """What a resubmission may change, by job."""
        self.timelines: dict[str, list[Transition]] = {}
        self.node_document: dict[str, Any] = {"now": NOW, "clusters": [], "nodes": []}
        self.cluster_list: list[dict[str, Any]] = []
        self.shells: dict[str, dict[str, Any]] = {}
        """What is run for a shell, by job."""
        self.evaluations_of: dict[str, list[dict[str, Any]]] = {}
        """The watches of jobs, by job."""
        self.schedule_list: list[dict[str, Any]] = []
        self.pool_list: list[dict[str, Any]] = []
        self.past: list[JobRow] = []
        self.put(*rows)

    def __call__(self) -> Source:
        """Open it, for a thread."""
        return self

    def put(self, *rows: JobRow) -> None:
        """Set the rows of these rows' jobs."""
        with self._changed:
            for number in {row.id for row in rows}:
                self._revision += 1
                self._revisions[number] = self._revision
                self._rows[number] = [row for row in rows if row.id == number]
            self._changed.notify_all()

    def drop(self, number: int) -> None:
        """Forget a job."""
        with self._changed:
            self._revision += 1
            self._revisions[number] = self._revision
            self._rows[number] = []
            self._changed.notify_all()

    def lose(self, error: OverspanError | None = None) -> None:
        """Answer nothing any more."""
        with self._changed:
            self.lost = error or Unreachable("the daemon is not running")
            self._changed.notify_all()

    def queue_changes(self, version: str = "", wanted: JobFilter = ANY, wait: float = 0) -> QueueChanges:
        """As the client."""
        held = int(version or -1)
        end = time.monotonic() + wait
        with self._changed:
            while held == self._revision and self.lost is None and time.monotonic() < end:
                self._changed.wait(0.05)
            if self.lost is not None:
                raise self.lost
            changed = [number for number, revision in self._revisions.items() if revision > held]
            rows = [row for number in changed for row in self._rows[number]]
            told = () if held < 0 else tuple(changed)
            return QueueChanges(self.now, str(self._revision), held < 0, told, rows, self.stale)

    def history(self, wanted: JobFilter = ANY) -> Listing:
        """As the client."""
        return Listing(self.now, list(self.past), self.stale)

    def show(self, ref: str) -> dict[str, Any]:
        """As the client."""
        found: dict[str, Any] = self._find(self.details, ref)
        return found

    def script(self, ref: str) -> str:
        """As the client."""
        return str(self._find(self.scripts, ref))

    def sent(self, ref: str) -> SentForm:
        """As the client."""
        found: SentForm = self._find(self.sent_forms, ref)
        return found

    def variables(self, ref: str) -> list[Variable]:
        """As the client."""
        return self.variables_of.get(ref, [])

    def timeline(self, ref: str) -> list[Transition]:
        """As the client."""
        return self.timelines.get(ref, [])

    def write(
        self, ref: str, data: bytes | LogFile, task: str = "main", *, at: float | None = None, **more: Any
    ) -> StreamKey:
        """Add to a log of a job; `at` is when, where that is known. A LogFile takes the log's place."""
        stream = Stream(**{"task": task, "node": 0, "attempt": 0, "stream": "output", **more})
        key = key_of(stream)
        place = (key.job or ref, key)
        old = self.files.get(place)
        file = data if isinstance(data, LogFile) else LogFile((old.data if old is not None else b"") + data)
        self.files[place] = file
        known = self.streams_of.setdefault(ref, {}).get(key, stream)
        marks = known.marks if at is None else (*(known.marks or ()), (at, file.size))
        self.streams_of[ref][key] = known._replace(size=file.size, marks=marks)
        return key

    def replace_log(self, ref: str, key: StreamKey, data: bytes) -> None:
        """Put another file in a log's place."""
        self.files[ref, key] = LogFile(data)
        self.streams_of[ref][key] = self.streams_of[ref][key]._replace(size=len(data))

    def streams(self, ref: str, times: bool = False) -> list[Stream]:
        """As the client."""
        self._check_logs()
        found = list(self.streams_of.get(ref, {}).values())
        return found if times else [stream._replace(marks=None) for stream in found]

    def log_part(self, ref: str, key: StreamKey, offset: int = 0, limit: int = 1 << 20) -> LogPart:
        """As the client."""
        self._check_logs()
        file = self.files.get((ref, key)) or LogFile(self._find(self.logs, (ref, key.stream)))
        begin = max(0, file.size + offset if offset < 0 else offset)
        return LogPart(file.read(begin, limit), begin, file.size, over=self.over)

    def search_log(self, ref: str, key: StreamKey, wanted: LogSearch) -> LogFinds:
        """As the client."""
        self._check_logs()
        self.searches.append((key, wanted))
        time.sleep(self.search_seconds)
        file = self.files[ref, key]
        end = file.size if wanted.end is None else min(wanted.end, file.size)
        begin = max(wanted.begin, end - self.search_block)
        data = file.read(begin, end - begin)
        if begin > wanted.begin:
            cut = data.find(b"\n") + 1
            begin, data = begin + cut, data[cut:]
        found = list(find_lines(data, begin, make_matcher(wanted.pattern, wanted.invert)))
        return LogFinds([FoundLine(*line) for line in found[::-1]], begin, end, file.size)

    def _check_logs(self) -> None:
        trouble = self.log_trouble or self.lost
        if trouble is not None:
            raise trouble

    def nodes(self, clusters: Sequence[str] = ()) -> dict[str, Any]:
        """As the client."""
        return self.node_document

    def clusters(self) -> list[dict[str, Any]]:
        """As the client."""
        return self.cluster_list

    def check(self, cluster: str) -> list[dict[str, Any]]:
        """As the client."""
        return []

    def login(self, cluster: str) -> dict[str, Any]:
        """As the client."""
        return {"message": "there is nothing to log in to", "words": [], "check": []}

    def shell(self, ref: str, task: str = "", node: int = 0) -> dict[str, Any]:
        """As the client."""
        self._order("shell", (ref, task, node))
        found: dict[str, Any] = self._find(self.shells, ref)
        return found

    def ping(self) -> dict[str, Any]:
        """As the client."""
        return {"version": "0.1.0", "problems": []}

    def pools(self, name: str = "") -> list[dict[str, Any]]:
        """As the client."""
        return [pool for pool in self.pool_list if name in ("", pool["name"])]

    def drain_pool(self, name: str, workers: Sequence[int] = ()) -> dict[str, Any]:
        """As the client."""
        self._order("drain_pool", (name, tuple(workers)))
        return self.pools(name)[0]

    def schedules(self) -> list[dict[str, Any]]:
        """As the client."""
        return self.schedule_list

    def watches(self) -> list[dict[str, Any]]:
        """As the client: what `evaluations_of` has, counted."""
        return [sum_up(watch) for watches in self.evaluations_of.values() for watch in watches]

    def evals(self, ref: str) -> list[dict[str, Any]]:
        """As the client."""
        return self.evaluations_of.get(ref, [])

    def run_evaluation(self, ref: str, checkpoint: str, evaluation: str = "") -> list[dict[str, Any]]:
        """As the client."""
        self._order("run_evaluation", (ref, checkpoint, evaluation))
        return [{"id": 99, "checkpoint": checkpoint, "run": 1, "job": 99}]

    def cancel(self, order: CancelOrder) -> Cancelled:
        """As the client."""
        self._order("cancel", order)
        return Cancelled(order.refs, (), "")

    def resubmit(self, ref: str, failed: bool = False, changes: Mapping[str, str] = NOTHING) -> Accepted:
        """As the client."""
        self._order("resubmit", (ref, failed, dict(changes)))
        return Accepted(99, ("99",), "again", "leo")

    def resubmit_values(self, ref: str) -> dict[str, str]:
        """As the client."""
        found: dict[str, str] = self._find(self.values, ref)
        return found

    def scale(self, ref: str, task: str, size: int | None) -> dict[str, Any]:
        """As the client."""
        self._order("scale", (ref, task, size))
        return {"task": task or "rollout", "least": 1, "most": 8, "wanted": 3, "present": 2}

    def run_schedule(self, schedule_id: int) -> int:
        """As the client."""
        self._order("run_schedule", schedule_id)
        return 99

    def __getattr__(self, name: str) -> Callable[..., None]:
        """The other orders, which answer nothing."""
        if name.startswith("_"):
            raise AttributeError(name)
        return lambda *words, **named: self._order(name, (*words, *named.items()))

    def close(self) -> None:
        """As the client."""

    def _order(self, name: str, given: object) -> None:
        if self.refusal is not None:
            raise self.refusal
        self.orders.append((name, given))

    @staticmethod
    def _find(known: Mapping[Any, Any], key: Any) -> Any:
        if key not in known:
            raise NotFound(f"nothing is known of {key}")
        return known[key]

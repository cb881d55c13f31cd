"""Lines of pools with their workers below them, and their columns: what `span pool show` tells. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from overspan.bridge.client.terminal_texts import clean_text
from overspan.tui.filter_language import Filter, Texts
from overspan.tui.schedules.lines import format_span
from overspan.tui.widgets.bars import draw_history
from overspan.tui.widgets.line_table import Cell, TableColumn

FIELDS = ("cluster", "node", "pool", "reason", "state", "user", "worker")
"""What a filter may name."""
SORTED = ("name", "state", "jobs")
"""What the workers of a pool are sorted by."""
MOST_SAMPLES = 120
"""Lengths of the queue that are kept of each pool: ten minutes, at one every five seconds."""
_WIDE_TABLE = 110
"""The width from which the queue's history is long."""
_STYLES = {"READY": "good", "STARTING": "waiting", "PENDING": "waiting", "IDLE": "dim", "DRAINING": "waiting"}

QueueLengths = Mapping[str, Sequence[int]]
"""For each pool how many jobs waited, the latest last."""


class PoolLineKey(NamedTuple):
    """Which line it is: a pool, or the worker that is a job's number."""

    pool: str
    worker: int = 0


class PoolLine(NamedTuple):
    """A pool, or one of its workers, as the daemon tells it."""

    key: PoolLineKey
    pool: Mapping[str, Any]
    worker: Mapping[str, Any] | None = None
    last: bool = False
    """Whether it is the last one below its pool."""

    @property
    def facts(self) -> Mapping[str, Any]:
        """What is told of the pool, or of the worker."""
        return self.pool if self.worker is None else self.worker

    @property
    def label(self) -> str:
        """Its name, fit for a terminal."""
        return clean_text(str(self.facts.get("name", "")))

    @property
    def state(self) -> str:
        """In the words of `span pool show`."""
        return str(self.facts.get("state", ""))

    @property
    def jobs(self) -> int:
        """How many jobs run there."""
        return int(self.pool.get("running") or 0) if self.worker is None else len(self.worker.get("jobs") or ())


def make_lines(
    pools: Iterable[Mapping[str, Any]], chosen: Filter[Texts], sort: str, reverse: bool = False
) -> list[PoolLine]:
    """The pools with the workers that match; a pool that matches itself, or has such a worker, is there."""
    lines: list[PoolLine] = []
    for pool in pools:
        name = str(pool.get("name", ""))
        head = PoolLine(PoolLineKey(name), pool)
        members = [PoolLine(PoolLineKey(name, int(each["job"])), pool, each) for each in pool.get("workers") or ()]
        members = [line for line in members if chosen.matches(list_texts(line))]
        members.sort(key=_sort_key(sort), reverse=reverse)
        if members or chosen.matches(list_texts(head)):
            lines += [head, *members[:-1], *(line._replace(last=True) for line in members[-1:])]
    return lines


def list_texts(line: PoolLine) -> dict[str, str]:
    """What a filter is asked about a line."""
    worker = line.worker or {}
    return {
        "cluster": str(worker.get("cluster") or ""),
        "node": str(worker.get("node") or ""),
        "pool": line.key.pool,
        "reason": find_note(line),
        "state": line.state,
        "user": str(line.pool.get("user") or ""),
        "worker": str(worker.get("name") or ""),
    }


def _sort_key(name: str) -> Callable[[PoolLine], Any]:
    if name == "state":
        return lambda line: (line.state != "READY", line.state, line.key.worker)
    if name == "jobs":
        return lambda line: (-line.jobs, line.key.worker)
    return lambda line: line.key.worker


def note_lengths(known: QueueLengths, pools: Iterable[Mapping[str, Any]]) -> dict[str, list[int]]:
    """The lengths of the queues with those of now; pools that are gone are forgotten."""
    found = {}
    for pool in pools:
        name = str(pool.get("name", ""))
        found[name] = [*known.get(name, ()), int(pool.get("waiting") or 0)][-MOST_SAMPLES:]
    return found


def find_note(line: PoolLine) -> str:
    """Why a pool has no workers, or what a worker waits for."""
    text = str(line.facts.get("message" if line.worker is None else "reason") or "")
    return "" if text == "None" else " ".join(text.split())


# --- columns ----------------------------------------------------------------------------------------------------------


def make_columns(width: int, lengths: QueueLengths, ascii_only: bool = False) -> list[TableColumn[PoolLine]]:
    """The columns for a table of so many cells."""
    wide = width >= _WIDE_TABLE
    return [
        TableColumn("name", "POOL, WORKER", 24 if wide else 18, _show_name(ascii_only)),
        TableColumn("state", "STATE", 9, lambda line, now: Cell(clean_text(line.state), style_of(line))),
        TableColumn("where", "WORKERS, WHERE", 24 if wide else 15, _show_where),
        TableColumn("jobs", "JOBS", 5, lambda line, now: Cell(str(line.jobs or "-"), "text"), right=True),
        TableColumn("queue", "QUEUE", 30 if wide else 16, _show_queue(lengths, 20 if wide else 8, ascii_only)),
        TableColumn("note", "NOTES", 4, _show_note, wide=True, ticks=True),
    ]


def style_of(line: PoolLine) -> str:
    """The style of a state: a component class without `line-table--`."""
    return _STYLES.get(line.state, "bad")


def _show_name(ascii_only: bool) -> Callable[[PoolLine, float], Cell]:
    inner, last = (" |- ", " `- ") if ascii_only else (" ├ ", " └ ")

    def show(line: PoolLine, now: float) -> Cell:
        if line.worker is None:
            return Cell(line.label, "text")
        return Cell((last if line.last else inner) + line.label, "accent")

    return show


def _show_where(line: PoolLine, now: float) -> Cell:
    if line.worker is not None:
        cluster, node = (str(line.worker.get(name) or "") for name in ("cluster", "node"))
        return Cell(clean_text(f"{cluster}:{node}" if node else cluster), "text")
    ready, wanted = count_ready(line.pool), int(line.pool.get("wanted") or 0)
    return Cell(f"{ready}/{wanted} of {word_size(line.pool)}", "text" if ready >= wanted else "waiting")


def count_ready(pool: Mapping[str, Any]) -> int:
    """How many workers take jobs."""
    return sum(worker.get("state") == "READY" for worker in pool.get("workers") or ())


def word_size(pool: Mapping[str, Any]) -> str:
    """The number of workers that the pool may have."""
    low, high = int(pool.get("min_workers") or 0), int(pool.get("max_workers") or 0)
    return str(low) if low == high else f"{low}-{high}"


def _show_queue(lengths: QueueLengths, width: int, ascii_only: bool) -> Callable[[PoolLine, float], Cell]:
    def show(line: PoolLine, now: float) -> Cell:
        if line.worker is not None:
            return Cell("", "dim")
        waiting = int(line.pool.get("waiting") or 0)
        drawn = draw_history(lengths.get(line.key.pool, ()), width, ascii_only)
        return Cell(f"{drawn} {waiting}".lstrip(), "waiting" if waiting else "dim")

    return show


def _show_note(line: PoolLine, now: float) -> Cell:
    note = find_note(line)
    if line.worker is None:
        return Cell(clean_text(note), "bad" if line.state == "FAILED" else "dim")
    words = (word_class(line.worker), word_jobs(line.worker), note, word_end(line.worker, now))
    return Cell(clean_text("; ".join(filter(None, words))), "dim")


def word_class(worker: Mapping[str, Any]) -> str:
    """The class of a worker, where its pool has some."""
    return f"class {worker['class']}" if worker.get("class") else ""


def word_jobs(worker: Mapping[str, Any]) -> str:
    """The jobs that a worker holds by leases."""
    return " ".join(map(str, worker.get("jobs") or ()))


def word_end(worker: Mapping[str, Any], now: float) -> str:
    """When the worker's time is over, where it has a limit."""
    at = worker.get("ends_at")
    return f"ends in {format_span(float(at) - now)}" if at else ""


def describe(line: PoolLine, now: float) -> str:
    """What a line of the table may have no room for."""
    note = find_note(line)
    if line.worker is None:
        pool = line.pool
        counts = f"{pool.get('waiting') or 0} jobs wait, {pool.get('running') or 0} run"
        workers = f"{count_ready(pool)} of {pool.get('wanted') or 0} workers ready ({word_size(pool)})"
        return clean_text("; ".join(filter(None, (f"{line.label} of {pool.get('user', '')}: {workers}", counts, note))))
    worker, jobs = line.worker, word_jobs(line.worker)
    since = worker.get("since")
    age = f" for {format_span(now - float(since))}" if since else ""
    holds = f"holds {jobs}" if jobs else "holds no job"
    text = f"{line.label}, job {line.key.worker} on {worker.get('cluster') or '-'}: {line.state.lower()}{age}"
    return clean_text("; ".join(filter(None, (text, word_class(worker), holds, note, word_end(worker, now)))))

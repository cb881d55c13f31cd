"""A command over the lines of a file, as jobs of a pool: each has a chunk of them, and tells its results by its log.

    DIR/map.json        what is mapped: {"command", "mode", "size", "digest", "lines", "chunk"}
    DIR/jobs.jsonl      which jobs were sent: {"chunk", "try", "name"}, then {"chunk", "try", "job"}, or {"cancelled"};
                        of {"again"} the lines that failed by then are tried once more
    DIR/chunks/N.jsonl  the records of the lines of a chunk, in the order in which they came
    DIR/results.EXT     one result a line, in the order of the input; empty for a line that failed
    DIR/failed.jsonl    {"line", "input", "code", "error"} for each line that failed

A job is not put back into the queue where its worker is lost: the lines that it has told are done, and another job has
the rest. So the process that runs the map may be killed and started again at any time.
"""

from __future__ import annotations

import base64
import fcntl
import hashlib
import json
import os
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from overspan.bridge.client import line_runner
from overspan.bridge.client.line_runner import BATCH, EACH, SERVE
from overspan.bridge.client.messages import StreamKey
from overspan.bridge.client.records import JobFilter
from overspan.bridge.model.errors import Conflict, InvalidRequest, NotFound, OverspanError
from overspan.bridge.model.states import State

if TYPE_CHECKING:
    from overspan.bridge.client.client import Client
    from overspan.bridge.listings.rows import JobRow

__all__ = ["BATCH", "EACH", "SERVE", "LineMap", "MapOrder", "MapProgress", "map_lines"]

FORMAT = 1
MOST_TRIES = 3
"""Jobs of a chunk in a row that told nothing; then the line that they were at has failed."""
MOST_LOST = 3
"""Lines of a chunk in a row that failed so; then all of its lines have."""
MOST_PROGRAM = 4_000_000
"""Characters of a job's program; the daemon takes 4 MiB."""
MOST_LINES, MOST_BYTES = 1000, 512 << 10
"""Of a chunk, by default."""
CHUNKS_A_WORKER = 8
OUTSTANDING_A_WORKER = 4
_FIRST_LOOK, _LAST_LOOK = 0.05, 1.0
_MOST_ERROR = 500


class MapOrder(NamedTuple):
    """What is to run over which file, and where its results go.

    `mode` is one of line_runner's, `size` a batch's lines, `job` has keys of a job file for each job. `again`: lines
    that have failed are tried once more.
    """

    command: str
    over: Path
    folder: Path
    pool: str
    mode: str = EACH
    size: int = 1
    chunk: int = 0
    job: Mapping[str, Any] = MappingProxyType({})
    again: bool = False


class MapProgress(NamedTuple):
    """How many lines there are, how many are done, and how many of these have failed."""

    lines: int
    done: int
    failed: int


@dataclass
class _Chunk:
    """Some lines of the input from `start` on, with the records that have come, and the job that is at them."""

    number: int
    start: int
    texts: Sequence[str]
    records: dict[int, list[Any]] = field(default_factory=dict)
    tries: int = 0
    silent: int = 0
    """How many jobs in a row have told nothing."""
    lost: int = 0
    """How many lines in a row have failed because of such jobs."""
    job: int = 0
    forgiven: bool = False
    """Its job may have been cancelled before this run began: that does not end this run."""
    offset: int = 0
    rest: bytes = b""

    @property
    def missing(self) -> list[tuple[int, str]]:
        """The lines without a record, with their numbers."""
        numbered = enumerate(self.texts, self.start)
        return [(number, text) for number, text in numbered if number not in self.records]


class LineMap:
    """One map, which is to be closed.

    Raises InvalidRequest where its folder has another one, Conflict where another process runs it.
    """

    def __init__(self, client: Client, order: MapOrder) -> None:
        self._client = client
        self._order = order
        self._folder = order.folder
        texts = _read_lines(order.over)
        self._workers = self._count_workers()
        self._folder.mkdir(parents=True, exist_ok=True)
        self._lock = open(self._folder / "lock", "a")  # noqa: SIM115 - held as long as the map runs
        try:
            self._open(texts)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> LineMap:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let others have the folder."""
        self._lock.close()

    def _open(self, texts: Sequence[str]) -> None:
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise Conflict(f"another `span map` is at {self._folder}", remedy="wait for its end") from None
        facts = self._settle(texts)
        self._id: str = facts["id"]
        self._chunks = _cut(texts, facts["chunk"])
        for chunk in self._chunks:
            self._load(chunk)
        self._find_jobs()
        if self._order.again:
            for chunk in self._chunks:
                self._forget_failed(chunk)

    # --- what there is already ----------------------------------------------------------------------------------------

    def _count_workers(self) -> int:
        (pool,) = self._client.pools(self._order.pool)
        return max(1, int(pool["max_workers"]))

    def _settle(self, texts: Sequence[str]) -> dict[str, Any]:
        """What the folder is of; written where it is new."""
        order = self._order
        digest = hashlib.sha256("\n".join(texts).encode()).hexdigest()
        wanted = {"command": order.command, "mode": order.mode, "size": order.size, "digest": digest}
        path = self._folder / "map.json"
        try:
            found: dict[str, Any] = json.loads(path.read_text())
        except FileNotFoundError:
            chunk = order.chunk or self._choose_chunk(len(texts))
            found = {"format": FORMAT, "id": digest[:4] + os.urandom(3).hex(), "chunk": chunk, **wanted}
            _replace(path, json.dumps(found, indent=1) + "\n")
            return found
        except (OSError, ValueError):
            raise InvalidRequest(f"{path} cannot be read", remedy="remove the folder, or give another --out") from None
        for key, value in wanted.items():
            if found.get(key) != value:
                words = "file" if key == "digest" else key
                raise InvalidRequest(
                    f"{self._folder} has the results of another map: its {words} is not the same",
                    remedy="remove the folder, or give another --out",
                )
        return found

    def _choose_chunk(self, lines: int) -> int:
        if self._order.mode == SERVE:
            # One process a worker.
            return max(1, -(-lines // self._workers))
        return max(1, min(MOST_LINES, -(-lines // (self._workers * CHUNKS_A_WORKER))))

    def _load(self, chunk: _Chunk) -> None:
        chunk.records.update({record[0]: record for record in _read_rows(self._path(chunk))})

    def _find_jobs(self) -> None:
        """Find the jobs that an earlier run has sent, by what it wrote and by their names."""
        names: dict[tuple[int, int], str] = {}
        jobs: dict[tuple[int, int], int] = {}
        cancelled, given_up = set(), set()
        for row in _read_rows(self._jobs):
            key = row["chunk"], row["try"]
            if "job" in row:
                jobs[key] = row["job"]
            elif "name" in row:
                names[key] = row["name"]
            elif "again" in row:
                given_up.add(key)
            else:
                cancelled.add(key)
        lost = tuple(name for key, name in names.items() if key not in jobs)
        found = {row.name: row.id for row in self._client.history(JobFilter(names=lost)).rows} if lost else {}
        for (number, tries), name in names.items():
            chunk = self._chunks[number]
            chunk.tries = max(chunk.tries, tries + 1)
            if tries + 1 == chunk.tries and chunk.missing and (number, tries) not in given_up:
                chunk.job = jobs.get((number, tries), found.get(name, 0))
                chunk.forgiven = (number, tries) in cancelled
        self._forgive({chunk.job: chunk for chunk in self._chunks if chunk.job})

    def _forget_failed(self, chunk: _Chunk) -> None:
        """Have the failed lines of a chunk tried again, unless a job is at it that may tell of them once more."""
        kept = [record for record in chunk.records.values() if record[1] is not None]
        if chunk.job or len(kept) == len(chunk.records):
            return
        # Noted first: a process that resumes after a crash in between then asks no job that has reported their failure.
        self._note({"chunk": chunk.number, "try": chunk.tries - 1, "again": True})
        _replace(self._path(chunk), "".join(json.dumps(record) + "\n" for record in kept))
        chunk.records = {record[0]: record for record in kept}

    def _forgive(self, active: Mapping[int, _Chunk]) -> None:
        """Note which jobs are cancelled already: the user who gives the command again knows of it.

        One that is COMPLETING may be, and its end was decided before.
        """
        if active:
            for row in self._client.history(JobFilter(ids=tuple(map(str, active)))).rows:
                if row.state in (State.CANCELLED.value, State.COMPLETING.value):
                    active[row.id].forgiven = True

    # --- running ------------------------------------------------------------------------------------------------------

    @property
    def progress(self) -> MapProgress:
        """How far it is."""
        records = [record for chunk in self._chunks for record in chunk.records.values()]
        lines = sum(len(chunk.texts) for chunk in self._chunks)
        return MapProgress(lines, len(records), sum(record[1] is None for record in records))

    def run(self, tell: Callable[[MapProgress], None] = lambda progress: None) -> MapProgress:
        """Run what is not done, and write the results. Raises what sending raises; a job that was cancelled ends it."""
        waiting = [chunk for chunk in self._chunks if chunk.missing and not chunk.job]
        active = {chunk.job: chunk for chunk in self._chunks if chunk.job}
        pause = _FIRST_LOOK
        while waiting or active:
            while waiting and len(active) < self._workers * OUTSTANDING_A_WORKER:
                chunk = waiting.pop(0)
                if self._send(chunk):
                    active[chunk.job] = chunk
            ended = self._look(active)
            for chunk in ended:
                del active[chunk.job]
                chunk.job = 0
                if chunk.missing:
                    waiting.insert(0, chunk)
            tell(self.progress)
            pause = _FIRST_LOOK if ended else min(pause * 1.5, _LAST_LOOK)
            if active and not ended:
                time.sleep(pause)
        self._write()
        return self.progress

    def cancel(self) -> int:
        """Cancel the jobs that are sent; gives how many."""
        from overspan.bridge.client.messages import CancelOrder

        sent = [chunk for chunk in self._chunks if chunk.job]
        for chunk in sent:
            self._note({"chunk": chunk.number, "try": chunk.tries - 1, "cancelled": True})
        if sent:
            self._client.cancel(CancelOrder(refs=tuple(str(chunk.job) for chunk in sent)))
        return len(sent)

    def _send(self, chunk: _Chunk) -> bool:
        """Send a job for what is missing of a chunk. False for a line that is too long for a job: it has failed."""
        program = self._write_program(chunk)
        if len(program) > MOST_PROGRAM:
            words = "the line is too long for a job: write it into a file, and map the file's name"
            self._keep(chunk, [[number, None, -1, words] for number, _ in chunk.missing])
            return False
        key = {"chunk": chunk.number, "try": chunk.tries}
        name = f"map-{self._id}-{chunk.number}-{chunk.tries}"
        # First: a job whose number was never written is found by its name.
        self._note({**key, "name": name})
        job = {"name": name, **self._order.job, "max_recoveries": 0, "run": program}
        chunk.job = self._client.submit(job, cluster=self._order.pool).id
        chunk.offset, chunk.rest, chunk.tries, chunk.forgiven = 0, b"", chunk.tries + 1, False
        self._note({**key, "job": chunk.job})
        return True

    def _write_program(self, chunk: _Chunk) -> str:
        source = Path(line_runner.__file__).read_text(encoding="utf-8")
        order = self._order
        size, lines = order.size, chunk.missing
        if chunk.silent:
            # What ends its own job is among the first of them: one by one, those before it are told.
            size, lines = 1, lines[: order.size if order.mode == BATCH else None]
        work = json.dumps([order.mode, order.command, size, lines]).encode()
        packed = base64.b64encode(zlib.compress(work)).decode("ascii")
        call = f"import base64, zlib\nmain(*json.loads(zlib.decompress(base64.b64decode({packed!r}))))\n"
        return f"#!/usr/bin/env python3\n{source}\n\n{call}"

    def _look(self, active: dict[int, _Chunk]) -> list[_Chunk]:
        """Take in what jobs have told; gives the chunks whose jobs are over."""
        rows = {row.id: row for row in self._client.history(JobFilter(ids=tuple(map(str, active)))).rows}
        ended = []
        for job, chunk in active.items():
            row = rows.get(job)
            if row is not None and State(row.state) is State.PENDING:
                continue
            over = row is None or State(row.state).terminal
            told = self._take_records(chunk)
            if over:
                self._judge(chunk, row, told)
                ended.append(chunk)
        return ended

    def _judge(self, chunk: _Chunk, row: JobRow | None, told: int) -> None:
        """A job is over: what it did not tell is for another one, unless no job gets any further."""
        if not chunk.missing:
            return
        state = row.state if row is not None else "gone"
        if state == State.CANCELLED.value and not chunk.forgiven:
            raise Conflict(
                f"job {chunk.job} was cancelled: {len(chunk.missing)} of its lines are not done",
                remedy="the same command goes on with what is not done",
            )
        if told or chunk.forgiven:
            chunk.silent = chunk.lost = 0
            return
        chunk.silent += 1
        if chunk.silent >= MOST_TRIES:
            chunk.silent, chunk.lost = 0, chunk.lost + 1
            given_up = chunk.missing if chunk.lost >= MOST_LOST else chunk.missing[:1]
            words = self._read_words(chunk)
            self._keep(
                chunk, [[number, None, -1, f"job {chunk.job} ended as {state}: {words}"] for number, _ in given_up]
            )

    def _take_records(self, chunk: _Chunk) -> int:
        """Keep what is new of the log of a chunk's job; gives how many lines it told of."""
        records = []
        while True:
            try:
                part = self._client.log_part(str(chunk.job), StreamKey(), chunk.offset)
            except NotFound:
                break
            if not part.data:
                break
            chunk.offset += len(part.data)
            *lines, chunk.rest = (chunk.rest + part.data).split(b"\n")
            records += [record for record in map(_read_record, lines) if record is not None]
        own = [record for record in records if record[0] not in chunk.records]
        self._keep(chunk, own)
        return len(own)

    def _read_words(self, chunk: _Chunk) -> str:
        try:
            data = self._client.log_part(str(chunk.job), StreamKey(), -_MOST_ERROR).data
        except OverspanError:
            return "it printed nothing"
        return " ".join(data.decode(errors="replace").split()) or "it printed nothing"

    def _keep(self, chunk: _Chunk, records: Sequence[list[Any]]) -> None:
        if records:
            path = self._path(chunk)
            path.parent.mkdir(exist_ok=True)
            _append(path, records)
            chunk.records.update({record[0]: record for record in records})

    def _path(self, chunk: _Chunk) -> Path:
        return self._folder / "chunks" / f"{chunk.number}.jsonl"

    @property
    def _jobs(self) -> Path:
        return self._folder / "jobs.jsonl"

    def _note(self, row: dict[str, Any]) -> None:
        _append(self._jobs, [row])

    def list_results(self) -> list[str | None]:
        """The result of each line, None for one that failed."""
        numbers = ((chunk, number) for chunk in self._chunks for number, _ in enumerate(chunk.texts, chunk.start))
        return [chunk.records[number][1] for chunk, number in numbers]

    def _write(self) -> None:
        """Write the results in the order of the input, and the lines that have failed."""
        results, failed = [], []
        for chunk in self._chunks:
            for number, text in enumerate(chunk.texts, chunk.start):
                record = chunk.records[number]
                results.append("" if record[1] is None else record[1])
                if record[1] is None:
                    failed.append({"line": number + 1, "input": text, "code": record[2], "error": record[3]})
        _replace(self.results, "".join(f"{result}\n" for result in results))
        _replace(self.failures, "".join(json.dumps(one) + "\n" for one in failed))

    @property
    def results(self) -> Path:
        """The file of the results."""
        return self._folder / f"results{self._order.over.suffix or '.txt'}"

    @property
    def failures(self) -> Path:
        """The file of the lines that have failed."""
        return self._folder / "failed.jsonl"


def map_lines(client: Client, order: MapOrder, lines: Iterable[str] | None = None) -> list[str | None]:
    """The results of a map in the order of its lines, None for each that failed. Given lines are written first.

    Raises what `LineMap` and its run raise, and InvalidRequest for a line with a newline.
    """
    if lines is not None:
        texts = list(lines)
        torn = next((number for number, text in enumerate(texts, 1) if "\n" in text), 0)
        if torn:
            raise InvalidRequest(f"line {torn} has a newline in it", remedy="escape it, as JSON does")
        order.over.parent.mkdir(parents=True, exist_ok=True)
        _replace(order.over, "".join(f"{text}\n" for text in texts))
    with LineMap(client, order) as work:
        work.run()
        return work.list_results()


def _read_lines(path: Path) -> list[str]:
    try:
        text = path.read_bytes().decode()
    except OSError as error:
        raise InvalidRequest(f"{path} cannot be read: {error.strerror}", remedy="give --over a file of lines") from None
    except UnicodeDecodeError as error:
        raise InvalidRequest(f"{path} is not UTF-8 at byte {error.start}", remedy="give --over a text file") from None
    lines = text.split("\n")
    lines = lines[:-1] if lines[-1] == "" else lines
    if not lines:
        raise InvalidRequest(f"{path} has no lines", remedy="give --over a file of lines")
    return lines


def _cut(texts: Sequence[str], size: int) -> list[_Chunk]:
    """Chunks of so many lines at most, and of so many bytes unless one line alone has more."""
    found: list[_Chunk] = []
    start = taken = 0
    for number, text in enumerate(texts):
        length = len(text.encode())
        if number > start and (number - start >= size or taken + length > MOST_BYTES):
            found.append(_Chunk(len(found), start, texts[start:number]))
            start, taken = number, 0
        taken += length
    found.append(_Chunk(len(found), start, texts[start:]))
    return found


def _read_record(line: bytes) -> list[Any] | None:
    if not line.startswith(line_runner.RECORD.encode()):
        return None
    try:
        record = json.loads(line[1:])
    except ValueError:
        return None
    return record if isinstance(record, list) and len(record) in (2, 4) and isinstance(record[0], int) else None


def _append(path: Path, rows: Sequence[Any]) -> None:
    with open(path, "ab+") as file:
        # A line that was cut short by the end of an earlier run is ended first.
        if file.tell() and not _ends_line(file):
            file.write(b"\n")
        file.write("".join(json.dumps(row) + "\n" for row in rows).encode())


def _read_rows(path: Path) -> Iterator[Any]:
    """The rows of a file, except lines that were cut short: what they were about is found again."""
    try:
        with open(path, "rb") as file:
            for line in file:
                try:
                    yield json.loads(line)
                except ValueError:
                    continue
    except FileNotFoundError:
        return


def _ends_line(file: Any) -> bool:
    file.seek(-1, os.SEEK_END)
    return bool(file.read(1) == b"\n")


def _replace(path: Path, text: str) -> None:
    fresh = path.with_name(f"{path.name}.new")
    fresh.write_text(text, encoding="utf-8")
    os.replace(fresh, path)

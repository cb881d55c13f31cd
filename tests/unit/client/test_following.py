"""Reading logs from a source that changes between two looks."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from overspan.bridge.client import JobFilter, JobRow, Listing, LogPart, LogSelection, Outcome, Stream, StreamKey
from overspan.bridge.client.array_logs import ArrayLogs
from overspan.bridge.client.log_reading import read_logs, tail_offset
from overspan.bridge.model.errors import NotFound, Unreachable


class Source:
    """Logs in memory; each wait runs the next step, the last one ends the job."""

    def __init__(
        self, logs: dict[tuple[str, int], bytes], *steps: Callable[[dict[tuple[str, int], bytes]], None]
    ) -> None:
        self.contents = logs
        self.steps = list(steps)
        self.reads = 0

    def streams(self, ref: str, times: bool = False) -> list[Stream]:
        return [Stream(task, 0, attempt, "output", "", len(data)) for (task, attempt), data in self.contents.items()]

    def log_part(self, ref: str, key: StreamKey, offset: int = 0, limit: int = 1 << 20) -> LogPart:
        self.reads += 1
        data = self.contents[key.task, key.attempt or 0]
        return LogPart(data[offset : offset + limit], offset, len(data))

    def wait(self, ref: str, timeout: float | None = None) -> Outcome:
        self.steps.pop(0)(self.contents)
        return Outcome(not self.steps, "RUNNING")


def _append(task: str, attempt: int, data: bytes) -> Callable[[dict[tuple[str, int], bytes]], None]:
    def step(logs: dict[tuple[str, int], bytes]) -> None:
        logs[task, attempt] = logs.get((task, attempt), b"") + data

    return step


def test_follows_growth_into_a_second_attempt_and_loses_nothing() -> None:
    def restart(logs: dict[tuple[str, int], bytes]) -> None:
        # The first attempt's last words come in the same moment as the second attempt.
        logs["a", 0] += b"last words\n"
        logs["a", 1] = b"again\n"

    source = Source({("a", 0): b"one\n"}, _append("a", 0, b"two\n"), restart, _append("a", 1, b"end"))
    parts = [(stream.attempt, data) for stream, data in read_logs(source, "3", LogSelection(follow=True))]
    assert parts == [(0, b"one\n"), (0, b"two\n"), (0, b"last words\n"), (1, b"again\n"), (1, b"end")]


def test_follows_a_job_that_has_no_log_yet() -> None:
    source = Source({}, _append("a", 0, b"x"), lambda logs: None)
    assert [data for _, data in read_logs(source, "3", LogSelection(follow=True))] == [b"x"]


def test_without_follow_the_newest_attempt_of_each_task() -> None:
    source = Source({("a", 0): b"old", ("a", 1): b"new", ("b", 0): b"b"})
    assert [data for _, data in read_logs(source, "3", LogSelection())] == [b"new", b"b"]
    assert [data for _, data in read_logs(source, "3", LogSelection(attempt=0, task="a"))] == [b"old"]
    with pytest.raises(NotFound):
        list(read_logs(source, "3", LogSelection(task="c")))


@pytest.mark.parametrize(
    ("data", "lines", "expected"),
    [
        (b"1\n2\n3\n", 2, b"2\n3\n"),
        (b"1\n2\n3", 2, b"2\n3"),
        (b"1\n2\n", 9, b"1\n2\n"),
        (b"1\n2\n", 0, b""),
        (b"", 3, b""),
        (b"\n\n\n", 1, b"\n"),
        (b"x" * 70000 + b"\n" + b"y" * 70000 + b"\nz\n", 2, b"y" * 70000 + b"\nz\n"),
        (b"k\n" * 100000, 90000, b"k\n" * 90000),
    ],
)
def test_tail(data: bytes, lines: int, expected: bytes) -> None:
    source = Source({("a", 0): data})
    (stream,) = source.streams("1")
    assert data[tail_offset(source, "1", stream, lines) :] == expected


class Elements:
    """An array of three in memory, of which each wait starts one more and ends the one before."""

    def __init__(self) -> None:
        self.started = 1
        self.listed: list[str] = []

    def history(self, wanted: JobFilter) -> Listing:
        rows = [
            JobRow(id=7, array_id=7, array_index=index, ended_at=5.0 if index < self.started else None)
            for index in range(1, min(self.started, 3) + 1)
        ]
        waiting = [JobRow(id=7, array_id=7, array_waiting="2-3")] if self.started < 3 else []
        return Listing(0, [*rows, *waiting])

    def queue(self, wanted: JobFilter) -> Listing:
        return self.history(wanted)

    def streams(self, ref: str, times: bool = False) -> list[Stream]:
        self.listed.append(ref)
        index = int(ref.partition("_")[2])
        if index == 2:
            raise Unreachable("node 2 does not answer")
        size = len(self._text(index))
        # The last element came first.
        return [Stream("main", 0, 0, "output", "", size, marks=((10.0 - index, size),) if times else None)]

    def log_part(self, ref: str, key: StreamKey, offset: int = 0, limit: int = 1 << 20) -> LogPart:
        data = self._text(int(ref.partition("_")[2]))
        return LogPart(data[offset : offset + limit], offset, len(data))

    def wait(self, ref: str, timeout: float | None = None) -> Outcome:
        self.started += 1
        return Outcome(self.started > 4, "RUNNING")

    def _text(self, index: int) -> bytes:
        return b"begin %d\n" % index + (b"end %d\n" % index if index < self.started else b"")


def test_an_array_is_followed_through_elements_that_start_later_and_one_that_cannot_be_read() -> None:
    client = Elements()
    parts = list(read_logs(ArrayLogs(client), "7", LogSelection(follow=True)))
    texts = {name: b"".join(data for stream, data in parts if stream.job == name) for name in ("7_1", "7_3")}
    assert texts == {"7_1": b"begin 1\nend 1\n", "7_3": b"begin 3\nend 3\n"}
    assert [stream.job for stream, _ in parts] == ["7_1", "7_1", "7_3", "7_3"]
    # Once with its end known is enough.
    assert client.listed.count("7_1") == 2


def test_an_array_that_has_ended_is_read_in_the_order_of_time() -> None:
    client = Elements()
    client.started = 4
    logs = ArrayLogs(client)
    # As the command does, which looks first whether there is anything.
    assert [stream.job for stream in logs.streams("7")] == ["7_1", "7_3"]
    parts = [stream.job for stream, _ in read_logs(logs, "7", LogSelection(times=True))]
    assert parts == ["7_3", "7_1"]

"""How a map is cut into chunks, what it keeps, and how it finds what an earlier run has sent."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import pytest

from overspan.bridge.client import Client
from overspan.bridge.client.job_handle import JobHandle
from overspan.bridge.client.line_map import BATCH, MOST_BYTES, LineMap, MapOrder, MapProgress, _cut, _read_record
from overspan.bridge.client.messages import CancelOrder, LogPart, StreamKey
from overspan.bridge.client.records import JobFilter, Listing
from overspan.bridge.listings.rows import JobRow
from overspan.bridge.model.errors import Conflict, InvalidRequest, NotFound


class FakeClient:
    """A daemon whose jobs tell what `answers` says of each of their lines, unless they are to die before."""

    def __init__(self) -> None:
        self.sent: dict[int, str] = {}
        self.die_after: dict[int, int] = {}
        self.states: dict[int, str] = {}
        self.first = 1
        self.failing = 0
        """The job all of whose lines fail."""
        self.cancelled: tuple[str, ...] = ()

    def pools(self, name: str) -> list[dict[str, Any]]:
        return [{"name": name, "max_workers": 1}]

    def submit(self, job: Mapping[str, Any], cluster: str) -> JobHandle:
        assert cluster == "p" and job["max_recoveries"] == 0
        number = self.first + len(self.sent)
        self.sent[number] = str(job["name"])
        return JobHandle(cast(Client, self), number)

    def history(self, wanted: JobFilter) -> Listing:
        rows = [
            JobRow(id=number, name=name, state=self.states.get(number, "COMPLETED"))
            for number, name in self.sent.items()
        ]
        return Listing(0.0, [row for row in rows if str(row.id) in wanted.ids or row.name in wanted.names])

    def cancel(self, order: CancelOrder) -> None:
        self.cancelled += order.refs

    def log_part(self, ref: str, key: StreamKey, offset: int = 0) -> LogPart:
        chunk = int(self.sent[int(ref)].split("-")[2])
        told = [None, 1, "no"] if int(ref) == self.failing else None
        records = [[number, *(told or [f"r{number}"])] for number in (2 * chunk, 2 * chunk + 1)]
        lines = [f"\x1e{json.dumps(record)}\n" for record in records]
        text = "noise\n" + "".join(lines[: self.die_after.get(int(ref), 2)])
        if not text:
            raise NotFound("no log")
        data = text.encode()[max(offset, 0) :]
        return LogPart(data=data, offset=offset, size=len(text), path="")


def make_map(tmp_path: Path, client: FakeClient, **changes: Any) -> LineMap:
    path = tmp_path / "in.txt"
    path.write_text("a\nb\nc\nd\n")
    order = MapOrder("cat", path, tmp_path / "out", "p", chunk=2)
    return LineMap(cast(Client, client), order._replace(**changes))


def test_chunks_have_so_many_lines_and_bytes() -> None:
    assert [list(chunk.texts) for chunk in _cut(["a", "b", "c"], 2)] == [["a", "b"], ["c"]]
    large = "x" * MOST_BYTES
    assert [len(chunk.texts) for chunk in _cut(["a", large, large, "b", "c"], 9)] == [1, 1, 1, 2]
    assert [chunk.start for chunk in _cut(list("abcde"), 2)] == [0, 2, 4]


@pytest.mark.parametrize(
    "line", [b"noise", b"\x1e[1", b'\x1e["1", "x"]', b"\x1e[1]", b'\x1e{"a": 1}', b"\x1e[1, 2, 3]"]
)
def test_what_is_no_record(line: bytes) -> None:
    assert _read_record(line) is None


def test_results_stand_in_their_order(tmp_path: Path) -> None:
    with make_map(tmp_path, FakeClient()) as work:
        assert work.run() == (4, 4, 0)
    assert work.results.read_text() == "r0\nr1\nr2\nr3\n"
    assert work.failures.read_text() == ""


def test_lines_that_a_job_did_not_tell_are_for_another_one(tmp_path: Path) -> None:
    client = FakeClient()
    client.die_after, client.states = {1: 1}, {1: "NODE_FAIL"}
    with make_map(tmp_path, client) as work:
        assert work.run().done == 4
    assert sorted(name.split("-", 2)[2] for name in client.sent.values()) == ["0-0", "0-1", "1-0"]


def test_jobs_that_tell_nothing_are_tried_thrice_for_each_line(tmp_path: Path) -> None:
    client = FakeClient()
    client.die_after = dict.fromkeys(range(1, 13), 0)
    client.states = dict.fromkeys(range(1, 13), "FAILED")
    with make_map(tmp_path, client) as work:
        assert work.run() == (4, 4, 4)
    assert len(client.sent) == 12
    assert "ended as FAILED: noise" in json.loads(work.failures.read_text().splitlines()[0])["error"]


def test_lines_that_failed_are_tried_again_where_that_is_asked_for(tmp_path: Path) -> None:
    client = FakeClient()
    client.failing = 1
    with make_map(tmp_path, client) as work:
        assert work.run() == (4, 4, 2)
    with make_map(tmp_path, client) as again:
        assert again.run() == (4, 4, 2) and len(client.sent) == 2
    with make_map(tmp_path, client, again=True) as once_more:
        assert once_more.progress == (4, 2, 0)
    # It was killed before it sent a job: no earlier one is asked what it has told already.
    with make_map(tmp_path, client) as last:
        assert last.run() == (4, 4, 0) and len(client.sent) == 3
    assert last.results.read_text() == "r0\nr1\nr2\nr3\n" and last.list_results() == ["r0", "r1", "r2", "r3"]


def test_a_cancelled_job_ends_the_map_and_what_is_done_is_kept(tmp_path: Path) -> None:
    client = FakeClient()
    client.die_after, client.states = {1: 1}, {1: "CANCELLED"}
    with make_map(tmp_path, client) as work, pytest.raises(Conflict, match="job 1 was cancelled: 1 of its lines are"):
        work.run()
    with make_map(tmp_path, client) as again:
        assert again.progress.done >= 1
        assert again.run() == (4, 4, 0)
    assert len(client.sent) == 3


def test_a_job_that_this_run_was_to_cancel_does_not_end_the_next_one(tmp_path: Path) -> None:
    client = FakeClient()
    client.die_after, client.states = {1: 0}, {1: "RUNNING"}
    with make_map(tmp_path, client) as work:

        def interrupt(progress: MapProgress) -> None:
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            work.run(interrupt)
        work.cancel()
    assert client.cancelled == ("1",)
    with make_map(tmp_path, client) as again:
        # Its end comes after the next run has begun.
        client.states[1] = "CANCELLED"
        assert again.run() == (4, 4, 0)


def test_a_job_whose_cancel_goes_on_when_the_command_is_given_again_does_not_end_it(tmp_path: Path) -> None:
    client = FakeClient()
    client.die_after, client.states = {1: 1, 2: 1}, {1: "CANCELLED", 2: "COMPLETING"}
    with make_map(tmp_path, client) as work, pytest.raises(Conflict, match="job 1 was cancelled"):
        work.run()
    with make_map(tmp_path, client) as again:
        client.states[2] = "CANCELLED"
        assert again.run() == (4, 4, 0)


def test_lines_of_the_folder_that_were_cut_short_are_passed_over_each_time(tmp_path: Path) -> None:
    client = FakeClient()
    with make_map(tmp_path, client) as first:
        first.run()
    for path in (tmp_path / "out/chunks/0.jsonl", tmp_path / "out/jobs.jsonl"):
        path.write_text(path.read_text()[:-4])
    for _ in range(3):
        with make_map(tmp_path, client) as again:
            assert again.run() == (4, 4, 0)
    assert again.results.read_text() == "r0\nr1\nr2\nr3\n"


def test_a_line_that_is_too_long_for_a_job_fails_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    client = FakeClient()
    with make_map(tmp_path, client) as work:
        monkeypatch.setattr("overspan.bridge.client.line_map.MOST_PROGRAM", 10)
        assert work.run() == (4, 4, 4)
    assert not client.sent and "too long for a job" in work.failures.read_text()


def test_a_later_run_finds_jobs_by_their_names_and_reads_what_was_cut_short_again(tmp_path: Path) -> None:
    client = FakeClient()
    with make_map(tmp_path, client) as first:
        first.run()
    chunk = tmp_path / "out/chunks/0.jsonl"
    # The run was killed in the middle of a line, and after it had sent a job whose number it never wrote.
    chunk.write_text(chunk.read_text()[:-4])
    jobs = (tmp_path / "out/jobs.jsonl").read_text().splitlines()
    (tmp_path / "out/jobs.jsonl").write_text("\n".join(line for line in jobs if '"job": 1' not in line) + "\n")
    with make_map(tmp_path, client) as again:
        assert again.progress.done == 3
        assert again.run().done == 4 and len(client.sent) == 2
    assert again.results.read_text() == "r0\nr1\nr2\nr3\n"


@pytest.mark.parametrize(
    ("changes", "why"),
    [({"command": "tac"}, "command"), ({"mode": BATCH}, "mode"), ({"mode": BATCH, "size": 5}, "mode")],
)
def test_a_folder_of_another_map_is_refused(tmp_path: Path, changes: dict[str, Any], why: str) -> None:
    make_map(tmp_path, FakeClient()).close()
    with pytest.raises(InvalidRequest, match=f"its {why} is not the same"):
        make_map(tmp_path, FakeClient(), **changes)


def test_two_at_once_in_one_folder_are_refused(tmp_path: Path) -> None:
    with make_map(tmp_path, FakeClient()), pytest.raises(Conflict, match="another `span map`"):
        make_map(tmp_path, FakeClient())

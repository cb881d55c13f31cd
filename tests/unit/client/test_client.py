"""The client against a scripted daemon on a real unix socket."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from overspan import Client
from overspan.bridge.client import CancelOrder, JobFilter, JobRow, StreamKey
from overspan.bridge.client.records import QueueChanges
from overspan.bridge.model.errors import Conflict, InvalidRequest, OverspanError, TimedOut, Unreachable


def _listing(*rows: JobRow) -> dict[str, Any]:
    return {"format": 1, "now": 100.0, "columns": list(JobRow._fields), "rows": [list(row) for row in rows]}


def test_reads_rows_of_its_own_columns(daemon: Any) -> None:
    daemon.routes["GET /v1/queue"] = lambda request: _listing(JobRow(id=7, name="a"), JobRow(id=8, task_offset=1))
    with Client(environment=daemon.environment) as client:
        rows = client.queue(JobFilter(states=("RUNNING", "PENDING"), users=("ann",), tasks=True)).rows
    assert [row.ref for row in rows] == ["7", "8+1"]
    assert daemon.requests[0]["query"] == {"states": "RUNNING,PENDING", "users": "ann", "tasks": "1"}


def test_reads_rows_of_other_versions(daemon: Any) -> None:
    document = {"now": 1, "columns": ["state", "new_column", "id"], "rows": [["RUNNING", "x", 5]]}
    daemon.routes["GET /v1/queue"] = lambda request: document
    with Client(environment=daemon.environment) as client:
        (row,) = client.queue().rows
    assert row == JobRow(id=5, state="RUNNING")


def test_rows_with_fewer_and_with_more_columns() -> None:
    from overspan.bridge.listings.rows import rows_from_document

    assert rows_from_document(["id", "task_offset"], [[3, 1]]) == [JobRow(id=3, task_offset=1)]
    assert rows_from_document([*JobRow._fields, "later"], [[*JobRow(id=3), 9]]) == [JobRow(id=3)]


def test_changes_of_the_queue_are_asked_for_by_version(daemon: Any) -> None:
    document = {"now": 5.0, "version": "a.7.0", "whole": False, "changed": [8, 9], "columns": ["id"], "rows": [[8]]}
    daemon.routes["GET /v1/queue/changes"] = lambda request: document
    with Client(environment=daemon.environment) as client:
        told = client.queue_changes("a.6.0", JobFilter(users=("ana", "bob"), extent="core"), wait=2)
    assert told == QueueChanges(5.0, "a.7.0", False, (8, 9), [JobRow(id=8)])
    query = daemon.requests[-1]["query"]
    assert query == {"users": "ana,bob", "extent": "core", "version": "a.6.0", "wait": "2.000"}


@pytest.mark.parametrize("answer", [(404, {"detail": "Not Found"}, {}), {"rows": []}, {"now": 1, "version": "x"}])
def test_a_daemon_that_does_not_keep_changes_is_of_another_version(daemon: Any, answer: object) -> None:
    daemon.routes["GET /v1/queue/changes"] = lambda request: answer
    with Client(environment=daemon.environment) as client, pytest.raises(Conflict, match="another version") as caught:
        client.queue_changes()
    assert "span shutdown" in caught.value.remedy


def test_a_get_is_sent_again_when_the_connection_was_closed(daemon: Any) -> None:
    daemon.routes["GET /v1/ping"] = lambda request: {"version": "1"}
    with Client(environment=daemon.environment) as client:
        client.ping()
        daemon.hang_ups = 1
        assert client.ping()["version"] == "1"
        daemon.hang_ups = 3
        with pytest.raises(Unreachable, match="went away"):
            client.ping()
    assert len(daemon.requests) == 6


def test_a_submission_that_was_cut_off_is_sent_again_with_its_token(daemon: Any) -> None:
    daemon.routes["POST /v1/jobs"] = lambda request: {"id": 7}
    daemon.routes["POST /v1/jobs/7/resubmit"] = lambda request: {"id": 8}
    with Client(environment=daemon.environment) as client:
        daemon.hang_ups = 1
        assert client.submit("name: x\nrun: hostname\n").id == 7
        daemon.hang_ups = 2
        assert client.resubmit("7").id == 8
        assert client.submit("name: x\nrun: hostname\n").id == 7
    tokens = [request["body"]["token"] for request in daemon.requests]
    assert [tokens.count(token) for token in dict.fromkeys(tokens)] == [2, 3, 1]


def test_changes_of_a_resubmission_are_sent_by_their_names(daemon: Any) -> None:
    daemon.routes["POST /v1/jobs/7/resubmit"] = lambda request: {"id": 8}
    daemon.routes["GET /v1/jobs/7/resubmit"] = lambda request: {"values": {"time": "1:00:00", "mem": ""}}
    with Client(environment=daemon.environment) as client:
        assert client.resubmit("7", changes={"time": "2h"}).id == client.resubmit("7").id == 8
        assert client.resubmit_values("7") == {"time": "1:00:00", "mem": ""}
    first, second, _ = (request["body"] for request in daemon.requests)
    assert first["changes"] == {"time": "2h"} and first["failed"] is False
    # A daemon of an earlier version takes it.
    assert "changes" not in second


def test_a_submission_that_nobody_answers_may_have_been_taken(daemon: Any) -> None:
    daemon.hang_ups = 3
    with Client(environment=daemon.environment) as client, pytest.raises(Unreachable, match="went away") as caught:
        client.submit("name: x\nrun: hostname\n")
    assert "squeue" in caught.value.remedy and len(daemon.requests) == 3


def test_a_submission_whose_daemon_does_not_start_again_may_have_been_taken(daemon: Any) -> None:
    def die(request: Any) -> Any:
        Path(daemon.state, "run", "span.sock").unlink()
        raise ConnectionError("the daemon was killed")

    daemon.routes["POST /v1/jobs"] = die
    with Client(environment=daemon.environment) as client, pytest.raises(Unreachable, match="not running") as caught:
        client.submit("name: x\nrun: hostname\n")
    assert "squeue" in caught.value.remedy and "span daemon" in caught.value.remedy


def test_an_order_that_was_cut_off_is_sent_again_unless_it_is_a_signal(daemon: Any) -> None:
    daemon.routes["POST /v1/cancel"] = lambda request: {"done": ["7"]}
    repeated: dict[str, Callable[[Client], None]] = {
        "/v1/jobs/7/hold": lambda client: client.hold("7"),
        "/v1/jobs/7/top": lambda client: client.top("7"),
        "/v1/jobs/7/update": lambda client: client.update("7", {"nice": 5}),
        "/v1/schedules/3/pause": lambda client: client.pause_schedule(3),
        "/v1/schedules/3/resume": lambda client: client.resume_schedule(3),
    }
    for target in (*repeated, "/v1/jobs/7/requeue"):
        daemon.routes[f"POST {target}"] = lambda request: {}
    with Client(environment=daemon.environment) as client:
        daemon.hang_ups = 2
        assert client.cancel(CancelOrder(("7",))).done == ("7",)
        for order in repeated.values():
            daemon.hang_ups = 1
            order(client)
        assert len(daemon.requests) == 3 + 2 * len(repeated)
        acts: list[Callable[[], object]] = [
            lambda: client.cancel(CancelOrder(("7",), signal="USR1")),
            lambda: client.requeue("7"),
        ]
        for act in acts:
            daemon.hang_ups = 1
            with pytest.raises(Unreachable, match="went away"):
                act()
    assert len(daemon.requests) == 3 + 2 * len(repeated) + 2


def test_errors_are_rebuilt_with_place_and_exit_code(daemon: Any) -> None:
    error = {
        "code": "invalid",
        "message": "no key `runn`",
        "remedy": "did you mean run?",
        "place": {"file": "j.yaml", "line": 3, "column": 1},
        "exit_code": 255,
    }
    daemon.routes["POST /v1/jobs"] = lambda request: (400, {"error": error}, {})
    with Client(environment=daemon.environment) as client, pytest.raises(InvalidRequest) as caught:
        client.submit({"runn": "x"})
    assert str(caught.value) == "j.yaml:3:1: no key `runn`\n  did you mean run?"
    assert int(caught.value.exit_code) == 255


@pytest.mark.parametrize(
    "answer",
    [(404, {"detail": "Not Found"}, {}), (200, {"format": 9}, {}), (200, b"<html>", {}), (200, [1], {})],
)
def test_a_daemon_of_another_version_is_named(daemon: Any, answer: Any) -> None:
    daemon.routes["GET /v1/ping"] = lambda request: answer
    with Client(environment=daemon.environment) as client, pytest.raises(Conflict, match="another version") as caught:
        client.ping()
    assert "span shutdown" in caught.value.remedy


def test_submits_a_script_by_path_and_a_mapping(daemon: Any, tmp_path: Path) -> None:
    daemon.routes["POST /v1/jobs"] = lambda request: {"id": 9, "name": "t", "cluster": "local", "notes": ["n"]}
    script = tmp_path / "t.sh"
    script.write_text("#!/bin/sh\ntrue\n")
    with Client(environment=daemon.environment) as client:
        handle = client.submit(script, args=["-n", "2"])
        client.submit({"run": "true"}, cluster="gpu", name="m", hold=True)
    first, second = (request["body"] for request in daemon.requests)
    assert (handle.id, handle.accepted.notes if handle.accepted else ()) == (9, ("n",))
    assert (first["kind"], first["argv"], first["file"]) == ("script", ["-n", "2", str(script)], str(script))
    assert (second["kind"], json.loads(second["text"])) == ("job_file", {"run": "true"})
    assert (second["cluster"], second["name"], second["hold"], second["format"]) == ("gpu", "m", True, 1)
    assert first["environment"]["HOME"] == daemon.environment["HOME"]


def test_waits_through_long_polls(daemon: Any) -> None:
    answers = [{"over": False, "state": "RUNNING"}, {"over": True, "state": "FAILED", "exit_code": 3, "signal": 0}]
    daemon.routes["GET /v1/jobs/4/wait"] = lambda request: answers.pop(0)
    with Client(environment=daemon.environment) as client:
        assert client.wait("4") == (True, "FAILED", 3, 0)
        daemon.routes["GET /v1/jobs/4/wait"] = lambda request: {"over": False, "state": "PENDING"}
        daemon.routes["GET /v1/jobs/4"] = lambda request: {"job": {"id": 4}}
        with pytest.raises(TimedOut, match="PENDING"):
            client.job(4).wait(timeout=0)


def test_events_stream_chunk_by_chunk(daemon: Any) -> None:
    lines = b'{"seq": 1, "job_id": 4, "at": 1.5, "end": "PENDING"}\n\n{"seq": 2, "job_id": 4, "at": 2}\n'
    daemon.routes["GET /v1/events"] = lambda request: (200, lines, {"Transfer-Encoding": "chunked"})
    with Client(environment=daemon.environment) as client:
        # The stream ends after two; it is taken up behind the last event.
        events = list(itertools.islice(client.events(since=0), 3))
        assert [(event.seq, event.end) for event in events[:2]] == [(1, "PENDING"), (2, "")]
        assert len(list(client.events(since=0, follow=False))) == 2
    assert [request["query"]["since"] for request in daemon.requests] == ["0", "2", "0"]


def test_reads_logs_over_http(daemon: Any) -> None:
    data = b"one\ntwo\n"
    row = {"task": "a", "node": 0, "attempt": 0, "stream": "output", "size": len(data), "over": True}

    def part(request: dict[str, Any]) -> Any:
        offset, limit = int(request["query"]["offset"]), int(request["query"]["limit"])
        return (
            200,
            data[offset : offset + limit],
            {"X-Span-Offset": str(offset), "X-Span-Over": "1", "X-Span-Path": "/a%20b"},
        )

    daemon.routes.update({"GET /v1/jobs/3/streams": lambda request: {"streams": [row]}, "GET /v1/jobs/3/logs": part})
    with Client(environment=daemon.environment) as client:
        assert client.log_part("3", StreamKey("a", 0, 0), 4) == (b"two\n", 4, 8, "/a b", True, 0)
        assert [text for _, text in client.logs("3")] == [data]


def test_cancel_lists_what_could_not_be_done_and_refuses_everything(daemon: Any) -> None:
    errors = [{"ref": "9", "error": {"code": "not_found", "message": "no job 9"}}]
    daemon.routes["POST /v1/cancel"] = lambda request: {"done": ["8"], "errors": errors}
    with Client(environment=daemon.environment) as client:
        result = client.cancel(CancelOrder(refs=("8", "9"), signal="USR1"))
        assert (result.done, result.errors) == (("8",), (("9", "not_found", "no job 9", ""),))
        with pytest.raises(InvalidRequest, match="No job identification"):
            client.cancel(CancelOrder())
    assert len(daemon.requests) == 1


def test_no_daemon_and_none_to_be_started(tmp_path: Path) -> None:
    environment = {"SPAN_STATE_DIR": str(tmp_path / "s"), "SPAN_AUTOSTART": "0"}
    with Client(environment=environment) as client:
        with pytest.raises(Unreachable, match="not running"):
            client.ping()
        assert client.shutdown() is False
    assert not (tmp_path / "s").exists()


def test_a_socket_that_is_no_daemon(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "span.sock").write_text("")
    environment = {"SPAN_STATE_DIR": str(tmp_path), "SPAN_AUTOSTART": "0"}
    with Client(environment=environment) as client, pytest.raises(OverspanError):
        client.ping()

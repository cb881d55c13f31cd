"""A relay and its sender, joined by a pipe in place of srun: what is written in one folder comes to be in the other."""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.waiting import wait_until

from overspan.bridge.runtime.core.run_directory import RunDirectory
from overspan.bridge.runtime.slurm.bootstrap import entry_words, pack_application, select_sources
from overspan.bridge.runtime.slurm.file_links import FileLink
from overspan.bridge.runtime.slurm.node_folders import name_parent
from overspan.bridge.runtime.slurm.relay_login import RelayLink, close_orders, note_written, relay
from overspan.bridge.runtime.slurm.relay_node import OVER, TAKEN, mark_name
from overspan.bridge.runtime.slurm.run_files import lock_orders
from overspan.bridge.runtime.zip_application import build_archive

NATIVE = "424242"
WORDS = entry_words(sys.executable, "sender", NATIVE, "1")


@pytest.fixture(scope="module")
def greeting(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    archive = build_archive(str(tmp_path_factory.mktemp("lib")))
    return pack_application(select_sources(Path(archive).read_bytes()))


@pytest.fixture
def there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The supervisor's folder."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    folder = Path(name_parent(str(tmp_path))) / "private"
    (folder / "logs").mkdir(parents=True)
    (folder / mark_name(NATIVE)).touch()
    return folder


@pytest.fixture
def here(tmp_path: Path) -> Path:
    """The run directory on the login node."""
    (tmp_path / "run").mkdir()
    return tmp_path / "run"


@pytest.fixture
def running(there: Path, here: Path, greeting: bytes) -> Iterator[list[RelayLink]]:
    """A link that runs beside the test until all is here."""
    link = RelayLink(RunDirectory(str(here), 1), WORDS, greeting)
    thread = threading.Thread(target=link.serve)
    thread.start()
    yield [link]
    (there / OVER).touch()
    thread.join(300)
    assert not thread.is_alive()


def line_of(path: Path) -> bytes:
    return path.read_bytes() if path.exists() else b""


def test_news_come_with_the_journal_behind_what_it_tells(there: Path, here: Path, running: list[RelayLink]) -> None:
    (there / "logs" / "a.0.0.0.out").write_bytes(b"\xff\x00 one\n")
    (there / "supervisor.1.log").write_text("said\n")
    (there / "journal.1.jsonl").write_text("{}\n")
    wait_until(lambda: line_of(here / "journal.1.jsonl") == b"{}\n", 30, "the journal")
    assert line_of(here / "logs" / "a.0.0.0.out") == b"\xff\x00 one\n" and line_of(here / "supervisor.1.log")
    with (there / "journal.1.jsonl").open("a") as file:
        file.write('{"end":true}\n')
    (there / OVER).touch()
    wait_until(lambda: (there / TAKEN).exists(), 30, "the mark that all was taken")
    assert line_of(here / "journal.1.jsonl") == b'{}\n{"end":true}\n' and (here / "taken.1").exists()
    assert running[0].taken


def test_orders_go_the_other_way(there: Path, here: Path, running: list[RelayLink]) -> None:
    orders = here / "orders.1.jsonl"
    orders.write_text("one\n")
    wait_until(lambda: line_of(there / "orders.1.jsonl") == b"one\n", 30, "the first order")
    with orders.open("a") as file:
        file.write("two\n")
    wait_until(lambda: line_of(there / "orders.1.jsonl") == b"one\ntwo\n", 30, "the second order")


def test_another_relay_goes_on_by_the_sizes(there: Path, here: Path, greeting: bytes) -> None:
    (there / "logs" / "a.0.0.0.out").write_bytes(b"0123456789")
    (here / "logs").mkdir()
    # What is here is believed: nothing is sent twice.
    (here / "logs" / "a.0.0.0.out").write_bytes(b"abcde")
    (there / "orders.1.jsonl").write_text("one\n")
    (here / "orders.1.jsonl").write_text("one\ntwo\n")
    (there / OVER).touch()
    assert relay(RunDirectory(str(here), 1), WORDS, greeting) == 0
    assert (here / "logs" / "a.0.0.0.out").read_bytes() == b"abcde56789"


def test_the_list_of_streams_is_of_all_launches(here: Path) -> None:
    (here / "streams.jsonl").write_text('{"launch":0}\n')
    store = RunDirectory(str(here), 1)
    for data in ('{"a":1}\n{"b"', '{"a":1}\n{"b":2}\n', '{"a":1}\n{"b":2}\n'):
        (here / "streams.1.jsonl").write_text(data)
        note_written(store, "streams.1.jsonl")
    found = [json.loads(line) for line in (here / "streams.jsonl").read_text().splitlines()]
    assert found == [{"launch": 0}, {"a": 1}, {"b": 2}]


NAMES = [
    "members/a/seats.1.jsonl",
    "../x",
    "logs/../x",
    "plan.1.json",
    "logs/.x",
    "orders.1.jsonl",
    "logs/a/b",
    "members/b/seats.1.jsonl",
]


@pytest.mark.parametrize("name", NAMES)
def test_a_sender_writes_no_other_files(here: Path, name: str) -> None:
    link = FileLink(RunDirectory(str(here), 1, "members/a/0"), False, lambda message: None)
    with pytest.raises(ValueError, match="no file that the other side writes"):
        link.take({"part": {"file": name, "offset": 0, "data": "eA=="}})
    assert not os.path.exists(here / name)


def test_a_part_of_a_set_tells_where_it_runs_and_learns_where_others_do(tmp_path: Path) -> None:
    node, login = tmp_path / "node", tmp_path / "login"
    queue = list[tuple[bool, dict[str, Any]]]()
    ends = {
        side: FileLink(RunDirectory(str(folder), 1, "members/a/2"), side, partial(put, queue, side))
        for side, folder in ((True, node), (False, login))
    }
    for folder, name in ((node, "members/a"), (node, "members/a/2"), (login, "members/b"), (login, "members/a/2")):
        (folder / name).mkdir(parents=True, exist_ok=True)
    (node / "members/a/2/seats.1.jsonl").write_text("a\n")
    (node / "members/a/2/journal.1.jsonl").write_text("{}\n")
    (login / "members/b/seats.1.jsonl").write_text("b\n")
    (login / "members/a/2/closed.1").touch()
    for end in ends.values():
        end.greet()
    exchange(ends, queue)
    assert (login / "members/a/2/seats.1.jsonl").read_text() == "a\n" and (
        login / "members/a/2/journal.1.jsonl"
    ).exists()
    assert (node / "members/b/seats.1.jsonl").read_text() == "b\n" and (node / "members/a/2/closed.1").exists()
    # Nothing is sent twice, and nothing comes back.
    exchange(ends, queue)
    assert not queue


def put(queue: list[tuple[bool, dict[str, Any]]], side: bool, message: dict[str, Any]) -> None:
    queue.append((side, message))


def exchange(ends: dict[bool, FileLink], queue: list[tuple[bool, dict[str, Any]]]) -> None:
    while queue:
        side, message = queue.pop(0)
        ends[not side].take(message)
    for end in ends.values():
        end.send_news()
    for side, message in queue:
        ends[not side].take(message)
    queue.clear()


def test_the_end_of_the_orders_is_behind_the_last_one(here: Path) -> None:
    """A supervisor that has read so many bytes of its orders leaves only where there are no others."""
    store = RunDirectory(str(here), 1)
    assert close_orders(store, 0)
    (here / "closed.1").unlink()
    (here / "orders.1.jsonl").write_text("one\n")
    assert not close_orders(store, 0) and not (here / "closed.1").exists()
    with lock_orders(str(here / "orders.1.jsonl")) as locked:
        assert locked and not close_orders(store, 4)
    assert close_orders(store, 4) and (here / "closed.1").exists()


def test_a_relay_ends_with_the_job(here: Path) -> None:
    words = ["sh", "-c", "echo 'srun: error: Unable to confirm allocation: Invalid job id specified' >&2; exit 1"]
    assert relay(RunDirectory(str(here), 1), words, b"") == 0


def test_a_journal_is_sent_as_it_was_before_what_it_tells_of(here: Path) -> None:
    """What is written while the rest is sent waits for the next turn."""
    (here / "logs").mkdir()
    (here / "logs" / "a.0.0.0.out").write_text("one\n")
    (here / "journal.1.jsonl").write_text("{}\n")
    sent: list[dict[str, Any]] = []

    def say(message: dict[str, Any]) -> None:
        sent.append(message)
        (here / "journal.1.jsonl").write_text("{}\n{}\n")

    link = FileLink(RunDirectory(str(here), 1), True, say)
    link.take({"have": {}})
    link.send_news()
    assert [(one["part"]["file"], one["part"]["data"]) for one in sent] == [
        ("logs/a.0.0.0.out", "b25lCg=="),
        ("journal.1.jsonl", "e30K"),
    ]

"""A relay and its sender, joined by a pipe in place of srun: what is written in one folder comes to be in the other."""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.waiting import wait_until

from overspan.bridge.runtime.slurm.bootstrap import entry_words, pack_application, select_sources
from overspan.bridge.runtime.slurm.node_folders import name_parent
from overspan.bridge.runtime.slurm.relay_login import LoginFiles, RelayLink, relay
from overspan.bridge.runtime.slurm.relay_node import OVER, TAKEN, mark_name
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
    link = RelayLink(LoginFiles(str(here), 1), WORDS, greeting)
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
    assert relay(LoginFiles(str(here), 1), WORDS, greeting) == 0
    assert (here / "logs" / "a.0.0.0.out").read_bytes() == b"abcde56789"


def test_the_list_of_streams_is_of_all_launches(here: Path) -> None:
    (here / "streams.jsonl").write_text('{"launch":0}\n')
    store = LoginFiles(str(here), 1)
    store.write("streams.1.jsonl", 0, b'{"a":1}\n{"b"')
    store.write("streams.1.jsonl", 12, b":2}\n")
    store.write("streams.1.jsonl", 12, b":2}\n")
    found = [json.loads(line) for line in (here / "streams.jsonl").read_text().splitlines()]
    assert found == [{"launch": 0}, {"a": 1}, {"b": 2}]


@pytest.mark.parametrize("name", ["../x", "logs/../x", "plan.1.json", "logs/.x", "orders.1.jsonl", "logs/a/b"])
def test_a_sender_writes_no_other_files(here: Path, name: str) -> None:
    with pytest.raises(ValueError, match="no file of a supervisor"):
        LoginFiles(str(here), 1).write(name, 0, b"x")
    assert not os.path.exists(here / name)


def test_a_relay_ends_with_the_job(here: Path) -> None:
    words = ["sh", "-c", "echo 'srun: error: Unable to confirm allocation: Invalid job id specified' >&2; exit 1"]
    assert relay(LoginFiles(str(here), 1), words, b"") == 0

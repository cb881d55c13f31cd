"""Mailboxes: what a visit takes along and leaves there, and what a worker makes of it."""

from __future__ import annotations

import base64
import json
import os
import shutil
import threading
import zlib
from pathlib import Path
from typing import Any

import pytest
from tests.waiting import WaitUntil

from overspan.adapters.mailboxes import read_report
from overspan.bridge.runtime.pool import mailbox, mailbox_visit
from overspan.bridge.runtime.pool.connection import Dismissed, WorkerConnection
from overspan.bridge.runtime.pool.mailbox import FolderWatch, MailboxAddress, MailboxConnection
from overspan.bridge.runtime.pool.mailbox_visit import visit

MESSAGE = {"job": 1, "word": "w", "held": {}, "journals": {}, "wait": 0.0}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A mailbox whose worker has its program."""
    made = tmp_path / "mailbox"
    made.mkdir(0o700)
    (made / "start").write_text("exec true\n")
    return made


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mailbox, "MARGIN_SECONDS", 0.05)


def look(*folders: Path, seen: dict[str, str] | None = None, **more: Any) -> dict[str, Any]:
    """A visit that does not wait, of the mailboxes `0`, `1` and so on."""
    boxes = {str(key): {"folder": str(each), "seen": seen or {}, "answers": {}} for key, each in enumerate(folders)}
    return visit({"boxes": boxes, "wait": 0.0, "start": "exec true\n", **more})


def leave(folder: Path, lane: str, own: str, status: int, document: object) -> dict[str, Any]:
    """A visit that leaves an answer."""
    answers = {lane: {"id": own, "status": status, "body": json.dumps(document)}}
    return visit({"boxes": {"0": {"folder": str(folder), "seen": {}, "answers": answers}}, "wait": 0.0, "start": ""})


def list_troubles(told: dict[str, Any]) -> dict[tuple[str, str], str]:
    """What a visit could not do, by mailbox and part."""
    return {(each["key"], each["part"]): each["text"] for each in told["troubles"]}


class Asker:
    """Posts one message in a thread."""

    def __init__(self, connection: WorkerConnection, wait: float = 30.0) -> None:
        self.answer: Any = None
        self._thread = threading.Thread(target=self._ask, args=(connection, wait), daemon=True)
        self._thread.start()

    def _ask(self, connection: WorkerConnection, wait: float) -> None:
        try:
            self.answer = connection.post("/v1/pool/exchange", MESSAGE, wait)
        except (OSError, Dismissed) as error:
            self.answer = error

    def result(self) -> Any:
        """What came of it."""
        self._thread.join(30)
        return self.answer


def find_request(folder: Path, wait_until: WaitUntil) -> dict[str, Any]:
    """The only request that is there."""
    wait_until(lambda: look(folder)["found"])
    (found,) = look(folder)["found"]
    return dict(found)


def test_a_request_is_answered_by_its_name_alone(folder: Path, wait_until: WaitUntil) -> None:
    asker = Asker(MailboxAddress(str(folder)).open("ask"))
    found = find_request(folder, wait_until)
    assert (found["key"], found["lane"], found["path"]) == ("0", "ask", "/v1/pool/exchange")
    assert json.loads(found["body"]) == MESSAGE
    assert not look(folder, seen={"ask": found["id"]})["found"]
    leave(folder, "ask", "another.1", 200, {"a": 1})
    leave(folder, "ask", found["id"], 200, {"a": 2})
    assert asker.result() == {"a": 2}
    assert not (folder / "ask.answer").exists(), "an answer has the plans of jobs"


def test_each_message_has_a_name_of_its_own_also_in_another_process(folder: Path) -> None:
    names = set()
    for connection in [MailboxAddress(str(folder)).open("tell") for _ in range(2)]:
        for _ in range(2):
            with pytest.raises(OSError, match="the daemon does not answer"):
                connection.post("/v1/pool/exchange", MESSAGE)
            names.add(look(folder)["found"][0]["id"])
    assert len(names) == 4


def test_refusals_are_told_apart(folder: Path, wait_until: WaitUntil) -> None:
    refused = {"error": {"message": "no worker any more"}}
    results = []
    for status in (503, 403):
        asker = Asker(MailboxAddress(str(folder)).open("ask"))
        wait_until(lambda: look(folder)["found"])
        leave(folder, "ask", look(folder)["found"][0]["id"], status, refused)
        results.append(asker.result())
        (folder / "ask.request").unlink()
    first, second = results
    assert isinstance(first, OSError) and "503: no worker any more" in str(first)
    assert isinstance(second, Dismissed) and str(second) == "no worker any more"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        '{"id":"w.1","status":200,"size":10}\n',
        '{"id":"w.1","status":200,"size":10}\n{"a":',
        '{"id":"w.2","status":200,"size":2}\n{}',
        "[1]\n{}",
    ],
)
def test_an_answer_that_is_cut_or_of_another_request_is_none(folder: Path, text: str) -> None:
    (folder / "ask.request").write_text("mine")
    (folder / "ask.answer").write_text(text)
    assert MailboxConnection(str(folder), "ask", "w")._read("w.1") is None
    (folder / "ask.answer").write_text('{"id":"w.1","status":200,"size":2}\n{}')
    assert MailboxConnection(str(folder), "ask", "w")._read("w.1") == (200, b"{}")


@pytest.mark.parametrize(
    "text", ["", "{", '{"id":"a.1","path":"/p","size":9}\n{"a":', "[]\n", '{"id":"a.1"}\n{}', "{}" * 5000]
)
def test_a_request_that_is_cut_or_none_is_left_alone(folder: Path, text: str) -> None:
    (folder / "tell.request").write_text(text)
    (folder / "ask.request").write_text('{"id":"b.1","path":"/p","size":2}\n{}')
    told = look(folder)
    assert [each["id"] for each in told["found"]] == ["b.1"] and not told["troubles"]


def test_links_pipes_and_folders_that_others_may_write_to_are_not_used(folder: Path, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text('{"id":"a.1","path":"/p","size":2}\n{}')
    (folder / "tell.request").symlink_to(secret)
    told = look(folder)
    assert not told["found"] and "mailbox" in list_troubles(told)["0", "read"]
    (folder / "tell.request").unlink()
    os.mkfifo(folder / "tell.request")
    assert not look(folder)["found"]
    linked, wide = tmp_path / "linked", tmp_path / "wide"
    linked.symlink_to(folder)
    wide.mkdir()
    wide.chmod(0o777)
    (folder / "ask.request").write_text('{"id":"b.1","path":"/p","size":2}\n{}')
    told = look(linked, wide, folder)
    assert [each["key"] for each in told["found"]] == ["2"], "one mailbox in trouble hides another"
    troubles = list_troubles(told)
    assert set(troubles) == {("0", "read"), ("1", "read")} and "not this user's own" in troubles["1", "read"]


def test_an_answer_follows_no_link(folder: Path, tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_text("mine")
    (folder / "ask.answer").symlink_to(target)
    leave(folder, "ask", "a.1", 200, {})
    assert target.read_text() == "mine" and not (folder / "ask.answer").is_symlink()


def test_the_program_comes_from_the_library_or_with_the_visit_and_before_its_command(
    tmp_path: Path, folder: Path
) -> None:
    bare = tmp_path / "bare"
    bare.mkdir(0o700)
    assert look(bare, library=str(tmp_path / "none"))["wants"] == ["0"]
    library = tmp_path / "library"
    library.write_bytes(b"zip")
    assert not look(bare, library=str(library))["wants"]
    assert ((bare / "worker.pyz").read_bytes(), (bare / "start").read_text()) == (b"zip", "exec true\n")
    other = tmp_path / "other"
    other.mkdir(0o700)
    look(other, program=base64.b64encode(b"zip").decode())
    assert (other / "worker.pyz").read_bytes() == b"zip"
    assert (other / "start").stat().st_mode & 0o077 == 0


def test_a_mailbox_that_is_not_there_yet_is_no_trouble(tmp_path: Path) -> None:
    told = look(tmp_path / "none")
    assert not told["found"] and not told["wants"] and not told["troubles"]
    told = leave(tmp_path / "none", "ask", "a.1", 200, {})
    assert not told["troubles"] and not told["left"], "an answer that nobody has is not told as left"


def test_what_could_not_be_left_is_told_apart_from_what_could_not_be_read(folder: Path) -> None:
    (folder / "ask.answer").mkdir()
    told = leave(folder, "ask", "a.1", 200, {})
    assert list(list_troubles(told)) == [("0", "leave")] and not told["left"]
    (folder / "ask.answer").rmdir()
    (folder / "ask.request").symlink_to(folder / "start")
    told = leave(folder, "ask", "a.1", 200, {})
    assert list(list_troubles(told)) == [("0", "read")] and told["left"] == ["0"]


def test_a_visit_takes_no_more_than_it_may(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mailbox_visit, "MOST_BYTES", 10)
    folders = []
    for number in range(3):
        folders.append(tmp_path / str(number))
        folders[-1].mkdir(0o700)
        (folders[-1] / "start").write_text("x")
        (folders[-1] / "tell.request").write_text(f'{{"id":"a.{number}","path":"/p","size":8}}\n"123456"')
    first = look(*folders)["found"]
    assert [each["id"] for each in first] == ["a.0", "a.1"]
    rest = visit(
        {
            "boxes": {
                str(key): {"folder": str(each), "seen": {"tell": f"a.{key}"} if key < 2 else {}, "answers": {}}
                for key, each in enumerate(folders)
            },
            "wait": 0.0,
            "start": "",
        }
    )
    assert [each["id"] for each in rest["found"]] == ["a.2"]


def test_what_a_worker_of_an_older_version_could_not_tell_for_long_is_taken(folder: Path) -> None:
    """It does not split its journals. What a visit tells of them can be read."""
    body = json.dumps({**MESSAGE, "journals": {"h": {"offset": 0, "text": '{"a":"\\n"}\n' * (2 << 20)}}})
    head = {"id": "a.1", "path": "/v1/pool/exchange", "size": len(body)}
    (folder / "tell.request").write_text(f"{json.dumps(head)}\n{body}")
    assert (folder / "tell.request").stat().st_size > 32 << 20
    told = look(folder)
    assert told["found"][0]["body"] == body and not told["troubles"]
    line = base64.b64encode(zlib.compress(json.dumps(told).encode(), 1)).decode()
    assert read_report(line).found[0].body == body


def test_a_request_that_is_too_long_is_told_and_keeps_no_other(folder: Path) -> None:
    with open(folder / "ask.request", "wb") as file:
        file.truncate(mailbox_visit.LARGEST + 1)
    (folder / "tell.request").write_text('{"id":"b.1","path":"/p","size":2}\n{}')
    told = look(folder)
    assert [each["id"] for each in told["found"]] == ["b.1"]
    assert f"ask.request has {mailbox_visit.LARGEST + 1} bytes" in list_troubles(told)["0", "read"]


def test_a_request_that_would_be_told_too_long_is_not_taken(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mailbox_visit, "LARGEST_TOLD", 100)
    for size in (16, 17):
        (folder / "ask.request").write_text(f'{{"id":"b.1","path":"/p","size":{size}}}\n' + "\1" * size)
        assert [bool(each) for each in look(folder).values()] == [size == 16, False, True, size == 17]


@pytest.mark.parametrize("whole", [True, False])
def test_a_request_that_somebody_removes_is_left_anew_at_once(
    folder: Path, wait_until: WaitUntil, monkeypatch: pytest.MonkeyPatch, whole: bool
) -> None:
    monkeypatch.setattr(mailbox, "LIST_SECONDS", 0.0)
    connection = MailboxAddress(str(folder)).open("ask")
    first = Asker(connection, wait=1e6)
    lost = find_request(folder, wait_until)
    shutil.rmtree(folder) if whole else (folder / "ask.request").unlink()
    assert isinstance(first.result(), OSError)
    second = Asker(connection, wait=1e6)
    found = find_request(folder, wait_until)
    assert found["id"] != lost["id"]
    leave(folder, "ask", found["id"], 200, {"a": 1})
    assert second.result() == {"a": 1}


def test_a_folder_where_nothing_changes_is_seldom_listed(folder: Path) -> None:
    """Each look opens it; all else would be further questions to the server of a shared file system."""
    watch = FolderWatch(str(folder))
    listed = [now / 4 for now in range(400) if watch.is_stale(1000.0 + now / 4)]
    assert listed[:9] == [now / 4 for now in range(9)], "a time may be rounded"
    assert len(listed) <= 9 + 100 / mailbox.LIST_SECONDS
    (folder / "ask.answer").write_text("x")
    assert watch.is_stale(1100.25) and watch.is_stale(1100.5)
    assert not watch.is_stale(1102.75)
    (folder / "ask.answer").unlink()
    assert watch.is_stale(1103.0)


def test_a_folder_that_is_gone_is_listed_so_that_this_is_said(tmp_path: Path) -> None:
    watch = FolderWatch(str(tmp_path / "none"))
    assert all(watch.is_stale(1000.0 + now) for now in range(20))

"""The checkpoint source of a Slurm cluster: one call for all folders, and what hangs or is missing over there."""

from __future__ import annotations

import asyncio
import base64
import re
import subprocess
import sys
import zlib
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

import pytest

from overspan.adapters.checkpoint_scanner import pack_scanner
from overspan.adapters.checkpoint_sources import WatchedFolder
from overspan.adapters.slurm.files import checkpoints
from overspan.adapters.slurm.files.checkpoints import HANG_SECONDS, SlurmCheckpoints
from overspan.adapters.slurm.transports.transport import Call, Done, FileChunk, FolderEntry, Interrupted
from overspan.bridge.model.checkpoints.listings import ListingRequest
from overspan.bridge.model.errors import Unreachable
from overspan.bridge.model.job import new_job
from overspan.bridge.model.spec import JobSpec, TaskSpec

JOB = new_job(7, JobSpec("train", (TaskSpec(name="main", run="true"),)), 0.0)


class LoginNode:
    """A login node that runs commands here; calls about the paths of `hanging` do not end in time."""

    def __init__(self) -> None:
        self.calls: list[Sequence[str]] = []
        self.hanging: set[str] = set()
        self.away = False

    async def run(self, argv: Sequence[str], stdin: bytes = b"", *ignored: Any, timeout: float = 60.0) -> Done:
        self.calls.append(argv)
        text = zlib.decompress(base64.b64decode(stdin.decode("ascii"))).decode() if stdin else ""
        if self.away or any(f'"{path}"' in text for path in self.hanging):
            raise Interrupted("the time was over")
        done = await asyncio.to_thread(subprocess.run, argv, input=stdin, capture_output=True)
        return Done(done.returncode, done.stdout, done.stderr)

    async def run_all(self, calls: Sequence[Call], timeout: float = 60.0) -> list[Done | None]:
        raise NotImplementedError

    async def read(self, path: str, offset: int, limit: int) -> FileChunk:
        raise NotImplementedError

    async def write(self, path: str, data: bytes, mode: int = 0o600) -> None:
        raise NotImplementedError

    async def list(self, path: str) -> list[FolderEntry]:
        raise NotImplementedError

    async def close(self) -> None:
        raise NotImplementedError


class Clock:
    """The monotonic time that the source sees."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    monkeypatch.setattr(checkpoints, "time", found)
    return found


def watched(path: Path | str, key: str = "1", **keys: Any) -> WatchedFolder:
    return WatchedFolder(ListingRequest(key, str(path), (r"step_[0-9]+",), **keys), JOB, "main")


def play(
    story: Callable[[LoginNode, SlurmCheckpoints], Coroutine[Any, Any, None]], python: str = sys.executable
) -> None:
    async def tell() -> None:
        node = LoginNode()
        source = SlurmCheckpoints(node, python, 5.0)
        await story(node, source)
        await source.close()

    asyncio.run(tell())


def test_all_folders_are_listed_by_one_call(tmp_path: Path) -> None:
    (tmp_path / "a" / "step_1").mkdir(parents=True)
    (tmp_path / "a" / "step_1" / "weights").write_text("12345")
    (tmp_path / "b").mkdir()
    hostile = tmp_path / "b" / "step_7\nrm -rf"
    hostile.write_text("")
    (tmp_path / "b" / "step_2").write_text("1")

    async def story(node: LoginNode, source: SlurmCheckpoints) -> None:
        first, second, third = await source.list(
            [watched(tmp_path / "a"), watched(tmp_path / "b", "2"), watched(tmp_path / "none", "3")]
        )
        assert [(each.name, each.size) for each in first.found] == [("step_1", 5)]
        assert [each.name for each in second.found] == ["step_2"] and second.others == (hostile.name,)
        assert third.missing and not third.unreadable
        assert len(node.calls) == 1
        # Nobody reads the names of checkpoints in a process list.
        assert not any("step_" in word or str(tmp_path) in word for word in node.calls[0])

    play(story)


def test_leases_are_written_and_removed_there(tmp_path: Path) -> None:
    (tmp_path / "step_1").mkdir()

    async def story(node: LoginNode, source: SlurmCheckpoints) -> None:
        await source.list([watched(tmp_path, pins=("step_1",), owner="7.1")])
        assert (tmp_path / ".step_1.overspan-lease").exists()
        await source.list([watched(tmp_path, owner="7.1")])
        assert not (tmp_path / ".step_1.overspan-lease").exists()

    play(story)


def test_thousands_of_settled_names_are_sent_small(tmp_path: Path) -> None:
    settled = tuple(f"step_{number}" for number in range(10_000))

    async def story(node: LoginNode, source: SlurmCheckpoints) -> None:
        (tmp_path / "step_10001").mkdir()
        sent = pack_scanner([watched(tmp_path, settled=settled).request])
        assert len(sent) < 50_000
        (listing,) = await source.list([watched(tmp_path, settled=settled)])
        assert [each.name for each in listing.found] == ["step_10001"] and len(listing.gone) == 10_000

    play(story)


def test_a_folder_that_hangs_keeps_no_other_from_being_seen(tmp_path: Path, clock: Clock) -> None:
    (tmp_path / "good" / "step_1").mkdir(parents=True)
    bad = str(tmp_path / "bad")
    folders = [watched(tmp_path / "good"), watched(bad, "2")]

    async def story(node: LoginNode, source: SlurmCheckpoints) -> None:
        node.hanging = {bad}
        good, hung = await source.list(folders)
        assert [each.name for each in good.found] == ["step_1"]
        assert "does not answer within 5 s" in hung.unreadable and bad in hung.unreadable
        before = len(node.calls)
        good, hung = await source.list(folders)
        # The one that hangs is left alone for a while.
        assert good.found and hung.unreadable and len(node.calls) == before + 1
        node.hanging = set()
        clock.now += HANG_SECONDS
        await source.list(folders)
        await asyncio.gather(*source._retries.values())
        good, hung = await source.list(folders)
        assert good.found and not hung.unreadable and hung.missing

    play(story)


def test_a_folder_that_goes_on_hanging_is_asked_ever_more_rarely(tmp_path: Path, clock: Clock) -> None:
    bad = str(tmp_path)

    async def story(node: LoginNode, source: SlurmCheckpoints) -> None:
        node.hanging = {bad}
        await source.list([watched(bad)])
        tries = []
        for _ in range(3000):
            clock.now += 1
            before = len(node.calls)
            await source.list([watched(bad)])
            await asyncio.gather(*source._retries.values())
            tries += [clock.now] if len(node.calls) > before else []
        assert [round(at) - 1000 for at in tries] == [60, 180, 420, 900, 1800, 2700]

    play(story)


def test_a_login_node_that_is_away_is_no_folder_that_hangs(tmp_path: Path) -> None:
    async def story(node: LoginNode, source: SlurmCheckpoints) -> None:
        node.away = True
        with pytest.raises(Unreachable):
            await source.list([watched(tmp_path), watched("/other", "2")])
        node.away = False
        assert not (await source.list([watched(tmp_path)]))[0].unreadable

    play(story)


@pytest.mark.parametrize(
    ("program", "words"),
    [
        ("exit 127", "ended with 127"),
        ("echo 'it is Python 3.6' >&2; exit 1", "ended with 1: it is Python 3.6"),
        ("echo Welcome to the cluster", "ended with 0: Welcome to the cluster"),
    ],
)
def test_what_is_wrong_with_its_python_is_said(tmp_path: Path, program: str, words: str) -> None:
    python = tmp_path / "python3"
    python.write_text(f"#!/bin/sh\ncat >/dev/null\n{program}\n")
    python.chmod(0o755)

    async def story(node: LoginNode, source: SlurmCheckpoints) -> None:
        (listing,) = await source.list([watched(tmp_path)])
        assert re.search(words, listing.unreadable), listing.unreadable

    play(story, str(python))

"""Logs of pods that are being ended: what they print on TERM is kept although their nodes remove it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.unit.adapters.kubernetes.pods import T, ended, running
from tests.waiting import wait_until

from overspan.adapters.contract import LogRequest
from overspan.adapters.kubernetes import last_lines
from overspan.adapters.kubernetes import logs as logs_module
from overspan.adapters.kubernetes.last_lines import LastLines
from overspan.adapters.kubernetes.logs import Logs
from overspan.adapters.kubernetes.records import PodRecord

GONE = b"unable to retrieve container logs for containerd://1234"


def line(second: int, text: str) -> bytes:
    """A line as the log API tells it."""
    return f"2026-01-01T00:00:{second:02}.000000000Z {text}\n".encode()


class Node:
    """What one node tells: `log` is the answer to a question, `parts` those of a log that is followed."""

    def __init__(self) -> None:
        self.log = b""
        self.asked: list[dict[str, Any]] = []
        self._parts: list[bytes] = []
        self._change = threading.Condition()
        self._over = False

    def read(self, path: str, query: dict[str, Any]) -> bytes:
        return self.log

    def stream(self, path: str, query: dict[str, Any], silence: float) -> Node:
        self.asked.append(query)
        return self

    def parts(self) -> Iterator[bytes]:
        while True:
            with self._change:
                self._change.wait_for(lambda: self._parts or self._over, 20)
                if not self._parts:
                    return
                part = self._parts.pop(0)
            yield part

    def print(self, data: bytes) -> None:
        with self._change:
            self._parts.append(data)
            self._change.notify()

    def close(self) -> None:
        with self._change:
            self._over = True
            self._change.notify()


LIVE = running("rollout", 0, deleting_at=T + 60)
OVER = ended("rollout", 0, code=0, deleting_at=T + 60)


def play(story: Callable[[Logs, Node], Any], folder: Path) -> None:
    """Tell a story with a node of its own."""
    node = Node()

    async def tell() -> None:
        logs = Logs(node, str(folder))  # type: ignore[arg-type]
        try:
            await story(logs, node)
        finally:
            await logs.close()

    asyncio.run(tell())


async def read(logs: Logs, *pods: PodRecord) -> bytes:
    return (await logs.read(LogRequest("", "rollout"), OVER.token, pods)).data


async def until(logs: Logs, check: Callable[[], object]) -> None:
    await asyncio.to_thread(wait_until, check)


def test_what_a_pod_prints_while_it_ends_is_kept(tmp_path: Path) -> None:
    async def story(logs: Logs, node: Node) -> None:
        node.log = line(1, "up")
        assert await read(logs, LIVE) == b"up\n"
        logs.attend([LIVE])
        logs.attend([LIVE])
        await until(logs, lambda: node.asked)
        assert [query["sinceTime"] for query in node.asked] == ["2026-01-01T00:00:01Z"]
        node.print(line(1, "up") + line(2, "got TERM"))
        node.log = GONE
        # The log goes on: the end is not all yet.
        assert not await logs.capture(OVER)
        node.print(line(3, "stopped").removesuffix(b"\n"))
        node.close()
        await until(logs, lambda: not logs._last.goes_on(OVER.uid))
        assert await logs.capture(OVER)
        assert await read(logs) == b"up\ngot TERM\nstopped"

    play(story, tmp_path)


def test_a_log_that_is_still_there_is_read_as_it_is(tmp_path: Path) -> None:
    async def story(logs: Logs, node: Node) -> None:
        node.log = line(1, "up")
        logs.attend([LIVE])
        await until(logs, lambda: node.asked and logs._attended[OVER.uid].done())
        node.print(line(1, "up") + line(2, "got TERM"))
        node.log = line(1, "up") + line(2, "got TERM")
        assert await logs.capture(OVER)
        assert await read(logs) == b"up\ngot TERM\n"
        assert not logs._last.goes_on(OVER.uid)

    play(story, tmp_path)


def test_what_a_node_says_of_a_removed_container_is_no_line(tmp_path: Path) -> None:
    async def story(logs: Logs, node: Node) -> None:
        node.log = line(1, "up")
        assert await read(logs, LIVE) == b"up\n"
        node.log = GONE
        assert await read(logs, LIVE) == b"up\n"
        assert await logs.capture(OVER)
        assert await read(logs) == b"up\n"

    play(story, tmp_path)


def test_of_too_much_the_newer_lines_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(last_lines, "MOST_BYTES", 100)
    node = Node()
    last = LastLines(node)  # type: ignore[arg-type]
    last.follow(LIVE, "")
    for number in range(9):
        node.print(line(number, "text"))
    node.close()
    wait_until(lambda: not last.goes_on(LIVE.uid))
    kept = last.read(LIVE.uid)
    assert len(kept) <= 100 and kept.startswith(b"2026-") and kept.endswith(line(8, "text"))
    last.close()


def test_of_many_only_so_many_are_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(last_lines, "STREAMS", 2)
    monkeypatch.setattr(logs_module, "STREAMS", 2)

    async def story(logs: Logs, node: Node) -> None:
        pods = [running("rollout", index, deleting_at=T + 60) for index in range(9)]
        logs.attend(pods)
        await until(logs, lambda: len(node.asked) == 2)
        logs.attend(pods)
        assert len(node.asked) == 2
        # One that nobody follows is read at its end.
        node.log = line(1, "up")
        assert await logs.capture(ended("rollout", 8, deleting_at=T + 60))

    play(story, tmp_path)

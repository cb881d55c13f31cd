"""Logs of pods that are being ended: what they print on TERM is kept although their nodes remove it."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.unit.adapters.kubernetes.conftest import list_followers
from tests.unit.adapters.kubernetes.pods import T, ended, running
from tests.waiting import wait_until

from overspan.adapters.contract import LogRequest
from overspan.adapters.kubernetes.logs import live_logs
from overspan.adapters.kubernetes.logs import logs as logs_module
from overspan.adapters.kubernetes.logs.live_logs import LiveLogs
from overspan.adapters.kubernetes.logs.log_lines import CUT
from overspan.adapters.kubernetes.logs.logs import READERS, Logs, capture_all
from overspan.adapters.kubernetes.observation.records import PodRecord
from overspan.bridge.model.errors import Unreachable

PATIENCE = 120.0
"""Seconds after which a thread goes on that nobody has let go."""
GONE = b"unable to retrieve container logs for containerd://1234"


def line(second: int, text: str) -> bytes:
    """A line as the log API tells it."""
    return f"2026-01-01T00:00:{second:02}.000000000Z {text}\n".encode()


class Node:
    """What one node tells: `log` is the answer to a question, `parts` those of a log that is followed."""

    def __init__(self) -> None:
        self.log = b""
        self.silent = False
        self.answered: Callable[[], object] = lambda: None
        """What happens between an answer and its reader."""
        self.questions = 0
        self.lock = threading.Lock()
        self.asked: list[dict[str, Any]] = []
        self._parts: list[bytes] = []
        self._change = threading.Condition()
        self._over = False

    def read(self, path: str, query: dict[str, Any]) -> bytes:
        self.questions += 1
        if self.silent:
            raise Unreachable("the node does not answer")
        log = self.log
        self.answered()
        return log

    def stream(self, path: str, query: dict[str, Any], silence: float) -> Node:
        self.asked.append(query)
        return self

    def parts(self) -> Iterator[bytes]:
        while True:
            with self._change:
                self._change.wait_for(lambda: self._parts or self._over, PATIENCE)
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


def tell_nobody(pod: PodRecord, at: float) -> None:
    raise AssertionError(pod)


def play(story: Callable[[Logs, Node, LiveLogs], Any], folder: Path) -> None:
    """Tell a story with a node of its own."""
    node = Node()

    async def tell() -> None:
        live = LiveLogs(node, tell_nobody)  # type: ignore[arg-type]
        logs = Logs(node, str(folder), live)  # type: ignore[arg-type]
        try:
            await story(logs, node, live)
        finally:
            await logs.close()
            await live.close()

    asyncio.run(tell())


async def read(logs: Logs, *pods: PodRecord) -> bytes:
    return (await logs.read(LogRequest("", "rollout"), OVER.token, pods)).data


async def until(logs: Logs, check: Callable[[], object]) -> None:
    await asyncio.to_thread(wait_until, check)


def test_a_log_that_is_not_all_there_says_so(tmp_path: Path) -> None:
    """Whoever looks for its last lines looks again: they are shown after the end that the log itself told."""

    async def is_partial(logs: Logs, *pods: PodRecord) -> bool:
        return (await logs.read(LogRequest("", "rollout"), OVER.token, pods)).partial

    async def story(logs: Logs, node: Node, live: LiveLogs) -> None:
        node.log = line(1, "up")
        assert await is_partial(logs, LIVE)
        node.silent = True
        assert await is_partial(logs, OVER)
        assert not await is_partial(logs)

    play(story, tmp_path)

    async def answered(logs: Logs, node: Node, live: LiveLogs) -> None:
        node.log = line(1, "up")
        assert not await is_partial(logs, OVER)

    play(answered, tmp_path)


def test_what_a_pod_prints_while_it_ends_is_kept(tmp_path: Path) -> None:
    async def story(logs: Logs, node: Node, live: LiveLogs) -> None:
        node.log = line(1, "up")
        assert await read(logs, LIVE) == b"up\n"
        logs.follow_to_end([LIVE])
        logs.follow_to_end([LIVE])
        await until(logs, lambda: node.asked)
        assert [query["sinceTime"] for query in node.asked] == ["2026-01-01T00:00:00Z"]
        node.print(line(1, "up") + line(2, "got TERM"))
        node.log = GONE
        # The log goes on: the end is not all yet.
        assert not await logs.capture(OVER)
        node.print(line(3, "stopped").removesuffix(b"\n"))
        node.close()
        await until(logs, lambda: not live.goes_on(OVER.uid))
        assert await logs.capture(OVER)
        assert await read(logs) == b"up\ngot TERM\nstopped"

    play(story, tmp_path)


def test_a_log_that_is_still_there_is_read_as_it_is(tmp_path: Path) -> None:
    async def story(logs: Logs, node: Node, live: LiveLogs) -> None:
        node.log = line(1, "up")
        logs.follow_to_end([LIVE])
        await until(logs, lambda: node.asked and logs._followed[OVER.uid].done())
        node.print(line(1, "up") + line(2, "got TERM"))
        node.log = line(1, "up") + line(2, "got TERM")
        assert await logs.capture(OVER)
        assert await read(logs) == b"up\ngot TERM\n"
        assert not live.goes_on(OVER.uid)

    play(story, tmp_path)


def test_what_a_node_says_of_a_removed_container_is_no_line(tmp_path: Path) -> None:
    async def story(logs: Logs, node: Node, live: LiveLogs) -> None:
        node.log = line(1, "up")
        assert await read(logs, LIVE) == b"up\n"
        node.log = GONE
        assert await read(logs, LIVE) == b"up\n"
        assert await logs.capture(OVER)
        # That the end is missing is said, and once.
        assert await read(logs) == b"up\n" + CUT
        assert await logs.capture(OVER)
        assert await read(logs, OVER) == b"up\n" + CUT

    play(story, tmp_path)


def test_an_end_of_the_daemon_keeps_what_is_printed_until_then(tmp_path: Path) -> None:
    async def story(logs: Logs, node: Node, live: LiveLogs) -> None:
        node.log = line(1, "up")
        logs.follow_to_end([LIVE])
        await until(logs, lambda: live.goes_on(LIVE.uid))
        closing = asyncio.create_task(logs.finish(PATIENCE))
        node.print(line(1, "up") + line(2, "got TERM"))
        await asyncio.sleep(0)
        assert not closing.done()
        node.print(line(3, "saved"))
        node.log = GONE
        node.close()
        await closing
        # The next daemon has it from the file, and knows that it is all.
        another = Logs(node, str(tmp_path), LiveLogs(node, tell_nobody))  # type: ignore[arg-type]
        assert await another.capture(OVER)
        assert await read(another) == b"up\ngot TERM\nsaved\n"

    play(story, tmp_path)


def test_an_end_of_the_daemon_waits_for_no_pod_longer_than_it_may(tmp_path: Path) -> None:
    async def story(logs: Logs, node: Node, live: LiveLogs) -> None:
        node.log = line(1, "up")
        logs.follow_to_end([LIVE])
        await until(logs, lambda: live.goes_on(LIVE.uid))
        await logs.finish(0.05)
        assert live.goes_on(LIVE.uid)

    play(story, tmp_path)


def test_nobody_waits_again_for_a_node_that_was_silent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs_module, "SILENT_SECONDS", 3600.0)

    async def story(logs: Logs, node: Node, live: LiveLogs) -> None:
        node.silent = True
        for _ in range(3):
            with pytest.raises(Unreachable, match="does not answer"):
                await read(logs, LIVE)
        assert node.questions == 1
        # What is kept of its end is asked for all the same.
        node.silent, node.log = False, line(1, "up")
        assert not await logs.capture(LIVE)
        assert await read(logs, LIVE) == b"up\n"
        node.silent = True
        assert [await read(logs, LIVE) for _ in range(3)] == [b"up\n"] * 3
        assert node.questions == 4
        monkeypatch.setattr(logs_module, "SILENT_SECONDS", 0.0)
        assert not await capture_all(logs, [LIVE])
        assert await read(logs, LIVE) == b"up\n"
        assert node.questions == 6

    play(story, tmp_path)


def test_what_was_heard_before_is_kept_on_the_same_stream(tmp_path: Path) -> None:
    async def story(logs: Logs, node: Node, live: LiveLogs) -> None:
        live.follow_ends(OVER.token, [running("rollout", 0)])
        node.print(line(1, "up"))
        await until(logs, lambda: live.read(OVER.uid))
        node.log = line(1, "up")
        live.follow_ends(OVER.token, [], {OVER.uid})
        logs.follow_to_end([LIVE])
        await until(logs, lambda: live.goes_on(OVER.uid))
        node.print(line(2, "got TERM"))
        node.close()
        await until(logs, lambda: not live.goes_on(OVER.uid))
        node.log = GONE
        assert await logs.capture(OVER)
        assert await read(logs) == b"up\ngot TERM\n"
        assert [query["tailLines"] for query in node.asked] == [20]

    play(story, tmp_path)


@pytest.mark.parametrize("kept", [True, False])
def test_of_too_much_the_newer_lines_are_held(kept: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_logs, "KEPT_BYTES" if kept else "TAIL_BYTES", 100)

    async def story(logs: Logs, node: Node, live: LiveLogs) -> None:
        if kept:
            live.keep(LIVE, "")
        else:
            live.follow_ends(LIVE.token, [LIVE])
        for number in range(9):
            node.print(line(number, "text"))
        # A line is added before older ones are dropped.
        await until(logs, lambda: (data := live.read(LIVE.uid)).endswith(line(8, "text")) and len(data) <= 100)
        assert live.read(LIVE.uid).startswith(b"2026-")
        # A line that is longer than that is dropped, and all of it.
        node.print(line(9, "x" * 200)[:-1])
        node.print(b"y" * 200 + b"\n" + line(10, "after"))
        await until(logs, lambda: live.read(LIVE.uid) == line(10, "after"))

    play(story, tmp_path)


def test_of_many_only_so_many_are_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_logs, "STREAMS", 2)
    monkeypatch.setattr(logs_module, "STREAMS", 2)

    async def story(logs: Logs, node: Node, live: LiveLogs) -> None:
        pods = [running("rollout", index, deleting_at=T + 60) for index in range(9)]
        logs.follow_to_end(pods)
        await until(logs, lambda: len(node.asked) == 2)
        logs.follow_to_end(pods)
        assert len(node.asked) == 2
        # One that nobody follows is read at its end.
        node.log = line(1, "up")
        assert await logs.capture(ended("rollout", 8, deleting_at=T + 60))

    play(story, tmp_path)


def test_one_at_a_time_reads_a_log_into_its_file(tmp_path: Path) -> None:
    async def story(logs: Logs, node: Node, live: LiveLogs) -> None:
        gates = [threading.Event() for _ in range(3)]
        under_way: list[int] = []
        most: list[int] = []

        def answer(path: str, query: dict[str, Any]) -> bytes:
            number = node.questions
            node.questions += 1
            under_way.append(number)
            most.append(len(under_way))
            gates[number].wait(PATIENCE)
            under_way.remove(number)
            return line(number, "text")

        node.read = answer  # type: ignore[method-assign]
        first = asyncio.create_task(read(logs, LIVE))
        await until(logs, lambda: node.questions == 1)
        second = asyncio.create_task(read(logs, LIVE))
        await asyncio.sleep(0)
        gates[0].set()
        await first
        await until(logs, lambda: node.questions == 2)
        # It comes when the second one has its turn, and nobody else waits.
        third = asyncio.create_task(read(logs, LIVE))
        await asyncio.wait([third], timeout=0.2)
        for gate in gates:
            gate.set()
        await asyncio.gather(second, third)
        assert most == [1, 1, 1]

    play(story, tmp_path)


def test_nobody_reads_beside_a_thread_that_was_given_up(tmp_path: Path) -> None:
    async def story(logs: Logs, node: Node, live: LiveLogs) -> None:
        free = threading.Event()

        def answer(path: str, query: dict[str, Any]) -> bytes:
            node.questions += 1
            free.wait(PATIENCE)
            return line(1, "text")

        node.read = answer  # type: ignore[method-assign]
        first = asyncio.create_task(read(logs, LIVE))
        await until(logs, lambda: node.questions == 1)
        first.cancel()
        second = asyncio.create_task(read(logs, LIVE))
        await asyncio.wait([second], timeout=0.2)
        assert node.questions == 1
        free.set()
        assert await second == b"text\n"

    play(story, tmp_path)


def test_a_log_of_a_pod_that_was_dropped_is_not_followed(tmp_path: Path) -> None:
    async def story(logs: Logs, node: Node, live: LiveLogs) -> None:
        node.log = line(1, "up")
        logs.follow_to_end([LIVE])
        await until(logs, lambda: live.goes_on(LIVE.uid))
        logs.forget(LIVE.uid)
        await until(logs, lambda: not list_followers())
        assert live.count() == 0
        # Nor one that was about to be.
        logs.follow_to_end([LIVE])
        attended = logs._followed[LIVE.uid]
        logs.forget(LIVE.uid)
        await attended
        assert live.count() == 0 and len(node.asked) == 1

    play(story, tmp_path)


def test_nobody_waits_long_for_logs_of_a_node_that_hangs(tmp_path: Path) -> None:
    async def story(logs: Logs, node: Node, live: LiveLogs) -> None:
        free = threading.Event()

        def hang(path: str, query: dict[str, Any], silence: float) -> Node:
            # A node that hangs begins no answer.
            free.wait(PATIENCE)
            return node

        node.stream = hang  # type: ignore[method-assign]
        live.follow_ends(LIVE.token, [running("rollout", number) for number in range(40)])
        assert len(list_followers()) == 40
        begun = time.monotonic()
        await live.close()
        # Not one after the other.
        assert time.monotonic() - begun < 40 * live_logs.CLOSE_SECONDS
        free.set()
        node.close()
        await until(logs, lambda: not list_followers())

    play(story, tmp_path)


def test_a_node_that_is_silent_holds_up_few(tmp_path: Path) -> None:
    async def story(logs: Logs, node: Node, live: LiveLogs) -> None:
        free = threading.Event()

        def hang(path: str, query: dict[str, Any]) -> bytes:
            with node.lock:
                node.questions += 1
            free.wait(PATIENCE)
            raise Unreachable("the node does not answer")

        node.read = hang  # type: ignore[method-assign]
        pods = [ended("rollout", index) for index in range(50)]
        captured = asyncio.create_task(capture_all(logs, pods))
        await until(logs, lambda: node.questions >= READERS)
        # Others have threads left.
        await asyncio.wait_for(asyncio.to_thread(int), 60)
        free.set()
        assert await captured == set()
        assert node.questions == READERS

    play(story, tmp_path)


def test_what_a_pod_printed_that_ended_before_anybody_kept_it_is_there(tmp_path: Path) -> None:
    async def story(logs: Logs, node: Node, live: LiveLogs) -> None:
        live.follow_ends(OVER.token, [running("rollout", 0)])
        node.print(line(1, "up") + line(2, "got TERM"))
        await until(logs, lambda: live.read(OVER.uid).endswith(b"TERM\n"))
        # It ends with its container, and what its node says of that later is no line.
        node.close()
        await until(logs, lambda: live._logs[OVER.uid].stream is None)
        node.print(GONE)
        live.follow_ends(OVER.token, [], {OVER.uid})
        node.log = GONE
        logs.follow_to_end([LIVE])
        await until(logs, lambda: not list_followers())
        assert await logs.capture(OVER)
        assert await read(logs) == b"up\ngot TERM\n"

    play(story, tmp_path)


def test_a_kept_log_knows_when_its_lines_came(tmp_path: Path) -> None:
    begin = 1767225600.0

    async def story(logs: Logs, node: Node, live: LiveLogs) -> None:
        request = LogRequest("", "rollout", times=True)
        node.log = line(1, "one") + line(1, "two")
        assert (await logs.read(request, OVER.token, [LIVE])).marks == ((begin + 1, 8),)
        node.log += line(3, "three")
        part = await logs.read(request, OVER.token, [OVER])
        assert (part.data, part.marks) == (b"one\ntwo\nthree\n", ((begin + 1, 8), (begin + 3, 14)))
        assert (await logs.read(LogRequest("", "rollout"), OVER.token, [OVER])).marks is None
        # A daemon that died noted them, but not how far the log goes.
        (noted,) = tmp_path.rglob("*.times")
        noted.write_text(noted.read_text() * 2 + "damaged 9\n1 2 3\n")
        assert (await logs.read(request, OVER.token, [OVER])).marks == part.marks

    play(story, tmp_path)


def test_a_log_that_ends_behind_an_answer_is_not_taken_for_read(tmp_path: Path) -> None:
    """The last lines come while a question is under way, and the followed log is whole when it is answered."""

    async def story(logs: Logs, node: Node, live: LiveLogs) -> None:
        node.log = line(1, "serving")
        logs.follow_to_end([LIVE])
        await until(logs, lambda: live.goes_on(LIVE.uid))

        def end() -> None:
            node.answered = lambda: None
            node.log += line(2, "stopped")
            node.print(node.log)
            node.close()
            wait_until(lambda: live.is_whole(LIVE.uid))

        node.answered = end
        assert await read(logs, LIVE) == b"serving\n"
        assert await read(logs, OVER) == b"serving\nstopped\n"
        assert await logs.capture(OVER)
        assert await read(logs) == b"serving\nstopped\n"

    play(story, tmp_path)

"""A shell beside the work: where it is opened, where it is not, and what becomes of the terminal."""

from __future__ import annotations

import asyncio
import os
import pty
import signal
import subprocess
import sys
import termios
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.unit.tui.fake_source import FakeSource, job
from tests.unit.tui.frames import read_frame
from tests.unit.tui.order_stories import answer, begin, read_notes
from tests.unit.tui.queue_lab import make_group
from tests.unit.tui.stories import play, settle
from textual.pilot import Pilot

from overspan.bridge.model.errors import Conflict
from overspan.tui.actions import shell
from overspan.tui.app import TopApp, TopOptions
from overspan.tui.terminal.lent_terminal import describe_end, explain_missing

Lent = list[tuple[Sequence[str], Mapping[str, str], str]]
PLACE = {"place": "main-0 of job 7 on n1", "words": ["ssh", "n1"], "environment": {"ONE": "1"}}


def describe(name: str, offset: int, hosts: Sequence[str]) -> dict[str, Any]:
    """A task as `show` tells of it, with a node on each host."""
    nodes = [{"index": index, "node": host} for index, host in enumerate(hosts)]
    return {"name": name, "offset": offset, "state": "RUNNING", "attempts": [{"nodes": nodes}]}


@pytest.fixture
def lent(monkeypatch: pytest.MonkeyPatch) -> Lent:
    """What the terminal was lent to."""
    found: Lent = []
    monkeypatch.setattr(shell, "lend_terminal", lambda screen, *words: found.append(words))
    return found


def test_a_job_of_one_node_is_entered_at_once(lent: Lent) -> None:
    source = FakeSource([job(7)])
    source.details["7"] = {"tasks": [describe("main", 0, ["n1"])]}
    source.shells["7"] = PLACE

    async def story(app: TopApp, pilot: Pilot[int]) -> None:
        await begin(app, pilot)
        await pilot.press("exclamation_mark")
        await settle(pilot, lambda: bool(lent))
        [(words, environment, greeting)] = lent
        assert words == ["ssh", "n1"] and environment == {**os.environ, "ONE": "1"}
        assert greeting == "main-0 of job 7 on n1; `exit` comes back, and the job goes on"
        assert source.orders == [("shell", ("7", "main", 0))]

    play(source, story)


def test_of_several_nodes_one_is_chosen(lent: Lent) -> None:
    source = FakeSource(make_group(42))
    source.details["42"] = source.details["42+1"] = {
        "tasks": [
            describe("trainer", 0, ["gpu01"]),
            describe("rollout", 1, ["gpu03", "gpu04"]),
            {"name": "reward", "offset": 2, "state": "PENDING", "attempts": []},
        ]
    }
    source.shells["42"] = source.shells["42+1"] = PLACE

    async def story(app: TopApp, pilot: Pilot[int]) -> None:
        await begin(app, pilot)
        await pilot.press("exclamation_mark")
        await answer(pilot)
        await settle(pilot, lambda: "rollout-1 RUNNING on gpu04" in read_frame(app.screen))
        frame = read_frame(app.screen)
        assert "slurm-a:42 rl-math" in frame and "reward" not in frame
        # Enter means none.
        await pilot.press("enter")
        await settle(pilot, lambda: len(app.screen_stack) == 1)
        assert source.orders == []
        await pilot.press("right", "down", "down", "exclamation_mark")
        await answer(pilot, "down", "down", "enter")
        await settle(pilot, lambda: bool(lent))
        assert source.orders == [("shell", ("42+1", "rollout", 1))]

    play(source, story)


def test_what_cannot_be_entered_is_told_why(lent: Lent) -> None:
    source = FakeSource([job(7, state="PENDING")])
    source.details["7"] = {"tasks": [{"name": "main", "offset": 0, "state": "PENDING", "attempts": []}]}
    source.refusal = Conflict("job 7 does not run yet: PENDING (Resources)", remedy="wait until it runs")

    async def story(app: TopApp, pilot: Pilot[int]) -> None:
        await begin(app, pilot)
        await pilot.press("exclamation_mark")
        await settle(
            pilot, lambda: "no shell leo:7 fit: job 7 does not run yet: PENDING (Resources); wait" in read_notes(app)
        )
        assert not lent

    play(source, story)


@pytest.mark.parametrize("options", [TopOptions(read_only=True), TopOptions(web=True, web_actions=True)])
def test_there_is_none_in_a_browser_and_none_where_one_only_looks(lent: Lent, options: TopOptions) -> None:
    source = FakeSource([job(7)])
    source.details["7"] = {"tasks": [describe("main", 0, ["n1"])]}
    source.shells["7"] = PLACE

    async def story() -> None:
        app = TopApp(source, options)
        async with app.run_test(size=(100, 24)) as pilot:
            await begin(app, pilot)
            await pilot.press("exclamation_mark")
            await pilot.press("question_mark")
            assert "beside the work" not in read_frame(app.screen)
            await pilot.press("escape")
            # Whatever else asks for one.
            app.queue.action_shell()
            await settle(pilot, lambda: "shell" in read_notes(app))
            assert source.orders == [] and not lent

    asyncio.run(story())


def test_no_terminal_is_lent_to_what_is_not_asked_for_any_more(lent: Lent) -> None:
    source = FakeSource([job(7)])
    source.details["7"] = {"tasks": [describe("main", 0, ["n1"])]}
    source.shells["7"] = PLACE

    async def story(app: TopApp, pilot: Pilot[int]) -> None:
        await begin(app, pilot)
        app.queue.action_shell()
        app.action_help()
        await settle(pilot, lambda: bool(app.screen_stack[1:]))
        await pilot.pause(0.1)
        assert not lent

    play(source, story)


def test_a_program_that_is_missing_is_named_and_the_terminal_is_kept() -> None:
    source = FakeSource([job(7)])
    source.details["7"] = {"tasks": [describe("main", 0, ["n1"])]}
    source.shells["7"] = {**PLACE, "words": ["no-such-program", "exec"]}

    async def story(app: TopApp, pilot: Pilot[int]) -> None:
        await begin(app, pilot)
        await pilot.press("exclamation_mark")
        # To lend the terminal of a test is refused in other words.
        await settle(pilot, lambda: "there is no no-such-program on PATH here: install it" in read_notes(app))

    play(source, story)


def test_a_program_is_looked_for_where_its_own_environment_says(tmp_path: Path) -> None:
    program = tmp_path / "shell"
    program.touch()
    assert "no shell on PATH" in explain_missing("shell", {"PATH": str(tmp_path)})
    assert "is not a program" in explain_missing(str(program), {})
    program.chmod(0o755)
    assert explain_missing("shell", {"PATH": str(tmp_path)}) == explain_missing(str(program), {}) == ""


def test_how_a_program_has_ended_is_told_in_words() -> None:
    assert describe_end(3) == "has ended with exit code 3"
    assert describe_end(-9) == "was ended by SIGKILL"
    assert describe_end(-99) == "was ended by signal 99"


BORROW = """
import os, signal, sys, termios, tty
sys.argv[1] == "lead" and os.setpgrp()
signal.signal(signal.SIGTTOU, signal.SIG_IGN)
os.tcsetpgrp(0, os.getpgrp())
tty.setraw(0)
os.kill(os.getpid(), signal.SIGKILL)
"""
LEND = f"""
import os, subprocess, sys
from overspan.tui.terminal.lent_terminal import _keep_terminal
with _keep_terminal(sys.stdin):
    subprocess.run([sys.executable, "-c", {BORROW!r}, "lead"])
assert os.tcgetpgrp(0) == os.getpgrp()
"""


def test_a_program_that_is_killed_leaves_the_terminal_as_it_was() -> None:
    leader, follower = pty.openpty()
    before = termios.tcgetattr(follower)
    begin_session = (
        "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execv(sys.argv[1], sys.argv[1:])"
    )
    words = [sys.executable, "-c", begin_session, sys.executable, "-c", LEND]
    try:
        done = subprocess.run(words, stdin=follower, start_new_session=True, timeout=60, check=False)
        assert done.returncode == 0 and done.returncode != -signal.SIGTTOU
        assert termios.tcgetattr(follower) == before
    finally:
        os.close(leader)
        os.close(follower)

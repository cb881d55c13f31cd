"""Stories of `span top` that every kind of cluster plays: an hour with a group, and a shell beside the work."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tests.system.conftest import Span
from tests.system.top.live_queue import LiveQueue, play_live
from tests.system.top.terminal import open_terminal
from tests.unit.tui.frames import read_frame

from overspan.tui.detail.text_screen import TextScreen
from overspan.tui.logs.screen import LogScreen

DAY = """\
name: rl
execution: parallel
primary_tasks: [trainer]
restart: group
---
name: trainer
resources: {cpus: 0.1}
envs: {EPOCHS: "3 of 4"}
run: |
  echo "trainer begins, attempt $OVERSPAN_ATTEMPT"
  n=0
  while :; do n=$((n + 1)); echo "step $n"; sleep 0.5; done
---
name: rollout
resources: {cpus: 0.1}
run: |
  echo "rollout begins"
  sleep 600
"""

GROUP = """\
name: rl
execution: parallel
primary_tasks: [trainer]
---
name: trainer
resources: {cpus: 0.1}
envs: {EPOCHS: "3 of 4"}
run: echo up; sleep 300
---
name: rollout
num_nodes: 2
resources: {cpus: 0.1}
run: sleep 300
"""
"""A small group that runs until it is ended."""


def play_day(span: Span, submit: Callable[[str], int], sent: str) -> None:
    """Open the queue, read logs that follow, look at what was sent, restart, read the earlier attempt, cancel.

    `sent` is a word of what this kind of cluster is sent.
    """
    job = submit(DAY)

    async def story(live: LiveQueue) -> None:
        await live.until_state(job, "RUNNING")
        await live.go_to(job)
        await live.pilot.press("right", "i")
        await live.until_state(f"{job}+1", "RUNNING")
        await _read_logs(live)
        await live.go_to(job)
        await _look_at_details(live, sent)
        assert await live.order(job, "ctrl+r", "y") == "restarted"
        await live.until(lambda: span.task(job, "trainer")["attempt"] == 1 and live.states[str(job)] == "RUNNING")
        await _read_earlier_attempt(live)
        await live.go_to(job)
        await live.pilot.press("c")
        await live.until(lambda: len(live.app.screen_stack) == 2)
        await live.until(lambda: f":{job} rl" in read_frame(live.app.screen))
        await live.pilot.press("enter")
        await live.until(lambda: len(live.app.screen_stack) == 1)
        assert await live.order(job, "c", "y") == "cancelled"
        await live.until_state(job, "CANCELLED")
        await live.until(lambda: not live.app.watching.watched)
        assert any(entry.order == "Watch" and "CANCELLED" in entry.answer for entry in live.app.order_log)

    play_live(span, story, size=(140, 50))


def play_shell(span: Span, job: int, ask: str, told: str, environment: Mapping[str, str], waits: str = "") -> None:
    """Open a shell beside a job by `!`, `ask` there for what only the work knows, leave it, and be in the queue again.

    The shell's end is not the work's, and the terminal is as it was before. `waits` is a job that cannot be entered.
    """
    own = {**span.environment, "TERM": "xterm", "SHELL": "/bin/sh", **environment}
    with open_terminal(["top", "-j", f"{job},{waits}".rstrip(",")], own) as terminal:
        terminal.wait_for(str(job), waits, "JOBID")
        terminal.press("g!")
        terminal.wait_for("the job goes on", seconds=60)
        terminal.press(f"{ask}; exit 3\n")
        # What ends badly may have said why: it is left to be read.
        terminal.wait_for(told, "It has ended with exit code 3", seconds=60)
        terminal.press("\n")
        terminal.wait_for("JOBID", seconds=60)
        if waits:
            terminal.press("G!")
            terminal.wait_for("does not run yet", waits)
        terminal.press("q")
        assert terminal.wait_end() == 0
        assert terminal.screen.clean and terminal.restored
    assert span.job(job)["state"] == "RUNNING"


def play_missing_program(span: Span, job: int, program: str, path: str) -> None:
    """Press `!` where PATH has no such program: the queue stays, and a note names the program."""
    with open_terminal(["top", "-j", str(job)], {**span.environment, "TERM": "xterm", "PATH": path}) as terminal:
        terminal.wait_for(str(job), "JOBID")
        terminal.press("g!")
        shown = terminal.wait_for(f"there is no {program} on PATH", seconds=60)
        assert "JOBID" in shown and "the job goes on" not in shown
        terminal.press("q")
        assert terminal.wait_end() == 0 and terminal.restored


async def open_log(live: LiveQueue) -> LogScreen:
    """The log of the line under the cursor."""
    await live.pilot.press("o")
    await live.until(lambda: isinstance(live.app.screen, LogScreen))
    screen = live.app.screen
    assert isinstance(screen, LogScreen)
    return screen


def list_texts(screen: LogScreen) -> list[str]:
    """The lines that are known of the log."""
    return [row.line.text for row in screen.view.rows]


async def _read_logs(live: LiveQueue) -> None:
    """Merged, with names in front; what is written comes; a search where the log is; one task alone."""
    screen = await open_log(live)
    await live.until(lambda: {"rollout begins", "trainer begins, attempt 0"} <= set(list_texts(screen)))
    last = [text for text in list_texts(screen) if text.startswith("step ")][-1]
    await live.until(lambda: f"step {int(last.split()[1]) + 3}" in list_texts(screen))
    frame = read_frame(screen)
    assert "trainer-0" in frame
    await live.pilot.press("slash", *"begins, at+empt", "enter")
    await live.until(lambda: screen.session.hit is not None)
    assert screen.session.hit is not None and screen.session.hit.line.text == "trainer begins, attempt 0"
    await live.pilot.press("F", "right_square_bracket")
    await live.until(lambda: list_texts(screen) and "rollout begins" not in list_texts(screen))
    await live.pilot.press("right_square_bracket")
    await live.until(lambda: list_texts(screen) == ["rollout begins"])
    await live.pilot.press("right_square_bracket", "ampersand", *"begins", "enter")
    await live.until(lambda: sorted(list_texts(screen)) == ["rollout begins", "trainer begins, attempt 0"])
    while isinstance(live.app.screen, LogScreen):
        await live.pilot.press("escape")


async def _look_at_details(live: LiveQueue, sent: str) -> None:
    """The pane, then the texts: as sent, the environment."""
    await live.pilot.press("d")
    pane = live.app.queue.pane
    await live.until(lambda: "Timeline" in pane.text() and "span submit" in pane.text())
    assert "trainer" in pane.text() and "rollout" in pane.text()
    await live.pilot.press("b")
    await live.until(lambda: isinstance(live.app.screen, TextScreen))
    screen = live.app.screen
    assert isinstance(screen, TextScreen)
    await live.until(lambda: any(sent in row.line.text for row in screen.view.rows))
    await live.pilot.press("right_square_bracket")
    await live.until(lambda: any(row.line.text == "EPOCHS='3 of 4'" for row in screen.view.rows))
    await live.pilot.press("q", "d")
    await live.until(lambda: not pane.display)


async def _read_earlier_attempt(live: LiveQueue) -> None:
    """The new attempt first; the one before by a key."""
    screen = await open_log(live)
    await live.until(lambda: "trainer begins, attempt 1" in list_texts(screen))
    assert "trainer begins, attempt 0" not in list_texts(screen)
    await live.pilot.press("left_curly_bracket")
    await live.until(lambda: "trainer begins, attempt 0" in list_texts(screen))
    assert "trainer begins, attempt 1" not in list_texts(screen)
    await live.pilot.press("q")
    await live.until(lambda: len(live.app.screen_stack) == 1)

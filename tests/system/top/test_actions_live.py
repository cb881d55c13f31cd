"""Every order, the shell, the watch and the details of `span top`, by their keys, against a real daemon."""

from __future__ import annotations

import pytest
from tests.system.conftest import Span
from tests.system.top.live_queue import LiveQueue, play_live, write_values
from tests.system.top.top_stories import GROUP, play_shell
from tests.unit.tui.frames import read_frame
from tests.unit.tui.order_stories import read_notes
from tests.unit.tui.queue_frames import read_screen

from overspan.tui.detail.text_screen import TextScreen

pytestmark = pytest.mark.shared_daemon
SIGNALLED = "trap 'echo told' USR1; echo up; while :; do sleep 0.05; done"


def hold(span: Span, name: str, *words: str) -> str:
    """A job that is held; gives its id."""
    return str(span.wrap("true", "-H", "-J", name, *words))


def read_trouble(live: LiveQueue) -> str:
    """What an open dialog says is wrong."""
    return str(live.app.screen.query_one("#edit-trouble").render())


def test_orders_to_what_runs(span: Span) -> None:
    """TU05: signal, suspend, resume, time limit, requeue, restart and cancel, each by its key."""
    job = span.wrap(SIGNALLED, "--requeue", "-J", "fit")

    async def story(live: LiveQueue) -> None:
        await live.until(lambda: "up" in span.log(job))
        await live.until_state(job, "RUNNING")
        assert await live.order(job, "x", *["down"] * 4, "enter") == "signal USR1 sent"
        await live.until(lambda: "told" in span.log(job))
        assert await live.order(job, "Z") == "suspended"
        await live.until_state(job, "SUSPENDED")
        assert await live.order(job, "W") == "resumed"
        await live.until_state(job, "RUNNING")
        assert await live.order(job, "t", *"2:00:00", "enter") == "time limit is 2:00:00"
        assert span.job(job)["tasks"][0]["time_limit"] == 7200
        # What a state does not allow is refused here, and never sent.
        await live.go_to(job)
        await live.pilot.press("H")
        await live.until(lambda: f"local:{job} fit is RUNNING" in read_notes(live.app))
        assert await live.order(job, "R", "y") == "requeued"
        await live.until(lambda: span.job(job)["restarts"] == 1 and live.states[str(job)] == "RUNNING")
        assert await live.order(job, "ctrl+r", "y") == "restarted"
        await live.until(lambda: span.job(job)["tasks"][0]["attempt"] == 2 and live.states[str(job)] == "RUNNING")
        # No is the answer of whoever only presses Enter.
        await live.pilot.press("c")
        await live.until(lambda: len(live.app.screen_stack) == 2)
        await live.until(lambda: f"local:{job} fit" in read_frame(live.app.screen))
        await live.pilot.press("enter")
        await live.until(lambda: len(live.app.screen_stack) == 1)
        assert span.job(job)["state"] == "RUNNING"
        assert await live.order(job, "c", "y") == "cancelled"
        await live.until_state(job, "CANCELLED")
        assert [entry.failed for entry in live.app.order_log] == [False] * 7

    play_live(span, story)


def test_orders_to_what_waits(span: Span) -> None:
    """TU05: priority, nice, put first, edit with a refusal in the daemon's words, hold and release."""
    first, second = (str(span.wrap("true", "--begin=now+1hour", "-J", name)) for name in ("one", "two"))

    async def story(live: LiveQueue) -> None:
        assert await live.order(second, "P", *"12", "enter") == "priority is 12"
        assert await live.order(first, "I", *"7", "enter") == "nice is 7"
        assert await live.order(first, "circumflex_accent") == "first of its user's jobs"
        shown = span.job(first)
        assert shown["priority"] - shown["nice"] > 12 and shown["nice"] == 7
        area = await live.open_file(first, "E")
        write_values(area, name="other", comment="for the paper", partition="nowhere", time="soon")
        await live.pilot.press("ctrl+s")
        await live.until(lambda: "time: " in read_trouble(live))
        assert len(live.answers) == 3
        write_values(area, time="5", begin="now+2hours", dependency=f"afterok:{second}")
        await live.pilot.press("ctrl+s")
        # What the daemon says stays there, with what was typed; and it is all of it, or none.
        await live.until(lambda: "partition" in read_trouble(live))
        assert live.answers[0] == read_trouble(live) and "name: other" in area.text
        assert span.job(first)["name"] == "one"
        write_values(area, partition="local")
        await live.pilot.press("ctrl+s")
        await live.until(lambda: len(live.app.screen_stack) == 1)
        shown = span.job(first)
        assert (shown["name"], shown["comment"], shown["tasks"][0]["time_limit"]) == ("other", "for the paper", 300)
        assert shown["dependency"].startswith(f"afterok:{second}") and shown["begin"] > span.job(second)["begin"] + 3000
        area = await live.open_file(first, "E")
        write_values(area, dependency="none")
        await live.pilot.press("ctrl+s")
        await live.until(lambda: not span.job(first)["dependency"])
        assert await live.order(first, "H") == "held"
        assert span.job(first)["held"]
        assert await live.order(first, "U") == "released"
        assert not span.job(first)["held"]

    play_live(span, story)


ELASTIC = """\
name: rl
execution: parallel
primary_tasks: [trainer]
---
name: trainer
resources: {cpus: 0.1}
run: sleep 300
---
name: rollout
elastic: {min: 1, max: 3, scale_up_after: never}
resources: {cpus: 0.1}
run: sleep 300
"""


def test_members_of_an_elastic_task(span: Span) -> None:
    """TU05: a task gets another member on its line and gives it back by its name; a number beyond its bounds."""
    group = span.submit(ELASTIC)

    async def story(live: LiveQueue) -> None:
        await live.until_state(group, "RUNNING")
        assert await live.order(group, "equals_sign", *"rollout=9", "enter") == (
            "rollout has 1 to 3 members, and 9 is asked for; name 1 to 3"
        )
        await live.pilot.press("right")
        told = await live.order(f"{group}+1", "equals_sign", "2", "enter")
        assert told == "rollout: 2 of 2 members are there or come"
        await live.until(lambda: [span.job(job)["state"] for job in span.job(group)["joined"]] == ["RUNNING"])
        # The further member is a job of its own, below its group, behind its task, which tells how many it has.
        member = str(span.job(group)["joined"][0])
        await live.until(lambda: live.states.get(member) == "RUNNING")
        family = [group, f"{group}+0", f"{group}+1", member]
        await live.until(lambda: [line.node.ref for line in live.app.queue.table.lines] == list(map(str, family)))
        await live.until(lambda: "2 of 1-3 members" in read_screen(live.app))
        # It is folded, filtered, marked and ordered about as other parts are.
        await live.go_to(member)
        await live.pilot.press("left", "left")
        assert list(live.states) == [str(group)] and "3 R" in read_screen(live.app)
        await live.pilot.press("right", "slash", *"rollout-", "enter")
        assert list(live.states) == [str(group), member]
        await live.pilot.press("slash", "escape")
        await live.go_to(member)
        await live.pilot.press("space")
        assert await live.order(group, "x", *["down"] * 7, "enter") == "signal CONT sent"
        assert next(iter(live.app.order_log)).target == f"local:{member} rollout-1"
        await live.pilot.press("backslash")
        told = await live.order(group, "equals_sign", *"rollout=1", "enter")
        assert told == "rollout: 1 of 1 members are there or come"
        await live.until(lambda: all(span.job(job)["ended_at"] for job in span.job(group)["joined"]))
        assert await live.order(group, "c", "y") == "cancelled"

    play_live(span, story)


def test_an_array_and_a_group(span: Span) -> None:
    """TU05: throttle, the failed elements again, a member signalled and one task of a group restarted."""
    array = span.wrap("[ $SLURM_ARRAY_TASK_ID = 1 ] || sleep 300; exit 3", "--array=0-9%2", "-J", "sweep")
    group = span.submit(GROUP)

    async def story(live: LiveQueue) -> None:
        assert await live.order(array, "percent_sign", "4", "enter") == "throttle is 4"
        await live.until(lambda: "FAILED" in str(live.app.queue.jobs.count_states()))
        area = await live.open_file(array, "N")
        assert area.text.startswith("# only lines that you change are sent")
        await live.pilot.press("ctrl+s")
        await live.until(lambda: "".join(live.answers[:1]).startswith("submitted again as local:"))
        again = live.answers[0].rpartition(":")[2]
        await live.until(lambda: any(ref.startswith(again) for ref in live.states))
        await live.until(lambda: len(live.app.screen_stack) == 1)
        await live.go_to(group)
        await live.pilot.press("right")
        await live.until_state(f"{group}+1", "RUNNING")
        assert await live.order(f"{group}+1", "ctrl+r", "y") == "restarted"
        await live.until(lambda: span.task(group, "rollout")["attempt"] == 1)
        assert span.task(group, "trainer")["attempt"] == 0
        # Marks make one order of several jobs, which asks.
        await live.pilot.press("backslash")
        for ref in (array, group):
            await live.go_to(ref)
            await live.pilot.press("space")
        await live.pilot.press("c")
        await live.until(lambda: len(live.app.screen_stack) == 2)
        frame = read_frame(live.app.screen)
        assert f"local:{array} sweep" in frame and f"local:{group} rl" in frame
        await live.pilot.press("escape")
        assert await live.order(array, "c", "y") == "cancelled"
        await live.until_state(group, "CANCELLED")
        await live.until(lambda: span.job(array)["state"] != "RUNNING")

    play_live(span, story)


def test_what_ended_by_its_limit_is_submitted_again_with_twice_as_much(span: Span) -> None:
    """TU05: after TIMEOUT twice the limit is proposed, and sent; the watch has told of the end."""
    job = span.submit("name: short\ntime: 2s\nresources: {cpus: 0.1}\nrun: sleep 300\n")

    async def story(live: LiveQueue) -> None:
        await live.until_state(job, "RUNNING")
        await live.go_to(job)
        await live.pilot.press("i")
        await live.until(lambda: f"{job} ◉" in read_frame(live.app.queue))
        await live.until(lambda: f"ended local:{job} short: TIMEOUT" in read_notes(live.app))
        assert not live.app.watching.watched
        area = await live.open_file(job, "n")
        assert "# proposed: twice the time, since it ended by TIMEOUT; it was 0:02" in area.text
        await live.pilot.press("ctrl+s")
        await live.until(lambda: "".join(live.answers[:1]).startswith("submitted again as local:"))
        again = live.answers[0].rpartition(":")[2]
        assert span.job(again)["tasks"][0]["time_limit"] == 4

    play_live(span, story)


def test_what_is_known_of_a_job_is_shown(span: Span) -> None:
    """TU03: timeline, attempts, tasks, submit line; what was sent, and the environment."""
    group = span.submit(GROUP)
    for name in ("trainer", "rollout"):
        span.until(group, "RUNNING", task=name)
    held = hold(span, "later", "--dependency", f"afterok:{group}", "-c", "2")

    async def story(live: LiveQueue) -> None:
        await live.go_to(group)
        await live.pilot.press("d")
        pane = live.app.queue.pane
        await live.until(lambda: "Timeline" in pane.text() and "span submit" in pane.text())
        assert all(word in pane.text() for word in ("trainer", "rollout", "RUNNING", GROUP.splitlines()[7]))
        span.run("restart", str(group), "rollout")
        await live.until(lambda: span.task(group, "rollout")["attempt"] == 1)
        await live.go_to(held)
        await live.until(lambda: "JobHeldUser" in pane.text() and f"afterok:{group}" in pane.text())
        await live.go_to(group)
        await live.until(lambda: "restart" in pane.text())
        await live.pilot.press("b")
        await live.until(lambda: isinstance(live.app.screen, TextScreen))
        screen = live.app.screen
        assert isinstance(screen, TextScreen)
        await live.until(lambda: screen.view.rows)
        await live.pilot.press("right_square_bracket")
        await live.until(lambda: any(row.line.text == "EPOCHS='3 of 4'" for row in screen.view.rows))
        await live.pilot.press("right_square_bracket")
        await live.until(lambda: any(row.line.text == "primary_tasks: [trainer]" for row in screen.view.rows))

    play_live(span, story, size=(140, 60))


def test_a_shell_has_the_terminal_and_gives_it_back(span: Span) -> None:
    """TU05: `!` is beside the work; its end is not the work's; what cannot be entered is told why."""
    job = span.wrap("sleep 300", "-J", "fit")
    span.until(job, "RUNNING")
    held = hold(span, "later")
    play_shell(span, job, "echo told=$SLURM_JOB_ID", f"told={job}", {}, held)

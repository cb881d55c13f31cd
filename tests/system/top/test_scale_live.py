"""`span top` with 10,000 jobs of a real daemon: what is told, kept, painted and written when one of them changes."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from tests.system.conftest import Span
from tests.system.top.live_queue import LiveQueue, play_live
from tests.system.top.terminal import open_terminal

from overspan import Client
from overspan.bridge.client.records import QueueChanges

pytestmark = pytest.mark.shared_daemon
JOBS = 10_000


@pytest.fixture(scope="module")
def lab(shared_span: Span) -> Span:
    """A daemon with so many held jobs."""
    shared_span.wrap("true", "-H", "-J", "first")

    def submit(share: int) -> None:
        with Client(environment=shared_span.environment) as client:
            for number in range(share, JOBS - 1, 8):
                client.submit({"name": f"job-{number}", "run": "true"}, hold=True)

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(submit, range(8)))
    return shared_span


def test_a_change_of_one_job_is_told_and_drawn_alone(lab: Span) -> None:
    """TU08: the first answer has all, the next one that changed; cursor, marks and 9,999 rows stay as they are."""

    async def story(live: LiveQueue) -> None:
        await live.until(lambda: len(live.app.queue.table.lines) == JOBS)
        told: list[QueueChanges] = []
        take = live.app.queue.take

        def note(changes: QueueChanges) -> None:
            told.append(changes)
            take(changes)

        live.app.queue.take = note  # type: ignore[method-assign]
        await live.go_to(5000)
        await live.pilot.press("space")
        before = {line.key: line.node.row for line in live.app.queue.table.lines}
        lab.run("scontrol", "update", "jobid=5003", "name=other")
        await live.until(lambda: told)
        assert [(changes.whole, len(changes.rows)) for changes in told] == [(False, 1)]
        after = {line.key: line.node.row for line in live.app.queue.table.lines}
        changed = [key.job for key, row in after.items() if row is not before[key]]
        assert changed == [5003] and after.keys() == before.keys()
        # Space has gone to the next line; the mark is where it was set.
        table = live.app.queue.table
        assert [line.node.ref for line in table.lines if line.key in table.marks] == ["5000"]
        assert table.current is not None and table.current.node.ref == "4999"

    play_live(lab, story)


def test_a_terminal_is_written_one_line_and_nothing_while_nothing_happens(lab: Span) -> None:
    """TU08: a key works in all of them, a change costs its line, and rest costs nothing."""
    with open_terminal(["top"], {**lab.environment, "TERM": "xterm-256color"}) as terminal:
        terminal.wait_for(f"{JOBS} jobs", seconds=60)
        terminal.press("G")
        terminal.wait_for("first")
        terminal.wait_quiet()
        rest = terminal.written
        terminal.wait_quiet(2)
        assert terminal.written == rest
        lab.run("scontrol", "update", "jobid=3", "name=changed")
        terminal.wait_for("changed")
        terminal.wait_quiet()
        assert terminal.written - rest < 400
        terminal.press("q")
        assert terminal.wait_end() == 0

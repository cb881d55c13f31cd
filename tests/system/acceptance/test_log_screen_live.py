"""The logs of `span top` against a real daemon: a gigabyte that a job has written, searched where it is."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from tests.system.conftest import Span
from tests.unit.tui.stories import settle

from overspan.bridge.client import Client
from overspan.bridge.client.log_reading import key_of
from overspan.bridge.client.messages import LogSearch
from overspan.tui.app import TopApp, TopOptions
from overspan.tui.logs.screen import LogScreen

SCRIPT = (
    "truncate -s 1G log; echo; echo ERROR one; echo ready; until [ -e go ]; do sleep 0.1; done; echo more; sleep 100"
)


def test_a_gigabyte_of_a_running_job_opens_at_its_end_and_is_searched(span: Span) -> None:
    """TU04: the end is there at once; what is written is followed; the newest match is found first."""
    job = span.wrap(SCRIPT, "-o", "log", "--open-mode=append")
    span.wait_until(lambda: (log := Path(span.folder, "log")).exists() and log.stat().st_size > 1 << 30)

    async def story() -> None:
        app = TopApp(lambda: Client(environment=span.environment), TopOptions())
        async with app.run_test(size=(100, 24)) as pilot:
            await settle(pilot, lambda: app.queue.table.current is not None)
            begun = time.monotonic()
            await pilot.press("o")
            await settle(pilot, lambda: isinstance(app.screen, LogScreen))
            screen = app.screen
            assert isinstance(screen, LogScreen)
            await settle(pilot, lambda: "ready" in [row.line.text for row in screen.view.rows])
            assert time.monotonic() - begun < 10
            Path(span.folder, "go").touch()
            await settle(pilot, lambda: screen.view.rows[-1].line.text == "more")
            await pilot.press("slash", *"err", "enter")
            await settle(pilot, lambda: screen.session.hit is not None)
            assert screen.session.hit is not None and screen.session.hit.line.text == "ERROR one"
            document = screen.session.document
            assert document is not None and sum(len(row.line.data) for row in document.rows()) < 1 << 20

    asyncio.run(story())
    with Client(environment=span.environment) as client:
        (stream,) = client.streams(str(job))
        found = client.search_log(str(job), key_of(stream), LogSearch("MORE|more", limit=1))
        assert [line.data for line in found.lines] == [b"more"] and found.size > 1 << 30 and not found.trouble

"""Quiet: what a pilot waits for between two keys. Textual sleeps until the process seems idle; this looks.

A key is done with when the event loop has no callback left, no timer is due within a frame, and no question that the
application has asked its source is without its answer. How long that is waited for is counted in the processor time of
this process and in the time that it meant to sleep, so that a busy machine takes nothing away from it.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest
from textual._context import active_app

from overspan.tui.app import TopApp
from overspan.tui.daemon.questions import _Asker

FRAME_SECONDS = 0.02
"""A timer that is due within it belongs to what goes on: painting, mostly."""
LOOK_SECONDS = 0.001
"""How often an answer is looked for that another thread prepares."""
ANSWER_SECONDS = 0.3
"""How long an answer is waited for: a story may have its source answer when it is told to."""


_answering: set[_Asker] = set()
"""Threads that have taken a question and not answered it."""


def install(patch: pytest.MonkeyPatch) -> None:
    """Have every pilot wait so."""
    take_next = _Asker._next

    def note_next(self: _Asker) -> Any:
        with self._ready:
            _answering.discard(self)
            question = take_next(self)
            if question is not None:
                _answering.add(self)
            return question

    patch.setattr(_Asker, "_next", note_next)
    patch.setattr("textual.app.wait_for_idle", wait_until_quiet)
    patch.setattr("textual.pilot.wait_for_idle", wait_until_quiet)


async def wait_until_quiet(min_sleep: float = 0, max_sleep: float = 1) -> None:
    """Wait until nothing happens any more, `max_sleep` seconds at most; takes the place of `wait_for_idle`."""
    del min_sleep
    loop: Any = asyncio.get_running_loop()
    begun, slept = time.process_time(), 0.0
    while (passed := time.process_time() - begun + slept) < max_sleep:
        # Two turns: what the loop's selector has found becomes a callback in the next one.
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        if loop._ready:
            continue
        due = find_due_timer(loop)
        if due is not None:
            pause = max(0.0, due - loop.time())
        elif passed < ANSWER_SECONDS and is_asking():
            pause = LOOK_SECONDS
        else:
            return
        slept += pause
        await asyncio.sleep(pause)


def find_due_timer(loop: Any) -> float | None:
    """When the next timer of a frame is due, by the loop's clock."""
    soonest = min((handle.when() for handle in loop._scheduled if not handle.cancelled()), default=None)
    return soonest if soonest is not None and soonest - loop.time() < FRAME_SECONDS else None


def is_asking() -> bool:
    """Whether the application waits for an answer of its source."""
    app = active_app.get(None)
    return isinstance(app, TopApp) and any(map(_is_busy, app.questions._askers.values()))


def _is_busy(asker: _Asker) -> bool:
    with asker._ready:
        return bool(asker._waiting) or asker in _answering

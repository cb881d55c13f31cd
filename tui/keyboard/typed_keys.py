"""Typed keys, one after another: what was typed behind a key is for what that key opens or leaves.

Textual hands all keys on at once. Of those that a terminal sends in one piece, pasted or typed faster than the screen
changes, the ones behind an Enter would still go to the line that this closes, and those behind a `:` to no line at all.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from typing import Any

from textual.app import App
from textual.events import Event
from textual.message_pump import MessagePump
from textual.timer import Timer

LAPS = 3
"""A key is an action's call, an action may be a message, and a message's answer may be a call again."""
PATIENCE = 0.5
"""Seconds after which the next key is handed on, even if the one before is still at work."""

MOST_WAITING = 256
"""Keys that wait at most, as many as a long path has; of more, the first are handed on as they are."""


class TypedKeys:
    """Hands keys and pastes on, each when what the one before did is done."""

    def __init__(self, app: App[Any], hand_on: Callable[[Event], Awaitable[None]]) -> None:
        self._app, self._hand_on = app, hand_on
        self._waiting: deque[Event] = deque()
        self._waits = 0
        self._wait_number = 0
        """Which wait goes on, so that a late lap of one that was given up means nothing; 0 for none."""
        self._laps = 0
        self._before: object = None
        self._patience: Timer | None = None

    async def take(self, event: Event) -> None:
        """Hand it on, now or when it is its turn. Called in the application's own task."""
        self._waiting.append(event)
        if len(self._waiting) > MOST_WAITING:
            # The terminal, or the machine, has stood still: each key of thousands would be a frame of its own.
            await self._hand_on(self._waiting.popleft())
        if self._wait_number:
            return
        if self._is_quiet():
            await self._go_on()
        else:
            self._wait()

    async def _go_on(self) -> None:
        """Hand the first one on; those behind it wait."""
        await self._hand_on(self._waiting.popleft())
        if self._waiting:
            self._wait()

    def _list_pumps(self) -> list[MessagePump]:
        """Through whose hands a key goes: from the focus up to the application."""
        if not self._app.screen_stack:
            return [self._app]
        screen = self._app.screen
        return list((screen.focused or screen).ancestors_with_self)

    def _is_quiet(self) -> bool:
        return not any(pump.message_queue_size for pump in self._list_pumps())

    # --- waiting for what a key does ----------------------------------------------------------------------------------

    def _wait(self) -> None:
        self._waits += 1
        self._wait_number, self._laps, self._before = self._waits, 0, None
        # A lap ends nowhere where a widget goes that had it, or is held up itself.
        self._patience = self._app.set_timer(PATIENCE, partial(self._end_wait, self._waits))
        self._begin_lap(self._waits)

    def _begin_lap(self, number: int) -> None:
        """Go behind the key through all the queues that it goes through."""
        self._laps += 1
        self._pass_on(iter(self._list_pumps()), number)

    def _pass_on(self, pumps: Iterator[MessagePump], number: int) -> None:
        if number == self._wait_number:
            for pump in pumps:
                if pump is self._app:
                    break
                if pump.call_later(self._pass_on, pumps, number):
                    return
            self._app.call_later(self._end_lap, number)

    async def _end_lap(self, number: int) -> None:
        if number != self._wait_number:
            return
        found = self._app.screen_stack and (self._app.screen, self._app.screen.focused)
        settled = self._laps >= LAPS and found == self._before
        self._before = found
        if settled:
            await self._end_wait(number)
        else:
            self._begin_lap(number)

    async def _end_wait(self, number: int) -> None:
        if number != self._wait_number:
            return
        self._wait_number = 0
        if self._patience is not None:
            self._patience.stop()
        if self._waiting:
            await self._go_on()

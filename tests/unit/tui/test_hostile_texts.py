"""Hostile texts in every text from outside, in every view: what the terminal gets, byte by byte."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from rich.segment import Segment
from tests.system.top.screens import Screen
from tests.unit.tui.fake_source import NOW, job
from tests.unit.tui.labs import Lab, make_lab
from tests.unit.tui.stories import settle
from textual.drivers.headless_driver import HeadlessDriver
from textual.pilot import Pilot

from overspan.bridge.client.messages import SentForm, Transition, Variable
from overspan.bridge.client.records import Stale
from overspan.bridge.client.terminal_texts import UNSAFE
from overspan.bridge.model.errors import Denied
from overspan.tui.app import TopApp, TopOptions
from overspan.tui.terminal import line_filter
from overspan.tui.widgets.line_table import LineTable

TEXTS = {
    # CSI, OSC 0 and 52, C1, DCS, APC, and controls by themselves.
    "sequences": "\x1b[31mC\x1b[2J\x1b]0;owned\x07\x1b]52;c;b3duZWQ=\x1b\\"
    "\x9b2J\x9d0;o\x9c\x1bPq#0\x1b\\\x1b_G\x1b\\\0\x08\x7f",
    "markup": "[batch] [a-c] [/] [bold red]x[/bold] [@click=app.quit_top]y[/]",
    "writing": "\u202eab\u2066\u200f\u061c\u65e5\u8a9ee\u0301\U0001f468\u200d\U0001f469\u0e33"
    " a\nb\r\nc\rd\u2028e\u2029f\x0bg\x0ch\x85i\tj",
}
"""Sequences that a terminal obeys; markup; marks of direction, wide and combining characters, ends of lines."""
SIZE = (160, 45)


class Written(HeadlessDriver):
    """Keeps what a terminal would get."""

    def __init__(self, *words: Any, **named: Any) -> None:
        super().__init__(*words, **named)
        self.data: list[str] = []

    @property
    def is_headless(self) -> bool:
        """No: Textual writes nothing to one that is."""
        return False

    def write(self, data: str) -> None:
        """Keep it."""
        self.data.append(data)


def spoil(value: Any, text: str, key: str = "") -> Any:
    """A document with the text behind each of its own; a word that the application decides by stays."""
    if isinstance(value, dict):
        return {name: spoil(item, text, name) for name, item in value.items()}
    if isinstance(value, list):
        return [spoil(item, text, key) for item in value]
    return f"{value}{text}" if isinstance(value, str) and key not in ("state", "last_state", "kind") else value


def make_hostile(text: str) -> Lab:
    """A lab of which each text is hostile."""
    source = make_lab()
    names = dict.fromkeys(("name", "user", "partition", "cluster", "reason", "node_list"), f"x{text}")
    more: dict[str, Any] = {**names, "group": f"g{text}", "account": text, "qos": text}
    source.put(
        job(1, **more),
        job(2, state="PENDING", **{**more, "node_list": ""}),
        job(3, state=f"NEW{text}", **more),
        job(4, task_offset=0, **more),
        job(5, array_id=5, array_index=0, **more),
    )
    source.past = [job(number, **more, state="FAILED", ended_at=NOW - 50) for number in (8, 9)]
    source.stale = (Stale(f"leo{text}", NOW - 125, f"ssh: {text}"),)
    source.node_document = spoil(source.node_document, text)
    source.cluster_list = spoil(source.cluster_list, text)
    source.evaluations_of = spoil(source.evaluations_of, text)
    source.schedule_list = spoil(source.schedule_list, text)
    source.pool_list = spoil(source.pool_list, text)
    source.silent = {f"kube{text}": text}
    source.findings = {f"leo{text}": spoil(source.findings["leo"], text)}
    facts = {"id": 1, "name": text, "user": text, "cluster": text, "command": text, "work_dir": text, "comment": text}
    for ref in ("1", "2", "3", "4", "5"):
        source.details[ref] = {**facts, "state": "RUNNING", "reason": text, "partition": text, "submit_line": text}
        source.scripts[ref] = f"#!/bin/sh\n{text}\necho\n"
        source.variables_of[ref] = [Variable(f"main{text}", f"NAME{text}", text, "task")]
        source.timelines[ref] = [
            Transition(1, 1, f"main{text}", NOW - 60, "PENDING", f"RUNNING{text}", text, text, text)
        ]
        source.sent_forms[ref] = SentForm(f"#!/bin/sh\n{text}\n", True, f"script{text}")
        source.write(ref, f"line {text}\n".encode(), task=f"main{text}")
        source.write(ref, f"other {text}\n".encode(), task="b")
    return source


@pytest.fixture
def leaks(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Lines that no widget had cleaned, so that the last fence had to."""
    found: list[str] = []
    apply = line_filter.LineGuard.apply

    def note(self: line_filter.LineGuard, segments: list[Segment], background: Any) -> list[Segment]:
        found.extend(segment.text for segment in segments if not segment.control and UNSAFE.search(segment.text))
        return apply(self, segments, background)

    monkeypatch.setattr(line_filter.LineGuard, "apply", note)
    yield found


async def look_everywhere(app: TopApp, pilot: Pilot[int]) -> list[str]:
    """Open each place, pane, dialog and view; gives the names of what was seen."""
    seen: list[str] = []

    async def see(*keys: str) -> None:
        await pilot.press(*keys)
        await pilot.pause()
        seen.append(type(app.screen).__name__ if len(app.screen_stack) > 1 else app.place.name_of_place)

    async def close() -> None:
        while len(app.screen_stack) > 1:
            app.pop_screen()
            await pilot.pause()

    await settle(pilot, lambda: bool(app.queue.table.lines))
    await see("asterisk", "d")
    for keys in ("c", "x", "t", "E", "n", "o", "b", "L", "question_mark", "C", "s", "colon", "R"):
        await see(keys)
        if keys == "o":
            await see("slash", *"line", "enter")
        await close()
    for key in ("2", "3", "4", "5", "6", "7"):
        await see(key)
        if key == "2":
            await settle(pilot, lambda: len(app.place.query_one(LineTable).lines) > 2)
            await see("down", "down", "m")
            await see("m", "e")
            await close()
        await see("end")
        if key != "3":
            # There it leads to the queue.
            await see("enter")
            await close()
        if key in ("3", "7"):
            await see("D")
            await close()
    await see("1")
    return seen


@pytest.mark.parametrize("name", list(TEXTS))
def test_no_text_from_outside_reaches_the_terminal_as_it_came(name: str, leaks: list[str]) -> None:
    text = TEXTS[name]
    source = make_hostile(text)

    async def run() -> tuple[list[str], str]:
        app = TopApp(source, TopOptions(troubles=(f"config.yaml:3: {text}",)), driver_class=Written)
        async with app.run_test(headless=False, size=SIZE, notifications=True) as pilot:
            seen = await look_everywhere(app, pilot)
            # What the daemon answers orders and questions with.
            source.refusal = Denied(f"no {text}", remedy=f"ask {text}")
            await pilot.press("H")
            await pilot.pause()
            source.lose(Denied(f"gone {text}"))
            await settle(pilot, lambda: app.lost is not None)
            await pilot.pause()
            driver = app._driver
            assert isinstance(driver, Written)
            return seen, "".join(driver.data)

    seen, written = asyncio.run(run())
    assert {"queue", "evaluations", "pools", "nodes", "history", "clusters", "schedules"} <= set(seen)
    assert {"OrderDialog", "LogScreen", "TextScreen", "HelpScreen", "Palette", "CheckScreen"} <= set(seen), seen
    screen = Screen(*SIZE)
    screen.feed(written.encode())
    # What joins emojis is harmless; the shape of the mouse's pointer is Textual's own.
    assert [each for each in screen.unknown if each != repr("\u200d")] == []
    assert [each for each in screen.strings if not each.startswith("22;")] == []
    assert not leaks, leaks[:5]
    assert "x" in written and ("[a-c]" in written or name != "markup")

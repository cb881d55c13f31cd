"""squeue's table as the daemon writes it: what the command would make of the rows, made once a change."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from tests.unit.controller.fakes import Bench, end, give_order, play, start_job, turn, until

from overspan.bridge.api import queue_lines
from overspan.bridge.api.queue_lines import QueueLines
from overspan.bridge.controller.core.registry import JobEntry
from overspan.bridge.controller.views.listing import Selection
from overspan.bridge.listings.fields import DEFAULT_FORMAT, LETTERS
from overspan.bridge.listings.layout import parse_letters, render
from overspan.bridge.listings.rows import rows_from_document
from overspan.bridge.listings.sorting import DEFAULT_SORT, sort_rows
from overspan.bridge.model import events
from overspan.bridge.model.ids import parse_array
from overspan.bridge.model.job import Array, new_element, new_job
from overspan.bridge.model.spec import JobSpec, Origin, TaskSpec
from overspan.bridge.model.states import State

LAYOUT = parse_letters(DEFAULT_FORMAT, LETTERS)


@pytest.fixture(autouse=True)
def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    """A daemon that was started without this variable, which `squeue -r` sets for its process."""
    monkeypatch.delenv("SLURM_BITSTR_LEN", raising=False)


def look(texts: QueueLines, **wanted: Any) -> list[str]:
    """The table that the daemon writes."""
    document = json.loads(texts.write(Selection(tasks=True, **wanted)) or b"{}")
    return [document["header"], *document["lines"]]


def expect(bench: Bench, **wanted: Any) -> list[str]:
    """What the command makes of the rows."""
    document = json.loads(bench.controller.queue(Selection(tasks=True, **wanted)))
    rows = rows_from_document(document["columns"], document["rows"])
    return render(LAYOUT, sort_rows(rows, DEFAULT_SORT, document["now"]), document["now"]).splitlines()


def add_array(bench: Bench) -> None:
    """An array of which some elements wait, one is held by itself, and one is suspended."""
    spec = JobSpec("sweep\x1bé", (TaskSpec("batch", run="true"),), array=parse_array("0-9%3"), origin=Origin(user="me"))
    head = replace(new_job(500, spec, 5.0), array=Array(parse_array("4-9").ranges, 3))
    held = replace(new_element(head, 1, 501), held=True, reason="JobHeldUser", priority=4)
    paused = replace(new_element(head, 2, 502), state=State.SUSPENDED, started_at=3.0, suspended_at=30.0)
    for job in (head, held, paused):
        bench.controller.recorder.registry.add(JobEntry(job, "local", "me"))


def test_the_table_is_the_commands_own_after_every_change() -> None:
    async def scene(bench: Bench) -> None:
        texts = QueueLines(bench.controller)
        assert look(texts) == expect(bench) == [look(texts)[0]]
        group = await start_job(bench, "a b")
        await bench.submit("solo hold")
        add_array(bench)
        everything = frozenset({"ALL"})
        for wish in ({}, {"states": everything}, {"users": frozenset({"nobody"})}, {"names": frozenset({"solo"})}):
            assert look(texts, **wish) == expect(bench, **wish)
        bench.clock.now += 61
        assert look(texts) == expect(bench) and any(" 1:01 " in line for line in look(texts))
        await give_order(bench, "3", events.Release)
        assert look(texts) == expect(bench)
        bench.cluster.tell(f"{group}.0", *end(bench.job(group), bench.clock.now))
        await until(lambda: bench.state(group) == "COMPLETED")
        assert look(texts) == expect(bench) and look(texts, states=everything) == expect(bench, states=everything)
        solo = bench.controller.recorder.registry.get(3)
        assert solo is not None
        home, solo.cluster = solo.cluster, "far"
        bench.controller.recorder.registry.redraw(solo)
        assert any("(far (not configured))" in line for line in look(texts)) and look(texts) == expect(bench)
        solo.cluster = home
        bench.controller.recorder.registry.redraw(solo)
        assert look(texts) == expect(bench) and not any("far" in line for line in look(texts))
        bench.clock.now += 400
        assert look(texts, states=everything) == expect(bench, states=everything)
        bench.controller.recorder.registry.remove(502)
        bench.controller.recorder.registry.remove(501)
        bench.controller.recorder.registry.remove(500)
        await turn()

    play(scene)


def test_a_line_is_made_once_a_change(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []
    write = queue_lines._write

    def count(row: Any, now: float) -> bytes:
        made.append(row.id)
        return write(row, now)

    monkeypatch.setattr(queue_lines, "_write", count)

    async def scene(bench: Bench) -> None:
        texts = QueueLines(bench.controller)
        for _ in range(3):
            await bench.submit("solo hold")
        first = look(texts)
        assert made == [1, 2, 3] and look(texts) == first and made == [1, 2, 3]
        await give_order(bench, "2", events.Release)
        await until(lambda: look(texts) == expect(bench) != first)
        assert set(made[3:]) == {2}

    play(scene)

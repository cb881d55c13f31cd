"""How the queue and the history show an array: elements that are jobs, and one row for those that wait."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import Any

import pytest
from tests.unit.controller.fake_repository import FakeRepository

from overspan.bridge.controller.core.registry import JobEntry, Registry
from overspan.bridge.controller.views.history import list_history
from overspan.bridge.controller.views.listing import Selection, list_queue
from overspan.bridge.lifecycle.reduction import reduce
from overspan.bridge.listings.rows import COLUMNS, CORE, EXTENTS
from overspan.bridge.model import events
from overspan.bridge.model.ids import parse_array
from overspan.bridge.model.job import Array, Job, new_element, new_job
from overspan.bridge.model.spec import JobSpec, Origin, TaskSpec
from overspan.bridge.model.states import State
from overspan.bridge.store.records import NewJob

SPEC = JobSpec("sweep", (TaskSpec("batch", run="true"),), array=parse_array("0-9%3"), origin=Origin(user="me"))


def _entry(job: Job) -> JobEntry:
    return JobEntry(job, "local", "me")


def _registry(states: dict[int, State], waiting: str = "4-9", cancelled: str = "") -> Registry:
    """Array 10 whose first elements, 11 and on, are in these states; the others wait."""
    ranges = parse_array(waiting).ranges if waiting else ()
    gone = parse_array(cancelled).ranges if cancelled else ()
    head = replace(new_job(10, SPEC, 5.0), array=Array(ranges, 3, gone), reason="JobArrayTaskLimit")
    registry = Registry()
    registry.add(_entry(replace(head, state=State.PENDING if ranges else State.RUNNING)))
    for place, (index, state) in enumerate(states.items()):
        element = replace(new_element(head, index, 11 + place), state=state, reason="Resources")
        element = replace(element, ended_at=90.0 if state.terminal else None)
        registry.add(_entry(element))
    return registry


def _queue(registry: Registry, **wish: Any) -> list[dict[str, Any]]:
    selection = Selection(**wish)
    rows = list_queue(registry, selection, 100.0)
    return [dict(zip(selection.columns, json.loads(row), strict=True)) for row in rows]


def _texts(registry: Registry, **wish: Any) -> list[str]:
    """`waiting`, or the index of an element, of each row."""
    return [row["array_waiting"] or f"{row['array_index']} {row['state']}" for row in _queue(registry, **wish)]


STATES = {0: State.COMPLETED, 1: State.RUNNING, 2: State.PENDING, 3: State.RUNNING}


def test_an_element_s_own_commands_see_it_alone_whatever_its_state() -> None:
    # A cluster may tell a moment late that it runs.
    for job, text in ((12, "1 RUNNING"), (13, "2 PENDING")):
        assert _texts(_registry(STATES), inside=job) == [text]


def test_pending_elements_are_folded_into_the_row_of_those_that_wait() -> None:
    registry = _registry(STATES)
    assert _texts(registry) == ["2,4-9%3", "1 RUNNING", "3 RUNNING"]
    assert _texts(registry, states=frozenset({"ALL"})) == ["2,4-9%3", "0 COMPLETED", "1 RUNNING", "3 RUNNING"]
    assert _texts(registry, states=frozenset({"PENDING"})) == ["2,4-9%3"]
    (row,) = _queue(registry, states=frozenset({"PENDING"}))
    assert (row["id"], row["array_id"], row["state"], row["node_list"]) == (10, 10, "PENDING", "")
    # Two of three run: it is not the throttle that holds the next one.
    assert row["reason"] == "Resources"


@pytest.mark.parametrize(
    ("running", "why", "reason"),
    [
        (2, "Priority", "Resources"),
        (2, "JobArrayTaskLimit", "Resources"),
        (3, "Priority", "JobArrayTaskLimit"),
        (3, "Dependency", "Dependency"),
    ],
)
def test_the_throttle_is_the_reason_once_as_many_run(running: int, why: str, reason: str) -> None:
    states = {5: State.PENDING, **dict.fromkeys(range(running), State.RUNNING), 4: State.PENDING}
    registry = _registry(states, waiting="6-9")
    head, later = registry.get(10), registry.elements(10)[5]
    assert head is not None
    registry.put(head, replace(head.job, reason=why))
    registry.put(later, replace(later.job, reason="Priority"))
    (row,) = _queue(registry, states=frozenset({"PENDING"}))
    assert (row["array_waiting"], row["reason"]) == ("4-9%3", reason)


def test_the_row_changes_with_its_elements_and_goes_with_the_last() -> None:
    registry = _registry({0: State.PENDING}, waiting="")
    assert _texts(registry) == ["0%3"]
    assert _queue(registry)[0]["reason"] == "Resources"
    entry = registry.get(11)
    assert entry is not None
    registry.put(entry, replace(entry.job, state=State.RUNNING))
    assert _texts(registry) == ["0 RUNNING"]


def test_ids_choose_elements() -> None:
    registry = _registry(STATES)
    assert _texts(registry, ids=("10",)) == ["2,4-9%3", "1 RUNNING", "3 RUNNING"]
    assert _texts(registry, ids=("10_5",)) == ["5%3"]
    assert _texts(registry, ids=("10_2",)) == ["2%3"]
    assert _texts(registry, ids=("10_[1-2,8]",)) == ["2,8%3", "1 RUNNING"]
    assert _texts(registry, ids=("10_3", "10_7")) == ["7%3", "3 RUNNING"]
    assert _texts(registry, ids=("12",)) == ["1 RUNNING"]
    assert _texts(registry, ids=("12_1",)) == _texts(registry, ids=("10_77",)) == []


def test_cancelled_ranges_have_a_row_of_their_own() -> None:
    registry = _registry({}, waiting="8-9", cancelled="0-7")
    everything = frozenset({"ALL"})
    shown = [(row["state"], row["array_waiting"]) for row in _queue(registry, states=everything)]
    # Slurm's queue forgets single elements that never became jobs; a cancelled array is shown (measured on 22.05).
    assert shown == [("PENDING", "8-9%3")]
    head = registry.get(10)
    assert head is not None
    registry.put(head, reduce(replace(head.job, state=State.RUNNING), events.Cancel(9.0)))
    registry.put(head, reduce(head.job, events.Gathered(10.0, "CANCELLED")))
    shown = [(row["state"], row["array_waiting"]) for row in _queue(registry, states=everything)]
    assert shown == [("CANCELLED", "0-9")]


def test_an_element_that_is_held_by_itself_has_its_own_row() -> None:
    registry = _registry({3: State.PENDING}, waiting="5-9")
    assert _texts(registry) == ["3,5-9%3"]
    element = registry.elements(10)[3]
    registry.put(element, reduce(element.job, events.Hold(9.0)))
    assert sorted(_texts(registry)) == ["3 PENDING", "5-9%3"]
    assert _texts(registry, ids=("10_3",)) == ["3 PENDING"]


def test_an_id_with_an_index_of_a_job_that_is_no_array_names_nothing() -> None:
    registry = Registry()
    registry.add(_entry(new_job(1, replace(SPEC, array=None), 5.0)))
    assert _queue(registry, ids=("1_3",)) == []
    assert len(_queue(registry, ids=("1",))) == 1


def test_short_rows_are_the_beginning_of_whole_ones() -> None:
    registry = _registry(STATES)
    whole = _queue(registry)
    for extent, columns in EXTENTS.items():
        assert COLUMNS[: len(columns)] == columns
        assert [{name: row[name] for name in columns} for row in whole] == _queue(registry, extent=extent)


async def _history(registry: Registry, repository: FakeRepository, **wanted: Any) -> list[bytes]:
    return [row async for page in list_history(registry, repository, Selection(**wanted)) for row in page]


def test_ten_thousand_elements_are_one_row() -> None:
    registry = _registry({}, waiting="0-9999")
    (row,) = _queue(registry)
    assert row["array_waiting"] == "0-9999%3"


def test_the_history_has_what_is_left_behind_the_elements() -> None:
    async def scene() -> None:
        registry, repository = _registry(STATES), FakeRepository()
        await repository.insert([NewJob(entry.job, "local", "me") for entry in registry])
        rows = [dict(zip(COLUMNS, json.loads(row), strict=True)) for row in await _history(registry, repository)]
        assert [row["array_waiting"] or row["array_index"] for row in rows] == [0, 1, 3, "2,4-9%3"]
        chosen = await _history(registry, repository, ids=("10_0", "10_4"))
        assert [json.loads(row)[CORE.index("state")] for row in chosen] == ["COMPLETED", "PENDING"]

    asyncio.run(scene())

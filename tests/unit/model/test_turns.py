"""Which tasks of a job take turns follows from what they need of each other."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from overspan.bridge.model.elastic import Elastic
from overspan.bridge.model.spec import Need, NeedKind, Start, TaskSpec
from overspan.bridge.model.stages import list_late_starters, list_turns

ENDS = (NeedKind.OK, NeedKind.NOT_OK, NeedKind.ENDED)


def read(text: str) -> tuple[TaskSpec, ...]:
    """`a b:ok=a,ready=c d@a`: names, each with its needs behind a colon, or with the task whose nodes it shares."""
    return tuple(map(_read_task, text.split()))


def _read_task(word: str) -> TaskSpec:
    name, _, needs = word.partition(":")
    name, _, share = name.partition("@")
    pairs = [need.split("=") for need in needs.split(",") if need]
    return TaskSpec(name, needs=tuple(Need(task, NeedKind(kind)) for kind, task in pairs), share=share)


@pytest.mark.parametrize(
    ("text", "turns"),
    [
        ("a b:ok=a c:ok=b", "a | b | c"),
        ("a b:ok=a c:ok=a", "a | b c"),
        ("a b c:ok=a,ok=b", "a b | c"),
        ("a b:ok=a c:ok=a d:ok=b,ok=c", "a | b c | d"),
        ("a b:not_ok=a", "a | b"),
        ("a b:ended=a", "a | b"),
        # What a server waits for has ended before those who wait for the server.
        ("a s:ok=a t:ready=s", "a | s t"),
        # A file may name its tasks in any order.
        ("c:ok=b b:ok=a a", "a | b | c"),
        # What may run beside later tasks is booked with them.
        ("a s b:ok=a", ""),
        ("a b:ok=a s c:ok=b", ""),
        ("a b:started=a", ""),
        ("a b:ready=a", ""),
        ("a b", ""),
        ("a", ""),
        # The first two overlap with the fourth, all end before the last.
        ("a b:ok=a s c:ok=b,ok=s", "a b s | c"),
        ("a b@a:ok=a", ""),
        ("a b@a c:ok=a,ok=b", "a b | c"),
    ],
)
def test_turns(text: str, turns: str) -> None:
    expected = tuple(tuple(part.split()) for part in turns.split("|") if part)
    assert list_turns(read(text), Start.TURNS) == expected
    assert list_turns(read(text), Start.INDEPENDENT) == expected
    assert list_turns(read(text), Start.TOGETHER) == ()


@st.composite
def graphs(draw: st.DrawFn) -> tuple[TaskSpec, ...]:
    """Up to seven tasks, each of which may need those before it."""
    names = "abcdefg"[: draw(st.integers(1, 7))]
    tasks = []
    for place, name in enumerate(names):
        needed = draw(st.lists(st.sampled_from(names[:place]), unique=True)) if place else []
        kinds = [draw(st.sampled_from([NeedKind.OK, NeedKind.OK, *NeedKind])) for _ in needed]
        tasks.append(TaskSpec(name, needs=tuple(map(Need, needed, kinds))))
    return tuple(draw(st.permutations(tasks)))


@given(graphs())
def test_no_task_waits_longer_for_resources_than_for_its_needs(tasks: tuple[TaskSpec, ...]) -> None:
    """Stages divide the tasks; all tasks of a stage wait for the end of all before, and none could be split further."""
    turns = list_turns(tasks, Start.TURNS)
    if turns:
        assert sorted(itertools.chain(*turns)) == sorted(task.name for task in tasks)
    cuts = {frozenset(itertools.chain(*turns[:place])) for place in range(1, len(turns))}
    names = [task.name for task in tasks]
    possible = itertools.chain.from_iterable(itertools.combinations(names, size) for size in range(1, len(names)))
    assert cuts == {frozenset(before) for before in possible if divides(tasks, frozenset(before))}


def divides(tasks: tuple[TaskSpec, ...], before: frozenset[str]) -> bool:
    """Whether each other task waits for the end of each of these, by a walk along the needs."""
    return all(waits_for(tasks, task, name) for task in tasks if task.name not in before for name in before)


def waits_for(tasks: tuple[TaskSpec, ...], task: TaskSpec, name: str) -> bool:
    known = {other.name: other for other in tasks}
    return any(
        (need.task == name and need.kind in ENDS) or waits_for(tasks, known[need.task], name) for need in task.needs
    )


@pytest.mark.parametrize(
    ("text", "late"),
    [
        ("server train judge:ok=train", "judge"),
        ("a s b:ok=a c:ok=b", "b c"),
        # Who waits for one that waits for an end starts after that end too.
        ("a s b:ended=a c:started=b", "b c"),
        ("a s b:not_ok=a", "b"),
        ("a b:ready=a", ""),
        # What shares nodes has them together.
        ("a s b@s:ok=a", ""),
        ("a s b:ok=a c@b", ""),
    ],
)
def test_who_surely_starts_after_the_end_of_another(text: str, late: str) -> None:
    assert list_late_starters(read(text)) == tuple(late.split())


@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_job_with_an_elastic_task_is_asked_for_at_once(place: int) -> None:
    tasks = [*read("a s b:ok=a")]
    tasks[place] = replace(tasks[place], elastic=Elastic(1, 2, 1))
    assert list_late_starters(tuple(tasks)) == ()

"""Dataclasses to JSON documents and back."""

from __future__ import annotations

import json
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from overspan.bridge.model import documents
from overspan.bridge.model.documents import decode, encode
from overspan.bridge.model.job import Job, new_job
from overspan.bridge.model.spec import JobSpec, Need, NeedKind, Ready, ReadyKind, SignalBefore, TaskSpec


class Colour(Enum):
    """A choice."""

    RED = "red"
    BLUE = "blue"


class Point(NamedTuple):
    """Two numbers."""

    x: int
    y: float | None = None


@dataclass(frozen=True)
class Leaf:
    """A small part."""

    name: str
    colour: Colour = Colour.RED


@dataclass(frozen=True)
class Tree:
    """One field of each kind."""

    leaf: Leaf
    leaves: tuple[Leaf, ...] = ()
    pair: tuple[str, int] = ("", 0)
    table: Mapping[str, Leaf] = field(default_factory=dict)
    limit: int | None = None
    child: Tree | None = None
    free: Mapping[str, Any] = field(default_factory=dict)
    flag: bool = False


LEAVES = st.builds(Leaf, st.text(), st.sampled_from(Colour))
TREES: st.SearchStrategy[Tree] = st.deferred(
    lambda: st.builds(
        Tree,
        LEAVES,
        leaves=st.lists(LEAVES, max_size=3).map(tuple),
        pair=st.tuples(st.text(), st.integers()),
        table=st.dictionaries(st.text(), LEAVES, max_size=2),
        limit=st.none() | st.integers(),
        child=st.none() | TREES,
        free=st.dictionaries(st.text(), st.none() | st.booleans() | st.integers() | st.text() | st.lists(st.text())),
        flag=st.booleans(),
    )
)


@given(TREES)
def test_every_value_survives(tree: Tree) -> None:
    assert decode(Tree, json.loads(json.dumps(encode(tree)))) == tree


def test_defaults_are_left_out_and_what_only_looks_like_one_is_kept() -> None:
    assert encode(Tree(Leaf("a"))) == {"leaf": {"name": "a"}}
    assert encode(Tree(Leaf("a"), limit=0)) == {"leaf": {"name": "a"}, "limit": 0}


def test_named_tuples() -> None:
    assert decode(Point, encode(Point(1, 2.5))) == Point(1, 2.5)
    assert decode(Point, [1]) == Point(1)


def test_unknown_keys_of_a_later_version_are_dropped() -> None:
    assert decode(Leaf, {"name": "a", "scent": "sweet"}) == Leaf("a")


@pytest.mark.parametrize("document", [None, [], "x", 3, {}, {"name": "a", "colour": "green"}])
def test_what_does_not_fit_is_a_value_error(document: Any) -> None:
    with pytest.raises(ValueError):
        decode(Leaf, document)


@pytest.mark.parametrize("value", [object(), {1, 2}, b"x"])
def test_what_json_has_no_form_for(value: Any) -> None:
    with pytest.raises(TypeError, match="cannot encode"):
        encode(value)


def test_a_job_with_everything_in_its_spec() -> None:
    task = TaskSpec(
        name="a",
        args=("x", "y"),
        env={"A": "1"},
        needs=(Need("b", NeedKind.READY),),
        ready=Ready(ReadyKind.TCP, "8000"),
        signal=SignalBefore("USR1", 30, True),
        time=0,
        native={"slurm": {"exclusive": None, "nice": 5, "list": ["a", "b"]}},
    )
    spec = JobSpec("x", (task, TaskSpec("b")), group=True, requeue=False, deadline=5.5)
    job = new_job(3, spec, 1.5)
    again = decode(Job, json.loads(json.dumps(encode(job))))
    assert again == job
    assert type(again.spec.tasks[0].needs[0]) is Need


def test_texts_of_several_documents_are_shared() -> None:
    document = {"name": "a", "env": {"PATH": "/usr/bin:/some/where"}}
    first, second = (decode(TaskSpec, json.loads(json.dumps(document))) for _ in range(2))
    ((name, value),), ((other, again),) = first.env.items(), second.env.items()
    assert first == second and name is other and value is again


def test_equal_mappings_of_texts_are_one_and_others_are_not() -> None:
    """A shell's variables are read once for all of its jobs."""
    names = ("PATH", "HOME")
    first, second, other = (
        decode(TaskSpec, {"name": "a", "env": dict.fromkeys(names, text)}) for text in ("/usr/bin", "/usr/bin", "/bin")
    )
    assert first.env is second.env and first.env == dict.fromkeys(names, "/usr/bin")
    assert other.env == dict.fromkeys(names, "/bin")
    shorter = decode(TaskSpec, {"name": "a", "env": {"PATH": "/usr/bin"}})
    assert shorter.env == {"PATH": "/usr/bin"}


def test_threads_may_read_the_first_document_of_a_class_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The daemon reads plans in threads."""

    @dataclass(frozen=True)
    class Late:
        colour: Colour = Colour.RED

    build, others = documents._build_fields, list[Future[Late]]()
    with ThreadPoolExecutor(1) as pool:

        def build_slowly(kind: Any) -> Any:
            others.append(pool.submit(decode, Late, {"colour": "blue"}))
            wait(others, 0.02)
            return build(kind)

        monkeypatch.setattr(documents, "_build_fields", build_slowly)
        monkeypatch.setattr(documents, "get_type_hints", lambda kind: {"colour": Colour})
        first = decode(Late, {"colour": "blue"})
        assert first == others[0].result() == Late(Colour.BLUE)

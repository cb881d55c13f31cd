"""The classes of `records` beside those of the standard library."""

from __future__ import annotations

import copy
import dataclasses
import pickle
import subprocess
import sys
import typing
from collections.abc import Mapping
from pathlib import Path

import pytest

from overspan.bridge.model import records


@records.dataclass(frozen=True)
class Size:
    """Two fields, one of which is rounded."""

    width: float
    height: float = 2.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "width", round(self.width, 1))

    def __str__(self) -> str:
        return f"{self.width} x {self.height}"


@dataclasses.dataclass(frozen=True)
class StandardSize:
    width: float
    height: float = 2.0


@records.dataclass(frozen=True)
class Box:
    name: str
    size: Size = Size(1)
    labels: Mapping[str, str] = records.field(default_factory=dict)
    weight: float | None = None


@records.dataclass(frozen=True, slots=True)
class Grid:
    name: str
    size: Size = Size(1)
    labels: tuple[str, ...] = ()

    @property
    def area(self) -> float:
        """Of all of it."""
        return self.size.width * self.size.height


class Point(records.NamedTuple):
    """A place."""

    x: int
    y: int = 2

    @property
    def sum(self) -> int:
        """Both together."""
        return self.x + self.y


class StandardPoint(typing.NamedTuple):
    x: int
    y: int = 2


def word_error(text: str, kind: type) -> str:
    """What an expression about a class raises."""
    with pytest.raises((TypeError, ValueError, AttributeError)) as caught:
        eval(text, {"kind": kind})
    return f"{type(caught.value).__name__}: {caught.value}".replace("Standard", "")


def test_a_dataclass_is_made_as_the_standard_librarys() -> None:
    assert Box("a") == Box(name="a", size=Size(1, 2), labels={}, weight=None)
    assert (Size(1.04).width, Size(1, height=3).height) == (1.0, 3)
    assert Box("a").labels is not Box("a").labels
    for text in ("kind()", "kind(1, 2, 3)", "kind(1, width=2)", "kind(1, depth=2)"):
        assert word_error(text, Size) == word_error(text, StandardSize)


def test_a_dataclass_is_frozen() -> None:
    for text in ("setattr(kind(1), 'width', 3)", "delattr(kind(1), 'width')", "setattr(kind(1), 'height', 3)"):
        assert word_error(text, Size) == word_error(text, StandardSize)
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot assign to field 'depth'"):
        setattr(Size(1), "depth", 3)  # noqa: B010 - what type checkers refuse


def test_a_dataclass_compares_and_hashes_by_its_values() -> None:
    assert Size(1) == Size(1) and Size(1) != Size(2)
    assert hash(Size(1)) == hash(Size(1)) and len({Size(1), Size(1), Size(2)}) == 2
    others: list[object] = [StandardSize(1, 2), (1, 2.0)]
    assert Size(1, 2) not in others
    with pytest.raises(TypeError, match="unhashable"):
        hash(Box("a"))


def test_a_dataclass_describes_itself_and_keeps_its_own_methods() -> None:
    assert repr(Box("a")) == "Box(name='a', size=Size(width=1, height=2.0), labels={}, weight=None)"
    assert str(Size(1)) == "1 x 2.0"
    assert Size.__match_args__ == ("width", "height")


def test_a_dataclass_with_slots_is_as_others_are_but_smaller() -> None:
    grid = Grid("a", Size(1))
    assert not hasattr(grid, "__dict__") and Grid.__qualname__ == "Grid" and grid.area == 2
    assert grid == Grid(name="a", size=Size(1)) != Grid("b", Size(1)) and hash(Grid("a", labels=())) is not None
    assert repr(grid) == "Grid(name='a', size=Size(width=1, height=2.0), labels=())"
    assert dataclasses.replace(grid, name="b") == records.replace(grid, name="b") == Grid("b", Size(1))
    assert pickle.loads(pickle.dumps(grid)) == grid == copy.deepcopy(grid)
    assert records.list_fields(Grid) == {"name": records.NO_DEFAULT, "size": Size(1), "labels": ()}
    assert typing.get_type_hints(Grid)["name"] is str
    assert [each.name for each in dataclasses.fields(Grid)] == ["name", "size", "labels"]
    for text in ("setattr(kind('a'), 'name', 3)", "delattr(kind('a'), 'name')", "setattr(kind('a'), 'depth', 3)"):
        with pytest.raises(dataclasses.FrozenInstanceError):
            eval(text, {"kind": Grid})


def test_functions_of_the_standard_library_take_a_dataclass() -> None:
    box = Box("a", labels={"b": "c"})
    assert dataclasses.is_dataclass(box) and dataclasses.is_dataclass(Box)
    assert [(each.name, each.default) for each in dataclasses.fields(Size)] == [
        ("width", dataclasses.MISSING),
        ("height", 2.0),
    ]
    assert dataclasses.fields(Box)[2].default_factory is dict
    assert dataclasses.asdict(box) == {
        "name": "a",
        "size": {"width": 1, "height": 2.0},
        "labels": {"b": "c"},
        "weight": None,
    }
    assert dataclasses.replace(box, name="d") == records.replace(box, name="d") == Box("d", labels={"b": "c"})
    assert pickle.loads(pickle.dumps(box)) == box == copy.deepcopy(box)


def test_what_no_dataclass_of_this_module_can_be_is_refused() -> None:
    with pytest.raises(TypeError, match="Cube has a base"):
        records.dataclass(frozen=True)(type("Cube", (Size,), {"__annotations__": {"depth": "int"}}))
    with pytest.raises(TypeError, match="is frozen"):
        records.dataclass(frozen=False)


def test_fields_are_listed_with_their_defaults() -> None:
    assert records.list_fields(Box) == {"name": records.NO_DEFAULT, "size": Size(1), "labels": {}, "weight": None}
    assert records.list_fields(StandardSize) == {"width": records.NO_DEFAULT, "height": 2.0}
    assert records.is_dataclass(Box) and records.is_dataclass(StandardSize) and not records.is_dataclass(Point)


def test_a_named_tuple_is_made_as_the_standard_librarys() -> None:
    assert Point(1) == (1, 2) == Point(y=2, x=1) and Point(1).sum == 3
    made = ("kind()", "kind(1, 2, 3)", "kind(1, x=2)", "kind(1, z=2)", "kind._make([1])", "setattr(kind(1), 'x', 3)")
    for text in made:
        assert word_error(text, Point) == word_error(text, StandardPoint)
    with pytest.raises(ValueError, match="unexpected field names: \\['z'\\]"):
        Point(1)._replace(z=1)  # type: ignore[call-arg]


def test_a_named_tuple_has_the_names_of_the_standard_librarys() -> None:
    point, standard = Point(1), StandardPoint(1)
    for name in ("_fields", "_field_defaults", "__match_args__", "__slots__"):
        assert getattr(Point, name) == getattr(StandardPoint, name, ()), name
    assert point._asdict() == standard._asdict() and repr(point) == repr(standard).replace("Standard", "")
    assert point._replace(x=3) == Point(3) and type(point._replace(x=3)) is Point
    assert Point._make([3, 4]) == Point(3, 4)
    assert Point.__bases__ == (tuple,) and type(Point) is type and not hasattr(point, "__dict__")
    assert typing.get_type_hints(Point) == {"x": int, "y": int}
    assert type(pickle.loads(pickle.dumps(point))) is Point and copy.copy(point) == point


START = """
import sys
sys.path.insert(0, sys.argv[1])
from overspan.bridge.model.events import NodeEnded, event_from_document, event_to_document
from overspan.bridge.model.job import Job, new_job
from overspan.bridge.model.spec import JobSpec, TaskSpec
from overspan.bridge.model.documents import decode, encode
job = new_job(7, JobSpec("a", (TaskSpec("a", env={"b": "c"}),)), 1.5)
assert decode(Job, encode(job)) == job
event = NodeEnded(1.0, "a", 0, 1, cause="exit")
assert event_from_document(event_to_document(event)) == event
assert "dataclasses" not in sys.modules
import dataclasses
assert dataclasses.replace(job, nice=3).nice == 3
"""


def test_what_makes_objects_is_compiled_with_the_first_or_before() -> None:
    @records.dataclass(frozen=True)
    class Early:
        a: int

    @records.dataclass(frozen=True)
    class Parent:
        a: int

    class Late(records.NamedTuple):
        a: int

    class Heir(Parent):
        def __init__(self) -> None:
            super().__init__(5)

    assert Heir().a == 5
    before = Early.__init__, Late.__new__
    records.prepare(Early, int)
    assert Early.__init__ is not before[0] and Late.__new__ is before[1]
    assert Late(3).a == 3 and Late.__new__ is not before[1]
    compiled = Early.__init__, Late.__new__
    assert (Early(1), Late(1)) == (Early(a=1), (1,))
    records.prepare_all()
    assert compiled == (Early.__init__, Late.__new__)


def list_pythons() -> list[str]:
    """This interpreter, and those of other versions that are installed beside it."""
    folders = Path(sys.base_prefix).parent.glob("3.*.*")
    others = [folder for folder in folders if int(folder.name.split(".")[1]) >= 9]
    return [sys.executable, *(str(folder / "bin/python") for folder in sorted(others))]


@pytest.mark.parametrize("python", list_pythons())
def test_a_job_is_written_and_read_without_dataclasses(python: str) -> None:
    source = Path(__file__).resolve().parents[3] / "src"
    done = subprocess.run([python, "-I", "-S", "-c", START, str(source)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")

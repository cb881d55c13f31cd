"""tests/gate.yaml: what it names exists; the gate and the eight parts are everything, and nothing twice."""

from __future__ import annotations

import re
from types import SimpleNamespace

import pytest
from tests.schedule import RIG_SECONDS, LongestFirst, plan_units
from tests.tiers import PARTS, Tiers, choose_part, group_by_file, read_tiers, weigh
from tests.unit.docs.pages import ROOT, list_tests

TIERS = read_tiers()
CONFORMANCE = ROOT / "tests" / "contract" / "conformance.py"
STORIES = [(path, name) for path, names in TIERS.stories.items() for name in sorted(names)]


@pytest.mark.parametrize(("path", "name"), STORIES)
def test_a_listed_story_exists(path: str, name: str) -> None:
    bare = name.partition("[")[0]
    inherited = {test.rpartition("::")[2] for test in list_tests(CONFORMANCE)}
    if f"class {bare.partition('::')[0]}(Conformance" in (ROOT / path).read_text():
        assert "::" not in bare or bare.rpartition("::")[2] in inherited, f"{path} has no {name}"
    else:
        assert bare in list_tests(ROOT / path), f"{path} has no {name}"


@pytest.mark.parametrize("place", [*TIERS.stories, *(place for places in TIERS.rigs.values() for place in places)])
def test_a_listed_place_exists(place: str) -> None:
    assert (ROOT / place).exists()


def test_a_file_that_is_not_listed_is_played_whole_and_a_listed_one_in_part() -> None:
    tiers = Tiers(
        {"tests/far": frozenset(), "tests/far/test_a.py": frozenset({"test_x", "Kept", "test_y[1]"})},
        {"rig": ("tests/far",), "": ("tests/far/test_own.py",)},
    )
    assert tiers.is_in_gate("tests/near/test_b.py::test_z[1]")
    assert not tiers.is_in_gate("tests/far/test_b.py::test_z")
    assert not tiers.is_in_gate("tests/far/test_a.py::test_z")
    assert tiers.is_in_gate("tests/far/test_a.py::test_x[2]")
    assert tiers.is_in_gate("tests/far/test_a.py::Kept::test_z")
    assert tiers.is_in_gate("tests/far/test_a.py::test_y[1]")
    assert not tiers.is_in_gate("tests/far/test_a.py::test_y[2]")
    assert tiers.rig_of("tests/far/test_a.py") == "rig"
    assert tiers.rig_of("tests/far/test_own.py") == "" == tiers.rig_of("tests/near/test_b.py")


def test_the_parts_are_all_tests_and_none_twice() -> None:
    tests = [
        f"tests/{folder}/test_{file}.py::test_{test}" for folder in "abc" for file in range(9) for test in range(7)
    ]
    parts = [choose_part(tests, part + 1) for part in range(PARTS)]
    assert sorted(test for part in parts for test in part) == sorted(tests)
    assert all(parts)


def test_units_are_whole_files_and_a_rig_is_shared() -> None:
    tests = [f"{path}::test" for places in TIERS.rigs.values() for path in places] + ["tests/near/test_b.py::test"]
    units = plan_units(tests)
    assert sorted(test for unit in units.values() for test in unit) == sorted(tests)
    assert all(len(group_by_file(unit)) == 1 for name, unit in units.items() if name.endswith(".py"))
    lengths = [weigh(unit) for unit in units.values()]
    assert lengths == sorted(lengths, reverse=True)
    assert weigh(units["slurm 0"]) <= RIG_SECONDS


def test_no_test_imports_a_test_module() -> None:
    taken = re.compile(r"^\s*(?:from|import) tests\S*\.test_.*", re.MULTILINE)
    files = (ROOT / "tests").rglob("*.py")
    found = [f"{file.relative_to(ROOT)}: {line}" for file in files for line in taken.findall(file.read_text())]
    assert found == [], "what tests share has a module of its own"


class Worker:
    """What the scheduler sees of a process that plays tests."""

    def __init__(self) -> None:
        self.sent: list[int] = []
        self.shutting_down = False

    def send_runtest_some(self, indices: list[int]) -> None:
        self.sent += indices

    def shutdown(self) -> None:
        self.shutting_down = True


def test_what_a_worker_that_dies_has_not_played_is_played_by_the_one_in_its_place() -> None:
    tests = [f"tests/near/test_{name}.py::test_{number}" for name in "ab" for number in range(4)]
    option = SimpleNamespace(tx=["popen"], numprocesses=1, px=[])
    config = SimpleNamespace(option=option, getvalue=lambda name: getattr(option, name))
    scheduler, first, second = LongestFirst(config), Worker(), Worker()
    scheduler.add_node(first)
    scheduler.add_node_collection(first, tests)
    scheduler.schedule()
    for place in range(5):
        scheduler.mark_test_complete(first, first.sent[place])
    died_in, *left = (tests[index] for index in first.sent[5:])
    assert scheduler.remove_node(first) == died_in
    scheduler.add_node(second)
    scheduler.add_node_collection(second, tests)
    scheduler.schedule()
    assert [tests[index] for index in second.sent] == left
    assert second.shutting_down

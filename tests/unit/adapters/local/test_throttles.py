"""The line before the queue: an array's launches that queue or have started never exceed its throttle."""

from __future__ import annotations

import hypothesis.strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from overspan.adapters.local.queue.array_throttles import Moves, ThrottledQueue
from overspan.bridge.model.ranks import Rank


def rank(index: int, behind: int = 0, array: int = 7) -> Rank:
    return Rank(behind, 1.0, array, index)


def make_line(count: int, limit: int | None) -> ThrottledQueue:
    """Array 7 with elements `0`, `1` and so on."""
    line = ThrottledQueue()
    for index in range(count):
        line.add(str(index), rank(index), limit)
    return line


def moved(line: ThrottledQueue) -> tuple[set[str], set[str]]:
    """Who came in and who was parked by the next settlement."""
    moves = line.settle()
    return set(moves.admitted), set(moves.parked)


def start_head(line: ThrottledQueue) -> str:
    """Start whoever is next."""
    key = line.head
    line.start(key, rank(int(key)))
    return key


def test_the_first_of_an_array_queue_and_the_others_are_parked() -> None:
    line = make_line(4, 2)
    assert moved(line) == ({"0", "1"}, {"2", "3"})
    assert line.head == "0" and "1" in line and "2" not in line
    assert line.settle() == Moves()


def test_the_next_one_enters_when_one_has_ended() -> None:
    line = make_line(4, 2)
    line.settle()
    assert (start_head(line), start_head(line), line.head) == ("0", "1", "")
    assert moved(line) == (set(), set())
    line.remove("1")
    assert moved(line) == ({"2"}, set())


def test_parked_ones_hold_up_nobody() -> None:
    line = make_line(3, 1)
    line.add("single", Rank(5, 9.0, 9))
    line.add("other", rank(0, array=8))
    line.settle()
    start_head(line)
    assert line.head == "other"
    line.remove("other")
    assert line.head == "single"


def test_the_throttle_changes_live() -> None:
    line = make_line(6, 2)
    line.settle()
    start_head(line)
    line.set_limit(7, 4)
    assert moved(line) == ({"2", "3"}, set())
    line.set_limit(7, 1)
    assert moved(line) == (set(), {"1", "2", "3"}) and line.head == ""
    line.set_limit(7, None)
    assert moved(line) == ({"1", "2", "3", "4", "5"}, set())
    line.set_limit(99, 1)


def test_a_better_rank_takes_the_place_of_one_that_only_queues() -> None:
    line = make_line(4, 2)
    line.settle()
    start_head(line)
    line.add("3", rank(3, behind=-9))
    assert moved(line) == ({"3"}, {"1"}) and line.head == "3"
    line.add("3", rank(3, behind=9))
    assert moved(line) == ({"1"}, {"3"})


def test_held_and_cancelled_ones_leave_their_place_and_come_back_with_their_throttle() -> None:
    line = make_line(3, 1)
    line.settle()
    line.remove("0")
    assert moved(line) == ({"1"}, set())
    line.add("0", rank(0), 1)
    assert moved(line) == ({"0"}, {"1"})
    for key in ("0", "1", "2"):
        line.remove(key)
    line.remove("2")
    for key in ("1", "2"):
        line.add(key, rank(int(key)), 1)
    assert moved(line) == ({"1"}, {"2"})


def test_a_failed_start_waits_again_and_is_told_about() -> None:
    line = make_line(2, 1)
    line.settle()
    start_head(line)
    line.add("0", rank(0))
    assert moved(line) == ({"0"}, set()) and line.head == "0"


def test_what_runs_already_counts_even_beyond_the_throttle() -> None:
    line = ThrottledQueue()
    for index in range(3):
        line.start(str(index), rank(index))
    line.set_limit(7, 2)
    line.add("3", rank(3))
    assert moved(line) == (set(), {"3"})
    line.remove("0")
    assert moved(line) == (set(), set())
    line.remove("1")
    assert moved(line) == ({"3"}, set())


def test_the_throttle_holds_parked_ones_only_while_as_many_have_started() -> None:
    line = make_line(5, 2)
    line.settle()
    # Nothing has started yet: those that are kept out stand behind their own array.
    assert dict(line.list_parked()) == {"2": False, "3": False, "4": False}
    start_head(line)
    assert dict(line.list_parked()) == {}
    start_head(line)
    assert dict(line.list_parked()) == {"2": True, "3": True, "4": True}
    line.remove("0")
    line.settle()
    assert dict(line.list_parked()) == {"3": False, "4": False}
    line.set_limit(7, 1)
    line.settle()
    assert dict(line.list_parked()) == {"2": True, "3": True, "4": True}


class Lines(RuleBasedStateMachine):
    """Two arrays and single jobs against a model that counts anew each time."""

    def __init__(self) -> None:
        super().__init__()
        self.line = ThrottledQueue()
        self.limits: dict[int, int | None] = {7: None, 8: None}
        self.waiting: dict[str, Rank] = {}
        self.started: dict[str, Rank] = {}
        self.parked: set[str] = set()
        self.told: dict[str, bool] = {}

    def members(self, array: int) -> list[str]:
        """The waiting launches of an array in their order."""
        found = [(place, key) for key, place in self.waiting.items() if place.job == array and place.element >= 0]
        return [key for _, key in sorted(found)]

    def running(self, array: int) -> int:
        """How many of an array have started."""
        return sum(place.job == array and place.element >= 0 for place in self.started.values())

    @rule(array=st.sampled_from([7, 8]), index=st.integers(0, 12), behind=st.integers(-2, 2))
    def add(self, array: int, index: int, behind: int) -> None:
        key = f"{array}_{index}"
        if key in self.started:
            return
        self.waiting[key] = rank(index, behind, array)
        self.line.add(key, self.waiting[key], self.limits[array])

    @rule(number=st.integers(20, 24), behind=st.integers(-2, 2))
    def add_single(self, number: int, behind: int) -> None:
        key = str(number)
        if key not in self.started:
            self.waiting[key] = Rank(behind, 1.0, number)
            self.line.add(key, self.waiting[key])

    @rule(array=st.sampled_from([7, 8]), limit=st.one_of(st.none(), st.integers(1, 5)))
    def set_limit(self, array: int, limit: int | None) -> None:
        self.limits[array] = limit
        self.line.set_limit(array, limit)

    @rule()
    def start(self) -> None:
        self.settle()
        key = self.line.head
        if key:
            place = self.waiting.pop(key)
            self.line.start(key, place)
            self.started[key] = place

    @precondition(lambda self: self.started)
    @rule(data=st.data())
    def fail_start(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from(sorted(self.started)))
        self.waiting[key] = self.started.pop(key)
        self.line.add(key, self.waiting[key])

    @precondition(lambda self: self.started or self.waiting)
    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from(sorted([*self.started, *self.waiting])))
        self.waiting.pop(key, None)
        self.started.pop(key, None)
        self.line.remove(key)
        self.parked.discard(key)

    @rule()
    def settle(self) -> None:
        moves = self.line.settle()
        assert not set(moves.admitted) & set(moves.parked)
        self.parked = (self.parked | set(moves.parked)) - set(moves.admitted)
        for array in (7, 8):
            limit = self.limits[array]
            members = self.members(array)
            room = len(members) if limit is None else max(0, limit - self.running(array))
            assert [key for key in members if key in self.line] == members[:room]
            # Everybody who is kept out was told, and nobody else.
            assert set(members[room:]) == self.parked & set(members)
        self.told.update(self.line.list_parked())
        for array in (7, 8):
            limit, members = self.limits[array], self.members(array)
            kept = [key for key in members if key not in self.line]
            assert all(self.told[key] == (limit is not None and self.running(array) >= limit) for key in kept)

    @invariant()
    def single_jobs_only_queue(self) -> None:
        assert all(key in self.line for key, place in self.waiting.items() if place.element < 0)
        assert not any(key in self.line for key in self.started)

    @invariant()
    def the_head_is_the_first_that_queues(self) -> None:
        queued = [(place, key) for key, place in self.waiting.items() if key in self.line]
        assert self.line.head == (min(queued)[1] if queued else "")

    def teardown(self) -> None:
        for key in [*self.waiting, *self.started]:
            self.line.remove(key)
        self.line.settle()
        assert not self.line._arrays and not self.line._ranks and not self.line.head


TestLines = Lines.TestCase

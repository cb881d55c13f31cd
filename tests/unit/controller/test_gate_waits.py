"""How long the parts of a group across wait for each other at their start gates, and what they give back."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from overspan.adapters.contract import Report
from overspan.bridge.controller.core.across.gate_waits import (
    LIMIT_SECONDS,
    find_dearest,
    find_due,
    find_limit,
    judge_waits,
)
from overspan.bridge.controller.core.across.projection import (
    GateStage,
    LaunchCursor,
    LaunchHandle,
    parse_cursor,
    project,
)
from overspan.bridge.model.events import Event, Granted, LaunchLost, Queued
from overspan.bridge.model.job import new_job
from overspan.bridge.model.resources import Gpus, Resources
from overspan.bridge.model.spec import JobSpec, TaskSpec

HANDLE = LaunchHandle({"leo": "l", "kube": "k"}, {"leo": ("a",), "kube": ("b",)}, {"kube": 60}, "leo")
BOTH = replace(HANDLE, limits={"leo": 60, "kube": 60})
TASKS = {"leo": "a", "kube": "b"}


def grant(cluster: str) -> Granted:
    return Granted(1.0, ((TASKS[cluster], 0, "n", "10.0.0.1", ()),))


class Gates:
    """A launch at its start gates. What is stored is all that is kept between two questions."""

    def __init__(self, handle: LaunchHandle = HANDLE) -> None:
        self.handle = handle
        self.stored = ""
        self.now = 1000.0
        self.settled: tuple[str, ...] = ()

    @property
    def cursor(self) -> LaunchCursor:
        return parse_cursor(self.stored)

    def hear(self, cluster: str = "", *told: Event) -> list[Event]:
        reports = [(cluster, Report("h", told, "1"))] if cluster else []
        news = project(self.handle, self.cursor, reports, self.now)
        waits = judge_waits(self.handle, news.cursor, self.settled, self.now)
        self.stored = str(waits.cursor)
        return [*news.events, *waits.events]

    def wait(self, seconds: float) -> list[Event]:
        self.now += seconds
        return self.hear()

    def list_stages(self) -> dict[str, GateStage]:
        return {name: part.stage for name, part in self.cursor.parts.items()}

    def return_once(self) -> float:
        """How long the part waits that is granted next and given back again, while the other asks."""
        self.hear("kube", grant("kube"))
        seconds = 0
        while self.list_stages()["kube"] is not GateStage.AWAY:
            self.wait(1)
            seconds += 1
        self.settled = ("kube",)
        parts = {**self.cursor.parts, "kube": replace(self.cursor.parts["kube"], stage=GateStage.ASKS)}
        self.stored = str(replace(self.cursor, parts=parts))
        return seconds


def test_a_part_that_waits_for_its_limit_gives_back_what_it_has_and_says_so() -> None:
    gates = Gates()
    gates.hear("leo", Queued(1.0, "Priority"))
    gates.hear("kube", grant("kube"))
    assert gates.wait(59) == [] and gates.list_stages()["kube"] is GateStage.ASKS
    (said,) = gates.wait(1)
    assert said == Queued(1060.0, "Priority: leo: given back meanwhile: kube")
    part = gates.cursor.parts["kube"]
    assert (part.cursor, part.members, part.stage, part.returns) == ("", (), GateStage.AWAY, 1)
    # What the other side says of its queue meanwhile names it too.
    (more,) = gates.hear("leo", Queued(2.0, "Resources: 3 nodes"))
    assert more == Queued(2.0, "Resources: leo: 3 nodes; given back meanwhile: kube")


def test_it_is_asked_for_again_once_the_other_side_can_start_and_not_before_it_is_back() -> None:
    gates = Gates()
    gates.hear("kube", grant("kube"))
    gates.wait(60)
    gates.settled = ("kube",)
    assert gates.wait(5000) == [] and gates.list_stages()["kube"] is GateStage.AWAY
    gates.settled = ()
    gates.hear("leo", grant("leo"))
    assert gates.list_stages()["kube"] is GateStage.AWAY, "its cluster may still be taking it back"
    gates.settled = ("kube",)
    assert gates.wait(1) == [Queued(gates.now, "Resources: kube")]
    assert gates.list_stages()["kube"] is GateStage.RETURNS
    gates.settled = ()
    assert gates.wait(1) == []
    gates.settled = ("kube",)
    assert gates.wait(1) == [] and gates.list_stages()["kube"] is GateStage.ASKS
    (started,) = gates.hear("kube", grant("kube"))
    assert isinstance(started, Granted) and {member[0] for member in started.members} == {"a", "b"}
    assert gates.wait(5000) == [] and gates.cursor.granted


def test_who_waits_for_a_part_that_its_cluster_cannot_take_back_gives_back_too() -> None:
    gates = Gates(BOTH)
    gates.hear("kube", grant("kube"))
    gates.wait(60)
    gates.hear("leo", grant("leo"))
    assert find_due(BOTH, gates.cursor, ()) == gates.now + 60
    assert find_due(BOTH, gates.cursor, ("kube",)) == math.inf, "it is asked for again at once"
    assert gates.wait(59) == []
    assert gates.wait(1) == [Queued(gates.now, "Resources: kube: given back meanwhile: leo")]
    assert gates.list_stages() == {"kube": GateStage.AWAY, "leo": GateStage.AWAY}
    gates.settled = ("leo",)
    assert gates.wait(5000) == [] and gates.list_stages()["leo"] is GateStage.AWAY
    gates.settled = ("leo", "kube")
    gates.wait(1)
    assert gates.list_stages() == {"kube": GateStage.RETURNS, "leo": GateStage.RETURNS}


def test_who_waited_for_the_answer_to_a_hold_waits_its_whole_limit_for_the_part_that_comes_back() -> None:
    gates = Gates(BOTH)
    gates.hear("kube", grant("kube"))
    gates.wait(60)
    gates.hear("leo", grant("leo"))
    gates.wait(59)
    gates.settled = ("kube",)
    gates.wait(0)
    assert gates.list_stages()["kube"] is GateStage.RETURNS
    gates.settled = ()
    assert gates.wait(59) == [] and gates.cursor.parts["leo"].members
    gates.wait(1)
    assert gates.list_stages()["leo"] is GateStage.AWAY


def test_what_a_part_that_is_away_still_tells_starts_and_ends_nothing() -> None:
    gates = Gates()
    gates.hear("kube", grant("kube"))
    gates.wait(60)
    before = gates.stored
    assert gates.hear("kube", grant("kube"), LaunchLost(5.0, 0, "cancel")) == []
    gates.hear("leo", grant("leo"))
    assert not gates.cursor.granted and not gates.cursor.over
    assert parse_cursor(before).parts["kube"] == gates.cursor.parts["kube"]


def test_a_part_that_its_cluster_no_longer_knows_is_lost_also_while_it_is_away() -> None:
    gates = Gates()
    gates.hear("kube", grant("kube"))
    gates.wait(60)
    assert project(gates.handle, gates.cursor, [("kube", Report("h", (), "", gone=True))], gates.now).gone


def test_a_part_that_cannot_be_taken_back_at_its_gate_is_left_alone() -> None:
    gates = Gates()
    gates.hear("leo", grant("leo"))
    assert gates.wait(50_000) == [] and gates.cursor.parts["leo"].members


def test_nothing_is_given_back_when_all_have_theirs_or_after_the_start() -> None:
    gates = Gates(BOTH)
    gates.hear("kube", grant("kube"))
    gates.now += 59
    gates.hear("leo", grant("leo"))
    assert gates.wait(10_000) == [] and gates.cursor.granted
    # A handle that an earlier version wrote has no limits.
    old = Gates(replace(HANDLE, limits={}))
    old.hear("kube", grant("kube"))
    assert old.wait(10_000) == [] and old.cursor.parts["kube"].members


def test_of_three_sides_the_one_that_asks_keeps_its_place_and_the_others_return_together() -> None:
    three = LaunchHandle({"leo": "l", "kube": "k", "far": "f"}, {}, {"leo": 60, "kube": 60, "far": 60}, "leo")
    gates = Gates(replace(three, tasks={"leo": ("a",), "kube": ("b",), "far": ("c",)}))
    gates.hear("kube", grant("kube"))
    gates.hear("leo", grant("leo"))
    gates.wait(60)
    stages = gates.list_stages()
    assert stages == {"kube": GateStage.AWAY, "leo": GateStage.AWAY}
    gates.settled = ("kube", "leo")
    gates.hear("far", Granted(1.0, (("c", 0, "n", "10.0.0.1", ()),)))
    assert gates.list_stages() == {"kube": GateStage.RETURNS, "leo": GateStage.RETURNS, "far": GateStage.ASKS}
    # It waits now, and the others ask: only who waits gives back.
    gates.wait(60)
    assert gates.list_stages()["far"] is GateStage.AWAY and gates.list_stages()["kube"] is GateStage.ASKS


def test_the_cheaper_side_waits_twice_as_long_each_time_and_the_dearest_never_longer() -> None:
    cheap, dear = Gates(), Gates(replace(HANDLE, dearest="kube"))
    assert [cheap.return_once() for _ in range(4)] == [60, 120, 240, 480]
    assert [dear.return_once() for _ in range(4)] == [60, 60, 60, 60]


@pytest.mark.parametrize(("named", "limit"), [(None, LIMIT_SECONDS), (30, 30), (0, 1)])
def test_the_limit_is_the_files_start_timeout(named: int | None, limit: int) -> None:
    gpus = Resources(gpus=(Gpus(8, "H100"),))
    tasks = (TaskSpec("a", run="x", cluster="leo", resources=gpus), TaskSpec("b", run="x", cluster="kube"))
    job = new_job(3, JobSpec("g", tasks, group=True, start_timeout=named), 0.0)
    assert find_dearest(job) == "leo"
    assert find_limit(job, "leo") == find_limit(job, "kube") == limit
    # Launches that gave up at the gate count like returns.
    later = replace(job, launch=5, unstarted=5, gate_timeouts=3)
    assert (find_limit(later, "leo"), find_limit(later, "kube")) == (limit, 8 * limit)
    assert find_limit(replace(job, gate_timeouts=500), "kube") == 4 * 3600
    long = replace(later, spec=replace(job.spec, start_timeout=100_000))
    assert find_limit(long, "kube") == 100_000

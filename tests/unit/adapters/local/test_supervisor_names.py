"""Which supervisor serves the next launch."""

from __future__ import annotations

from overspan.adapters.local.supervisors.supervisor_names import SupervisorNames


def test_a_supervisor_serves_as_many_as_it_may_at_a_time() -> None:
    names = SupervisorNames("groups-", live=2, total=100)
    picked = [names.pick({}), names.pick({"groups-0": 1}), names.pick({"groups-0": 2})]
    assert picked == ["groups-0", "groups-0", "groups-1"]
    # The first with room, so that few supervisors live.
    assert names.pick({"groups-0": 1, "groups-1": 1}) == "groups-0"


def test_a_supervisor_serves_so_many_in_its_life() -> None:
    names = SupervisorNames("shared-", live=3, total=3)
    assert [names.pick({}) for _ in range(7)] == ["shared-0"] * 3 + ["shared-1"] * 3 + ["shared-2"]


def test_names_of_an_earlier_daemon_are_used_and_never_given_anew() -> None:
    names = SupervisorNames("groups-", live=1, total=10)
    for name in ("groups-4", "shared-7", "12.0", "groups-", "groups-x"):
        names.restore(name)
    assert names.pick({}) == "groups-4"
    assert names.pick({"groups-4": 1}) == "groups-5"

"""What the parts of a group across report, as the events of one launch."""

from __future__ import annotations

from typing import Any

import pytest

from overspan.adapters.contract import Report
from overspan.bridge.controller.core.across.projection import (
    LaunchCursor,
    LaunchHandle,
    list_handles,
    parse_cursor,
    parse_handle,
    project,
)
from overspan.bridge.model.events import Granted, Launch, LaunchLost, NodeStarted, Queued, Terminate

HANDLE = LaunchHandle({"leo": "g1", "kube": "k1"}, {"leo": ("trainer",), "kube": ("server", "judge")})
AT_LEO = Granted(3.0, (("trainer", 0, "node1", "10.1.0.5", ()),), "main")
AT_KUBE = Granted(5.0, (("server", 0, "w1", "10.2.0.7", ()), ("judge", 0, "w2", "10.2.0.8", ())))


NOW = 100.0


def told(cursor: str, *events: Any, **more: Any) -> Report:
    return Report("of the part", events, cursor, **more)


def granted() -> LaunchCursor:
    return project(HANDLE, LaunchCursor(), [("leo", told("l1", AT_LEO)), ("kube", told("k1", AT_KUBE))], NOW).cursor


def test_the_launch_is_granted_with_its_last_part() -> None:
    first = project(HANDLE, LaunchCursor(), [("leo", told("l1", AT_LEO))], NOW)
    assert first.events == () and not first.cursor.granted
    # What was stored in between is all that the next daemon has.
    second = project(HANDLE, parse_cursor(str(first.cursor)), [("kube", told("k1", AT_KUBE))], NOW)
    (grant,) = second.events
    assert grant == Granted(5.0, (*AT_LEO.members, *AT_KUBE.members), "main")
    assert second.cursor.cursor_of("leo") == "l1" and second.cursor.cursor_of("kube") == "k1"


def test_handles_and_cursors_are_read_as_they_were_written() -> None:
    assert parse_handle(str(HANDLE)) == HANDLE
    assert parse_cursor(str(granted())) == granted() and parse_cursor("") == LaunchCursor()
    # The first cursors had no format.
    assert parse_cursor(str(granted()).replace('"format":1,', "")) == granted()
    for text in ('{"format":2,"parts":{}}', "[]", "null", '{"parts":7}', "torn"):
        with pytest.raises(ValueError):
            parse_cursor(text)
    assert set(list_handles(str(HANDLE))) == {"g1", "k1"}


@pytest.mark.parametrize("text", ["", "lease-1", "{}", '{"format": 9, "parts": {}}', "[1]", "nöthing"])
def test_a_handle_of_something_else_has_no_parts(text: str) -> None:
    assert list_handles(text) == ()


def test_why_a_part_waits_names_its_cluster_until_all_are_granted() -> None:
    waits = Queued(1.0, "Resources")
    (reason,) = project(HANDLE, LaunchCursor(), [("kube", told("k0", waits))], NOW).events
    assert reason == Queued(1.0, "Resources: kube")
    (worded,) = project(HANDLE, LaunchCursor(), [("leo", told("l0", Queued(1.0, "Priority: 3 before it")))], NOW).events
    assert worded == Queued(1.0, "Priority: leo: 3 before it")
    assert project(HANDLE, granted(), [("kube", told("k2", waits))], NOW).events == ()
    again = Queued(6.0, "Resources", None, "server")
    assert project(HANDLE, granted(), [("kube", told("k2", again))], NOW).events == (again,)


@pytest.mark.parametrize("before", [LaunchCursor(), granted()])
def test_a_part_that_is_lost_is_the_loss_of_the_launch(before: LaunchCursor) -> None:
    lost = LaunchLost(9.0, 0, "time", "its nodes were given back")
    projection = project(HANDLE, before, [("leo", told("l9", lost)), ("kube", told("k9", AT_KUBE))], NOW)
    assert projection.events == (LaunchLost(9.0, 0, "time", "leo: its nodes were given back"),)
    assert projection.cursor.over and not projection.gone
    assert project(HANDLE, projection.cursor, [("kube", told("k9", AT_KUBE))], NOW).events == ()


def test_a_part_that_its_cluster_no_longer_knows_is_told_once() -> None:
    projection = project(HANDLE, granted(), [("kube", told("", gone=True)), ("leo", told("l2", AT_LEO))], NOW)
    assert projection.gone and projection.cursor.over and projection.events == ()
    assert not project(HANDLE, projection.cursor, [("kube", told("", gone=True))], NOW).gone


def test_a_member_that_has_moved_is_known_at_its_new_address_to_the_others() -> None:
    moved = Granted(7.0, (("server", 0, "w2", "10.2.0.99", ()),))
    projection = project(HANDLE, granted(), [("kube", told("k3", moved, NodeStarted(7.0, "server", 1, 0)))], NOW)
    assert [type(event) for event in projection.events] == [Granted, NodeStarted]
    places = {place.task: place.address for place in projection.cursor.list_members("leo")}
    assert places == {"server": "10.2.0.99", "judge": "10.2.0.8"}
    assert [place.task for place in projection.cursor.list_members("kube")] == ["trainer"]


def test_what_a_part_was_told_of_members_elsewhere_and_ordered_to_do_is_no_news() -> None:
    """The supervisor of a local part has both in its journal."""
    cursor = granted()
    told_it = Granted(6.0, (("server", 0, "w9", "10.9.9.9", ()),))
    news = project(HANDLE, cursor, [("leo", told("l2", told_it, Launch(7.0, "trainer", 0)))], NOW)
    assert news.events == () and news.cursor.list_members() == cursor.list_members()
    ended = project(HANDLE, news.cursor, [("leo", told("l3", Terminate(8.0, "trainer", 0, "CANCEL", 9.0)))], NOW)
    assert ended.events == () and ended.cursor.cursor_of("leo") == "l3"

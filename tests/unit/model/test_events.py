"""Events as lines of the journal."""

from __future__ import annotations

import json
from typing import Any, get_args

import pytest

from overspan.bridge.model import events
from overspan.bridge.model.events import EVENTS, Event, event_from_document, event_to_document

_SAMPLES: dict[str, Any] = {
    "task": "a",
    "members": (("a", 0, "n0", "127.0.0.1", (0, 3)), ("a", 1, "n1", "", ())),
    "ranges": ((0, 9, 3), (20, 20, 1)),
    "peers": (("a", 0, "n0", "127.0.0.1", "RUNNING"), ("b", 3, "", "", "PENDING")),
    "dependency": {"needs": [{"kind": "afterok", "job": 7}]},
}


def _make(kind: type[Any]) -> Event:
    event: Event = kind(**{name: _SAMPLES.get(name, 2) for name in kind._fields})
    return event


@pytest.mark.parametrize("kind", list(EVENTS.values()), ids=list(EVENTS))
def test_every_event_survives_its_line(kind: type[Any]) -> None:
    event = _make(kind)
    again = event_from_document(json.loads(json.dumps(event_to_document(event))))
    assert again == event and type(again) is kind


def test_every_event_is_of_one_family() -> None:
    families = [*events.REPORTS, *events.ORDERS, *events.DECISIONS]
    assert len(families) == len(set(families)) == len(EVENTS)
    assert set(get_args(events.Event)) == set(families)


@pytest.mark.parametrize("kind", list(EVENTS.values()), ids=list(EVENTS))
def test_every_event_has_its_time_first(kind: type[Any]) -> None:
    assert kind._fields[0] == "at"


def test_defaults_are_left_out() -> None:
    assert event_to_document(events.NodeEnded(1.5, "a", 0, 1)) == {
        "event": "NodeEnded",
        "at": 1.5,
        "task": "a",
        "attempt": 0,
        "node": 1,
    }
    assert event_to_document(events.Cancel(1.0)) == {"event": "Cancel", "at": 1.0}
    assert event_to_document(events.SetTime(1.0, None)) == {"event": "SetTime", "at": 1.0, "time": None}


def test_fields_of_a_later_version_are_dropped() -> None:
    assert event_from_document({"event": "Hold", "at": 1.0, "colour": "red"}) == events.Hold(1.0)


@pytest.mark.parametrize(
    ("document", "told"),
    [
        ({}, "unknown event None"),
        ({"event": "Explode", "at": 1.0}, "unknown event 'Explode'"),
        ({"event": ["Hold"]}, "unknown event"),
        ({"event": "Hold"}, "incomplete event Hold.*at"),
        ({"event": "Granted", "at": 1.0}, "incomplete event Granted"),
        ({"event": "Granted", "at": 1.0, "members": None}, "incomplete event Granted"),
        ({"event": "Granted", "at": 1.0, "members": [["a", 0]]}, "incomplete event Granted"),
        ({"event": "Granted", "at": 1.0, "members": [["a", 0, "n", "", None]]}, "incomplete event Granted"),
    ],
)
def test_documents_that_are_no_event(document: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        event_from_document(document)

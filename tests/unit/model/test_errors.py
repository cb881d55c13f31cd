"""The error tree and its documents."""

from __future__ import annotations

import json

import pytest

from overspan.bridge.model.errors import (
    ERRORS,
    ExitCode,
    InvalidRequest,
    OverspanError,
    Place,
    TimedOut,
    Unreachable,
    error_from_document,
)


@pytest.mark.parametrize("kind", list(ERRORS.values()), ids=list(ERRORS))
def test_every_error_survives_its_document(kind: type[OverspanError]) -> None:
    error = kind("no such task: trainr", remedy="did you mean trainer?", place=Place("job.yaml", 3, 7))
    again = error_from_document(json.loads(json.dumps(error.to_document())))
    assert type(again) is kind
    assert (again.message, again.remedy, again.place) == (error.message, error.remedy, error.place)
    assert again.exit_code == kind.exit_code
    assert str(again) == str(error)


@pytest.mark.parametrize("kind", list(ERRORS.values()), ids=list(ERRORS))
def test_every_error_has_a_code_and_statuses(kind: type[OverspanError]) -> None:
    assert ERRORS[kind.code] is kind
    assert 400 <= kind.http_status < 600
    assert 0 < kind.exit_code < 256


def test_all_subclasses_are_known() -> None:
    assert set(OverspanError.__subclasses__()) | {OverspanError} == set(ERRORS.values())


def test_an_error_tells_what_where_and_how_to_fix() -> None:
    error = InvalidRequest("unknown key 'cpu'", remedy="write cpus", place=Place("job.yaml", 3, 7))
    assert str(error) == "job.yaml:3:7: unknown key 'cpu'\n  write cpus"
    assert str(InvalidRequest("empty")) == "empty"
    assert error.to_document() == {
        "code": "invalid",
        "message": "unknown key 'cpu'",
        "remedy": "write cpus",
        "place": {"file": "job.yaml", "line": 3, "column": 7},
    }


@pytest.mark.parametrize(("place", "text"), [(Place("f"), "f"), (Place("f", 2), "f:2"), (Place("f", 2, 9), "f:2:9")])
def test_places(place: Place, text: str) -> None:
    assert str(place) == text


def test_an_exit_code_of_its_own_travels() -> None:
    error = InvalidRequest("x")
    error.exit_code = 1
    assert error.to_document()["exit_code"] == 1
    assert error_from_document(error.to_document()).exit_code == 1
    assert InvalidRequest.exit_code == ExitCode.USAGE


def test_an_unknown_code_is_the_base_class() -> None:
    error = error_from_document({"code": "melted"})
    assert type(error) is OverspanError
    assert error.message


def test_what_is_worth_another_try() -> None:
    assert {kind for kind in ERRORS.values() if kind.transient} == {Unreachable, TimedOut}

"""Answers of the API and the errors they become."""

from __future__ import annotations

import pytest

from overspan.adapters.kubernetes.api.answers import ApiAnswer, is_quota, is_transient, read_answer, to_error
from overspan.bridge.model.errors import Conflict, Denied, NotFound, OverspanError, Rejected, Unreachable

QUOTA = ApiAnswer(
    403, {"message": 'pods "x" is forbidden: exceeded quota: few, requested: pods=1', "reason": "Forbidden"}
)
RIGHT = ApiAnswer(403, {"message": 'pods is forbidden: User "x" cannot create resource "pods"', "reason": "Forbidden"})


def test_bodies() -> None:
    assert read_answer(200, b'{"a": 1}') == ApiAnswer(200, {"a": 1})
    assert read_answer(204, b"") == ApiAnswer(204, {})
    assert read_answer(502, b"<html>Bad gateway").message == "<html>Bad gateway"
    assert read_answer(500, b"[1]").message == "[1]"
    assert read_answer(503, b"").message == "HTTP status 503"


@pytest.mark.parametrize(
    ("answer", "kind", "transient"),
    [
        (ApiAnswer(400, {}), Rejected, False),
        (ApiAnswer(401, {}), Unreachable, True),
        (RIGHT, Denied, False),
        (QUOTA, Rejected, True),
        (ApiAnswer(404, {}), NotFound, False),
        (ApiAnswer(409, {}), Conflict, False),
        (ApiAnswer(410, {}), Conflict, False),
        (ApiAnswer(422, {}), Rejected, False),
        (ApiAnswer(429, {}), Unreachable, True),
        (ApiAnswer(500, {}), Unreachable, True),
        (ApiAnswer(504, {}), Unreachable, True),
    ],
)
def test_errors(answer: ApiAnswer, kind: type[OverspanError], transient: bool) -> None:
    error = to_error(answer, "create pods")
    assert type(error) is kind
    assert "create pods" in error.message and answer.message in error.message
    assert is_transient(answer) is transient
    assert not answer.works


def test_a_quota_is_no_missing_right() -> None:
    assert is_quota(QUOTA) and not is_quota(RIGHT)
    assert "span check" in to_error(RIGHT, "create pods").remedy
    assert "quota" in to_error(QUOTA, "create pods").remedy

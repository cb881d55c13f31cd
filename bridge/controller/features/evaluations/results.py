"""Reads an evaluation's result out of its log and its end. Pure."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from overspan.bridge.controller.features.evaluations.templates import MAX_RESULT, RESULT_MARK
from overspan.bridge.model.evaluations import ResultKind, ResultSource

SCORE = "score"
_MAX_SHOWN = 120


@dataclass(frozen=True)
class Result:
    """A score, if there is one; all values; or why there is none, which is no fault of the evaluation's."""

    score: float | None = None
    values: Mapping[str, Any] = field(default_factory=dict)
    trouble: str = ""


def read_result(source: ResultSource, log: str, exit_code: int, *, succeeded: bool) -> Result:
    """The result of an evaluation that has ended. `log` is the end of its output."""
    if source.kind is ResultKind.EXIT:
        return Result(1.0 if succeeded else 0.0, {"exit_code": exit_code})
    text = _find_text(source, log)
    if text is None:
        if source == ResultSource() or not succeeded:
            return Result()
        wanted = (
            f"no file {source.file}" if source.kind is ResultKind.FILE else f"no line that begins with {source.line!r}"
        )
        return Result(trouble=f"it left {wanted}")
    what = source.file if source.kind is ResultKind.FILE else "its line"
    if len(text) >= MAX_RESULT:
        return Result(trouble=f"{what} is longer than {MAX_RESULT} bytes")
    return _parse(source, text.strip(), what)


def has_result(source: ResultSource, log: str) -> bool:
    """Whether a log has the line with the result."""
    return _find_text(source, log) is not None


def _find_text(source: ResultSource, log: str) -> str | None:
    mark = RESULT_MARK if source.kind is ResultKind.FILE else source.line
    return next((line[len(mark) :] for line in reversed(log.splitlines()) if line.startswith(mark)), None)


def _parse(source: ResultSource, text: str, what: str) -> Result:
    try:
        value = _clean(json.loads(text, parse_constant=lambda name: None))
    except (ValueError, RecursionError):
        return Result(trouble=f"{what} is neither JSON nor a number: {_cut(text)}")
    if isinstance(value, Mapping):
        score, trouble = _find_score(value, source.score)
        return Result(score, dict(value), trouble)
    number = _number(value)
    if number is None:
        return Result(trouble=f"{what} is neither an object nor a number: {_cut(text)}")
    return Result(number, {SCORE: number})


def _clean(value: Any) -> Any:
    """What JSON and UTF-8 can carry: a text may have had half a character in it."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, list):
        return [_clean(item) for item in value]
    if isinstance(value, dict):
        return {_clean(key): _clean(item) for key, item in value.items()}
    return value


def _find_score(values: Mapping[str, Any], key: str) -> tuple[float | None, str]:
    if key:
        found: Any = values
        for part in (key,) if key in values else key.split("."):
            found = found.get(part) if isinstance(found, Mapping) else None
        number = _number(found)
        if number is None:
            known = ", ".join(map(str, list(values)[:8]))
            return None, f"its result has no number {key!r}; it has {_cut(known)}"
        return number, ""
    if SCORE in values:
        number = _number(values[SCORE])
        return number, "" if number is not None else f"its score is no number: {_cut(str(values[SCORE]))}"
    numbers = [number for number in map(_number, values.values()) if number is not None]
    return (numbers[0], "") if len(numbers) == 1 else (None, "")


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def _cut(text: str) -> str:
    return text if len(text) <= _MAX_SHOWN else text[:_MAX_SHOWN] + "..."

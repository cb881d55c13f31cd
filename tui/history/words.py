"""Which words of a filter the daemon can answer: they choose what is read of the history, and not only what is shown.

`since:2d`, `until:2026-11-20`, `user:ana`, `cluster:leo`, `partition:gpu`, `account:lab`, `qos:high`, `state:f,to` and
`name:^fit$`, where their values are plain. All words but the times are looked at here too.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from overspan.bridge.client.records import JobFilter
from overspan.bridge.model.durations import parse_delay, parse_when
from overspan.tui.filter_language import split_words
from overspan.tui.queue.filters import QueueFilter, find_states, read_filter

_KINDS = {
    "account": "accounts",
    "c": "clusters",
    "cluster": "clusters",
    "name": "names",
    "part": "partitions",
    "partition": "partitions",
    "qos": "qos",
    "state": "states",
    "u": "users",
    "user": "users",
}
_TIMES = frozenset({"since", "until"})
_PLAIN = re.compile(r"(?:[\w@%+=/ -]|\\[.^$*+?{}\[\]\\|()])+")
_ESCAPE = re.compile(r"\\(.)")


class HistoryQuestion(NamedTuple):
    """A filter of the history: what the daemon is asked for, and what is looked at in its answers."""

    wanted: JobFilter
    shown: QueueFilter


def read_history_filter(source: str, now: float) -> HistoryQuestion:
    """Read a filter; times are in the words of `--begin`, or a span such as `2d` before now (epoch seconds)."""
    chosen: dict[str, Any] = {}
    times: dict[str, float] = {}
    rest: list[str] = []
    troubles: list[str] = []
    for word in split_words(source):
        head, colon, value = word.partition(":")
        if colon and head.lower() in _TIMES:
            try:
                times[head.lower()] = _read_time(value, now)
            except ValueError as error:
                troubles.append(f"{word!r}: {error}")
            continue
        rest.append(word)
        kind = _KINDS.get(head.lower(), "") if colon else ""
        values = _read_values(kind, value) if kind else ()
        # The second word of a kind narrows what the first has chosen: that is done here.
        if values and kind not in chosen:
            chosen[kind] = values
    shown = read_filter(" ".join(map(_quote, rest)))
    trouble = "; ".join((*troubles, shown.trouble)) if troubles and shown.trouble else "; ".join(troubles)
    shown = shown._replace(source=source, trouble=trouble or shown.trouble)
    return HistoryQuestion(JobFilter(**chosen, since=times.get("since"), until=times.get("until")), shown)


def _quote(word: str) -> str:
    if not re.search(r"[\s\"']", word):
        return word
    return f'"{word}"' if '"' not in word else f"'{word}'"


def _read_time(text: str, now: float) -> float:
    """A time, or a span before now. Raises ValueError."""
    if re.fullmatch(r"\d+[smhdwSMHDW]", text):
        return now - parse_delay(text)
    return parse_when(text, now, past=True)


def _read_values(kind: str, text: str) -> tuple[str, ...]:
    """The values that the daemon is asked for; none where one of them is a pattern."""
    values = [value for value in text.split(",") if value]
    if kind == "states":
        return _read_states(values)
    if kind == "names":
        if not all(value.startswith("^") and value.endswith("$") for value in values):
            return ()
        values = [value[1:-1] for value in values]
    if not all(_PLAIN.fullmatch(value) for value in values):
        return ()
    return tuple(_ESCAPE.sub(r"\1", value) for value in values)


def _read_states(values: Sequence[str]) -> tuple[str, ...]:
    found: list[str] = []
    for value in values:
        full = find_states(value)
        if not full:
            return ()
        found += full
    return tuple(dict.fromkeys(found))

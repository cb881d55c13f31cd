"""The fields of a filter of jobs: accounts, clusters, nodes, partitions, qualities of service and users match as whole
names, `state:` takes codes too.
"""

from __future__ import annotations

import difflib
import functools
from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

from overspan.bridge.listings.rows import JobRow
from overspan.bridge.model.slurm.hostlists import expand
from overspan.bridge.model.state_words import CODES
from overspan.tui.filter_language import Filter, FilterFields, Note, read_words

_USUAL = frozenset({"account", "qos"})
"""Fields that the least extent of a row does not have."""
STATES = {code: state for state, code in CODES.items()}
"""Slurm's short forms of the states, as `squeue -t` takes them."""


class FilterSubject:
    """A line of the queue as a filter sees it: texts are made when a word asks for them.

    A member has the name and the number of its group or array too: what names the whole matches all of it.
    """

    __slots__ = ("_text", "ref", "row")

    def __init__(self, row: JobRow, ref: str) -> None:
        self.row = row
        self.ref = ref
        self._text: str | None = None

    @property
    def text(self) -> str:
        """All that the row shows."""
        if self._text is None:
            row = self.row
            parts = (self.ref, row.name, row.group, row.user, row.partition, row.cluster, row.state)
            self._text = " ".join((*parts, CODES.get(row.state, ""), row.node_list, row.reason))
        return self._text


QueueFilter: TypeAlias = Filter[FilterSubject]


def read_filter(source: str) -> QueueFilter:
    """Read a filter of jobs."""
    return read_words(source, QUEUE_FIELDS)


def filter_extent(chosen: QueueFilter) -> str:
    """How much of each row a filter looks at."""
    return "usual" if chosen.fields & _USUAL else "core"


def limit_users(chosen: QueueFilter, users: Iterable[str]) -> QueueFilter:
    """The same for the jobs of these users alone."""
    named = frozenset(users)
    return chosen._replace(tests=(lambda subject: subject.row.user in named, *chosen.tests))


def find_states(text: str) -> list[str]:
    """The states that a text means: by code, by name, or by the beginning of one."""
    name = STATES.get(text.upper(), text.upper())
    return [name] if name in CODES else [state for state in CODES if state.startswith(name)]


def _match_states(values: Sequence[str], note: Note) -> Callable[[FilterSubject], bool] | None:
    """The test of these states. A value that is none matches nothing."""
    wanted: set[str] = set()
    for value in values:
        found = find_states(value)
        if not found:
            near = difflib.get_close_matches(value.upper(), CODES, 1)
            meant = f"did you mean {near[0]}?" if near else f"states: {', '.join(sorted(STATES))}"
            note(f"there is no state {value!r} ({meant})")
        wanted.update(found)
    return (lambda subject: subject.row.state in wanted) if wanted else None


@functools.lru_cache(maxsize=4096)
def _expand_nodes(node_list: str) -> tuple[str, ...]:
    try:
        return tuple(expand(node_list))
    except ValueError:
        return (node_list,)


QUEUE_FIELDS: FilterFields[FilterSubject] = FilterFields(
    {
        "account": lambda subject: (subject.row.account,),
        "cluster": lambda subject: (subject.row.cluster,),
        "group": lambda subject: (subject.row.group,),
        "id": lambda subject: (subject.ref, str(subject.row.family)),
        "name": lambda subject: (subject.row.name, subject.row.group),
        "node": lambda subject: _expand_nodes(subject.row.node_list),
        "partition": lambda subject: (subject.row.partition,),
        "qos": lambda subject: (subject.row.qos,),
        "reason": lambda subject: (subject.row.reason,),
        "state": lambda subject: (subject.row.state,),
        "user": lambda subject: (subject.row.user,),
    },
    lambda subject: (subject.text,),
    aliases={"part": "partition", "nodes": "node", "nodelist": "node", "job": "id", "c": "cluster", "u": "user"},
    whole=frozenset({"account", "cluster", "node", "partition", "qos", "user"}),
    readers={"state": _match_states},
)

"""Query parameters of the listing and log routes."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from overspan.bridge.api.bodies import LATEST
from overspan.bridge.controller.views.listing import FINISHED_WITHIN, Selection, check_states
from overspan.bridge.controller.views.log_search import LogPattern
from overspan.bridge.controller.views.logs import LogQuery
from overspan.bridge.model.log_matching import LONGEST_PATTERN

MAX_WAIT = 600.0
"""Seconds for which an answer may be kept back."""
MAX_PART = 4 << 20
"""Bytes of a log in one answer."""

Commas = Annotated[str, Field(max_length=4096, description="words with commas between them")]
Ids = Annotated[str, Field(max_length=1 << 14, description="ids with commas between them")]
Time = Annotated[float | None, Field(ge=0, le=LATEST, allow_inf_nan=False)]
Seconds = Annotated[float, Field(ge=0, le=LATEST, allow_inf_nan=False)]


class ListingFilter(BaseModel):
    """Which jobs; an empty parameter means any."""

    model_config = ConfigDict(frozen=True)

    states: Commas = ""
    users: Commas = ""
    ids: Ids = ""
    names: Commas = ""
    partitions: Commas = ""
    clusters: Commas = ""
    accounts: Commas = ""
    qos: Commas = ""
    tasks: bool = False
    steps: Annotated[bool, Field(description="tell of the jobs' steps too")] = False

    def select(self) -> Selection:
        """The choice in the controller's terms. Raises InvalidRequest for a state that there is not."""
        return Selection(
            states=check_states(_split(self.states)),
            users=frozenset(_split(self.users)),
            ids=tuple(_split_ids(self.ids)),
            names=frozenset(_split(self.names)),
            partitions=frozenset(_split(self.partitions)),
            clusters=frozenset(_split(self.clusters)),
            accounts=frozenset(_split(self.accounts)),
            qos=frozenset(_split(self.qos)),
            tasks=self.tasks,
            steps=self.steps,
        )


class QueueFilter(ListingFilter):
    """Parameters of the queue."""

    finished_within: Seconds = FINISHED_WITHIN
    extent: Annotated[Literal["core", "usual", "all"], Field(description="how much of each row")] = "all"
    lines: Annotated[bool, Field(description="squeue's default table, as header and lines, in place of rows")] = False

    def select(self) -> Selection:
        """The choice in the controller's terms. Raises InvalidRequest for a state that there is not."""
        return replace(super().select(), finished_within=self.finished_within, extent=self.extent)


class ChangesFilter(ListingFilter):
    """Parameters of the queue's changes. Without states, jobs that ended a short while ago have rows too."""

    version: Annotated[str, Field(max_length=64, description="of the answer that the client holds")] = ""
    wait: Annotated[float, Field(ge=0, le=MAX_WAIT, allow_inf_nan=False, description="seconds for a change")] = 0
    extent: Annotated[Literal["core", "usual", "all"], Field(description="how much of each row")] = "core"

    def select(self) -> Selection:
        """The choice in the controller's terms, a row for each task. Raises InvalidRequest for a state there is not."""
        return replace(super().select(), tasks=True, extent=self.extent)


class HistoryFilter(ListingFilter):
    """Parameters of the history."""

    since: Time = None
    until: Time = None
    limit: Annotated[int | None, Field(ge=1, le=1_000_000)] = None

    def select(self) -> Selection:
        """The choice in the controller's terms. Raises InvalidRequest for a state that there is not."""
        return replace(super().select(), since=self.since, until=self.until, limit=self.limit)


class LogFilter(BaseModel):
    """Which bytes of which log; a negative offset counts from the end."""

    model_config = ConfigDict(frozen=True)

    task: Annotated[str, Field(max_length=256)] = ""
    node: Annotated[int, Field(ge=0, le=10**6)] = 0
    attempt: Annotated[int | None, Field(ge=0, le=10**6)] = None
    stream: Literal["output", "error"] = "output"
    offset: Annotated[int, Field(ge=-(2**53), le=2**53)] = 0
    limit: Annotated[int, Field(ge=1, le=MAX_PART)] = 1 << 20

    def select(self) -> LogQuery:
        """The same in the controller's terms."""
        return LogQuery(self.task, self.node, self.attempt, self.stream, self.offset, self.limit)


class LogSearchFilter(LogFilter):
    """What to search for in which log: the newest `limit` lines in the bytes from `begin` to `end`."""

    pattern: Annotated[str, Field(min_length=1, max_length=LONGEST_PATTERN, description="a regular expression")]
    invert: Annotated[bool, Field(description="lines that do not match")] = False
    begin: Annotated[int, Field(ge=0, le=2**53)] = 0
    end: Annotated[int | None, Field(ge=0, le=2**53)] = None
    limit: Annotated[int, Field(ge=1, le=10_000, description="lines of an answer")] = 1000

    def select_lines(self) -> LogPattern:
        """What to search for, in the controller's terms."""
        return LogPattern(self.pattern, self.invert, self.begin, self.end, self.limit)


def _split(text: str) -> list[str]:
    return [word for word in (part.strip() for part in text.split(",")) if word]


def _split_ids(text: str) -> list[str]:
    """Commas in brackets are part of an id: `42_[1,3]`."""
    return [word for word in (part.strip() for part in re.split(r",(?![^\[]*\])", text)) if word]

"""What the daemon is asked about one job, and what it answered."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeVar

from overspan.bridge.client.messages import Transition, Variable
from overspan.bridge.client.records import JobFilter
from overspan.bridge.listings.array_summary import ElementSummary, summarize_elements
from overspan.bridge.model.errors import OverspanError
from overspan.bridge.model.state_words import LIVE_WORDS
from overspan.tui.daemon.error_words import word_error
from overspan.tui.daemon.source import Source

T = TypeVar("T")

_OF_TASKS = ("state", "reason", "exit_code", "signal", "started_at")
"""What a task has of its own."""


class JobAnswers(NamedTuple):
    """The document of `Source.show`, and what belongs to it; `troubles` says why a part could not be asked."""

    job: Mapping[str, Any]
    timeline: tuple[Transition, ...] = ()
    script: str = ""
    elements: tuple[ElementSummary, ...] = ()
    submit_line: str = ""
    troubles: Mapping[str, str] = {}
    variables: tuple[Variable, ...] = ()


def ask_job(source: Source, ref: str, submit_line: str = "") -> JobAnswers:
    """Ask everything about a job. Raises what `show` raises; another user's timeline and script may be refused."""
    # The elements of an array that wait have no job of their own.
    ref = ref.partition("_[")[0]
    job = narrow_job(source.show(ref), ref)
    troubles: dict[str, str] = {}

    def attempt(part: str, ask: Callable[[], T], missing: T) -> T:
        try:
            return ask()
        except OverspanError as error:
            troubles[part] = word_error(error.message, error.remedy)
            return missing

    nothing: list[Transition] = []
    timeline = tuple(attempt("timeline", lambda: source.timeline(ref), nothing))
    script = attempt("script", lambda: source.script(ref), "")
    elements: tuple[ElementSummary, ...] = ()
    if job.get("array"):
        listing = attempt("array", lambda: source.history(JobFilter(ids=(ref,))), None)
        elements = tuple(summarize_elements(listing.rows, listing.now)) if listing is not None else ()
    unknown: list[Variable] = []
    variables = tuple(attempt("variables", lambda: source.variables(ref), unknown))
    return JobAnswers(job, timeline, script, elements, submit_line, troubles, variables)


def narrow_job(job: Mapping[str, Any], ref: str) -> Mapping[str, Any]:
    """The document of a job; where the reference names one task of a group (`N+k`), with that one's facts alone."""
    _, plus, offset = ref.partition("+")
    task = next((each for each in job.get("tasks") or () if str(each.get("offset")) == offset), None)
    if not plus or task is None:
        return job
    own = {name: task.get(name) for name in _OF_TASKS}
    ended = task.get("ended_at") if task.get("state") not in LIVE_WORDS else None
    return {**job, **own, "ended_at": ended, "tasks": [task], "task": task.get("name"), "array": None, "joined": []}

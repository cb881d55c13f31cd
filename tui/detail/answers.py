"""What the daemon is asked about one job, and what it answered."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeVar

from overspan.bridge.client.messages import Transition
from overspan.bridge.client.records import JobFilter
from overspan.bridge.listings.array_summary import ElementSummary, summarize_elements
from overspan.bridge.model.errors import OverspanError
from overspan.tui.source import Source

T = TypeVar("T")


class JobAnswers(NamedTuple):
    """The document of `Source.show`, and what belongs to it; `troubles` says why a part could not be asked."""

    job: Mapping[str, Any]
    timeline: tuple[Transition, ...] = ()
    script: str = ""
    elements: tuple[ElementSummary, ...] = ()
    submit_line: str = ""
    troubles: Mapping[str, str] = {}


def ask_job(source: Source, ref: str, submit_line: str = "") -> JobAnswers:
    """Ask everything about a job. Raises what `show` raises; another user's timeline and script may be refused."""
    # The elements of an array that wait have no job of their own.
    ref = ref.partition("_[")[0]
    job = source.show(ref)
    troubles: dict[str, str] = {}

    def attempt(part: str, ask: Callable[[], T], missing: T) -> T:
        try:
            return ask()
        except OverspanError as error:
            troubles[part] = error.message
            return missing

    nothing: list[Transition] = []
    timeline = tuple(attempt("timeline", lambda: source.timeline(ref), nothing))
    script = attempt("script", lambda: source.script(ref), "")
    elements: tuple[ElementSummary, ...] = ()
    if job.get("array"):
        listing = attempt("array", lambda: source.history(JobFilter(ids=(ref,))), None)
        elements = tuple(summarize_elements(listing.rows, listing.now)) if listing is not None else ()
    return JobAnswers(job, timeline, script, elements, submit_line, troubles)

"""What the daemon told of watches: all of them counted, and the evaluations of those that are looked at. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from overspan.bridge.client.records import QueueChanges
from overspan.bridge.model.errors import NotFound
from overspan.tui.daemon.source import Source


class WatchKey(NamedTuple):
    """A watch: the job whose checkpoints are evaluated, and the evaluation's name."""

    job: int
    name: str


class KnownWatch(NamedTuple):
    """A watch as the list of all tells it, and its evaluations where they were asked for."""

    key: WatchKey
    summary: Mapping[str, Any]
    document: Mapping[str, Any] | None = None
    told_of: Mapping[str, Any] | None = None
    """The summary at the time when the document was asked for; None where the document may be old."""

    @property
    def evaluations(self) -> Sequence[Mapping[str, Any]]:
        """Its evaluations, as far as they are known."""
        return () if self.document is None else self.document.get("evaluations") or ()

    @property
    def incomplete(self) -> Sequence[Mapping[str, Any]]:
        """Checkpoints that are not complete yet, each with why."""
        return () if self.document is None else self.document.get("incomplete") or ()

    @property
    def is_due(self) -> bool:
        """Whether something may have changed since its evaluations were asked for."""
        return self.told_of != self.summary


KnownWatches = Mapping[WatchKey, KnownWatch]


def note_watches(known: KnownWatches, told: Iterable[Mapping[str, Any]]) -> dict[WatchKey, KnownWatch]:
    """The watches of the newest list, in its order; what is known of their evaluations stays."""
    found: dict[WatchKey, KnownWatch] = {}
    for summary in told:
        key = WatchKey(int(summary["job"]), str(summary["name"]))
        found[key] = known.get(key, KnownWatch(key, summary))._replace(summary=summary)
    return found


def note_documents(
    known: KnownWatches, asked: KnownWatches, told: Mapping[int, Sequence[Mapping[str, Any]]]
) -> dict[WatchKey, KnownWatch]:
    """The watches with the evaluations that were told of some jobs; `asked` are the watches as they were then."""
    found = dict(known)
    for job, documents in told.items():
        by_name = {str(document.get("name")): document for document in documents}
        for key, watch in known.items():
            if key.job == job:
                told_of = asked[key].summary if key in asked else None
                found[key] = watch._replace(document=by_name.get(key.name, {}), told_of=told_of)
    return found


def note_news(known: KnownWatches, changed: Collection[int]) -> dict[WatchKey, KnownWatch]:
    """The watches, of which the evaluations are due again where one of these jobs has to do with them."""
    return {
        key: watch._replace(told_of=None) if list_jobs(watch).intersection(changed) else watch
        for key, watch in known.items()
    }


def list_jobs(watch: KnownWatch) -> set[int]:
    """The jobs whose changes show: the watched one, and those of evaluations that are not over."""
    return {watch.key.job, *(int(each["job"]) for each in watch.evaluations if each.get("job") and not is_over(each))}


def is_over(one: Mapping[str, Any]) -> bool:
    """Whether an evaluation has ended."""
    return one.get("ended_at") is not None


def list_due(known: KnownWatches, wanted: Collection[WatchKey]) -> list[int]:
    """The jobs of which the evaluations are to be asked for."""
    return list(dict.fromkeys(key.job for key, watch in known.items() if key in wanted and watch.is_due))


def read_documents(source: Source, jobs: Iterable[int]) -> dict[int, list[dict[str, Any]]]:
    """Ask for the evaluations of jobs; of one that was forgotten meanwhile there are none."""
    found = {}
    for job in jobs:
        try:
            found[job] = source.evals(str(job))
        except NotFound:
            found[job] = []
    return found


def is_news(known: KnownWatches, changes: QueueChanges, newest: int) -> bool:
    """Whether a change of the queue may show among the evaluations; `newest` is the highest id seen so far."""
    changed = set(changes.changed)
    if changes.whole or max(changed, default=0) > newest:
        return True
    return any(not changed.isdisjoint(list_jobs(watch)) for watch in known.values())

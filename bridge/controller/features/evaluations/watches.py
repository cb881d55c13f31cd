"""A watch in memory: what was seen of its checkpoints, and which of its evaluations are not over."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from overspan.bridge.lifecycle.checkpoint_choice import RankedCheckpoint, put_in_order, rank, select
from overspan.bridge.model.checkpoints.listings import FolderListing, FoundCheckpoint, ListingRequest
from overspan.bridge.model.checkpoints.patterns import CheckpointPattern, number_of, parse_pattern
from overspan.bridge.model.checkpoints.readiness import CheckpointLayout, Sighting, Verdict, judge, sight, version_of
from overspan.bridge.model.evaluations import Again, EvaluationSpec, ReadyRule, Select
from overspan.bridge.model.job import Job
from overspan.bridge.store.evaluation_records import EvaluationFacts, StoredEvaluation, StoredWatch

MOST_SHOWN = 20
"""Incomplete checkpoints that are shown."""


class KnownContent(NamedTuple):
    """What was evaluated of a checkpoint last: its version, and the files that it had then."""

    content: str
    files: tuple[str, ...]


@dataclass(frozen=True)
class ReadyCheckpoint:
    """A checkpoint that is complete and is not evaluated yet."""

    candidate: RankedCheckpoint
    fields: dict[str, Any]
    content: str
    files: tuple[str, ...]
    size: int
    verdict: Verdict

    def start(self, watch_id: int, now: float, run: int = 0) -> StoredEvaluation:
        """The evaluation of it, as it is stored first."""
        layout = self.verdict.layout
        facts = EvaluationFacts(
            step=self.candidate.number,
            fields=self.fields,
            size=self.size,
            files=self.files,
            layout="" if layout is CheckpointLayout.UNKNOWN else layout.value,
            guess=self.verdict.guess,
            ready_at=now,
        )
        return StoredEvaluation(0, watch_id, self.candidate.name, self.content, run, 0, False, facts)


@dataclass
class CheckpointWatch:
    """One watch. Everything but `stored` and `live` is found out again by the next daemon."""

    stored: StoredWatch
    job: Job
    handle: str = ""
    pattern: CheckpointPattern = field(init=False)
    live: dict[int, StoredEvaluation] = field(default_factory=dict)
    """Its evaluations that are not over, by their numbers."""
    taken: dict[str, KnownContent] = field(default_factory=dict)
    """What is or was evaluated by the watch itself."""
    passed: set[str] = field(default_factory=set)
    """Complete checkpoints that the selection leaves out."""
    ready: dict[str, ReadyCheckpoint] = field(default_factory=dict)
    last: ReadyCheckpoint | None = None
    """The newest of those that the selection left out: it is evaluated if it is the last one."""
    sightings: dict[str, Sighting] = field(default_factory=dict)
    waits: dict[str, str] = field(default_factory=dict)
    """Why checkpoints are not complete yet."""
    guesses: bool = False
    """Whether a checkpoint had no known layout, so that its completeness is a guess."""
    trouble: str = ""
    """Why nothing can be seen."""
    hint: str = ""
    """What may be wrong though the folder is seen: no name fits."""
    unpinned: str = ""
    look_at: float | None = None
    over_at: float | None = None
    """Since when the job is over, by the event loop's clock."""

    def __post_init__(self) -> None:
        self.pattern = parse_pattern(self.spec.pattern)

    @property
    def spec(self) -> EvaluationSpec:
        """What is wanted."""
        return self.stored.facts.spec

    @property
    def cluster(self) -> str:
        """The cluster where the checkpoints are looked for."""
        return self.stored.facts.cluster

    @property
    def changes_count(self) -> bool:
        """Whether a checkpoint that was replaced is evaluated again."""
        return self.spec.again is Again.ON_CHANGE

    def request(self, owner: str) -> ListingRequest:
        """What is asked of the source."""
        settled: set[str] = set() if self.changes_count else {*self.taken, *self.passed} - self._newest()
        marker = self.spec.ready.marker if self.spec.ready.rule is ReadyRule.MARKER else ""
        pins = tuple(sorted({each.checkpoint for each in self.live.values() if each.job_id}))
        path, parts = self.spec.path, self.pattern.parts
        return ListingRequest(str(self.stored.id), path, parts, marker, tuple(sorted(settled)), pins, owner)

    def _newest(self) -> set[str]:
        """The newest known checkpoint, whose files others of some layouts are compared with."""
        names = [self.candidate(name) for name in (*self.taken, *self.passed)]
        return {max(names, key=rank).name} if names and self.spec.ready.rule is ReadyRule.LAYOUT else set()

    def candidate(self, name: str) -> RankedCheckpoint:
        """A checkpoint with the number that orders it."""
        return RankedCheckpoint(name, number_of(self.pattern.match(name) or {}))

    # --- what was seen ------------------------------------------------------------------------------------------------

    def take(self, listing: FolderListing, now: float) -> list[ReadyCheckpoint]:
        """Take a listing in; gives the complete checkpoints that are to be evaluated now, in order."""
        self.trouble, self.unpinned = listing.unreadable, listing.unpinned
        self.look_at = None
        if listing.unreadable:
            return []
        listing = _leave_out_bytes(listing)
        self.hint = self._find_hint(listing)
        self._forget_gone(listing)
        self.waits = {}
        for found in listing.found:
            self._judge(found, listing, now)
        return self.choose()

    def _forget_gone(self, listing: FolderListing) -> None:
        """Forget what is gone: a checkpoint that was not evaluated yet never will be, unless it comes back."""
        present = {found.name for found in listing.found}
        for name in [name for name in self.sightings if name not in present]:
            del self.sightings[name]
        for name in [name for name in self.ready if name not in present]:
            del self.ready[name]
        if self.last is not None and self.last.candidate.name in listing.gone:
            # Those that were left out are looked at again, to find the one that is the last now.
            self.last = None
            self.passed.clear()

    def _judge(self, found: FoundCheckpoint, listing: FolderListing, now: float) -> None:
        name = found.name
        fields = self.pattern.match(name)
        if fields is None:
            return
        seen = self.sightings[name] = sight(found, self.sightings.get(name), now)
        known = self.taken.get(name)
        if (known is not None or name in self.passed) and not self.changes_count:
            return
        content = version_of(found, known.files if known is not None else None) if self.changes_count else ""
        if known is not None and known.content == content:
            return
        verdict = judge(self.spec.ready, found, listing, seen, now)
        if not verdict.ready:
            self.waits[name] = verdict.why
            self.ready.pop(name, None)
            if verdict.look_at is not None:
                self.look_at = verdict.look_at if self.look_at is None else min(self.look_at, verdict.look_at)
            return
        self.guesses = self.guesses or verdict.guess
        files = tuple(file.name for file in found.files) if self.changes_count else ()
        content = version_of(found) if self.changes_count else ""
        ready = ReadyCheckpoint(
            RankedCheckpoint(name, number_of(fields)), dict(fields), content, files, found.size, verdict
        )
        self.ready[name] = ready

    def _find_hint(self, listing: FolderListing) -> str:
        if listing.missing:
            return f"the folder {self.spec.path} is not there yet"
        if listing.truncated:
            return "there are more checkpoints than one listing tells"
        if listing.found or self.taken or self.passed or not listing.others:
            return ""
        names = ", ".join(listing.others[:3])
        return f"no name in {self.spec.path} fits {self.spec.pattern!r}; there are {names}"

    # --- what is evaluated --------------------------------------------------------------------------------------------

    def choose(self) -> list[ReadyCheckpoint]:
        """The complete checkpoints that the selection takes now; what it leaves out is passed over."""
        rule = self.spec.select
        if rule.rule is Select.LATEST and not self.room:
            return []
        again = {name for name in self.ready if name in self.taken}
        fresh = [each.candidate for name, each in self.ready.items() if name not in again]
        chosen = select(rule, fresh, map(self.candidate, self.taken))
        names = {each.name for each in chosen} | again
        for name in [name for name in self.ready if name not in names]:
            self._pass(self.ready.pop(name))
        return [self.ready[each.name] for each in sorted((self.candidate(name) for name in names), key=rank)]

    def _pass(self, left: ReadyCheckpoint) -> None:
        self.passed.add(left.candidate.name)
        if self.last is None or rank(left.candidate) > rank(self.last.candidate):
            self.last = left

    def choose_last(self) -> ReadyCheckpoint | None:
        """The last checkpoint, where the selection left it out: asked when no other can come."""
        last = self.last
        newest = max(map(rank, map(self.candidate, self.taken)), default=None)
        return last if last is not None and (newest is None or rank(last.candidate) > newest) else None

    def started(self, evaluation: StoredEvaluation) -> None:
        """An evaluation of it was stored."""
        if evaluation.run == 0:
            self.ready.pop(evaluation.checkpoint, None)
            self.passed.discard(evaluation.checkpoint)
            self.taken[evaluation.checkpoint] = KnownContent(evaluation.content, evaluation.facts.files)
        self.live[evaluation.id] = evaluation

    @property
    def room(self) -> int:
        """How many more evaluations may be submitted now."""
        return max(0, self.spec.max_parallel - sum(1 for each in self.live.values() if each.job_id))

    def next_ones(self) -> list[StoredEvaluation]:
        """The waiting evaluations that may be submitted now; those asked for by hand first."""
        waiting = [each for each in self.live.values() if not each.job_id]
        by_hand = [each for each in waiting if each.run]
        own = {each.checkpoint: each for each in waiting if not each.run}
        ordered = put_in_order(self.spec.order, map(self.candidate, own))
        return [*by_hand, *(own[each.name] for each in ordered)][: self.room]

    def note(self, text: str, now: float) -> StoredWatch | None:
        """The watch with a note, if that is another one."""
        facts = self.stored.facts
        if facts.note == text:
            return None
        return replace(self.stored, facts=replace(facts, note=text, note_at=now if text else None))


def _leave_out_bytes(listing: FolderListing) -> FolderListing:
    """The listing without names that are no UTF-8: no job file, variable or answer can carry them."""
    return replace(
        listing,
        found=tuple(found for found in listing.found if _is_text(found.name)),
        others=tuple(filter(_is_text, listing.others)),
    )


def _is_text(name: str) -> bool:
    return name.isascii() or not any("\ud800" <= letter <= "\udfff" for letter in name)


def list_incomplete(watch: CheckpointWatch) -> Iterable[tuple[str, str]]:
    """Checkpoints that are not complete, and why; a few of them."""
    return sorted(watch.waits.items(), key=lambda item: rank(watch.candidate(item[0])))[:MOST_SHOWN]

"""What is shown of a watch: its evaluations as documents, the best of them, and what is not complete yet."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from overspan.bridge.controller.features.evaluations.watches import CheckpointWatch, list_incomplete
from overspan.bridge.model.evaluations import ReadyRule
from overspan.bridge.model.states import State
from overspan.bridge.store.evaluation_records import EvaluationTally, JobLabel, StoredEvaluation, StoredWatch

WAITING = "WAITING"
"""The state of an evaluation that is not submitted yet."""


class LiveState(NamedTuple):
    """The state of an evaluation's job that is in memory, and why it waits."""

    state: str = State.PENDING.value
    reason: str = ""


def describe_watch(
    stored: StoredWatch,
    watch: CheckpointWatch | None,
    known: Sequence[StoredEvaluation],
    states: Mapping[int, LiveState],
) -> dict[str, Any]:
    """A watch with its evaluations; `watch` is None for one that is closed, `states` are those of live jobs."""
    spec = stored.facts.spec
    best = _find_best(known, lowest=spec.result.lowest)
    guess = any(each.facts.guess for each in known) or (watch is not None and watch.guesses)
    return {
        "name": stored.name,
        "job": stored.job_id,
        "path": spec.path,
        "pattern": spec.pattern,
        "cluster": stored.facts.cluster,
        "closed": stored.closed,
        "note": stored.facts.note,
        "guess": guess and spec.ready.rule is ReadyRule.LAYOUT,
        "lowest_is_best": spec.result.lowest,
        "max_parallel": spec.max_parallel,
        "best": best.checkpoint if best is not None else None,
        "incomplete": [{"checkpoint": name, "why": why} for name, why in (list_incomplete(watch) if watch else ())],
        "passed": len(watch.passed) if watch is not None else None,
        "evaluations": [_describe(each, states, each is best) for each in known],
    }


def sum_up_watch(
    stored: StoredWatch,
    watch: CheckpointWatch | None,
    job: JobLabel,
    tallies: Sequence[EvaluationTally],
    states: Mapping[int, LiveState],
) -> dict[str, Any]:
    """A watch with its evaluations counted by state; `watch` is None for one that is closed."""
    spec = stored.facts.spec
    scores = [each.lowest if spec.result.lowest else each.highest for each in tallies]
    known = [score for score in scores if score is not None]
    counts = Counter({each.state: each.count for each in tallies})
    counts.update(_find_live(each, states).state for each in (watch.live.values() if watch else ()))
    return {
        "name": stored.name,
        "job": stored.job_id,
        "job_name": job.name,
        "job_state": job.state,
        "user": stored.user,
        "cluster": stored.facts.cluster,
        "closed": stored.closed,
        "note": stored.facts.note,
        "lowest_is_best": spec.result.lowest,
        "states": dict(counts),
        "best_score": (min if spec.result.lowest else max)(known, default=None),
        "incomplete_count": len(watch.waits) if watch else 0,
        "ended_at": max((each.ended_at for each in tallies if each.ended_at is not None), default=None),
    }


def _find_live(one: StoredEvaluation, states: Mapping[int, LiveState]) -> LiveState:
    """The state of an evaluation that is not over."""
    return states.get(one.job_id, LiveState()) if one.job_id else LiveState(WAITING)


def _describe(one: StoredEvaluation, states: Mapping[int, LiveState], best: bool) -> dict[str, Any]:
    facts = one.facts
    live = LiveState(facts.state, facts.reason) if one.over else _find_live(one, states)
    return {
        "id": one.id,
        "checkpoint": one.checkpoint,
        "step": facts.step,
        "fields": dict(facts.fields),
        "run": one.run,
        "job": one.job_id or None,
        "cluster": facts.cluster,
        "state": live.state,
        "reason": live.reason,
        "score": facts.score,
        "best": best,
        "values": dict(facts.values),
        "trouble": facts.trouble,
        "layout": facts.layout,
        "guess": facts.guess,
        "size": facts.size,
        "ready_at": facts.ready_at,
        "submitted_at": facts.submitted_at,
        "ended_at": facts.ended_at,
    }


def _find_best(known: Sequence[StoredEvaluation], *, lowest: bool) -> StoredEvaluation | None:
    scored = [each for each in known if each.over and each.facts.score is not None]
    if not scored:
        return None
    sign = -1 if lowest else 1
    return max(scored, key=lambda each: sign * (each.facts.score or 0.0))

"""What is shown of a watch: its evaluations as documents, the best of them, and what is not complete yet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from overspan.bridge.controller.features.evaluations.watches import CheckpointWatch, list_incomplete
from overspan.bridge.model.evaluations import ReadyRule
from overspan.bridge.store.evaluation_records import StoredEvaluation, StoredWatch

WAITING = "WAITING"
"""The state of an evaluation that is not submitted yet."""


def describe_watch(
    stored: StoredWatch, watch: CheckpointWatch | None, known: Sequence[StoredEvaluation], states: Mapping[int, str]
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
        "best": best.checkpoint if best is not None else None,
        "incomplete": [{"checkpoint": name, "why": why} for name, why in (list_incomplete(watch) if watch else ())],
        "passed": len(watch.passed) if watch is not None else None,
        "evaluations": [_describe(each, states, each is best) for each in known],
    }


def _describe(one: StoredEvaluation, states: Mapping[int, str], best: bool) -> dict[str, Any]:
    facts = one.facts
    return {
        "id": one.id,
        "checkpoint": one.checkpoint,
        "step": facts.step,
        "fields": dict(facts.fields),
        "run": one.run,
        "job": one.job_id or None,
        "state": facts.state if one.over else states.get(one.job_id, "PENDING") if one.job_id else WAITING,
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

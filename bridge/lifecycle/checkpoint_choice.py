"""Which complete checkpoints of a watch are evaluated, and when their scores end the watched job. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Optional

from overspan.bridge.model.evaluations import CheckpointSelection, EvaluationOrder, Select, StopRule, StopWhen
from overspan.bridge.model.records import NamedTuple

Rank = tuple[float, tuple[tuple[int, int, str], ...]]


class RankedCheckpoint(NamedTuple):
    """A complete checkpoint: its name, and the number that orders it where it has one."""

    name: str
    number: Optional[float]


def rank(candidate: RankedCheckpoint) -> Rank:
    """The place in the order: by number, and by name with its digits as numbers."""
    pieces = re.findall(r"[0-9]+|[^0-9]+", candidate.name)
    key = tuple((0, int(piece), "") if piece.isdecimal() else (1, 0, piece) for piece in pieces)
    return (float("-inf") if candidate.number is None else candidate.number, key)


def select(
    rule: CheckpointSelection, ready: Iterable[RankedCheckpoint], taken: Iterable[RankedCheckpoint]
) -> list[RankedCheckpoint]:
    """Those of the complete checkpoints that are evaluated, in order. `taken` were chosen before.

    LATEST gives the newest alone, and nothing while a newer one is taken.
    """
    waiting = sorted(ready, key=rank)
    if rule.rule is Select.ALL:
        return waiting
    if rule.rule is Select.LATEST:
        newest = max(map(rank, taken), default=None)
        return [each for each in waiting[-1:] if newest is None or rank(each) > newest]
    if rule.rule is Select.EVERY:
        return [each for each in waiting if each.number is not None and each.number % rule.every == 0]
    numbers = sorted(each.number for each in taken if each.number is not None)
    chosen = []
    for each in waiting:
        if each.number is not None and _meets_milestone(each.number, rule.milestones, numbers):
            chosen.append(each)
            numbers.append(each.number)
    return chosen


def _meets_milestone(number: float, milestones: Sequence[float], taken: Sequence[float]) -> bool:
    """Whether a milestone is at or before this number, and nothing between them was taken."""
    passed = [milestone for milestone in milestones if milestone <= number]
    return bool(passed) and not any(passed[-1] <= other <= number for other in taken)


def put_in_order(order: EvaluationOrder, waiting: Iterable[RankedCheckpoint]) -> list[RankedCheckpoint]:
    """The waiting checkpoints, the next one first."""
    return sorted(waiting, key=rank, reverse=order is EvaluationOrder.NEWEST)


class Scored(NamedTuple):
    """A score that counts for `stop_when`."""

    candidate: RankedCheckpoint
    score: float


def find_stop(rule: StopWhen, scores: Iterable[Scored], *, lowest: bool) -> str:
    """Why the job is done, as a sentence; empty while it is not."""
    ordered = sorted(scores, key=lambda scored: rank(scored.candidate))
    if rule.rule is StopRule.SCORE:
        for candidate, score in ordered:
            if score >= rule.score if rule.above else score <= rule.score:
                word = "at least" if rule.above else "at most"
                return f"{rule.evaluation} of {candidate.name} is {score:g}, and {word} {rule.score:g} was wanted"
        return ""
    best: Optional[float] = None
    without = 0
    for _, score in ordered:
        if best is None or (score < best if lowest else score > best):
            best, without = score, 0
        else:
            without += 1
    if without < rule.count or best is None:
        return ""
    return f"{rule.evaluation} was no better than {best:g} in {without} results"

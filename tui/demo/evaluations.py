"""Evaluations in the simulated lab: each checkpoint of a trainer has a job of its own, with a score."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any, NamedTuple

from overspan.bridge.model.errors import InvalidRequest, NotFound
from overspan.tui.demo.lab import DemoLab
from overspan.tui.demo.machines import GIB
from overspan.tui.demo.people import make_life, write_script
from overspan.tui.demo.records import DemoEvaluation, DemoJob, DemoWatch, JobWish, TaskWish

LOOK_SECONDS = 30.0
"""How often checkpoints are looked for."""
STEP_SECONDS = 41.0
"""How long a step of a trainer takes, as its log has it."""
_PREFIX = "step_"


class WatchPlan(NamedTuple):
    """What is evaluated of a job of that name, every so many steps, and the score of a step without its noise."""

    name: str
    of: str
    every: int
    score: Callable[[float], float]
    noise: float
    lowest: bool = False


PLANS = (
    WatchPlan("gsm8k", "rl-math", 50, lambda step: 0.88 - 0.47 * math.exp(-step / 420), 0.011),
    WatchPlan("held-out", "rl-code", 50, lambda step: 0.94 + 1.35 * math.exp(-step / 260), 0.02, lowest=True),
)
_ENDS = ("success",) * 15 + ("exit", "memory")


def watch_checkpoints(lab: DemoLab) -> None:
    """Look for jobs that are watched and for their checkpoints, and submit evaluations; then again, for ever."""
    for plan in PLANS:
        known = {watch.job.id for watch in lab.watches if watch.name == plan.name}
        for job in [job for job in lab.live.values() if job.wish.name == plan.of and job.id not in known]:
            lab.watches.append(DemoWatch(plan.name, job, plan.every, plan.lowest))
    for watch in lab.watches:
        _find_checkpoints(lab, watch)
        _submit_next(lab, watch)
    lab.plan(LOOK_SECONDS, lambda: watch_checkpoints(lab))


def _find_checkpoints(lab: DemoLab, watch: DemoWatch) -> None:
    """Take up the checkpoints that were written since the last look."""
    job = watch.job
    if job.started_at is None or job.over:
        return
    newest = max((each.step for each in watch.evaluations if not each.run), default=0)
    last = int((lab.now - job.started_at - 60) / STEP_SECONDS)
    for step in range(newest + watch.every, last + 1, watch.every):
        _add(lab, watch, step, 0)


def _add(lab: DemoLab, watch: DemoWatch, step: int, run: int) -> DemoEvaluation:
    plan = next(plan for plan in PLANS if plan.name == watch.name)
    chance = Random(f"{lab.seed}/{watch.name}/{step}/{run}")
    number = sum(len(each.evaluations) for each in lab.watches) + 1
    new = DemoEvaluation(number, step, run, lab.now, round(plan.score(step) + chance.gauss(0, plan.noise), 4))
    watch.evaluations.append(new)
    return new


def _submit_next(lab: DemoLab, watch: DemoWatch) -> None:
    """Submit as many of those that wait as may run, the ones asked for by hand first."""
    waiting = [each for each in watch.evaluations if each.job is None]
    if waiting:
        live = sum(each.job is not None and not each.over for each in watch.evaluations)
        for each in sorted(waiting, key=lambda each: (not each.run, each.step))[: max(0, watch.max_parallel - live)]:
            each.job = lab.submit(_make_wish(lab, watch, each))


def _make_wish(lab: DemoLab, watch: DemoWatch, one: DemoEvaluation) -> JobWish:
    """The job of an evaluation; one that is run by hand succeeds."""
    chance, of = Random(f"{lab.seed}/{watch.name}/{one.id}"), watch.job.wish
    life = make_life(chance.uniform(350, 900), "success" if one.run else chance.choice(_ENDS))
    task = TaskWish("batch", 1, 4, 32 * GIB, 1, True, "evaluation", (life,))
    name = f"{watch.name}-{one.step}"
    place = (of.cluster, of.partition)
    return write_script(JobWish(name, of.user, *place, (task,), 3600, account=of.account, priority=4000))


def evaluate_again(lab: DemoLab, job: DemoJob, checkpoint: str, name: str) -> list[dict[str, Any]]:
    """Evaluate a checkpoint once more, as the daemon does."""
    watches = [watch for watch in lab.watches if watch.job is job and name in ("", watch.name)]
    if not watches:
        raise NotFound(f"job {job.id} has no evaluations", remedy="`span evals watch` adds one")
    step = checkpoint.rpartition("/")[2].removeprefix(_PREFIX)
    if not step.isdecimal():
        raise InvalidRequest(f"{checkpoint!r} does not fit the pattern {_PREFIX}{{step:int}}")
    made = []
    for watch in watches:
        runs = [each.run for each in watch.evaluations if each.step == int(step)]
        new = _add(lab, watch, int(step), max(runs, default=0) + 1)
        _submit_next(lab, watch)
        number = new.job.id if new.job is not None else None
        made.append({"id": new.id, "checkpoint": f"{_PREFIX}{step}", "run": new.run, "job": number})
    return made


# --- documents --------------------------------------------------------------------------------------------------------


def sum_up_demo_watch(watch: DemoWatch) -> dict[str, Any]:
    """The watch as the list of all has it."""
    job, known = watch.job, watch.evaluations
    scores = [each.result for each in known if each.result is not None]
    ends = [each.job.ended_at for each in known if each.job is not None and each.job.ended_at is not None]
    return {
        "name": watch.name,
        "job": job.id,
        "job_name": job.name,
        "job_state": job.state,
        "user": job.wish.user,
        "cluster": job.wish.cluster,
        "closed": watch.closed,
        "note": "",
        "lowest_is_best": watch.lowest,
        "states": dict(Counter(_find_state(each) for each in known)),
        "best_score": (min if watch.lowest else max)(scores, default=None),
        "incomplete_count": 0,
        "ended_at": max(ends, default=None),
    }


def _find_state(one: DemoEvaluation) -> str:
    return "WAITING" if one.job is None else one.job.state


def describe_demo_watch(watch: DemoWatch) -> dict[str, Any]:
    """The watch with its evaluations."""
    scored = [each for each in watch.evaluations if each.result is not None]
    best = (min if watch.lowest else max)(scored, key=lambda each: each.score, default=None)
    return {
        "name": watch.name,
        "job": watch.job.id,
        "path": f"/scratch/{watch.job.wish.user}/{watch.job.name}/checkpoints",
        "pattern": f"{_PREFIX}{{step:int}}",
        "cluster": watch.job.wish.cluster,
        "closed": watch.closed,
        "note": "",
        "guess": False,
        "lowest_is_best": watch.lowest,
        "max_parallel": watch.max_parallel,
        "best": f"{_PREFIX}{best.step}" if best is not None else None,
        "incomplete": [],
        "passed": 0,
        "evaluations": [_describe(watch, each, each is best) for each in watch.evaluations],
    }


def _describe(watch: DemoWatch, one: DemoEvaluation, best: bool) -> dict[str, Any]:
    job, score = one.job, one.result
    reason = job.reason if job is not None and job.reason != "None" else ""
    return {
        "id": one.id,
        "checkpoint": f"{_PREFIX}{one.step}",
        "step": one.step,
        "fields": {"step": one.step},
        "run": one.run,
        "job": job.id if job is not None else None,
        "cluster": job.wish.cluster if job is not None else "",
        "state": _find_state(one),
        "reason": reason,
        "score": score,
        "best": best,
        "values": {"loss" if watch.lowest else "accuracy": score} if score is not None else {},
        "trouble": "",
        "layout": "pytorch",
        "guess": False,
        "size": 16_060_522_496,
        "ready_at": one.ready_at,
        "submitted_at": job.submitted_at if job is not None else None,
        "ended_at": job.ended_at if job is not None else None,
    }

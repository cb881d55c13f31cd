"""Orders as Slurm's commands, and what their answers mean."""

from __future__ import annotations

import math
import signal as signals
from collections.abc import Sequence

from overspan.adapters.contract import Order, Refusal
from overspan.adapters.slurm.errors import Kind, read_failure
from overspan.adapters.slurm.handles import Handle, parse_handle
from overspan.adapters.slurm.outcomes import Phase
from overspan.adapters.slurm.questions import Questions
from overspan.adapters.slurm.script import render_instant, render_limit
from overspan.adapters.slurm.transports.channel import Call, Done
from overspan.adapters.slurm.watching import Orders, Watch
from overspan.bridge.model import events
from overspan.bridge.model.events import Event

ECHOED = (
    events.Cancel,
    events.Hold,
    events.Release,
    events.SetTime,
    events.SetPriority,
    events.SetNice,
    events.SetBegin,
    events.Expire,
)
"""Orders whose effect is told as the order itself; others show in Slurm's states."""
_WAIT = "20"
"""Seconds after which scancel gives up: it tries for a minute on what is about to start."""

_GAVE_UP = 124
"""timeout(1)'s exit code."""

Words = tuple[str, ...]


def render_order(handle: Handle, event: Event, starting: bool = False) -> tuple[Words, ...] | None:
    """The commands that carry an order out; None for an order that has no form on Slurm.

    `starting`: its nodes are being made ready, so that it cannot be signalled yet.
    """
    native = str(handle.native)
    if isinstance(event, events.Cancel):
        grace = handle.grace if event.grace is None else event.grace
        return cancel_words(native, grace == 0 or starting)
    if isinstance(event, events.Expire) or (isinstance(event, events.Preempt) and not event.requeue):
        return cancel_words(native, True)
    if isinstance(event, events.Signal):
        scope = "--batch" if event.batch_only else "--full"
        return (("timeout", _WAIT, "scancel", "--state=RUNNING", f"--signal={event.signal}", scope, native),)
    changed = _render_change(event)
    if changed:
        return (("scontrol", "update", f"JobId={native}", changed),)
    verb = _VERBS.get(type(event))
    if isinstance(event, events.Requeue) and event.hold:
        verb = "requeuehold"
    return (("scontrol", verb, native),) if verb else None


_VERBS: dict[type, str] = {
    events.Hold: "hold",
    events.Release: "release",
    events.Suspend: "suspend",
    events.Resume: "resume",
    events.Requeue: "requeue",
    events.Restart: "requeue",
    events.Preempt: "requeue",
}


def cancel_words(native: str, at_once: bool) -> tuple[Words, ...]:
    """End a job: at once, or with a TERM for every process of one that runs.

    Each command takes jobs of one state, since scancel waits and tries again when it is to signal one that has not
    started (measured on 22.05).
    """
    scancel: Words = ("timeout", _WAIT, "scancel")
    if at_once:
        return ((*scancel, native),)
    running = (*scancel, "--state=RUNNING", f"--signal={signals.SIGTERM.name[3:]}", "--full", native)
    return ((*scancel, "--state=PENDING", native), running, (*scancel, "--state=SUSPENDED", native))


def _render_change(event: Event) -> str:
    if isinstance(event, events.SetTime):
        return f"TimeLimit={render_limit(event.time or 0)}"
    if isinstance(event, events.SetPriority):
        return f"Priority={event.priority}"
    if isinstance(event, events.SetNice):
        return f"Nice={event.nice}"
    if isinstance(event, events.SetBegin):
        return f"StartTime={'now' if event.begin is None else render_instant(math.ceil(event.begin))}"
    return ""


class Orderer:
    """Carries orders out, many over one round trip, and notes those that are to be told."""

    def __init__(self, questions: Questions, orders: Orders, watch: Watch) -> None:
        self._questions = questions
        self._orders = orders
        self._watch = watch

    async def order(self, orders: Sequence[Order]) -> list[Refusal | None]:
        """One answer for each order. Raises Unreachable when none could be given."""
        answers: dict[str, Refusal | None] = {}
        calls: list[Call] = []
        asked: list[tuple[Order, int]] = []
        for order in orders:
            if order.token in self._orders.tokens or order.token in answers:
                continue
            handle = parse_handle(order.handle)
            view = self._watch.view_of(order.handle)
            words = render_order(handle, order.event, view is not None and view.outcome.phase is Phase.STARTING)
            answers[order.token] = None
            if words is None:
                kind = type(order.event).__name__
                answers[order.token] = Refusal(order.token, f"{kind} is not carried out on a Slurm cluster")
                continue
            calls += [Call(line) for line in words]
            asked.append((order, len(words)))
        for order, _ in asked:
            self._orders.begin(order.handle)
        try:
            limit = self._questions.timeout + len(calls)
            done = await self._questions.transport.run_all(calls, limit) if calls else []
            place = 0
            for order, count in asked:
                answers[order.token] = self._conclude(order, done[place : place + count])
                place += count
        finally:
            for order, _ in asked:
                self._orders.end(order.handle)
            self._watch.fresh.set()
        return [answers.get(order.token) for order in orders]

    def _conclude(self, order: Order, answers: Sequence[Done | None]) -> Refusal | None:
        """What came of an order; one that came too late is done."""
        refusal: Refusal | None = None
        had_effect = False
        for done in answers:
            if done is None:
                return Refusal(order.token, "the cluster has not answered", transient=True)
            if done.rc == 0 or (done.rc == _GAVE_UP and isinstance(order.event, events.Cancel)):
                # What could not be signalled is ended when its grace is over.
                had_effect = True
                continue
            failure = read_failure(done.words or done.text, done.rc)
            if failure.kind not in (Kind.UNKNOWN_JOB, Kind.ENDED):
                refusal = Refusal(order.token, failure.message, failure.transient)
        if refusal is None and had_effect and isinstance(order.event, ECHOED):
            self._orders.add(order.handle, order.token, order.event)
        return refusal

    async def end(self, handles: Sequence[Handle]) -> None:
        """End what was asked to end and has not."""
        calls = [Call(line) for handle in handles for line in cancel_words(str(handle.native), True)]
        if calls:
            await self._questions.transport.run_all(calls, self._questions.timeout + len(calls))

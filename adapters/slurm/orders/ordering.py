"""Carries orders out by Slurm's commands and by lines in supervisors' orders files, and reads the answers."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence

from overspan.adapters.contract import Decider, Order, Refusal
from overspan.adapters.slurm.commands.errors import FailureKind, read_failure
from overspan.adapters.slurm.commands.queries import Queries
from overspan.adapters.slurm.groups.files import CLOSED, LOCKED, NO_FOLDER
from overspan.adapters.slurm.groups.handles import GroupHandle, NativeJob, find_decider
from overspan.adapters.slurm.groups.ordering import REPORTED, GroupOrderer
from overspan.adapters.slurm.handles import Handle, parse_any
from overspan.adapters.slurm.observation.outcomes import Phase
from overspan.adapters.slurm.observation.watch import Watch
from overspan.adapters.slurm.orders.command_lines import (
    GAVE_UP,
    OrderSteps,
    Words,
    cancel_arrays,
    cancel_words,
    merge_words,
    render_order,
    share_answer,
)
from overspan.adapters.slurm.orders.delivered import DeliveredOrders
from overspan.adapters.slurm.submission.dependencies import name_needs, render_dependency
from overspan.adapters.slurm.submission.predecessors import Predecessors
from overspan.adapters.slurm.transports.transport import Call, Done
from overspan.bridge.model import events
from overspan.bridge.model.documents import decode
from overspan.bridge.model.spec import Dependency

ECHOED = (
    events.Cancel,
    events.Hold,
    events.Release,
    events.SetTime,
    events.SetPriority,
    events.SetNice,
    events.SetBegin,
    events.SetDependency,
    events.Expire,
)
"""Orders that are reported as events themselves; the effects of others show in Slurm's states or in a journal."""
_ENDING = (events.Cancel, events.Terminate, events.Kill)
STARTED = "no longer pending execution"
"""Slurm's error for a change that only a waiting job can have."""
LOWERED = "Changes to job priority are not persistent"
"""Slurm's message, with exit code 1, when a user lowers a priority, which it does all the same (measured on 22.05)."""
_CLOCK: Words = ("date", "+%s")


class Orderer:
    """Carries out many orders over one round trip, and notes those that the projections report."""

    def __init__(self, queries: Queries, orders: DeliveredOrders, watch: Watch, groups: GroupOrderer) -> None:
        self._queries = queries
        self._orders = orders
        self._watch = watch
        self._groups = groups
        self._predecessors = Predecessors(queries)

    async def order(self, orders: Sequence[Order]) -> list[Refusal | None]:
        """One answer for each order. Raises Unreachable if no answer is known."""
        each = {order.token: order for order in orders}
        fresh = [order for order in each.values() if order.token not in self._orders.tokens]
        # Before anything else: an earlier process may have sent the order already, and an end that it caused must not
        # be reported as an end by itself.
        for order in fresh:
            self._orders.begin(order.handle)
        answers: dict[str, Refusal | None] = {}
        try:
            await self._groups.await_first_poll(orders)
            await self._give(fresh, answers)
        finally:
            for order in fresh:
                sure = order.token in answers and order.token not in self._orders.in_doubt
                self._orders.end(order.handle, sure)
                self._watch.note_order(order.handle)
            self._watch.fresh.set()
        return [answers.get(order.token) for order in orders]

    async def _give(self, orders: Iterable[Order], answers: dict[str, Refusal | None]) -> None:
        """Plan orders and carry them out; `answers` gets those that are known."""
        asked: list[tuple[Order, OrderSteps]] = []
        for order in orders:
            steps = await self._plan(order)
            if isinstance(steps, Refusal) or not steps.first:
                answers[order.token] = steps if isinstance(steps, Refusal) else None
            else:
                asked.append((order, steps))
        answers.update(await self._carry_out(asked))

    async def _plan(self, order: Order) -> OrderSteps | Refusal:
        handle, key, event = parse_any(order.handle), order.handle, order.event
        native: Handle | NativeJob
        if isinstance(handle, GroupHandle):
            if handle.decider is Decider.DAEMON or not isinstance(event, events.SetDependency):
                return await self._groups.plan(order)
            native = handle.list_jobs()[0]
            key = str(native)
        else:
            native = handle
        if self._watch.is_taken(key):
            # The native id is another job's now. This launch's end is reported when the accounting shows it.
            return OrderSteps(())
        if isinstance(event, events.SetDependency):
            return await self._wait(order, native.name, event)
        view = self._watch.view_of(key)
        starting = view is not None and view.outcome.phase is Phase.STARTING
        words = render_order(native, event, starting) if isinstance(native, Handle) else None
        refusal = Refusal(order.token, f"{type(event).__name__} is not carried out on a Slurm cluster")
        return refusal if words is None else OrderSteps(words)

    async def _wait(self, order: Order, native: str, event: events.SetDependency) -> OrderSteps | Refusal:
        """The commands of a new dependency; a transient refusal if a predecessor may be over."""
        (good,) = await self._predecessors.list_open([order.needs])
        if not good:
            return Refusal(order.token, "what it is to wait for may be over", transient=True, reason="Dependency")
        value = render_dependency(decode(Dependency, event.dependency), name_needs(order.needs))
        return OrderSteps((("scontrol", "update", f"JobId={native}", f"Dependency={value}"),))

    async def _carry_out(self, asked: Sequence[tuple[Order, OrderSteps]]) -> dict[str, Refusal | None]:
        answers: dict[str, Refusal | None] = {}
        # Whether a job ended before its cancel is decided by one clock alone, the cluster's.
        timed = any(isinstance(order.event, events.Cancel) for order, _ in asked)
        clock: tuple[Words, ...] = (_CLOCK, *cancel_arrays(parse_cancelled(asked))) if timed else ()
        (ticks, *done) = await self._run([clock, *((*steps.first, *steps.hints) for _, steps in asked)])
        cluster_time = read_clock(ticks[0]) if ticks else None
        following: list[tuple[Order, tuple[Words, ...]]] = []
        for (order, steps), ends in zip(asked, done, strict=True):
            answers[order.token] = self._conclude(order, ends[: len(steps.first)], not steps.then, cluster_time)
            if steps.then and answers[order.token] is None:
                following.append((order, steps.then))
        for (order, _), ends in zip(following, await self._run([words for _, words in following]), strict=True):
            answers[order.token] = self._conclude(order, ends[:1], True)
        return answers

    async def _run(self, lines: Sequence[Sequence[Words]]) -> list[list[Done | None]]:
        """Run each order's commands, all of them over one round trip."""
        asked = [words for each in lines for words in each]
        if not asked:
            return [[] for _ in lines]
        merged, places = merge_words(asked)
        timeout = self._queries.timeout + len(merged)
        done = await self._queries.transport.run_all([Call(words) for words in merged], timeout)
        shared = iter(
            share_answer(done[place], merged[place], words[-1]) for words, place in zip(asked, places, strict=True)
        )
        return [[next(shared) for _ in each] for each in lines]

    def _conclude(
        self, order: Order, answers: Sequence[Done | None], whole: bool, cluster_time: float | None = None
    ) -> Refusal | None:
        """The answer to an order, which is noted as carried out if it is `whole`. One that came too late is done."""
        refusal: Refusal | None = None
        had_effect, again = False, order.again or order.token in self._orders.in_doubt
        for done in answers:
            if done is None:
                self._orders.in_doubt[order.token] = None
                return Refusal(order.token, "the cluster has not answered", transient=True)
            if done.rc == 0 or (done.rc == GAVE_UP and isinstance(order.event, _ENDING)):
                # scancel gave up signalling; the job is killed when its grace period is over.
                had_effect = True
                continue
            if done.rc in (NO_FOLDER, CLOSED, LOCKED):
                if done.rc == LOCKED:
                    return Refusal(order.token, "the orders of the group are locked", transient=True)
                if isinstance(order.event, (events.Launch, events.NodeRelaunch)):
                    return Refusal(order.token, "the native job takes no more orders", transient=True)
                continue
            if done.rc == GAVE_UP and isinstance(order.event, events.Expire):
                return Refusal(order.token, "the cluster has not answered in time", transient=True)
            failure = read_failure(done.words or done.text, done.rc)
            if isinstance(order.event, events.SetPriority) and LOWERED in failure.message:
                had_effect = True
                continue
            if isinstance(order.event, events.Expire) and STARTED in failure.message:
                # The withdrawal came too late: the job has started and stays.
                continue
            if failure.kind in (FailureKind.UNKNOWN_JOB, FailureKind.ENDED):
                # An earlier try of the same order may have ended the job.
                had_effect = had_effect or (again and isinstance(order.event, events.Cancel))
            else:
                refusal = Refusal(order.token, failure.message, failure.transient)
        echoed = REPORTED if find_decider(order.handle) is Decider.DAEMON else ECHOED
        if refusal is None and had_effect and whole and isinstance(order.event, echoed):
            if again and cluster_time is not None:
                # The time of the first try is not known; it cannot be before the user gave the order.
                cluster_time -= max(0.0, time.time() - order.event.at)
            self._orders.add(order.handle, order.token, order.event, cluster_time)
        elif refusal is None:
            self._orders.in_doubt.pop(order.token, None)
        return refusal

    async def end(self, names: Sequence[str]) -> None:
        """Cancel these jobs at once."""
        await self._run([cancel_words(name, True) for name in names])


def parse_cancelled(asked: Sequence[tuple[Order, OrderSteps]]) -> dict[int, list[int]]:
    """The indices of elements to cancel, by native array."""
    found: dict[int, list[int]] = {}
    for order, _ in asked:
        if isinstance(order.event, events.Cancel):
            handle = parse_any(order.handle)
            if isinstance(handle, Handle) and handle.index is not None:
                found.setdefault(handle.native, []).append(handle.index)
    return found


def read_clock(done: Done | None) -> float | None:
    """The answer of date(1) in seconds since the epoch; None without one."""
    text = done.text.strip() if done is not None else ""
    return float(text) if text.isdigit() else None

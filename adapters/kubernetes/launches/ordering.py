"""Carrying out decisions on pods, by actions that may be repeated.

One lock for each launch: its orders are carried out one after the other, but for starts in a row, which go together, as
those of different launches do. A launch whose orders take long, say because a node hangs, delays the answers to others
by WAIT_SECONDS at most: its own are kept until the daemon asks again.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from weakref import WeakValueDictionary

from overspan.adapters.contract import Order, Refusal, SomeUnanswered
from overspan.adapters.first_observation import await_first_observation
from overspan.adapters.kubernetes.api.answers import is_there, is_transient
from overspan.adapters.kubernetes.api.calls import Calls, finish_all
from overspan.adapters.kubernetes.launches.gang import GangBackend
from overspan.adapters.kubernetes.launches.launches import WATCH_SECONDS, Launches, parse_handle
from overspan.adapters.kubernetes.launches.pod_actions import (
    UNSUPPORTED,
    AnnounceEnd,
    CreatePods,
    DeletePod,
    ExecInPod,
    GiveUpData,
    LaunchFacts,
    LosePod,
    LowerDeadline,
    PatchPod,
    PodAction,
    misses_pods,
    plan_actions,
)
from overspan.adapters.kubernetes.launches.queues import list_counted
from overspan.adapters.kubernetes.launches.start_gates import MOST_PODS, GateOpener
from overspan.adapters.kubernetes.launches.unsent_data import give_up_data
from overspan.adapters.kubernetes.launches.withdrawal import hold, release
from overspan.adapters.kubernetes.manifests.hooks import MARK_END_WORDS, MARK_SECONDS
from overspan.adapters.kubernetes.manifests.names import name_anchor
from overspan.adapters.kubernetes.manifests.rendering import PodSelection, own_all, render_pods
from overspan.adapters.kubernetes.observation.launch_progress import WatchedLaunch, make_tombstone
from overspan.adapters.kubernetes.observation.projection import read_go, write_go
from overspan.adapters.kubernetes.observation.records import GO, MAIN, PodRecord
from overspan.adapters.kubernetes.settings import Settings
from overspan.bridge.model import events
from overspan.bridge.model.errors import Denied, InvalidRequest, NotFound, OverspanError, Rejected
from overspan.bridge.model.events import Event

_log = logging.getLogger(__name__)

WAIT_SECONDS = 2.0
"""Seconds for which the orders of all launches wait for the slowest."""
_REMEMBERED = 2000
_EXECS = 8
"""Commands in pods at the same time."""
_EXECS_A_NODE = 4
"""Of these on one node, which may hang and then has each of its threads for the whole timeout."""
_EXEC_SECONDS = 10.0
_ANNOUNCE_SECONDS = 3.0
_PLACE_SECONDS = 5.0
"""Seconds to wait for the end of a pod that is replaced: kubelets report ends up to a second late."""
_LOOK_SECONDS = 0.1
_REFUSED = (events.Suspend, events.Resume)


class RetryLater(Exception):
    """An action that cannot be carried out now; the order is tried again."""

    def __init__(self, message: str, reason: str = "Resources") -> None:
        super().__init__(message)
        self.reason = reason


class NotCarriedOut(Exception):
    """An action that failed or is in doubt and is not repeated: the user has to know."""


class Orderer:
    """Carries out orders; `follow_to_end` is called with pods that are about to be ended."""

    def __init__(
        self, launches: Launches, settings: Settings, follow_to_end: Callable[[list[PodRecord]], None]
    ) -> None:
        self._launches = launches
        self._follow = follow_to_end
        self._settings = settings
        self._done: OrderedDict[str, Refusal | None] = OrderedDict()
        """Final answers by token: a signal is not sent twice for a repeated call."""
        self._late: OrderedDict[str, Refusal | None] = OrderedDict()
        """Answers by token that came when their caller no longer waited."""
        self._working: set[asyncio.Task[None]] = set()
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        """By handle; a lock lives as long as it is held or waited for."""
        self._nodes: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()
        """By node; commands in its pods."""
        self._threads = ThreadPoolExecutor(_EXECS, thread_name_prefix="exec")
        self._opener = GateOpener(launches.connection, self._threads)

    async def close(self) -> None:
        """Wait for the start gates that are being opened, and end the orders under way and the threads."""
        for task in self._working:
            task.cancel()
        await asyncio.gather(*self._working, return_exceptions=True)
        await self._opener.close()
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def order(self, orders: Sequence[Order]) -> list[Refusal | None]:
        """Carry out each; answers in order.

        Raises Unreachable where a call was not answered, and SomeUnanswered while the orders of a launch take long.
        """
        by_handle: dict[str, list[Order]] = {}
        for order in orders:
            by_handle.setdefault(order.handle, []).append(order)
        answers: dict[str, Refusal | None] = {}
        began, left = time.monotonic(), asyncio.Event()

        async def work(handle: str, mine: list[Order]) -> None:
            async with self._locks.setdefault(handle, asyncio.Lock()):
                for together in _split(mine):
                    await finish_all(answer_one(order) for order in together)
            _limit(self._late)

        async def answer_one(order: Order) -> None:
            found = self._late.pop(order.token) if order.token in self._late else None
            found = found or await self._carry_out(order, began)
            (self._late if left.is_set() else answers)[order.token] = found

        tasks = [asyncio.create_task(work(*item)) for item in by_handle.items()]
        self._working.update(tasks)
        for task in tasks:
            task.add_done_callback(self._forget)
        if tasks:
            await asyncio.wait(tasks, timeout=WAIT_SECONDS)
        left.set()
        await finish_all(task for task in tasks if task.done())
        if any(not task.done() for task in tasks):
            raise SomeUnanswered(dict(answers))
        return [answers[order.token] for order in orders]

    def _forget(self, task: asyncio.Task[None]) -> None:
        self._working.discard(task)
        # The dispatcher no longer waits for it and sends the order again, which fails again where the cluster does.
        if not task.cancelled() and task.exception() is not None:
            _log.debug("orders of a launch: %s", task.exception())

    async def _carry_out(self, order: Order, began: float) -> Refusal | None:
        if order.token in self._done:
            return self._done[order.token]
        try:
            handle = parse_handle(order.handle)
        except NotFound:
            return None
        if isinstance(order.event, _REFUSED):
            return Refusal(order.token, UNSUPPORTED)
        watched = await self._launches.find(handle)
        if watched is None:
            return None
        # Not each of a launch's orders for itself: those of all other launches wait for the same answer.
        if not await await_first_observation(lambda: watched.cursor_known, began):
            # Without the cursor, an end that is stored already looks like a pod that was never created.
            return Refusal(order.token, "the launch has not been looked at yet", True)
        watched.busy += 1
        answer: Refusal | None = None
        try:
            await self._dispatch(order.event, watched)
        except RetryLater as error:
            return Refusal(order.token, str(error), True, error.reason)
        except (ValueError, NotCarriedOut) as error:
            answer = Refusal(order.token, str(error))
        finally:
            watched.busy -= 1
            watched.dirty = True
            self._launches.changed.set()
        self._done[order.token] = answer
        _limit(self._done)
        return answer

    async def _dispatch(self, event: Event, watched: WatchedLaunch) -> None:
        if isinstance(event, events.Hold):
            if not await hold(self._launches, watched):
                raise RetryLater("whether the launch has started is not known yet")
            return None
        if isinstance(event, events.Release):
            return await release(self._launches, watched, time.time())
        watch = self._launches.watch(parse_handle(watched.handle))
        # A Launch needs no fresh list: its creates find pods that are too young for the watch by their names.
        young = time.monotonic() - watched.touched < WATCH_SECONDS and not isinstance(event, events.Launch)
        known = watch.fresh and not young
        snapshot = self._launches.snapshot(watched) if known else await self._launches.fetch_snapshot(watched)
        facts = LaunchFacts(watched.summary, snapshot, watched.cursor, time.time())
        if misses_pods(event, facts):
            facts = facts._replace(snapshot=await self._launches.fetch_snapshot(watched))
        actions = plan_actions(event, facts)
        # Names are left before they are taken, marks and deletions are in their own order for each pod.
        chains: dict[str, list[PodAction]] = {}
        for action in actions:
            key = (
                action.pod.uid
                if isinstance(action, PatchPod | DeletePod | GiveUpData | ExecInPod | AnnounceEnd | LowerDeadline)
                else ""
            )
            chains.setdefault(key, []).append(action)
        makes = chains.pop("", [])
        await finish_all(self._perform_all(chain, watched) for chain in chains.values())
        if isinstance(event, events.Launch) and watched.summary.pods <= MOST_PODS and watched.waits(event.task):
            self._opener.open(
                [action.pod for action in actions if isinstance(action, PatchPod) and GO in action.annotations],
                write_go(event.at),
            )
        await self._perform_all(makes, watched)
        if actions:
            watched.touched = time.monotonic()

    async def _perform_all(self, actions: Sequence[PodAction], watched: WatchedLaunch) -> None:
        for action in actions:
            await self._perform(action, watched)

    async def _perform(self, action: PodAction, watched: WatchedLaunch) -> None:
        calls = self._launches.calls(watched.namespace)
        if isinstance(action, PatchPod):
            await _mark(calls, action)
        elif isinstance(action, DeletePod):
            # Its node may remove the log before the watch shows the deletion.
            self._follow([action.pod])
            await calls.delete_pod(action.pod, action.grace)
        elif isinstance(action, GiveUpData):
            self._follow([action.pod])
            await give_up_data(self._launches.connection, calls, action.pod)
        elif isinstance(action, LowerDeadline):
            await _lower_deadline(calls, action)
        elif isinstance(action, ExecInPod):
            await self._execute(action)
        elif isinstance(action, AnnounceEnd):
            await self._announce(action, calls)
        elif isinstance(action, LosePod):
            key = action.task, action.attempt, action.index
            watched.tombstones[key] = make_tombstone(watched, key, action.go)
        else:
            await self._create(action, watched)

    async def _execute(self, action: ExecInPod) -> None:
        """Run words in a pod. Raises NotCarriedOut where that failed or is in doubt: a signal is not sent twice."""
        pod, words = action.pod, action.words[-1]
        try:
            code, output = await self._exec(pod, action.words, _EXEC_SECONDS)
        except (NotFound, Rejected) as error:
            # The program has ended meanwhile.
            _log.info("pod %s: %s", pod.name, error)
            return
        except Denied as error:
            remedy = "`span check` of the cluster names the right that is missing"
            raise NotCarriedOut(f"`{words}` could not be run in pod {pod.name}: {error.message}; {remedy}") from error
        except OverspanError as error:
            raise NotCarriedOut(f"whether `{words}` was run in pod {pod.name} is not known: {error.message}") from error
        if code:
            said = " ".join(output.split())[:200]
            raise NotCarriedOut(f"`{words}` in pod {pod.name} ended with {code}{f': {said}' if said else ''}")

    async def _exec(self, pod: PodRecord, words: Sequence[str], timeout: float) -> tuple[int, str]:
        place = pod.namespace, pod.name, MAIN
        loop = asyncio.get_running_loop()
        async with self._nodes.setdefault(pod.node, asyncio.Semaphore(_EXECS_A_NODE)):
            return await loop.run_in_executor(self._threads, self._launches.connection.exec, *place, words, timeout)

    async def _announce(self, action: AnnounceEnd, calls: Calls) -> None:
        """Let a pod know that Overspan ends it, before the delete. Tries exec, then the annotation."""
        pod = action.pod
        try:
            code, output = await self._exec(pod, MARK_END_WORDS, _ANNOUNCE_SECONDS)
            if code == 0:
                return
            _log.warning("pod %s cannot be told of its end: %s", pod.name, output.strip()[:200])
        except OverspanError as error:
            _log.warning("pod %s cannot be told of its end: %s", pod.name, error)
        await calls.mark_pod(pod, {GO: action.go}, {})
        await asyncio.sleep(MARK_SECONDS)

    async def _create(self, action: CreatePods, watched: WatchedLaunch) -> None:
        failed = await make_pods(self._launches, watched, self._settings, action)
        for index, message in failed.items():
            key = action.task, action.attempt, index
            watched.tombstones[key] = make_tombstone(watched, key, action.go, action.run, message)


def _split(orders: Iterable[Order]) -> Iterable[list[Order]]:
    """The orders of a launch, in order: what may go at once together. Starts of different tasks do not depend."""
    for starts, found in itertools.groupby(orders, lambda order: isinstance(order.event, events.Launch)):
        if starts:
            yield list(found)
        else:
            yield from ([order] for order in found)


def _limit(answers: OrderedDict[str, Refusal | None]) -> None:
    while len(answers) > _REMEMBERED:
        answers.popitem(last=False)


async def _mark(calls: Calls, action: PatchPod) -> None:
    """Change a pod's marks. Raises RetryLater if it was to start and is gone, which the watch may not know yet."""
    marked = await calls.mark_pod(action.pod, action.annotations, action.labels)
    go = read_go(action.annotations.get(GO) or "")
    if marked is None and go is not None and go.stop_at is None:
        raise RetryLater(f"pod {action.pod.name} is no longer there")


async def _lower_deadline(calls: Calls, action: LowerDeadline) -> None:
    """Lower a pod's deadline. Where a policy forbids that, the daemon ends the pod in time, if there is one."""
    try:
        await calls.limit_pod(action.pod, action.seconds)
    except (Denied, Rejected) as error:
        _log.warning("pod %s is ended in time by a daemon alone: %s", action.pod.name, error)


async def make_pods(
    launches: Launches, watched: WatchedLaunch, settings: Settings, action: CreatePods
) -> dict[int, str]:
    """Create pods of a launch; gives why some can never be created. Raises RetryLater for what may work later."""
    plan = await launches.read_plan(watched)
    if plan is None:
        watched.gone = True
        return {}
    wanted = PodSelection(action.task, action.attempt, action.nodes, action.run, action.go)
    try:
        documents = await asyncio.to_thread(
            render_pods, plan, settings.model_copy(update={"namespace": watched.namespace}), wanted
        )
    except InvalidRequest as error:
        return dict.fromkeys(action.nodes, error.message)
    if plan.backend is GangBackend.KUEUE:
        await _await_places(launches, watched, action)
    own_all(documents, name_anchor(watched.token), watched.anchor)
    watched.made = time.monotonic()
    return await _make_all(launches.calls(watched.namespace), dict(zip(action.nodes, documents, strict=True)))


async def _make_all(calls: Calls, documents: Mapping[int, Mapping[str, Any]]) -> dict[int, str]:
    """Create pods by node number; gives why some can never be created. Raises RetryLater for what may work later."""
    left, failed = dict(documents), dict[int, str]()
    while left:
        answers = await calls.create_all([*left.values()])
        # A refusal of one leaves others untried.
        for index, answer in zip([*left], answers, strict=True):
            if answer is None:
                continue
            if is_there(answer):
                del left[index]
            elif is_transient(answer) or answer.status == 409:
                raise RetryLater(answer.message)
            else:
                del left[index]
                failed[index] = answer.message
    return failed


async def _await_places(launches: Launches, watched: WatchedLaunch, action: CreatePods) -> None:
    """Wait until Kueue no longer counts the pods that are replaced: it deletes the surplus of a group."""
    deadline = time.monotonic() + _PLACE_SECONDS
    while counted := list_counted(launches.pods(watched), action):
        if any(pod.phase == "Succeeded" for pod in counted):
            raise RetryLater(
                "Kueue gives the place of a pod that has succeeded to others; `span requeue` starts the job anew"
            )
        if time.monotonic() > deadline:
            raise RetryLater(f"pod {counted[0].name}, whose place the new one takes, is not over")
        await asyncio.sleep(_LOOK_SECONDS)

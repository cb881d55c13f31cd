"""Carrying out decisions on pods: single steps, each of which may be made again.

Orders of one launch are carried out one after the other, those of several at the same time.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from weakref import WeakValueDictionary

from overspan.adapters.contract import Order, Refusal
from overspan.adapters.first_observation import await_first_observation
from overspan.adapters.kubernetes.api.answers import is_there, is_transient
from overspan.adapters.kubernetes.api.calls import Calls, finish_all
from overspan.adapters.kubernetes.launches.gang import Rung
from overspan.adapters.kubernetes.launches.launches import WATCH_SECONDS, Launches, parse_handle
from overspan.adapters.kubernetes.launches.queues import list_counted
from overspan.adapters.kubernetes.launches.start_gates import MOST_PODS, Opener
from overspan.adapters.kubernetes.launches.steps import (
    UNSUPPORTED,
    Announce,
    Create,
    Delete,
    Execute,
    Limit,
    Lose,
    Patch,
    Scene,
    Step,
    misses_pods,
    plan_steps,
)
from overspan.adapters.kubernetes.launches.withdrawal import hold, release
from overspan.adapters.kubernetes.manifests.hooks import MARK_SECONDS, TELL_WORDS
from overspan.adapters.kubernetes.manifests.names import name_anchor
from overspan.adapters.kubernetes.manifests.rendering import PodSet, own_all, render_pods
from overspan.adapters.kubernetes.observation.launch_progress import Story, ghost
from overspan.adapters.kubernetes.observation.projection import read_go, write_go
from overspan.adapters.kubernetes.observation.records import GO, MAIN, PodRecord
from overspan.adapters.kubernetes.settings import Settings
from overspan.bridge.model import events
from overspan.bridge.model.errors import Denied, InvalidRequest, NotFound, OverspanError, Rejected
from overspan.bridge.model.events import Event

_log = logging.getLogger(__name__)

_REMEMBERED = 2000
_EXECS = 8
"""Commands in pods at the same time; a node that hangs has each of its threads for the whole timeout."""
_EXEC_SECONDS = 10.0
_ANNOUNCE_SECONDS = 3.0
_PLACE_SECONDS = 5.0
"""How long pods are waited for that new ones take the place of; a kubelet tells an end up to a second late."""
_LOOK_SECONDS = 0.1
_REFUSED = (events.Suspend, events.Resume)


class Failed(Exception):
    """A step that cannot be done now; it is tried again."""

    def __init__(self, message: str, reason: str = "Resources") -> None:
        super().__init__(message)
        self.reason = reason


class Undone(Exception):
    """A step that was not carried out, and is not tried again: the user has to know."""


class Orderer:
    """Carries out orders; `attend` is called with pods that are about to be ended."""

    def __init__(self, launches: Launches, settings: Settings, attend: Callable[[list[PodRecord]], None]) -> None:
        self._launches = launches
        self._attend = attend
        self._settings = settings
        self._done: OrderedDict[str, None] = OrderedDict()
        """Tokens of what was carried out: a signal is not sent twice for a repeated call."""
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        """By handle: they last as long as somebody has them or waits for them."""
        self._threads = ThreadPoolExecutor(_EXECS, thread_name_prefix="exec")
        self._opener = Opener(launches.connection, self._threads)

    async def close(self) -> None:
        """Let what is under way behind the orders end."""
        await self._opener.close()
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def order(self, orders: Sequence[Order]) -> list[Refusal | None]:
        """Carry out each; answers in order. Raises Unreachable where a call was not answered."""
        by_handle: dict[str, list[Order]] = {}
        for order in orders:
            by_handle.setdefault(order.handle, []).append(order)
        answers: dict[int, Refusal | None] = {}

        async def work(handle: str, mine: list[Order]) -> None:
            async with self._turns.setdefault(handle, asyncio.Lock()):
                for order in mine:
                    answers[id(order)] = await self._carry_out(order)

        await finish_all(work(*item) for item in by_handle.items())
        return [answers[id(order)] for order in orders]

    async def _carry_out(self, order: Order) -> Refusal | None:
        if order.token in self._done:
            return None
        try:
            handle = parse_handle(order.handle)
        except NotFound:
            return None
        if isinstance(order.event, _REFUSED):
            return Refusal(order.token, UNSUPPORTED)
        story = await self._launches.find(handle)
        if story is None:
            return None
        if not await await_first_observation(lambda: story.looked):
            # Without the cursor an end that is stored already looks like a pod that was never made.
            return Refusal(order.token, "the launch has not been looked at yet", True)
        story.busy += 1
        try:
            await self._do(order.event, story)
        except Failed as error:
            return Refusal(order.token, str(error), True, error.reason)
        except (ValueError, Undone) as error:
            return Refusal(order.token, str(error))
        finally:
            story.busy -= 1
            story.dirty = True
            self._launches.changed.set()
        self._done[order.token] = None
        while len(self._done) > _REMEMBERED:
            self._done.popitem(last=False)
        return None

    async def _do(self, event: Event, story: Story) -> None:
        if isinstance(event, events.Hold):
            if not await hold(self._launches, story):
                raise Failed("whether the launch has started is not known yet")
            return None
        if isinstance(event, events.Release):
            return await release(self._launches, story, time.time())
        watch = self._launches.watch(parse_handle(story.handle))
        # A launch finds by their names the pods that are too young for the watch.
        young = time.monotonic() - story.touched < WATCH_SECONDS and not isinstance(event, events.Launch)
        known = watch.fresh and not young
        view = self._launches.view(story) if known else await self._launches.view_now(story)
        scene = Scene(story.shape, view, story.cursor, time.time())
        if misses_pods(event, scene):
            scene = scene._replace(view=await self._launches.view_now(story))
        steps = plan_steps(event, scene)
        # Names are left before they are taken, marks and deletions are in their own order for each pod.
        chains: dict[str, list[Step]] = {}
        for step in steps:
            key = step.pod.uid if isinstance(step, Patch | Delete | Execute | Announce | Limit) else ""
            chains.setdefault(key, []).append(step)
        makes = chains.pop("", [])
        await finish_all(self._chain(chain, story) for chain in chains.values())
        if isinstance(event, events.Launch) and story.shape.pods <= MOST_PODS and story.waits(event.task):
            self._opener.open(
                [step.pod for step in steps if isinstance(step, Patch) and GO in step.annotations], write_go(event.at)
            )
        await self._chain(makes, story)
        if steps:
            story.touched = time.monotonic()

    async def _chain(self, steps: Sequence[Step], story: Story) -> None:
        for step in steps:
            await self._step(step, story)

    async def _step(self, step: Step, story: Story) -> None:
        calls = self._launches.calls(story.namespace)
        if isinstance(step, Patch):
            await _mark(calls, step)
        elif isinstance(step, Delete):
            # Its node may have removed its log before the watch tells that it is being deleted.
            self._attend([step.pod])
            await calls.delete_pod(step.pod, step.grace)
        elif isinstance(step, Limit):
            await _limit(calls, step)
        elif isinstance(step, Execute):
            await self._execute(step)
        elif isinstance(step, Announce):
            await self._announce(step, calls)
        elif isinstance(step, Lose):
            key = step.task, step.attempt, step.index
            story.lost[key] = ghost(story, key, step.go)
        else:
            await self._create(step, story)

    async def _execute(self, step: Execute) -> None:
        """Run words in a pod. Raises Undone where they did nothing, or nobody knows; a signal is not sent twice."""
        pod, words = step.pod, step.words[-1]
        try:
            code, output = await self._exec(pod, step.words, _EXEC_SECONDS)
        except (NotFound, Rejected) as error:
            # The program has ended meanwhile.
            _log.info("pod %s: %s", pod.name, error)
            return
        except Denied as error:
            remedy = "`span check` of the cluster names the right that is missing"
            raise Undone(f"`{words}` could not be run in pod {pod.name}: {error.message}; {remedy}") from error
        except OverspanError as error:
            raise Undone(f"whether `{words}` was run in pod {pod.name} is not known: {error.message}") from error
        if code:
            said = " ".join(output.split())[:200]
            raise Undone(f"`{words}` in pod {pod.name} ended with {code}{f': {said}' if said else ''}")

    async def _exec(self, pod: PodRecord, words: Sequence[str], timeout: float) -> tuple[int, str]:
        place = pod.namespace, pod.name, MAIN
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, self._launches.connection.exec, *place, words, timeout)

    async def _announce(self, step: Announce, calls: Calls) -> None:
        """Have a pod know by whom it is ended before it is."""
        pod = step.pod
        try:
            code, output = await self._exec(pod, TELL_WORDS, _ANNOUNCE_SECONDS)
            if code == 0:
                return
            _log.warning("pod %s cannot be told of its end: %s", pod.name, output.strip()[:200])
        except OverspanError as error:
            _log.warning("pod %s cannot be told of its end: %s", pod.name, error)
        await calls.mark_pod(pod, {GO: step.go}, {})
        await asyncio.sleep(MARK_SECONDS)

    async def _create(self, step: Create, story: Story) -> None:
        failed = await make_pods(self._launches, story, self._settings, step)
        for index, message in failed.items():
            key = step.task, step.attempt, index
            story.lost[key] = ghost(story, key, step.go, step.run, message)


async def _mark(calls: Calls, step: Patch) -> None:
    """Change a pod's marks. Raises Failed for one that is to start and has gone: the watch may not know that yet."""
    marked = await calls.mark_pod(step.pod, step.annotations, step.labels)
    go = read_go(step.annotations.get(GO) or "")
    if marked is None and go is not None and go.stop_at is None:
        raise Failed(f"pod {step.pod.name} is no longer there")


async def _limit(calls: Calls, step: Limit) -> None:
    """Lower a pod's deadline. Where a policy forbids that, the daemon ends the pod in time, if there is one."""
    try:
        await calls.limit_pod(step.pod, step.seconds)
    except (Denied, Rejected) as error:
        _log.warning("pod %s is ended in time by a daemon alone: %s", step.pod.name, error)


async def make_pods(launches: Launches, story: Story, settings: Settings, step: Create) -> dict[int, str]:
    """Make pods of a launch; of those that can never be made, why. Raises Failed for what may be done later."""
    blueprint = await launches.read_blueprint(story)
    if blueprint is None:
        story.gone = True
        return {}
    wanted = PodSet(step.task, step.attempt, step.nodes, step.run, step.go)
    try:
        documents = await asyncio.to_thread(
            render_pods, blueprint, settings.model_copy(update={"namespace": story.namespace}), wanted
        )
    except InvalidRequest as error:
        return dict.fromkeys(step.nodes, error.message)
    if blueprint.rung is Rung.KUEUE:
        await _await_places(launches, story, step)
    own_all(documents, name_anchor(story.token), story.anchor)
    story.made = time.monotonic()
    return await _make_all(launches.calls(story.namespace), dict(zip(step.nodes, documents, strict=True)))


async def _make_all(calls: Calls, documents: Mapping[int, Mapping[str, Any]]) -> dict[int, str]:
    """Make pods by their numbers; of those that can never be made, why. Raises Failed for what may be done later."""
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
                raise Failed(answer.message)
            else:
                del left[index]
                failed[index] = answer.message
    return failed


async def _await_places(launches: Launches, story: Story, step: Create) -> None:
    """Wait until Kueue counts the pods no more that new ones take the place of: it deletes one that is too many."""
    deadline = time.monotonic() + _PLACE_SECONDS
    while counted := list_counted(launches.pods(story), step):
        if any(pod.phase == "Succeeded" for pod in counted):
            raise Failed(
                "Kueue gives the place of a pod that has succeeded to others; `span requeue` starts the job anew"
            )
        if time.monotonic() > deadline:
            raise Failed(f"pod {counted[0].name}, whose place the new one takes, is not over")
        await asyncio.sleep(_LOOK_SECONDS)

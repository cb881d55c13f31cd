"""Giving back what a launch holds while it waits: its pods go, its anchor stays and says when they are made again."""

from __future__ import annotations

import math

from overspan.adapters.first_observation import await_first_observation
from overspan.adapters.kubernetes.api.calls import Calls, finish_all
from overspan.adapters.kubernetes.launches.launches import AGAIN, Launches, parse_handle
from overspan.adapters.kubernetes.launches.queues import delete_workload, find_group
from overspan.adapters.kubernetes.manifests.names import name_anchor
from overspan.adapters.kubernetes.observation.launch_progress import Story
from overspan.adapters.kubernetes.observation.launch_summaries import MIN_GRACE
from overspan.adapters.kubernetes.observation.projection import is_stuck
from overspan.adapters.kubernetes.observation.records import LAUNCH, PodRecord, read_pod

HELD = math.inf
"""When pods of a launch that is held are made again."""


async def give_back(launches: Launches, story: Story, again_at: float) -> None:
    """Delete the pods of a launch that waits, after its anchor says until when. Raises Unreachable and the like.

    Not for a launch whose grant was told and may be stored (`granting`): it may have started.
    """
    # Before the first await: from here on no grant is told.
    story.again_at = again_at
    if not await _mark(launches, story, again_at, story.returns + 1):
        return
    calls = launches.calls(story.namespace)
    documents = await calls.list("Pod", f"{LAUNCH}={story.token}")
    await finish_all(_withdraw(calls, read_pod(document)) for document in documents)
    group = find_group(documents)
    if group:
        await delete_workload(launches.connection, story.namespace, group)
    story.given_back = True


async def _withdraw(calls: Calls, pod: PodRecord) -> None:
    """End a pod now, whatever grace it has, and hold it no longer."""
    await calls.strip_pod(pod, await calls.delete_pod(pod, MIN_GRACE))


async def drop_stuck(launches: Launches, story: Story, now: float) -> None:
    """Remove pods that were given back from nodes that do not answer: their barriers have never opened."""
    calls = launches.calls(story.namespace)
    await finish_all(calls.delete_pod(pod, 0) for pod in launches.pods(story) if is_stuck(pod, now))


async def take_again(launches: Launches, story: Story) -> None:
    """Note that a launch's pods are made again; what went of them before is no trace of an end."""
    if await _mark(launches, story, 0.0, story.returns):
        launches.watch(parse_handle(story.handle)).forget(story.token)
        story.given_back = False


async def hold(launches: Launches, story: Story) -> bool:
    """Have a launch that waits hold nothing until `release`; one that has started is left alone.

    False where it is not known yet whether a grant that was told is stored: the next question tells.
    """
    if story.cursor.granted:
        return True
    # From here on no grant is told.
    before, story.again_at = story.again_at, HELD
    if not await await_first_observation(lambda: not story.granting):
        return False
    if story.cursor.granted:
        story.again_at = before
        return True
    await give_back(launches, story, HELD)
    return True


async def release(launches: Launches, story: Story, now: float) -> None:
    """Have the pods of a launch that was held made again, as soon as the old ones are gone."""
    if story.again_at == HELD and await _mark(launches, story, now, story.returns):
        # The daemon has forgotten the reason; it is told again.
        story.reason, story.waits_since = "", now


async def _mark(launches: Launches, story: Story, again_at: float, returns: int) -> bool:
    """Write into the anchor when pods are made again, for another process; False where there is none any more."""
    calls = launches.calls(story.namespace)
    metadata = {"uid": story.anchor, "annotations": {AGAIN: f"{again_at:.3f} {returns}"}}
    if await calls.patch("ConfigMap", name_anchor(story.token), metadata) is None:
        story.gone = True
        return False
    story.again_at, story.returns = again_at, returns
    return True

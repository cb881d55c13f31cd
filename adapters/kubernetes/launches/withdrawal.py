"""Withdrawal of waiting pods: the pods are deleted, and the anchor stays and says when they are created again."""

from __future__ import annotations

import math

from overspan.adapters.first_observation import await_first_observation
from overspan.adapters.kubernetes.api.calls import Calls, finish_all
from overspan.adapters.kubernetes.launches.launches import AGAIN, Launches, parse_handle
from overspan.adapters.kubernetes.launches.queues import delete_workload, find_group
from overspan.adapters.kubernetes.manifests.names import name_anchor
from overspan.adapters.kubernetes.observation.launch_progress import WatchedLaunch
from overspan.adapters.kubernetes.observation.launch_summaries import MIN_GRACE
from overspan.adapters.kubernetes.observation.projection import is_stuck
from overspan.adapters.kubernetes.observation.records import LAUNCH, PodRecord, read_pod

HELD = math.inf
"""When pods of a launch that is held are made again."""


async def give_back(launches: Launches, watched: WatchedLaunch, again_at: float) -> None:
    """Delete the pods of a launch that waits, after its anchor says until when. Raises Unreachable and the like.

    Not for a launch whose grant was told and may be stored (`granting`): it may have started.
    """
    # Before the first await: from here on no grant is told.
    watched.again_at = again_at
    if not await _mark(launches, watched, again_at, watched.returns + 1):
        return
    calls = launches.calls(watched.namespace)
    documents = await calls.list("Pod", f"{LAUNCH}={watched.token}")
    await finish_all(_withdraw(calls, read_pod(document)) for document in documents)
    group = find_group(documents)
    if group:
        await delete_workload(launches.connection, watched.namespace, group)
    watched.given_back = True


async def _withdraw(calls: Calls, pod: PodRecord) -> None:
    """End a pod now, without a grace period, and take the finalizer off."""
    await calls.strip_pod(pod, await calls.delete_pod(pod, MIN_GRACE))


async def drop_stuck(launches: Launches, watched: WatchedLaunch, now: float) -> None:
    """Force the deletion of withdrawn pods on nodes that do not answer: safe, since their start gates never opened."""
    calls = launches.calls(watched.namespace)
    await finish_all(calls.delete_pod(pod, 0) for pod in launches.pods(watched) if is_stuck(pod, now))


async def take_again(launches: Launches, watched: WatchedLaunch) -> None:
    """Record that a launch's pods are created again; those that were removed are no evidence of an end."""
    if await _mark(launches, watched, 0.0, watched.returns):
        launches.watch(parse_handle(watched.handle)).forget(watched.token)
        watched.given_back = False


async def hold(launches: Launches, watched: WatchedLaunch) -> bool:
    """Make a waiting launch hold nothing until `release`; no effect on one that has started.

    False where it is not known yet whether a grant that was reported is stored: the next look tells.
    """
    if watched.cursor.granted:
        return True
    # From here on no grant is reported.
    before, watched.again_at = watched.again_at, HELD
    if not await await_first_observation(lambda: not watched.granting):
        return False
    if watched.cursor.granted:
        watched.again_at = before
        return True
    await give_back(launches, watched, HELD)
    return True


async def release(launches: Launches, watched: WatchedLaunch, now: float) -> None:
    """Let the pods of a held launch be created again, as soon as the old ones are gone."""
    if watched.again_at == HELD and await _mark(launches, watched, now, watched.returns):
        # The daemon has dropped the reason: report it again.
        watched.reason, watched.waits_since = "", now


async def _mark(launches: Launches, watched: WatchedLaunch, again_at: float, returns: int) -> bool:
    """Write into the anchor when pods are made again, for another process; False where there is none any more."""
    calls = launches.calls(watched.namespace)
    metadata = {"uid": watched.anchor, "annotations": {AGAIN: f"{again_at:.3f} {returns}"}}
    if await calls.patch("ConfigMap", name_anchor(watched.token), metadata) is None:
        watched.gone = True
        return False
    watched.again_at, watched.returns = again_at, returns
    return True

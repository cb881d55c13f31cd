"""Small pods that run a program of this package where the volume with jobs' data is (`data_volume`).

The program and what it is to know come by the input of a command in that pod, so no object of the cluster has them.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple

from overspan.adapters.kubernetes.api.answers import is_there, to_error
from overspan.adapters.kubernetes.api.calls import Calls
from overspan.adapters.kubernetes.api.executing import ExecCommand
from overspan.adapters.kubernetes.launches.launches import Launches
from overspan.adapters.kubernetes.manifests.small_pods import SmallPod
from overspan.adapters.kubernetes.observation.evidence import explain_waiting
from overspan.adapters.kubernetes.observation.records import DOMAIN, MAIN, PodRecord, read_pod
from overspan.adapters.kubernetes.settings import Settings, Volume
from overspan.bridge.model.errors import Unreachable
from overspan.bridge.model.job import Job
from overspan.bridge.runtime.slurm.bootstrap import UNPACK

RESCUE = DOMAIN + "rescue"
"""The label of these pods; its value is the job's own folder, or what they look at."""
VOLUME_PATH = "/overspan-rescue"
"""Where they see the volume."""
AT_ONCE = 8
"""Pods of a cluster that look, or that send, at once."""
_threads = ThreadPoolExecutor(4 * AT_ONCE, thread_name_prefix="volume-pods")
"""Not those of everybody: a command in a pod may take an hour."""
START_SECONDS = 120.0
"""How long a pod may take to its start."""
_END_SECONDS = 40.0
"""How long a pod of an earlier daemon may take to its end: more than its grace."""
_PAUSE = 0.5
_VOLUME = "data"
_WORDS = ("/bin/sh", "-c", "trap 'exit 0' TERM; sleep 3600 & wait $!")


class VolumeProgram(NamedTuple):
    """A program with its input, as it is packed, its words, and the longest time that it may take in seconds."""

    packed: bytes
    words: Sequence[str]
    seconds: float


def describe_volume_pod(volume: Volume, folder: str, node: str, image: str, mark: str, seconds: int) -> SmallPod:
    """A pod that sees a folder of the volume; on one node where it is named."""
    mount = {"name": _VOLUME, "mountPath": VOLUME_PATH, **({"subPath": folder} if folder else {})}
    return SmallPod(
        words=_WORDS,
        seconds=seconds,
        labels={RESCUE: mark},
        image=image,
        volumes=[{"name": _VOLUME, **volume.source}],
        mounts=[mount],
        node=node,
        memory="512Mi",
    )


async def run_in_pod(launches: Launches, calls: Calls, pod: dict[str, Any], program: VolumeProgram) -> tuple[int, str]:
    """Make the pod, run the program in it and remove it: the exit code and what was said. Raises OverspanError."""
    answer = await calls.create(pod)
    name = str(pod["metadata"]["name"])
    if not is_there(answer):
        raise to_error(answer, f"create the pod {name}, which looks after data")
    try:
        record = await _await_start(calls, name)
        words = ("python3", "-I", "-S", "-c", UNPACK, *program.words)
        command = ExecCommand(record.namespace, name, MAIN, words, program.packed)
        call = partial(launches.connection.execute, command, program.seconds)
        return await asyncio.get_running_loop().run_in_executor(_threads, call)
    finally:
        await calls.delete("Pod", name)


async def _await_start(calls: Calls, name: str) -> PodRecord:
    """The pod once it runs. Raises Unreachable where it does not."""
    deadline = time.monotonic() + START_SECONDS
    while True:
        found = await calls.get("Pod", name)
        pod = None if found is None else read_pod(found)
        if pod is not None and pod.started_at is not None and not pod.ended:
            return pod
        if pod is None or pod.ended or time.monotonic() > deadline:
            why = "it is gone" if pod is None else ": ".join(filter(None, explain_waiting(pod)))
            raise Unreachable(
                f"the pod {name}, which looks after data, does not run: {why}", remedy="give the command again"
            )
        await asyncio.sleep(_PAUSE)


async def remove_earlier(calls: Calls, mark: str) -> None:
    """Remove pods that a daemon has left that went away meanwhile, and wait for their end: they may still work.

    What does not end, as on a node that is gone, is not waited for long: the lock beside the data tells.
    """
    deadline = time.monotonic() + _END_SECONDS
    removed: set[str] = set()
    while left := [str(found["metadata"]["name"]) for found in await calls.list("Pod", f"{RESCUE}={mark}")]:
        for name in set(left) - removed:
            await calls.delete("Pod", name)
        removed |= set(left)
        if time.monotonic() > deadline:
            return
        await asyncio.sleep(_PAUSE)


def list_nodes(job: Job, volume: Volume) -> list[str]:
    """The nodes where a job's data may be; one that is empty is any node."""
    if "hostPath" not in volume.source:
        return [""]
    writers = [task for task in job.tasks if job.spec_of(task.name).flushes]
    return sorted({run.node for task in writers for attempt in task.attempts for run in attempt.nodes if run.node})


def choose_image(settings: Settings, job: Job) -> str:
    """The image with python3 whose user may read what a job has left."""
    return settings.data_image or next(task for task in job.spec.tasks if task.flushes).image

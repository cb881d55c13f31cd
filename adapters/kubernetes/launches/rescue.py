"""The rescue of data that pods could not send: a small pod mounts the volume where it lies, and sends it.

The program and the credentials come by the input of a command in that pod, so no object of the cluster has them. Where
the volume is a part of each node (hostPath), there is a pod for each node that the job had.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import time
from collections.abc import Mapping
from typing import Any

from overspan.adapters.kubernetes.api.answers import is_there, to_error
from overspan.adapters.kubernetes.api.calls import Calls
from overspan.adapters.kubernetes.api.executing import ExecCommand
from overspan.adapters.kubernetes.launches.launches import Launches, parse_handle
from overspan.adapters.kubernetes.manifests.programs import build_program
from overspan.adapters.kubernetes.manifests.small_pods import SmallPod, render_small_pod
from overspan.adapters.kubernetes.manifests.storage import name_job_folder
from overspan.adapters.kubernetes.observation.evidence import explain_waiting
from overspan.adapters.kubernetes.observation.records import DOMAIN, MAIN, PodRecord, read_pod
from overspan.adapters.kubernetes.settings import Settings, Volume
from overspan.adapters.store_files import list_stores, pack_stores
from overspan.bridge.model.errors import Conflict, InvalidRequest, Unreachable
from overspan.bridge.model.job import Job
from overspan.bridge.model.storage import StoreAccess
from overspan.bridge.runtime.data.rescue import RescuedData, add_rescued, read_answer
from overspan.bridge.runtime.slurm.bootstrap import UNPACK, pack_application

RESCUE = DOMAIN + "rescue"
"""The label of pods that rescue; its value is the job's own folder."""
RESCUE_SECONDS = 3600
"""The longest time of a pod; what was sent until then is not sent again."""
START_SECONDS = 120.0
"""How long a pod may take to its start."""
_END_SECONDS = 40.0
"""How long a pod of an earlier rescue may take to its end: more than its grace."""
_PAUSE = 0.5
_VOLUME, _PATH = "data", "/overspan-rescue"
_MODULE = "overspan.bridge.runtime.data.rescue"
_MAIN = f"import sys\n\nfrom {_MODULE} import main\n\nsys.exit(main(sys.argv[1:]))\n"
_WORDS = ("/bin/sh", "-c", "trap 'exit 0' TERM; sleep 3600 & wait $!")
_PATTERN = "*/*"
"""The folders of a job's: launches, and in each its pods."""


class KubernetesRescue:
    """Sends what is on the volume of the settings."""

    def __init__(self, launches: Launches, settings: Settings, stores: Mapping[str, StoreAccess]) -> None:
        self._launches = launches
        self._settings = settings
        self._stores = stores
        self._lock = asyncio.Lock()

    async def send(self, job: Job, handle: str) -> RescuedData | None:
        """Send what a job has left; None where that is nothing. Raises ObjectStoreError, OSError, OverspanError."""
        volume = self._settings.data_volume
        if volume is None:
            raise InvalidRequest(
                f"what job {job.id} could not send went with its pods",
                remedy="`data_volume` of the cluster's settings names a volume where later jobs leave it",
            )
        place = parse_handle(handle)
        calls, folder = self._launches.calls(place.namespace), name_job_folder(volume.sub_path, place.token)
        line = await asyncio.to_thread(self._pack, job)
        sent = []
        async with self._lock:
            await _remove_ended(calls, place.token)
            for node in _list_nodes(job, volume):
                pod = _render(self._settings, job, volume, (place.token, folder, node))
                sent.append(await self._send_from(calls, job, pod, line))
        return add_rescued([each for each in sent if each is not None])

    def _pack(self, job: Job) -> bytes:
        return pack_application(build_program(_MAIN, _MODULE)) + pack_stores(list_stores(job), self._stores)

    async def _send_from(self, calls: Calls, job: Job, pod: dict[str, Any], line: bytes) -> RescuedData | None:
        """Have one pod send what it finds, and remove it."""
        answer = await calls.create(pod)
        name = str(pod["metadata"]["name"])
        if not is_there(answer):
            raise to_error(answer, f"create the pod {name}, which sends data")
        try:
            record = await _await_start(calls, name)
            words = ("python3", "-I", "-S", "-c", UNPACK, _PATH, str(job.id), _PATTERN)
            command = ExecCommand(record.namespace, name, MAIN, words, line)
            code, said = await asyncio.to_thread(self._launches.connection.execute, command, float(RESCUE_SECONDS))
        finally:
            await calls.delete("Pod", name)
        try:
            return read_answer(json.loads(said.strip().rpartition("\n")[2]))
        except ValueError:
            words_of_it = said.strip()[-200:] or f"exit code {code}"
            raise Conflict(
                f"the pod {name} could not send what job {job.id} has left: {words_of_it}",
                remedy="its image needs python3 (3.9 or newer): `data_image` of the cluster's settings names one",
            ) from None


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
            raise Unreachable(f"the pod {name}, which sends data, does not run: {why}", remedy="give the command again")
        await asyncio.sleep(_PAUSE)


async def _remove_ended(calls: Calls, token: str) -> None:
    """Remove pods that a daemon has left that went away meanwhile, and wait for their end: they may still send.

    What does not end, as on a node that is gone, is not waited for long: the lock beside the data tells.
    """
    deadline = time.monotonic() + _END_SECONDS
    removed: set[str] = set()
    while left := [str(found["metadata"]["name"]) for found in await calls.list("Pod", f"{RESCUE}={_mark(token)}")]:
        for name in set(left) - removed:
            await calls.delete("Pod", name)
        removed |= set(left)
        if time.monotonic() > deadline:
            return
        await asyncio.sleep(_PAUSE)


def _mark(token: str) -> str:
    return token.rpartition("-")[0]


def _list_nodes(job: Job, volume: Volume) -> list[str]:
    """The nodes where the data may be; one that is empty is any node."""
    if "hostPath" not in volume.source:
        return [""]
    writers = [task for task in job.tasks if job.spec_of(task.name).flushes]
    return sorted({run.node for task in writers for attempt in task.attempts for run in attempt.nodes if run.node})


def _render(settings: Settings, job: Job, volume: Volume, place: tuple[str, str, str]) -> dict[str, Any]:
    token, folder, node = place
    writer = next(task for task in job.spec.tasks if task.flushes)
    pod = SmallPod(
        words=_WORDS,
        seconds=RESCUE_SECONDS,
        labels={RESCUE: _mark(token)},
        image=settings.data_image or writer.image,
        volumes=[{"name": _VOLUME, **volume.source}],
        mounts=[{"name": _VOLUME, "mountPath": _PATH, "subPath": folder}],
        node=node,
        memory="512Mi",
    )
    return render_small_pod(f"overspan-rescue-{secrets.token_hex(4)}", settings, pod)

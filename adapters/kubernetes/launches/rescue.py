"""The rescue of data that pods could not send: a small pod mounts the volume where it lies, and sends it.

Where the volume is a part of each node (hostPath), there is a pod for each node that the job had.
"""

from __future__ import annotations

import asyncio
import glob
import json
import secrets
from collections.abc import Mapping

from overspan.adapters.kubernetes.launches.launches import Launches, parse_handle
from overspan.adapters.kubernetes.launches.volume_pods import (
    AT_ONCE,
    VOLUME_PATH,
    VolumeProgram,
    choose_image,
    describe_volume_pod,
    list_nodes,
    remove_earlier,
    run_in_pod,
)
from overspan.adapters.kubernetes.manifests.programs import build_program
from overspan.adapters.kubernetes.manifests.small_pods import render_small_pod
from overspan.adapters.kubernetes.manifests.storage import name_job_folder
from overspan.adapters.kubernetes.settings import Settings
from overspan.adapters.store_files import list_stores, pack_stores
from overspan.bridge.model.errors import Conflict, InvalidRequest, OverspanError
from overspan.bridge.model.job import Job
from overspan.bridge.model.storage import StoreAccess
from overspan.bridge.runtime.data.object_store import ObjectStoreError
from overspan.bridge.runtime.data.rescue import RescuedData, add_rescued, read_answer
from overspan.bridge.runtime.slurm.bootstrap import pack_application

RESCUE_SECONDS = 3600
"""The longest time of a pod; what was sent until then is not sent again."""
_MODULE = "overspan.bridge.runtime.data.rescue"
_MAIN = f"import sys\n\nfrom {_MODULE} import main\n\nsys.exit(main(sys.argv[1:]))\n"


class KubernetesRescue:
    """Sends what is on the volume of the settings."""

    def __init__(self, launches: Launches, settings: Settings, stores: Mapping[str, StoreAccess]) -> None:
        self._launches = launches
        self._settings = settings
        self._stores = stores
        self._gate = asyncio.Semaphore(AT_ONCE)

    async def send(self, job: Job, handle: str) -> RescuedData | None:
        """Send what a job has left; None where that is nothing. Raises ObjectStoreError, OSError, OverspanError."""
        volume = self._settings.data_volume
        if volume is None:
            raise InvalidRequest(
                f"what job {job.id} could not send went with its pods",
                remedy="`data_volume` of the cluster's settings names a volume where later jobs leave it",
            )
        place = parse_handle(handle)
        calls, mark = self._launches.calls(place.namespace), place.token.rpartition("-")[0]
        image = choose_image(self._settings, job)
        # The folders of the job's: launches, and in each its pods.
        words = (VOLUME_PATH, str(job.id), f"{glob.escape(name_job_folder('', place.token))}/*/*")
        program = VolumeProgram(await asyncio.to_thread(self._pack, job), words, float(RESCUE_SECONDS))
        await remove_earlier(calls, mark)
        sent, failures = [], []
        # One after the other: where two nodes have the same file, the second finds what the first has sent.
        for node in list_nodes(job, volume):
            name = f"overspan-rescue-{secrets.token_hex(4)}"
            pod = describe_volume_pod(volume, volume.sub_path, node, image, mark, RESCUE_SECONDS)
            try:
                async with self._gate:
                    code, said = await run_in_pod(
                        self._launches, calls, render_small_pod(name, self._settings, pod), program
                    )
                sent.append(_read(job, name, code, said))
            except (ObjectStoreError, OSError, OverspanError) as error:
                # A node that fails keeps no other.
                failures.append(error)
        if failures:
            raise failures[0]
        return add_rescued([each for each in sent if each is not None])

    def _pack(self, job: Job) -> bytes:
        return pack_application(build_program(_MAIN, _MODULE)) + pack_stores(list_stores(job), self._stores)


def _read(job: Job, name: str, code: int, said: str) -> RescuedData | None:
    """What the program has answered. Raises what it met, and Conflict where that is no answer."""
    try:
        return read_answer(json.loads(said.strip().rpartition("\n")[2]))
    except ValueError:
        words = said.strip()[-200:] or f"exit code {code}"
        raise Conflict(
            f"the pod {name} could not send what job {job.id} has left: {words}",
            remedy="its image needs python3 (3.9 or newer): `data_image` of the cluster's settings names one",
        ) from None

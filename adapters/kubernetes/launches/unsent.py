"""What pods could not send, on the volume of the settings: a small pod on each node tells or removes it."""

from __future__ import annotations

import asyncio
import glob
import json
import secrets
from collections.abc import Sequence
from typing import NamedTuple

from overspan.adapters.abilities import EndedLaunch
from overspan.adapters.kubernetes.launches.flushes import is_lost
from overspan.adapters.kubernetes.launches.launches import Launches, parse_handle, read_handle
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
from overspan.adapters.kubernetes.manifests.names import INSTALLATION, JOB, parse_token
from overspan.adapters.kubernetes.manifests.programs import build_program
from overspan.adapters.kubernetes.manifests.small_pods import render_small_pod
from overspan.adapters.kubernetes.manifests.storage import name_job_folder
from overspan.adapters.kubernetes.settings import Settings, Volume
from overspan.bridge.model.errors import Conflict, OverspanError, Unreachable
from overspan.bridge.model.job import Job
from overspan.bridge.runtime.data.unsent import UnsentData, UnsentListing, UnsentPlace, pack_places, read_listing
from overspan.bridge.runtime.slurm.bootstrap import pack_application

LOOK_SECONDS = 600
"""The longest time of a pod."""
_MODULE = "overspan.bridge.runtime.data.unsent"
_MAIN = f"import sys\n\nfrom {_MODULE} import main\n\nsys.exit(main(sys.argv[1:]))\n"


class _LookPlace(NamedTuple):
    """Where one pod looks: in which namespace, on which node (empty: any), with which image and label."""

    namespace: str
    node: str
    image: str
    mark: str


class KubernetesUnsent:
    """That of a `data_volume` (`abilities.UnsentKeeper`)."""

    def __init__(self, launches: Launches, settings: Settings, volume: Volume) -> None:
        self._launches = launches
        self._settings = settings
        self._volume = volume
        self._lock = asyncio.Lock()
        self.seconds = settings.data_keep

    async def list_unsent(self, jobs: Sequence[EndedLaunch]) -> UnsentListing:
        """What these have left."""
        return await self._look("ls", jobs)

    async def remove_unsent(self, jobs: Sequence[EndedLaunch]) -> UnsentListing:
        """Remove what these have left; that of a node that is no part of the cluster any more went with it."""
        return await self._look("rm", jobs)

    async def _look(self, verb: str, jobs: Sequence[EndedLaunch]) -> UnsentListing:
        # A job that went to another cluster before this one took it has no handle here.
        jobs = [each for each in jobs if read_handle(each.handle) is not None and _writes(each.job)]
        async with self._lock:
            errors = await self._find_busy(jobs) if verb == "rm" else {}
            places = self._group([each for each in jobs if each.job.id not in errors])
            marks = {(place.namespace, place.mark) for place in places}
            await asyncio.gather(*(remove_earlier(self._launches.calls(namespace), mark) for namespace, mark in marks))
            gate = asyncio.Semaphore(AT_ONCE)
            calls = [self._look_at(place, verb, folders, gate) for place, folders in places.items()]
            listings = await asyncio.gather(*calls)
        found: tuple[UnsentData, ...] = ()
        for listing in listings:
            found += listing.found
            errors |= dict(listing.errors)
        return UnsentListing(found, tuple(errors.items()))

    async def _find_busy(self, jobs: Sequence[EndedLaunch]) -> dict[int, str]:
        """Jobs whose pods still are there, as where a sidecar sends after nobody waits any more. Raises Unreachable."""
        busy = {}
        for job, handle in jobs:
            place = parse_handle(handle)
            token = parse_token(place.token)
            # Those of every launch: a pod of an older one may send as long as its grace lasts.
            selector = f"{INSTALLATION}={token.installation},{JOB}={token.job}"
            if await self._launches.calls(place.namespace).list("Pod", selector):
                busy[job.id] = "its pods are still there, and may send it"
        return busy

    def _group(self, jobs: Sequence[EndedLaunch]) -> dict[_LookPlace, list[UnsentPlace]]:
        """The places where jobs may have left anything, with their folders there."""
        places: dict[_LookPlace, list[UnsentPlace]] = {}
        for job, handle in jobs:
            namespace, token = parse_handle(handle)
            mark, image = f"look-{parse_token(token).installation}", choose_image(self._settings, job)
            pattern = f"{VOLUME_PATH}/{glob.escape(name_job_folder('', token))}/*/*"
            for node in list_nodes(job, self._volume):
                places.setdefault(_LookPlace(namespace, node, image, mark), []).append(UnsentPlace(job.id, pattern))
        return places

    async def _look_at(
        self, place: _LookPlace, verb: str, folders: Sequence[UnsentPlace], gate: asyncio.Semaphore
    ) -> UnsentListing:
        """What one pod finds; without it why not, for each of the jobs."""
        async with gate:
            try:
                if place.node and await self._is_gone(place.node):
                    return UnsentListing()
                return await self._ask(place, verb, folders)
            except OverspanError as error:
                where = f"node {place.node}: " if place.node else ""
                return UnsentListing((), tuple((folder.job, f"{where}{error.line}") for folder in folders))

    async def _is_gone(self, node: str) -> bool:
        """Whether a node is no part of the cluster any more. Raises Unreachable where it does not answer."""
        connection = self._launches.connection
        if not await is_lost(connection, node):
            return False
        if (await connection.call("GET", f"/api/v1/nodes/{node}")).status == 404:
            return True
        raise Unreachable("it does not answer", remedy="it keeps the data")

    async def _ask(self, place: _LookPlace, verb: str, folders: Sequence[UnsentPlace]) -> UnsentListing:
        """What the program in one pod answers. Raises OverspanError."""
        name = f"overspan-look-{secrets.token_hex(4)}"
        pod = describe_volume_pod(
            self._volume, self._volume.sub_path, place.node, place.image, place.mark, LOOK_SECONDS
        )
        packed = pack_application(await asyncio.to_thread(build_program, _MAIN, _MODULE)) + pack_places(folders)
        code, said = await run_in_pod(
            self._launches,
            self._launches.calls(place.namespace),
            render_small_pod(name, self._settings, pod),
            VolumeProgram(packed, (verb,), float(LOOK_SECONDS)),
        )
        try:
            listing = read_listing(json.loads(said.strip().rpartition("\n")[2]))
        except (ValueError, LookupError, TypeError):
            words = said.strip()[-200:] or f"exit code {code}"
            raise Conflict(
                f"the pod {name} could not look: {words}",
                remedy="its image needs python3 (3.9 or newer): `data_image` of the cluster's settings names one",
            ) from None
        where = f"{place.node}:" if place.node else ""
        at = self._name_volume()
        found = [each._replace(place=f"{where}{at}{each.place.removeprefix(VOLUME_PATH)}") for each in listing.found]
        return listing._replace(found=tuple(found))

    def _name_volume(self) -> str:
        """Where the volume's part is, as its owner knows it."""
        volume = self._volume
        path = str((volume.source.get("hostPath") or {}).get("path") or volume.claim)
        return f"{path}/{volume.sub_path}".rstrip("/")


def _writes(job: Job) -> bool:
    return any(task.flushes for task in job.spec.tasks)

"""The checkpoint source of a Kubernetes cluster: the scanner runs by exec in a pod that mounts the volume.

That is a pod of the task that writes the checkpoints, while one runs and has python3; else a watcher pod. The scanner's
text goes along as input. All folders of a pod are asked for at once. A pod that does not answer soon delays no other:
its answer is taken with a later look, and one that never came is asked for ever more rarely.
"""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import re
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from overspan.adapters.checkpoint_scanner import LOAD, pack_scanner
from overspan.adapters.checkpoint_sources import WatchedFolder
from overspan.adapters.kubernetes.api.connection import Connection
from overspan.adapters.kubernetes.api.executing import CannotRun, ExecCommand
from overspan.adapters.kubernetes.checkpoints.mounts import FolderMount, find_mount
from overspan.adapters.kubernetes.checkpoints.watcher_pods import UNUSED_SECONDS, Watcher, WatcherPods
from overspan.adapters.kubernetes.launches.launches import Launches, read_handle
from overspan.adapters.kubernetes.manifests.partitions import settle_partition
from overspan.adapters.kubernetes.observation.records import MAIN, PodRecord
from overspan.adapters.kubernetes.settings import Settings
from overspan.bridge.model.checkpoints.listings import (
    FolderListing,
    ListingRequest,
    decode_listings,
    fail_listing,
)
from overspan.bridge.model.errors import InvalidRequest, OverspanError, TimedOut, Unreachable
from overspan.bridge.model.job import Job

_log = logging.getLogger(__name__)

SOON_SECONDS = 5.0
"""How long a look waits for its pods; later answers are taken with the next one."""
EXEC_SECONDS = 60.0
REST_SECONDS = 60.0
"""Seconds until a pod that did not answer is asked again; twice as long after each try, up to MOST_REST_SECONDS."""
MOST_REST_SECONDS = 900.0
_MAX_ANSWER = 16 << 20
_NO_PYTHON = 127
_RUN = f"""\
import base64, io, sys, zlib
if sys.version_info < (3, 9): sys.exit({_NO_PYTHON})
{LOAD}out, sys.stdout = sys.stdout, io.StringIO()
there["main"]([requests])
out.write(base64.b64encode(zlib.compress(sys.stdout.getvalue().encode())).decode() + "\\n")
"""
_NO_SHELL = re.compile("executable file|no such file|permission denied", re.IGNORECASE)
"""What runtimes say of an image without a shell (runc, crun, kata)."""
_SHELL = 'command -v python3 >/dev/null 2>&1 || exit 127; exec python3 -I -S -c "$1"'
_WORDS = ("/bin/sh", "-c", _SHELL, "overspan", _RUN)


class _Place(NamedTuple):
    """A pod that is asked, and its image."""

    namespace: str
    pod: str
    image: str


class _PodAnswer(NamedTuple):
    """Listings by their keys, or why the cluster did not answer: a value, since the caller may have stopped waiting."""

    listings: Mapping[str, FolderListing]
    unreachable: Unreachable | None = None


@dataclass(frozen=True)
class SilentPod:
    """When a pod that did not answer is asked again (monotonic time), and the wait before that."""

    again_at: float
    wait: float


class KubernetesCheckpoints:
    """Lists folders on volumes of pods. `find_installation` names the daemon's, empty where it is not known yet."""

    def __init__(
        self, connection: Connection, launches: Launches, settings: Settings, find_installation: Callable[[], str]
    ) -> None:
        self._connection = connection
        self._launches = launches
        self._settings = settings
        self._find_installation = find_installation
        self._without_python: set[str] = set()
        """Images that have no python3 that could look."""
        self._watchers: dict[tuple[str, str], WatcherPods] = {}
        """By namespace and installation."""
        self._asking: dict[_Place, asyncio.Task[_PodAnswer]] = {}
        self._silent: dict[_Place, SilentPod] = {}
        self._sweeping: asyncio.Task[None] | None = None

    async def list(self, folders: Sequence[WatchedFolder]) -> list[FolderListing]:
        """A listing of each folder, in order. Raises Unreachable where the cluster does not answer."""
        found = await asyncio.gather(*map(self._place, folders))
        by_place: dict[_Place, list[ListingRequest]] = {}
        for folder, place in zip(folders, found, strict=True):
            if isinstance(place, _Place):
                by_place.setdefault(place, []).append(folder.request)
        answers = await self._ask_all(by_place)
        self._begin_sweeping()
        return [
            place if isinstance(place, FolderListing) else answers[folder.request.key]
            for folder, place in zip(folders, found, strict=True)
        ]

    async def sweep(self, namespace: str) -> None:
        """Delete watcher pods that no watch uses; what hinders that is logged."""
        pods = self._pods_in(namespace)
        try:
            if pods is not None:
                await pods.sweep()
        except OverspanError as error:
            _log.info("pods that look for checkpoints are not deleted: %s", error)

    async def close(self) -> None:
        """Stop asking; watcher pods are the next daemon's."""
        tasks = [*self._asking.values(), *([self._sweeping] if self._sweeping else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # --- which pod is asked -------------------------------------------------------------------------------------------

    async def _place(self, folder: WatchedFolder) -> _Place | FolderListing:
        """The pod to ask for a folder, or its listing where none is."""
        job, request = folder.job, folder.request
        settings = settle_partition(self._settings, job.spec.partition)
        try:
            mount = find_mount(job, folder.task, request.path, settings)
        except InvalidRequest as error:
            return fail_listing(request, error.message)
        task = job.task(folder.task)
        if not any(attempt.begun_at is not None for attempt in task.attempts):
            return FolderListing(request.key, missing=True)
        pods = await self._list_pods(folder)
        writer = job.spec.task(folder.task).image or settings.image
        running = [pod for pod in pods if pod.task == folder.task and pod.started_at is not None and not pod.ended]
        running = [pod for pod in running if pod.deleting_at is None]
        if running and writer not in self._without_python:
            pod = min(running, key=lambda each: each.index)
            return _Place(pod.namespace, pod.name, writer)
        if not running and not task.over:
            return fail_listing(request, f"no pod of {folder.task} runs at the moment")
        node = next((pod.node for pod in running if pod.node), "") or _find_last_node(job, folder.task)
        return await self._find_watcher(request, mount, settings, node if mount.of_a_node else "", writer)

    async def _list_pods(self, folder: WatchedFolder) -> Sequence[PodRecord]:
        handle = read_handle(folder.handle) if folder.handle else None
        watched = await self._launches.find(handle) if handle is not None else None
        return self._launches.pods(watched) if watched is not None else ()

    async def _find_watcher(
        self, request: ListingRequest, mount: FolderMount, settings: Settings, node: str, writer: str
    ) -> _Place | FolderListing:
        image = settings.checkpoint_image or settings.image or writer
        if image in self._without_python:
            why = f"checkpoints are looked for by python3 (3.9 or newer), which {image} does not have"
            return fail_listing(request, f"{why}; set `checkpoint_image` of the cluster {settings.name}")
        namespace = await asyncio.to_thread(lambda: self._connection.namespace)
        pods = self._pods_in(namespace)
        if pods is None:
            return fail_listing(request, "the daemon has just begun: checkpoints are looked for soon")
        try:
            found = await pods.find(Watcher(mount, settings, image, node))
        except Unreachable:
            raise
        except OverspanError as error:
            return fail_listing(request, error.message)
        return fail_listing(request, found) if isinstance(found, str) else _Place(namespace, found.name, image)

    def _pods_in(self, namespace: str) -> WatcherPods | None:
        """The watcher pods of this daemon; None while its installation is not known."""
        installation = self._find_installation()
        if not installation:
            return None
        key = namespace, installation
        if key not in self._watchers:
            self._watchers[key] = WatcherPods(self._launches.calls(namespace), installation)
        return self._watchers[key]

    # --- asking -------------------------------------------------------------------------------------------------------

    async def _ask_all(self, wanted: Mapping[_Place, Sequence[ListingRequest]]) -> Mapping[str, FolderListing]:
        """The listings by their keys. Raises Unreachable where no pod at all could be asked."""
        self._forget_others(wanted)
        now = time.monotonic()
        for place, requests in wanted.items():
            silent = self._silent.get(place)
            if place not in self._asking and (silent is None or now >= silent.again_at):
                self._asking[place] = asyncio.create_task(self._ask(place, requests))
        asked = {place: self._asking[place] for place in wanted if place in self._asking}
        if asked:
            await asyncio.wait(asked.values(), timeout=SOON_SECONDS)
        answers: dict[str, FolderListing] = {}
        unreachable: list[Unreachable] = []
        for place, requests in wanted.items():
            task = asked.get(place)
            if task is None or not task.done():
                answers.update(_fail_all(requests, f"the pod {place.pod} does not answer; it is asked again"))
                continue
            del self._asking[place]
            given = task.result()
            if given.unreachable is not None:
                unreachable.append(given.unreachable)
            missing = [request for request in requests if request.key not in given.listings]
            answers.update(given.listings)
            answers.update(_fail_all(missing, f"the pod {place.pod} could not be asked"))
        if unreachable and len(unreachable) == len(wanted):
            raise unreachable[0]
        return answers

    def _forget_others(self, wanted: Mapping[_Place, Sequence[ListingRequest]]) -> None:
        """Cancel the questions to pods about which no watch asks any more."""
        self._silent = {place: silent for place, silent in self._silent.items() if place in wanted}
        for place in [place for place in self._asking if place not in wanted]:
            self._asking.pop(place).cancel()

    async def _ask(self, place: _Place, requests: Sequence[ListingRequest]) -> _PodAnswer:
        """Run the scanner in a pod."""
        command = ExecCommand(place.namespace, place.pod, MAIN, _WORDS, pack_scanner(requests), _MAX_ANSWER)
        try:
            code, output = await self._connection.run(self._connection.execute, command, EXEC_SECONDS)
        except TimedOut:
            silent = self._silent.get(place)
            wait = REST_SECONDS if silent is None else min(2 * silent.wait, MOST_REST_SECONDS)
            self._silent[place] = SilentPod(time.monotonic() + wait, wait)
            why = f"the pod {place.pod} did not answer within {EXEC_SECONDS:g} s: a volume hangs"
            return _PodAnswer(_fail_all(requests, why))
        except CannotRun as error:
            _log.info("%s: %s", place.pod, error)
            if not _NO_SHELL.search(error.message):
                # A container that has just ended says nothing of its image.
                return _PodAnswer(_fail_all(requests, error.message))
            code, output = _NO_PYTHON, error.message
        except Unreachable as error:
            return _PodAnswer({}, error)
        except OverspanError as error:
            return _PodAnswer(_fail_all(requests, error.message))
        self._silent.pop(place, None)
        if code == _NO_PYTHON:
            self._without_python.add(place.image)
            why = f"{place.image} has no python3 (3.9 or newer): another pod is asked"
            return _PodAnswer(_fail_all(requests, why))
        return _PodAnswer(_read_answer(requests, code, output))

    # --- unused watcher pods ------------------------------------------------------------------------------------------

    def _begin_sweeping(self) -> None:
        used = any(pods.used for pods in self._watchers.values())
        if used and (self._sweeping is None or self._sweeping.done()):
            self._sweeping = asyncio.create_task(self._sweep_unused())

    async def _sweep_unused(self) -> None:
        """Until none is left: when the last one is unused, no further look may come to start this again."""
        while any(pods.used for pods in self._watchers.values()):
            await asyncio.sleep(UNUSED_SECONDS / 2)
            for pods in list(self._watchers.values()):
                try:
                    await pods.sweep()
                except OverspanError as error:
                    _log.info("pods that look for checkpoints are not deleted yet: %s", error)


def _find_last_node(job: Job, name: str) -> str:
    """The node on which the task ran last; empty where that is not known."""
    for attempt in reversed(job.task(name).attempts):
        for node in attempt.nodes:
            if node.node:
                return node.node
    return ""


def _fail_all(requests: Sequence[ListingRequest], why: str) -> dict[str, FolderListing]:
    return {request.key: fail_listing(request, why) for request in requests}


def _read_answer(requests: Sequence[ListingRequest], code: int, output: str) -> Mapping[str, FolderListing]:
    try:
        last = output.strip().rpartition("\n")[2]
        listings = decode_listings(json.loads(zlib.decompress(base64.b64decode(last, validate=True))))
        return {listing.key: listing for listing in listings}
    except (ValueError, zlib.error):
        said = " ".join(output.split())[-200:] or "no word"
        return _fail_all(requests, f"checkpoints are looked for by python3 in the pod, which ended with {code}: {said}")

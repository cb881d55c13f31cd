"""Starts the relays of groups whose nodes share no folder: one for each native job, on the login node."""

from __future__ import annotations

import asyncio
import logging
import shlex
import time
from collections.abc import Collection

from overspan.adapters.slurm.commands.queries import Queries
from overspan.adapters.slurm.files.application import InstalledApplication
from overspan.adapters.slurm.groups.handles import NativeJob
from overspan.adapters.slurm.groups.parts import IN_PART
from overspan.adapters.slurm.groups.rendering import supervisor_words
from overspan.adapters.slurm.observation.single_flight import SingleFlight
from overspan.adapters.slurm.rendering.renderer import resolve_root
from overspan.adapters.slurm.settings import Settings
from overspan.adapters.slurm.transports.programs import INTERPRETER
from overspan.bridge.model.errors import OverspanError

log = logging.getLogger(__name__)

LOOK_SECONDS = 5.0
"""Seconds between two checks that each group has its relay."""

_START = """\
[ -d "$1" ] && [ ! -e "$1/$2" ] || exit 0
if command -v flock >/dev/null 2>&1; then flock -n "$1/$3" true || exit 0; fi
log=$4; umask 077; shift 4
command -v setsid >/dev/null 2>&1 && set -- setsid "$@"
"$@" </dev/null >/dev/null 2>>"$log" &
"""


def render_starts(handles: Collection[NativeJob], settings: Settings, root: str) -> str:
    """The sh program that starts each relay that does not run, in a session of its own."""
    return "".join(
        shlex.join(["sh", "-c", _START, "sh", *list_words(handle, settings, root)]) + "\n" for handle in handles
    )


def list_words(handle: NativeJob, settings: Settings, root: str) -> tuple[str, ...]:
    """Folder, end marker, lock and log of a group's relay, and its command."""
    launch, (folder, mark, part) = handle.launch, handle.folder.partition(IN_PART)
    own = (f"{mark}{part}".lstrip("/"),) if part else ()
    words = ("relay", folder, str(launch), handle.name, settings.python, *own)
    command = (*supervisor_words(settings, root), *words)
    return (handle.folder, f"taken.{launch}", f"relay.{launch}.lock", f"{handle.folder}/relay.{launch}.log", *command)


class Relays:
    """Keeps the relays of one cluster's groups running; failures are tried again."""

    def __init__(self, queries: Queries, settings: Settings, root: str) -> None:
        self._queries = queries
        self._settings = settings
        self._root = root
        self._library = InstalledApplication(queries.transport)
        self._flight = SingleFlight(asyncio.Event())
        self._next = 0.0
        self._known: set[str] = set()
        self._reported = ""

    def keep(self, handles: Collection[NativeJob]) -> None:
        """Start missing relays of these groups: of new groups at once, else each LOOK_SECONDS."""
        trouble = str(self._flight.trouble or "")
        if trouble and trouble != self._reported:
            log.warning("the relays of groups cannot be started: %s", trouble)
        self._reported = trouble
        names = {str(handle) for handle in handles}
        if names and (time.monotonic() >= self._next or names - self._known) and self._flight.task is None:
            self._known = names
            self._next = time.monotonic() + LOOK_SECONDS
            self._flight.begin(lambda: self._start(handles))

    async def _start(self, handles: Collection[NativeJob]) -> None:
        root = resolve_root(self._root, (await self._queries.site()).home)
        await self._library.bring(root)
        program = render_starts(handles, self._settings, root).encode("utf-8", "surrogateescape")
        done = await self._queries.transport.run([INTERPRETER], stdin=program, timeout=self._queries.timeout)
        if done.rc != 0:
            raise OverspanError(done.words.strip() or f"exit code {done.rc}")

    async def close(self) -> None:
        """Stop the checks; relays go on."""
        await self._flight.close()

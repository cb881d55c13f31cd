"""Renews the credentials in the run directories of live launches, where their source has changed since they were sent.

What the cluster has of stores is known from the submission, or asked for once after a start of the daemon:

RUN/stores/NAME.json    as `runtime/data/stores.py` has it, read anew there when it changes
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import posixpath
import time
from collections.abc import Iterable, Mapping, Sequence

from overspan.adapters.slurm.groups.handles import is_group_handle, parse_group
from overspan.adapters.slurm.transports.programs import INTERPRETER
from overspan.adapters.slurm.transports.transport import Transport
from overspan.adapters.store_files import render_store
from overspan.bridge.model.errors import OverspanError
from overspan.bridge.model.storage import StoreAccess
from overspan.bridge.runtime.data.stores import name_store

_log = logging.getLogger(__name__)

LOOK_SECONDS = 10.0
_TOGETHER = 200
"""Run directories that one call looks at."""
_LIST = 'for run; do for file in "$run"/stores/*.json; do [ ! -f "$file" ] || printf "%s\\n" "$file"; done; done'


class StoreRenewals:
    """Single-flight and in the background: no other care of the cluster waits for it."""

    def __init__(self, transport: Transport, timeout: float, stores: Mapping[str, StoreAccess]) -> None:
        self._transport = transport
        self._timeout = timeout
        self._stores = stores
        self._sent: dict[str, dict[str, str]] = {}
        """By run directory: the hash of what was sent of each store; empty where that is not known."""
        self._due = 0.0
        self._said = ""
        self._look: asyncio.Task[None] | None = None

    def note(self, files: Mapping[str, bytes]) -> None:
        """Note what was sent with a submission, by path."""
        for path, data in files.items():
            folder = posixpath.dirname(posixpath.dirname(path))
            self._sent.setdefault(folder, {})[posixpath.basename(path)] = _digest(data)

    def begin(self, handles: Iterable[str]) -> None:
        """Look at these launches, unless that was done lately, or is under way."""
        if not self._stores or time.monotonic() < self._due or (self._look is not None and not self._look.done()):
            return
        folders = {parse_group(handle).folder for handle in handles if is_group_handle(handle)}
        self._due = time.monotonic() + LOOK_SECONDS
        if folders:
            self._look = asyncio.create_task(self._run(folders))

    async def settle(self) -> None:
        """Wait for the look that is under way."""
        if self._look is not None:
            await asyncio.gather(self._look, return_exceptions=True)

    async def close(self) -> None:
        """Look no more."""
        if self._look is not None:
            self._look.cancel()
            await self.settle()

    async def _run(self, folders: set[str]) -> None:
        try:
            self._sent = {folder: sent for folder, sent in self._sent.items() if folder in folders}
            await self._find_out(sorted(folders - self._sent.keys()))
            wanted = self._render({name for sent in self._sent.values() for name in sent})
            for folder, sent in self._sent.items():
                for name in sent.keys() & wanted.keys():
                    if sent[name] != _digest(wanted[name]):
                        await self._transport.write(f"{folder}/stores/{name}", wanted[name])
                        sent[name] = _digest(wanted[name])
        except OverspanError as error:
            _log.info("credentials of running jobs are renewed later: %s", error)
        except Exception:
            _log.exception("credentials of running jobs")

    async def _find_out(self, folders: Sequence[str]) -> None:
        """Ask which stores launches have whose submission is not remembered. Raises OverspanError."""
        for start in range(0, len(folders), _TOGETHER):
            some = folders[start : start + _TOGETHER]
            done = await self._transport.run([INTERPRETER, "-c", _LIST, "sh", *some], timeout=self._timeout)
            if done.rc != 0:
                raise OverspanError(done.words.strip() or f"exit code {done.rc}")
            for folder in some:
                self._sent[folder] = {}
            for path in done.text.splitlines():
                self._sent[posixpath.dirname(posixpath.dirname(path))][posixpath.basename(path)] = ""

    def _render(self, names: Iterable[str]) -> dict[str, bytes]:
        """The files as they would be sent now, without those that cannot be made: what was sent stays."""
        found = {}
        for store in self._stores.values():
            name = posixpath.basename(name_store("", store.name))
            if name not in names:
                continue
            try:
                found[name] = render_store(store)
            except OverspanError as error:
                if error.line != self._said:
                    _log.warning("credentials of running jobs are not renewed: %s", error.line)
                self._said = error.line
        return found


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()

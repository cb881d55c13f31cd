"""Volumes of a Slurm cluster: folders below its root, made and listed by the login node."""

from __future__ import annotations

import posixpath
from collections.abc import Sequence

from overspan.adapters.slurm.rendering.renderer import DEFAULT_ROOT, resolve_root
from overspan.adapters.slurm.transports.transport import Transport
from overspan.adapters.volume_folders import describe_folder, note_options
from overspan.bridge.model.errors import Conflict, NotFound
from overspan.bridge.model.volumes import AppliedVolume, VolumeRecord, VolumeRequest

_ENTER = 'cd; cd -- "$1" 2>/dev/null'
_MAKE = """umask 077; cd; mkdir -p -- "$1" && cd -- "$1" || exit 2
test -d "$2" && exit 9
mkdir -- "$2"
"""
_LIST = f"""{_ENTER} || exit 0
for each in */; do test -d "$each" && printf '%s\\n' "${{each%/}}"; done
exit 0
"""
_DELETE = f"""{_ENTER} && test -d "$2" || exit 9
rm -rf -- "$2"
"""
_FOUND_OUT = 9
"""The exit code of what is there already, or is not there."""


class SlurmVolumes:
    """The folders `volumes` of a root, over a transport. `timeout` is in seconds."""

    def __init__(self, transport: Transport, root: str, timeout: float) -> None:
        self._transport = transport
        # A root below the home is relative to it, where each command begins.
        root = resolve_root(root or DEFAULT_ROOT, ".")
        self._top = posixpath.join(root, "volumes")
        self._timeout = timeout

    async def apply(self, request: VolumeRequest) -> AppliedVolume:
        """Make the folder where it is missing."""
        made = await self._run(_MAKE, request.name, f"make the volume {request.name}") is not None
        return AppliedVolume(describe_folder(request.name), "made" if made else "unchanged", note_options(request))

    async def list(self) -> Sequence[VolumeRecord]:
        """The folders that there are, those too that jobs have made."""
        found = await self._run(_LIST, "", "list the volumes")
        return [describe_folder(name) for name in sorted((found or "").splitlines())]

    async def delete(self, name: str) -> None:
        """Remove the folder with all that is in it."""
        if await self._run(_DELETE, name, f"remove the volume {name}") is None:
            raise NotFound(f"there is no volume {name}", remedy="`span volume ls` lists those that there are")

    async def _run(self, script: str, name: str, doing: str) -> str | None:
        """The output of a script; None where it found that nothing is to be done. Raises Conflict and Unreachable."""
        words: Sequence[str] = ("sh", "-c", script, "sh", self._top, name)
        done = await self._transport.run(words, timeout=self._timeout)
        if done.rc == _FOUND_OUT:
            return None
        if done.rc:
            raise Conflict(f"the login node could not {doing}: {done.words.strip() or f'exit code {done.rc}'}")
        return done.text

"""Tells a set where members are that run on other clusters.

They are told as those of the set tell each other: by a file of their task in the run directory, which every supervisor
reads each second.
"""

from __future__ import annotations

from collections.abc import Sequence

from overspan.adapters.slurm.groups.handles import GroupHandle
from overspan.adapters.slurm.transports.transport import Transport
from overspan.bridge.model.errors import Rejected
from overspan.bridge.model.job import Placement
from overspan.bridge.runtime.slurm.member_locations import locations_path, render_locations

_ADD = """\
umask 077
mkdir -p "${1%/*}" || exit 1
line=$(cat)
[ "$(tail -n 1 "$1" 2>/dev/null)" = "$line" ] || printf '%s\\n' "$line" >>"$1"
"""
"""Adds the line of stdin to a file, unless it is its last one."""


async def tell_members(handle: GroupHandle, members: Sequence[Placement], transport: Transport) -> None:
    """Write the files of their tasks. Raises Unreachable, and Rejected where the run directory cannot be written."""
    for task in dict.fromkeys(member.task for member in members):
        line = render_locations([member for member in members if member.task == task], "")
        path = locations_path(handle.folder, task, handle.launch)
        done = await transport.run(["/bin/sh", "-c", _ADD, "sh", path], stdin=line)
        if done.rc:
            raise Rejected(f"{path} cannot be written: {done.words.strip() or f'exit code {done.rc}'}")

"""Staging on a node that shares no folder: writes the files of a launch into the agent's folder, and maps its paths."""

from __future__ import annotations

import os

from overspan.bridge.runtime.slurm import inline_files
from overspan.bridge.runtime.slurm.channel import RemoteLaunch
from overspan.bridge.runtime.slurm.node_folders import write_file

FOLDER_PLACEHOLDER = "@FOLDER@"
"""Stands for the agent's folder in the paths of a launch."""
NOTICE = "notice"
_INSIDE = ("OVERSPAN_RUN_DIR", "OVERSPAN_MEMBERS_FILE")
"""Variables whose value is the agent's folder, or a file in there."""


def stage_launch(launch: RemoteLaunch, folder: str) -> RemoteLaunch:
    """Write the launch's files and links; gives the launch with the paths of this node. Raises OSError."""
    for name, text in launch.files.items():
        write_file(folder, name, text.encode("utf-8", "surrogateescape"), 0o700)
    mounts = {target: _place(source, folder) for target, source in launch.mounts.items()}
    launch = launch._replace(cwd=_place(launch.cwd, folder), stdin=_place(launch.stdin, folder), mounts=mounts)
    if launch.parcel:
        for name in ("files", "work"):
            os.mkdir(os.path.join(folder, name))
        inline_files.unpack_inline(launch.parcel, os.path.join(folder, "files"), launch.umask or 0)
        inline_files.clear_links(mounts, launch.cwd)
    if launch.mounts:
        # Of few: the model is not loaded for all others.
        from overspan.bridge.model.spec import TaskSpec
        from overspan.bridge.runtime.core.mounts import link_mounts

        link_mounts(TaskSpec(name="", file_mounts=launch.mounts), launch.cwd, "")
    environment = dict(launch.environment)
    for name in _INSIDE:
        if name in environment:
            environment[name] = _place(environment[name], folder)
    return launch._replace(
        argv=tuple(_place(word, folder) for word in launch.argv),
        stdout=_place(launch.stdout, folder),
        stderr=_place(launch.stderr, folder),
        marker=_place(launch.marker, folder),
        awaited=_place(launch.awaited, folder),
        environment=environment,
    )


def _place(path: str, folder: str) -> str:
    return folder + path[len(FOLDER_PLACEHOLDER) :] if path.startswith(FOLDER_PLACEHOLDER) else path

"""A shell at a member of a job on this machine."""

from __future__ import annotations

from overspan.adapters.abilities import Entrance, ShellRequest
from overspan.adapters.local.launch_files import parse_handle
from overspan.bridge.model.errors import Unreachable
from overspan.bridge.runtime.zip_application import build_archive


def find_entrance(root: str, python: str, request: ShellRequest) -> Entrance:
    """The supervisor's application, asked for a shell. InvalidRequest for a foreign handle, Unreachable."""
    place = parse_handle(root, request.handle)
    try:
        archive = build_archive(f"{root}/cache")
    except OSError as error:
        raise Unreachable(f"the local cluster's folder {root} cannot be used: {error.strerror or error}") from error
    member = (place.folder, str(place.launch), "", request.task, str(request.node))
    return Entrance((python, "-I", "-S", archive, "shell", *member, *request.command))

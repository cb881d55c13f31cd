"""Files of the submitter's on a node that shares no folder: unpacked for one node run, and gone with it.

They have come behind the application of the batch script as text, and go on to an agent with its launch.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Mapping

_OURS = ("overspan-nodes-", "overspan-files-")
"""Beginnings of the names of the folders that have such files: the agents', and those of single jobs."""
_READ_SIZE = 1 << 20


def read_inline(fd: int) -> str:
    """All that is left of the batch script's text: an archive in base64, or nothing."""
    parts = []
    while data := os.read(fd, _READ_SIZE):
        parts.append(data)
    return b"".join(b"".join(parts).split()).decode("ascii", "replace")


def unpack_inline(text: str, folder: str, umask: int) -> None:
    """Unpack an archive into a folder, with rights by the umask. Raises OSError, also for what is no archive."""
    import io  # where files travel only
    import tarfile

    try:
        with tarfile.open(fileobj=io.BytesIO(base64.b64decode(text)), mode="r:gz") as archive:
            if hasattr(tarfile, "fully_trusted_filter"):
                # They are the user's own, and links may lead anywhere.
                archive.extraction_filter = tarfile.fully_trusted_filter
            for member in archive:
                member.mode &= ~umask
                member.uid, member.gid = os.getuid(), os.getgid()
                archive.extract(member, folder)
    except (tarfile.TarError, EOFError, ValueError) as error:
        raise OSError(f"the files that came with the job cannot be unpacked: {error}") from None


def clear_links(mounts: Mapping[str, str], cwd: str) -> None:
    """Remove links to such files that a killed run has left at the targets."""
    for path in _resolve(mounts, cwd):
        if os.path.islink(path) and not os.path.exists(path) and _is_ours(os.readlink(path)):
            _unlink(path)


def remove_links(mounts: Mapping[str, str], cwd: str, folder: str) -> None:
    """Remove the links into a folder, which goes: their targets stand on the node."""
    for path in _resolve(mounts, cwd):
        if os.path.islink(path) and os.readlink(path).startswith(f"{folder}/"):
            _unlink(path)


def _resolve(mounts: Mapping[str, str], cwd: str) -> list[str]:
    return [os.path.normpath(os.path.join(cwd, os.path.expanduser(target))) for target in mounts]


def _is_ours(path: str) -> bool:
    return any(part == f"{begin}{os.getuid()}" for part in path.split("/") for begin in _OURS)


def _unlink(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:
        pass

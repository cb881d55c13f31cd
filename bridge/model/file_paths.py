"""Paths of files as users write them, joined to a folder without a look at the file system."""

from __future__ import annotations

import os.path


def join_path(folder: str, path: str) -> str:
    """The absolute path of a path that is relative to a folder, as short as its text allows.

    A `..` behind a name stays: the name may be a link, and then only the file system knows where `..` leads. Those at
    the beginning are taken off the folder, which has no link in it (getcwd(3)).
    """
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if path.startswith("/"):
        folder = "/"
    while parts and parts[0] == "..":
        folder = os.path.dirname(folder.rstrip("/")) or "/"
        parts.pop(0)
    if ".." not in parts and ".." not in folder.split("/"):
        return os.path.normpath(os.path.join(folder, *parts))
    return os.path.join(folder, *parts)

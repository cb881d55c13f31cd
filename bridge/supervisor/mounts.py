"""`file_mounts` and `volumes` where the work sees the submitter's file system: links to what they name."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator

from overspan.bridge.model.spec import TaskSpec


def link_mounts(spec: TaskSpec, cwd: str, volumes: str) -> None:
    """Make each target a link to its source; a volume is a folder below `volumes`, or the path it names.

    Raises OSError with a sentence when a target is taken by something else, or cannot be made.
    """
    for target, source in _pairs(spec, cwd, volumes):
        if os.path.realpath(target) == os.path.realpath(source):
            continue
        if os.path.lexists(target):
            raise OSError(errno.EEXIST, f"cannot mount {source}, there is something else", target)
        try:
            os.makedirs(os.path.dirname(target), exist_ok=True)
            os.symlink(source, target)
        except FileExistsError:
            if os.path.realpath(target) != os.path.realpath(source):
                raise


def _pairs(spec: TaskSpec, cwd: str, volumes: str) -> Iterator[tuple[str, str]]:
    for target, source in spec.file_mounts.items():
        path = _resolve(source, cwd)
        if not os.path.exists(path):
            raise OSError(errno.ENOENT, "cannot mount what is not there", path)
        yield _resolve(target, cwd), path
    for target, name in spec.volumes.items():
        folder = name if os.path.isabs(name) else os.path.join(volumes, name)
        os.makedirs(folder, mode=0o700, exist_ok=True)
        yield _resolve(target, cwd), folder


def _resolve(path: str, cwd: str) -> str:
    return os.path.normpath(os.path.join(cwd, os.path.expanduser(path)))

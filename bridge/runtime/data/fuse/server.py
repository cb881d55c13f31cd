"""The server of a program's mounted folders: reads through the store, and ends when nobody has them mounted any more.

    fuse ROOT FD FOLDERS

FOLDERS are the folders of `mounts.py` below ROOT, as a list of JSON; FD is a socket by which their descriptors come, in
the same order. What a program has to know of the store's trouble goes to its standard error.
"""

from __future__ import annotations

import json
import os
import resource
import socket
import threading
import traceback
from collections.abc import Sequence

from overspan.bridge.runtime.core import kernel, sockets
from overspan.bridge.runtime.core.storage_mounts import READY
from overspan.bridge.runtime.data.fuse.blocks import MEMORY, BlockCache
from overspan.bridge.runtime.data.fuse.facts import StoreFacts, StoreWaits
from overspan.bridge.runtime.data.fuse.folder import MountedFolder
from overspan.bridge.runtime.data.fuse.operations import FolderOperations
from overspan.bridge.runtime.data.fuse.session import PROC, FuseSession
from overspan.bridge.runtime.data.fuse.threads import open_pool
from overspan.bridge.runtime.data.mounts import MountFolder, read_folder
from overspan.bridge.runtime.data.s3 import S3Store
from overspan.bridge.runtime.data.stores import StoreFile, read_store

COMM = "span-fuse"
_FETCHERS = 8
"""Requests for content that are under way at once."""


def open_session(root: str, folder: MountFolder, fd: int, memory: int = MEMORY, proc: str = PROC) -> FuseSession:
    """The session of one mount. Raises ObjectStoreError and OSError."""
    name = folder.mount.store
    store = S3Store(read_store(root, name), folder.url.bucket, credentials=StoreFile(root, name))
    waits = StoreWaits(log)
    facts = StoreFacts(store, folder.url.key, waits)
    cache = BlockCache(store, waits, open_pool(_FETCHERS), memory)
    files = MountedFolder(folder.files, store, facts, waits)
    return FuseSession(fd, FolderOperations(files, cache), log, proc)


def log(text: str) -> None:
    """Say something to the program's user."""
    try:
        os.write(2, f"{text}\n".encode("utf-8", "backslashreplace"))
    except OSError:
        pass


def raise_limit() -> None:
    """Have as many descriptors as this process may: it holds those of all processes of the program."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (OSError, ValueError):
        # Unlimited, where the kernel has a limit of its own.
        pass


def _serve(session: FuseSession) -> None:
    try:
        session.serve()
    except BaseException:
        log(traceback.format_exc())
        os._exit(70)


def main(words: Sequence[str]) -> int:
    """Serve until the last mount has ended."""
    root, number, text = words
    return serve_line(root, socket.socket(fileno=int(number)), json.loads(text))


def serve_line(root: str, line: socket.socket, paths: Sequence[str], proc: str = PROC) -> int:
    """The same for one end of a line; `proc` is where the processes of the program are seen."""
    kernel.set_comm(COMM)
    os.umask(0)
    raise_limit()
    sessions = []
    for path in paths:
        packet, fd = sockets.receive_descriptor(line, 1)
        folder = read_folder(path)
        if not packet or folder is None:
            # The program is not started, or the description of its storage is gone.
            return 1
        try:
            sessions.append(open_session(root, folder, fd, MEMORY // len(paths), proc))
        except OSError as error:
            log(f"span: error: {folder.mount.url} cannot be mounted: {error.strerror or error}")
            return 1
    threads = [threading.Thread(target=_serve, args=(session,), daemon=True) for session in sessions]
    for thread in threads:
        thread.start()
    line.send(READY)
    line.close()
    for thread in threads:
        thread.join()
    # Threads may still wait for a store.
    os._exit(0)

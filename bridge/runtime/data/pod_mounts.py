"""Folders of stores that a pod mounts itself, with the device that its node gives it and no other right.

    fetch    tries whether a pod may mount here, and says so in `note`; `served` is there where the task is to do it
    data     has the server, and the credentials
    main     mounts in a namespace of its own, and hands the descriptors over by the socket `server`

All three see the folder `mounts`. The namespace ends with the task's container, and the mounts and the server with it:
the node itself never has them.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import NoReturn

from overspan.bridge.model.job import Job
from overspan.bridge.model.storage import StorageMount
from overspan.bridge.runtime.core import isolation, kernel, sockets
from overspan.bridge.runtime.core.storage_mounts import hand_over
from overspan.bridge.runtime.data.mounts import place_mount

FOLDER = "mounts"
NOTE, SERVED = "note", "served"
_SOCKET = "server"
_PATIENCE = 60.0
"""Seconds that the task's container waits for the server."""
_LOOK = 0.05


def prepare(root: str, job: Job) -> bool:
    """Try whether this pod can mount, and say what the task gets; whether it can. Raises OSError."""
    folder = os.path.join(root, FOLDER)
    os.makedirs(folder, mode=0o755, exist_ok=True)
    try:
        trouble = isolation.ask_child(lambda: _try_mount(folder))
    except OSError as error:
        trouble = str(error)
    urls = ", ".join(mount.url for mount in list_mounted(job))
    said = f"was brought here whole before the start: {trouble}" if trouble else "is read through the store"
    with open(os.path.join(folder, NOTE), "w", encoding="utf-8") as file:
        file.write(f"{urls} {said}\n")
    if not trouble:
        with open(os.path.join(folder, SERVED), "w", encoding="utf-8"):
            pass
    return not trouble


def _try_mount(folder: str) -> str:
    """Why nothing can be mounted here; empty where it can. The device is another container's: any kind will do.

    A kubelet that starts again refuses a pod of which an ended container had a device.
    """
    try:
        isolation.enter_namespaces()
        kernel.mount("overspan", folder, 0, "tmpfs")
    except OSError as error:
        return f"namespaces or mounts are not allowed in this pod ({error})"
    return ""


def list_mounted(job: Job) -> list[StorageMount]:
    """What of the storage of a job's one task may be mounted, in its order."""
    return [mount for mount in job.spec.tasks[0].storage if mount.read_through]


def start_server(root: str, document: str) -> None:
    """Start the server in a process of its own, where this pod mounts. Raises OSError."""
    if os.path.exists(os.path.join(root, FOLDER, SERVED)):
        subprocess.Popen([sys.executable, "-I", "-S", sys.argv[0], "serve", root, document])


def serve(root: str, job: Job) -> int:
    """Wait for the task's container, and serve what it mounts until it has ended; gives the exit code."""
    # Only here: the task's container needs none of it.
    from overspan.bridge.runtime.data.fuse.server import serve_line

    path = os.path.join(root, FOLDER, _SOCKET)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    if os.path.lexists(f"{path}.new"):
        os.unlink(f"{path}.new")
    listener.bind(f"{path}.new")
    listener.listen(1)
    # Whoever sees the name can connect.
    os.rename(f"{path}.new", path)
    line, _ = listener.accept()
    listener.close()
    packet, proc = sockets.receive_descriptor(line, 1)
    if not packet:
        return 1
    folders = [place_mount(root, job.id, mount).path for mount in list_mounted(job)]
    return serve_line(root, line, folders, f"/proc/self/fd/{proc}")


def enter(folder: str, targets: Sequence[str], words: Sequence[str]) -> NoReturn:
    """Mount the targets, have them served, and become the program of these words. Raises OSError."""
    signal.signal(signal.SIGTERM, _end)
    line = _connect(os.path.join(folder, _SOCKET))
    # The server is in another container: it sees this one's processes here alone.
    proc = os.open("/proc", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    sockets.send_descriptor(line, b"P", proc)
    os.close(proc)
    isolation.enter_namespaces()
    hand_over(line, targets)
    # A working directory below a target is the mounted one.
    os.chdir(os.getcwd())
    # Python ignores these; what it handles goes by itself.
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    os.execvp(words[0], list(words))


def _end(number: int, frame: object) -> NoReturn:
    sys.exit(128 + number)


def _connect(path: str) -> socket.socket:
    until = time.monotonic() + _PATIENCE
    while True:
        line = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            line.settimeout(_PATIENCE)
            line.connect(path)
            return line
        except OSError:
            line.close()
            if time.monotonic() > until:
                raise
        time.sleep(_LOOK)

"""The supervisor of a group whose nodes share no folder: `unshared RUN_DIR LAUNCH` in the batch script.

All that it needs has come with the script: the application and files of the submitter's by its standard input, plan and
placement by variables. Its run directory is a private folder of this node, removed at the end. A relay brings what is
written there to RUN_DIR on the login node; the end waits a little for that, and for nothing else.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Optional

from overspan.bridge.runtime.core.run_directory import RunDirectory
from overspan.bridge.runtime.slurm.bootstrap import entry_words, pack_application, take_documents
from overspan.bridge.runtime.slurm.inline_files import read_inline
from overspan.bridge.runtime.slurm.node_folders import make_folder
from overspan.bridge.runtime.slurm.nodes import LaunchContext, RemoteNodes
from overspan.bridge.runtime.slurm.relay_node import OVER, PLACES, TAKEN, mark_name
from overspan.bridge.runtime.slurm.supervisor import Supervisor, log, run_supervisor
from overspan.bridge.runtime.slurm.unshared_nodes import UnsharedNodes

LOG = "/tmp/overspan-%j.log"
"""Where the batch script writes (sbatch's pattern) until its supervisor has a folder; removed then."""
WAIT_SECONDS = 60.0
TERMINATED_SECONDS = 3.0
"""How long the end waits for the relay where Slurm ends the allocation: it kills soon (KillWait)."""
_FAILURE = 70


class UnsharedSupervisor(Supervisor):
    """One launch in one allocation without a shared folder; `home` is the run directory on the login node.

    The `inline` files are those that came with the batch script, or nothing.
    """

    sees_files = False

    def __init__(self, directory: RunDirectory, environment: Mapping[str, str], home: str, inline: str = "") -> None:
        super().__init__(directory, environment)
        self._home = home
        self._inline = inline

    def _make_nodes(self, context: LaunchContext) -> RemoteNodes:
        with open(sys.argv[0], "rb") as file:
            greeting = pack_application(file.read())
        program = tuple(entry_words(sys.executable, "node"))
        return UnsharedNodes(context._replace(program=program), self._home, greeting, self._inline)

    @property
    def relay_timeout(self) -> float:
        """Seconds for which the end may wait for the relay."""
        return TERMINATED_SECONDS if self._terminated else WAIT_SECONDS


def await_relay(path: str, supervisor: Optional[UnsharedSupervisor]) -> None:
    """Wait until everything in the folder has been taken, which the relay tells by a file."""
    began = time.monotonic()
    while not os.path.exists(os.path.join(path, TAKEN)):
        if time.monotonic() > began + (WAIT_SECONDS if supervisor is None else supervisor.relay_timeout):
            return
        time.sleep(0.1)


def prepare_folder(path: str, launch: int) -> None:
    """Put into the run directory what has come with the script, and have this process write its log there."""
    native = os.environ.get("SLURM_JOB_ID", "")
    for name, data in take_documents(os.environ).items():
        _write(os.path.join(path, name), data)
    fd = os.open(os.path.join(path, f"supervisor.{launch}.log"), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(fd, 1)
    os.dup2(fd, 2)
    os.close(fd)
    try:
        os.unlink(LOG.replace("%j", native))
    except OSError:
        pass
    _write(os.path.join(path, mark_name(native)), b"")


def _write(path: str, data: bytes) -> None:
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as file:
        file.write(data)


def main(words: Sequence[str]) -> int:
    """Serve the launch; the exit status is the job's, 70 when the supervisor itself failed."""
    home, launch = words
    inline = read_inline(0)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    supervisors: list[UnsharedSupervisor] = []
    try:
        folder = make_folder((*PLACES, os.environ.get("TMPDIR", "")))
    except OSError as error:
        log(f"span: error: cannot run this allocation: {error}")
        return _FAILURE

    def open_supervisor() -> Supervisor:
        prepare_folder(folder.path, int(launch))
        directory = RunDirectory(folder.path, int(launch))
        supervisors.append(UnsharedSupervisor(directory, dict(os.environ), home, inline))
        return supervisors[0]

    try:
        status = run_supervisor(open_supervisor)
        _write(os.path.join(folder.path, OVER), b"")
        if os.path.exists(os.path.join(folder.path, mark_name(os.environ.get("SLURM_JOB_ID", "")))):
            await_relay(folder.path, supervisors[0] if supervisors else None)
        return status
    finally:
        folder.remove()

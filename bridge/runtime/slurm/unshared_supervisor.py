"""The supervisor where the nodes share no folder: `unshared RUN_DIR LAUNCH [TASK FIRST]` in the batch script.

All that it needs has come with the script: the application and files of the submitter's by its standard input, plan and
placement by variables. With a task it is that of a set's native job, else of a whole group.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Optional

from overspan.bridge.runtime.core.run_directory import RunDirectory
from overspan.bridge.runtime.slurm.bootstrap import take_documents
from overspan.bridge.runtime.slurm.inline_files import read_inline
from overspan.bridge.runtime.slurm.node_folders import make_folder, write_file
from overspan.bridge.runtime.slurm.part_folders import name_part
from overspan.bridge.runtime.slurm.relay_node import PLACES, mark_name
from overspan.bridge.runtime.slurm.set_supervisor import SetSupervisor
from overspan.bridge.runtime.slurm.streamed_files import StreamedFiles
from overspan.bridge.runtime.slurm.supervisor import Supervisor, log, run_supervisor

LOG = "/tmp/overspan-%j.log"
"""Where the batch script writes (sbatch's pattern) until its supervisor has a folder; removed then."""
_FAILURE = 70


def fill_directory(directory: RunDirectory) -> None:
    """Put into the run directory what has come with the script, and have this process write its log there."""
    native = os.environ.get("SLURM_JOB_ID", "")
    for name, data in take_documents(os.environ).items():
        write_file(directory.path, name, data)
    fd = os.open(directory.file("supervisor.log"), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(fd, 1)
    os.dup2(fd, 2)
    os.close(fd)
    try:
        os.unlink(LOG.replace("%j", native))
    except OSError:
        pass
    write_file(directory.path, mark_name(native), b"")


def main(words: Sequence[str]) -> int:
    """Serve the launch; the exit status is the job's or task's, 70 when the supervisor itself failed."""
    home, launch, *part = words
    inline = read_inline(0)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    try:
        folder = make_folder((*PLACES, os.environ.get("TMPDIR", "")))
    except OSError as error:
        log(f"span: error: cannot run this allocation: {error}")
        return _FAILURE
    files: Optional[StreamedFiles] = None
    supervisor: Optional[Supervisor] = None

    def open_supervisor() -> Supervisor:
        nonlocal files, supervisor
        directory = RunDirectory(folder.path, int(launch), name_part(*part) if part else "")
        fill_directory(directory)
        files, environment = StreamedFiles(directory, home, inline), dict(os.environ)
        supervisor = SetSupervisor(files, environment, part[0]) if part else Supervisor(files, environment)
        return supervisor

    try:
        status = run_supervisor(open_supervisor)
        if files is not None:
            files.finish(supervisor is not None and supervisor.terminated)
        return status
    finally:
        folder.remove()

"""A shell beside a member whose node shares no folder: `remote-shell`, on the login node.

`remote-shell RUN_DIR LAUNCH PART NATIVE TASK NODE PYTHON SRUN... -- [WORD...]`: a first step of the job
(`shell_folder`) brings application, plan and journal into a private folder of the node. A second step is the shell,
which reads them there as from a run directory. The first step, and its folder, end with the shell, also when this
process is killed.
"""

from __future__ import annotations

import glob
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from typing import IO

from overspan.bridge.runtime.core.run_directory import RunDirectory
from overspan.bridge.runtime.slurm.bootstrap import entry_words, pack_application, select_sources
from overspan.bridge.runtime.slurm.channel import LineReader
from overspan.bridge.runtime.slurm.member_locations import locations_path
from overspan.bridge.runtime.slurm.shell_folder import APPLICATION, encode_documents

LEAVE_SECONDS = 10.0
_END = "--"
_TERMINAL = "--pty"
_DOCUMENTS = ("plan.json", "placement.json", "journal.jsonl")
_FROM_TERMINAL = (signal.SIGINT, signal.SIGQUIT)
_READ_SIZE = 1 << 16


def remote_shell_words(
    launch: Sequence[str], member: Sequence[str], step: Sequence[str], command: Sequence[str]
) -> list[str]:
    """Words of such a shell: `launch` is run directory, number, part, native id; `member` is task, node, Python.

    `step` is the srun of the shell, without a program; no `command` is a shell.
    """
    return ["remote-shell", *launch, *member, *step, _END, *command]


def read_documents(directory: RunDirectory) -> dict[str, str]:
    """What a shell needs of a run directory, by the names of the files in it. Raises OSError."""
    found = {}
    paths = [directory.file(name) for name in _DOCUMENTS]
    for path in [*paths, *glob.glob(locations_path(glob.escape(directory.path), "*", directory.launch))]:
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            found[os.path.relpath(path, directory.path)] = file.read()
    return found


def send(pipe: IO[bytes], data: bytes) -> None:
    """Send all of it. A closed pipe is no error here: the end of the process tells why."""
    try:
        pipe.write(data)
        pipe.flush()
    except BrokenPipeError:
        pass


def await_folder(pipe: IO[bytes]) -> str:
    """The folder that the first step tells of; empty where it has ended."""
    lines = LineReader()
    while data := os.read(pipe.fileno(), _READ_SIZE):
        for message in lines.feed(data):
            if "lodged" in message:
                return str(message["lodged"]["folder"])
    return ""


def run_shell(words: Sequence[str]) -> int:
    """Run the second step on this terminal; gives its exit code. What the terminal signals is the step's to heed."""
    for number in _FROM_TERMINAL:
        # A function, because what is ignored is inherited.
        signal.signal(number, lambda number, frame: None)
    status = subprocess.Popen(list(words)).wait()
    return status if status >= 0 else 128 - status


def main(words: Sequence[str]) -> int:
    """Be the shell of a member; gives its exit code, 1 where there is no way in."""
    path, launch, part, native, task, node, python, *rest = words
    step, command = rest[: rest.index(_END)], rest[rest.index(_END) + 1 :]
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        documents = encode_documents(read_documents(RunDirectory(path, int(launch), part)), native)
        with open(sys.argv[0], "rb") as file:
            greeting = pack_application(select_sources(file.read()))
        first = [*(word for word in step if word != _TERMINAL), *entry_words(python, "shell-folder")]
        # In a session of its own: what the terminal signals would end it before the shell.
        pipe = subprocess.PIPE
        holder = subprocess.Popen(first, stdin=pipe, stdout=pipe, start_new_session=True)
    except (OSError, ValueError) as error:
        print(f"span: error: there is no way in: {error}", file=sys.stderr)
        return 1
    assert holder.stdin and holder.stdout
    with holder.stdin as down, holder.stdout as up:
        send(down, greeting + documents)
        folder = await_folder(up)
        if folder:
            shell = ("shell", folder, launch, part, task, node, *command)
            code = run_shell([*step, python, "-I", "-S", os.path.join(folder, APPLICATION), *shell])
    if not folder:
        print(f"span: error: there is no way in: srun ended with {holder.wait()}", file=sys.stderr)
        return 1
    try:
        holder.wait(LEAVE_SECONDS)
    except subprocess.TimeoutExpired:
        holder.terminate()
    return code

"""The gated child of a shim: it prepares a node's start, puts it on record, and becomes the user's program.

It does everything that can fail (folder, output files, namespaces), reports, and waits at the gate: a pipe that the
shim opens when the start record is on the disk. End of file there means the shim is gone: nothing is started, and the
child itself puts that on record, because the process that reaps it could not tell its exit code from the user's.
"""

from __future__ import annotations

import errno
import os
import signal
import time
from typing import Callable, NoReturn, Optional, TypeVar

from overspan.bridge.model.records import NamedTuple
from overspan.bridge.runtime.core import isolation as names
from overspan.bridge.runtime.core import node_records, shim_control
from overspan.bridge.runtime.core.isolation import Isolation
from overspan.bridge.runtime.core.node_records import NodeRecord

Started = TypeVar("Started")

READY = b"R"
GO = b"G"
# The step of a start that failed because nothing could be written about it.
RECORD_STEP = "record"
STORAGE_STEP = "storage"
"""The step of a start that failed because a folder of an object store could not be mounted."""
GATE_STEP = "gate"
"""The step of a start that its shim did not live to allow."""
# Clients that name a folder after the job's id can make it only when sbatch has answered (submitit does).
_FOLDER_SECONDS = 5.0
_FOLDER_PAUSE = 0.02


class NodeLaunch(NamedTuple):
    """One node's start: `directory` holds the claim and the record under `key`; it and `cwd` are absolute paths.

    `stdin`, `stdout` and `stderr` are paths, relative ones to `cwd`; an empty one is /dev/null; equal outputs share one
    descriptor. `append` keeps what output files hold. `folders_awaited` gives the folders of output files a few seconds
    to appear. `umask` None keeps the supervisor's. `recorded` False writes no record: the caller outlives the program
    and knows of it. `mounted` are folders that `server` serves as FUSE mounts (`storage_mounts.py`); `note` is a line
    about the program's storage, for its standard error.
    """

    directory: str
    key: str
    argv: tuple[str, ...]
    env: dict[str, str]
    cwd: str
    stdin: str = ""
    stdout: str = ""
    stderr: str = ""
    append: bool = False
    folders_awaited: bool = False
    umask: Optional[int] = None
    recorded: bool = True
    server: tuple[str, ...] = ()
    mounted: tuple[str, ...] = ()
    note: str = ""
    isolation: Isolation = Isolation()


class StartGate(NamedTuple):
    """What a gated child has from its shim: the shim's pid, the pipes for reports and for the release."""

    shim: int
    report: int
    release: int
    subreaper: bool


class StartError(Exception):
    """A step of the start failed: `step` as in NodeRecord.failed_at, `number` an errno."""

    def __init__(self, step: str, text: str, number: int) -> None:
        super().__init__(text)
        self.step = step
        self.text = text
        self.number = number


def run_child(launch: NodeLaunch, gate: StartGate) -> NoReturn:
    """Prepare, put the start on record, report, wait at the gate, become the user's program."""
    record: Optional[NodeRecord] = None
    try:
        try:
            os.setsid()
            prepare(launch)
            environment = names.extend_environment(launch.isolation, launch.env)
            if "SLURM_JOB_ID" in environment:
                environment["SLURM_TASK_PID"] = str(os.getpid())
            environment[shim_control.NODE_KEY] = shim_control.name_node(launch.directory, launch.key)
            if launch.recorded:
                begun = node_records.make_record(gate.shim, os.getpid(), gate.subreaper)
                _begin_record(launch, begun)
                record = begun
            _pass_gate(gate)
            # Nothing after this line is undone by the shim: the start is on record.
            signal.pthread_sigmask(signal.SIG_SETMASK, ())
            start_program(launch.argv, environment, os.execve)
        except StartError as error:
            failure = error
        except OSError as error:
            failure = StartError("start", str(error), error.errno or 0)
        heard = failure.step != GATE_STEP
        try:
            _report_failure(gate.report, failure)
        except BrokenPipeError:
            heard = False
        # A shim that is being killed closes its pipes one by one, so one that is gone may still take a report.
        if not heard and record is not None:
            _record_failure(launch, record, failure)
    finally:
        os._exit(127)


def _pass_gate(gate: StartGate) -> None:
    """Report and wait for the release; StartError where the shim is gone."""
    try:
        os.write(gate.report, READY)
        released = os.read(gate.release, 1) == GO
    except BrokenPipeError:
        released = False
    if not released:
        text = "the process that watched over this was killed before the program was started"
        raise StartError(GATE_STEP, text, 0)


def _begin_record(launch: NodeLaunch, record: NodeRecord) -> None:
    try:
        os.close(node_records.begin_record(launch.directory, launch.key, record))
    except OSError as error:
        raise StartError(RECORD_STEP, f"cannot record the start: {error}", error.errno or 0) from error


def _report_failure(report: int, error: StartError) -> None:
    say_failure(error)
    text = f"{error.step}\0{error.number}\0{error.text}"
    os.write(report, text.encode("utf-8", "surrogateescape"))


def say_failure(error: StartError) -> None:
    """Say a failed exec where the user looks first; the words of slurmstepd."""
    if error.step == "exec":
        os.write(2, f"span: error: {error.text}\n".encode("utf-8", "backslashreplace"))


def _record_failure(launch: NodeLaunch, record: NodeRecord, failure: StartError) -> None:
    """Put a failure on record that the shim does not live to hear of. Raises OSError."""
    file = node_records.open_record(launch.directory, launch.key)
    node_records.update_record(file, add_failure(record._replace(ended_at=round(time.time(), 6)), failure))
    os.close(file)


def add_failure(record: NodeRecord, failure: StartError) -> NodeRecord:
    """The record of a start that failed."""
    return record._replace(
        exit_code=None, signal=None, error=failure.text, failed_at=failure.step, errno=failure.number
    )


def parse_failure(report: bytes, status: int) -> StartError:
    """Read what the child reported; a child that could not report was killed."""
    step, _, rest = report.decode("utf-8", "surrogateescape").partition("\0")
    number, _, text = rest.partition("\0")
    if number.isdigit():
        return StartError(step, text, int(number))
    return StartError("start", f"killed before its start (wait status {status})", 0)


def prepare(launch: NodeLaunch) -> None:
    """Enter the folder, the files and the names of a node run. Raises StartError."""
    if launch.umask is not None:
        os.umask(launch.umask)
    try:
        os.chdir(launch.cwd)
    except OSError as error:
        text = f"cannot enter the working directory {launch.cwd}: {os.strerror(error.errno or 0)}"
        raise StartError("directory", text, error.errno or 0) from error
    _open_files(launch)
    mounts = _start_server(launch) if launch.mounted else None
    try:
        names.enter_isolation(launch.isolation)
    except OSError as error:
        text = f"cannot give this node its names: {names.explain(error)}"
        raise StartError("isolation", text, error.errno or 0) from error
    if mounts is not None:
        try:
            mounts(launch.isolation)
            # The folder may be below a mount.
            os.chdir(launch.cwd)
        except OSError as error:
            raise _fail_storage(error) from error
    if launch.note:
        os.write(2, f"span: {launch.note}\n".encode("utf-8", "backslashreplace"))


def _start_server(launch: NodeLaunch) -> Callable[[Isolation], None]:
    """Start the server of the program's mounts; gives what mounts them."""
    # Loaded already by who has mounts; where the nodes share no folder it does not travel.
    from overspan.bridge.runtime.core.storage_mounts import FileServer

    mark = (shim_control.NODE_KEY, shim_control.name_node(launch.directory, launch.key))
    try:
        server = FileServer(launch.server, mark)
    except OSError as error:
        raise _fail_storage(error) from error
    return lambda isolation: server.serve(launch.mounted, isolation)


def _fail_storage(error: OSError) -> StartError:
    from overspan.bridge.runtime.core.storage_mounts import explain_mount

    return StartError(STORAGE_STEP, f"cannot mount the task's storage: {explain_mount(error)}", error.errno or 0)


def _open_files(launch: NodeLaunch) -> None:
    _open_as(0, launch.stdin, os.O_RDONLY)
    # Append also without `append`: two descriptors of one file then do not overwrite each other.
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | (0 if launch.append else os.O_TRUNC)
    patience = _FOLDER_SECONDS if launch.folders_awaited else 0.0
    _open_as(1, launch.stdout, flags, patience)
    if launch.stderr == launch.stdout:
        os.dup2(1, 2)
    else:
        _open_as(2, launch.stderr, flags, patience)


def _open_as(number: int, path: str, flags: int, patience: float = 0.0) -> None:
    try:
        if patience:
            _await_folder(os.path.dirname(path), patience)
        fd = os.open(path or os.devnull, flags | os.O_NOCTTY | os.O_CLOEXEC, 0o666)
    except OSError as error:
        what = "input" if number == 0 else "output"
        text = f"cannot open the {what} file {path}: {os.strerror(error.errno or 0)}"
        raise StartError(what, text, error.errno or 0) from error
    os.dup2(fd, number)
    os.close(fd)


def _await_folder(folder: str, seconds: float) -> None:
    """Wait until a folder is there, or the time is over."""
    deadline = time.monotonic() + seconds
    while folder and not os.path.isdir(folder) and time.monotonic() < deadline:
        time.sleep(_FOLDER_PAUSE)


def start_program(argv: tuple[str, ...], environment: dict[str, str], start: Callable[..., Started]) -> Started:
    """Start the program, found by the PATH of its own environment as a shell finds it (execvp(3)).

    `start` takes a path, words and an environment as execve(2) does, and fails as it does. Raises StartError.
    """
    if not argv or not argv[0]:
        raise StartError("exec", "the command is empty", errno.ENOENT)
    name = argv[0]
    folders = environment.get("PATH", os.defpath).split(":")
    candidates = [name] if "/" in name else [os.path.join(folder or ".", name) for folder in folders]
    number = errno.ENOENT
    for candidate in candidates:
        try:
            return start(candidate, argv, environment)
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.ENOTDIR) or len(candidates) == 1:
                number = error.errno or 0
            if error.errno not in (errno.ENOENT, errno.ENOTDIR, errno.EACCES):
                break
        except ValueError as error:
            raise StartError("exec", f"cannot execute {name}: {error}", errno.EINVAL) from error
    raise StartError("exec", f"cannot execute {name}: {_explain(candidates, number)}", number)


def _explain(candidates: list[str], number: int) -> str:
    """Why no candidate could be executed: the interpreter that is missing, where a script is there and it is not."""
    if number == errno.ENOENT:
        for candidate in filter(os.path.isfile, candidates):
            interpreter = _read_interpreter(candidate)
            if interpreter and not os.path.exists(interpreter):
                return f"its first line names {interpreter}, which is not there"
    return os.strerror(number)


def _read_interpreter(path: str) -> str:
    """The program that a script's `#!` line names; empty for anything else."""
    try:
        with open(path, "rb") as script:
            first = script.readline(1024)
    except OSError:
        return ""
    words = first[2:].split() if first.startswith(b"#!") else []
    return os.fsdecode(words[0]) if words else ""

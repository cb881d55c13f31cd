"""The scripts of a task: writes the user's texts to files, and builds the command that starts them."""

from __future__ import annotations

import os

from overspan.bridge.model.records import NamedTuple
from overspan.bridge.model.spec import Form, TaskSpec

_SHELLS = ("/bin/bash", "/usr/bin/bash", "/bin/sh")
# Set-up runs in a shell of its own, as SkyPilot's does; the marker file distinguishes its failure.
_WITH_SETUP = (
    'shell=$1 setup=$2 marker=$3; shift 3; "$shell" "$setup" || { code=$?; : >"$marker"; exit $code; }; exec "$@"'
)


class TaskCommand(NamedTuple):
    """The command of a node run, and the marker file that exists afterwards if the set-up failed."""

    argv: tuple[str, ...]
    setup_marker: str = ""


def find_shell() -> str:
    """The path of bash if installed, else of sh."""
    return next((path for path in _SHELLS if os.access(path, os.X_OK)), "/bin/sh")


def prepare_command(spec: TaskSpec, folder: str, marker: str) -> TaskCommand:
    """Write the task's scripts into `folder`, once for all nodes and attempts, and return the command."""
    shell = find_shell()
    program = _write(folder, _name_program(spec), spec.run)
    if spec.form is Form.BATCH or spec.run.startswith("#!"):
        argv: tuple[str, ...] = (program, *spec.args)
    else:
        argv = (shell, program, *spec.args)
    if not spec.setup.strip():
        return TaskCommand(argv)
    setup = _write(folder, f"{spec.name}.setup", spec.setup)
    return TaskCommand((shell, "-c", _WITH_SETUP, "setup", shell, setup, marker, *argv), marker)


def _name_program(spec: TaskSpec) -> str:
    """Slurm's name for a batch script, which scripts look for in $0."""
    return f"{spec.name}/slurm_script" if spec.form is Form.BATCH else f"{spec.name}.run"


def _write(folder: str, name: str, text: str) -> str:
    path = os.path.join(folder, name)
    data = text.encode("utf-8", "surrogateescape")
    # Compared, because a script that a power loss truncated would run as if it were whole.
    if _read(path) != data:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        part = f"{path}.part"
        with open(part, "wb") as file:
            file.write(data)
        os.chmod(part, 0o700)
        os.rename(part, path)
    return path


def _read(path: str) -> bytes | None:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return None

"""Every program that runs beside the work, by its first word; another first word is a host's directory.

The zip application carries this file as its `__main__`; `python -m overspan.bridge.runtime` runs the same table.
"""

import gc
import marshal
import os
import sys
from collections.abc import Mapping
from importlib.machinery import ModuleSpec
from importlib.util import MAGIC_NUMBER
from types import ModuleType
from typing import Any, Optional
from zipimport import zipimporter

_PACKAGE = "overspan.bridge.runtime"
_HOST = "local.supervisor"
ENTRIES: Mapping[str, str] = {
    # Run by the local adapter.
    "forkserver": "local.forkserver",
    # Beside the work, where it has storage.
    "data": "data.mover",
    "fuse": "data.fuse.server",
    # On a login node: what the cache for that has.
    "cache": "data.cache_command",
    # Where the data is that a job could not send.
    "rescue": "data.rescue",
    "unsent": "data.unsent",
    "shell": "shell",
    # `span` inside a job whose daemon is elsewhere.
    "command": "job_command",
    # The main program of a pool's worker.
    "worker": "pool.worker",
    # Slurm's commands inside jobs that are not Slurm's.
    "salloc": "srun.salloc",
    "sattach": "srun.sattach",
    "srun": "srun.srun",
    "stepd": "srun.step_daemon",
    # Inside a Slurm allocation: supervisors of a group and of one task of a set, and the agent on each node.
    "member": "slurm.set_supervisor",
    "node": "slurm.agent",
    "slurm": "slurm.supervisor",
    # Where the nodes share no folder: the supervisor, and what brings its files to the login node and a shell to it.
    "relay": "slurm.relay_login",
    "remote-shell": "slurm.remote_shell",
    "sender": "slurm.relay_node",
    "shell-folder": "slurm.shell_folder",
    "unshared": "slurm.unshared_supervisor",
}
"""Entry and module, whose `main` gets the words behind the entry."""


class Importer:
    """Imports the application's modules: as they were compiled for this version of Python, else from their sources.

    zipimport opens the file anew for each module, and reads and compiles it twice.
    """

    def __init__(self, archive: zipimporter) -> None:
        self._archive = archive
        self._file = os.open(archive.archive, os.O_RDONLY | os.O_CLOEXEC)
        self._compiled: dict[str, tuple[bool, int, int]] = {}
        """By a module's name whether it is a package, and place and size of its code in the file.

        Empty in another version of Python.
        """
        try:
            self._compiled = marshal.loads(archive.get_data(f"index.{MAGIC_NUMBER.hex()}"))
        except OSError:
            pass

    def close(self) -> None:
        """Close the file; what is imported later comes from its source."""
        self._compiled = {}
        os.close(self._file)

    def find_spec(self, name: str, path: object = None, target: object = None) -> Optional[ModuleSpec]:
        """The module's specification, with its code; None for one that the application does not have."""
        loader: Any = self
        if name in self._compiled:
            package, place, size = self._compiled[name]
            code = marshal.loads(os.pread(self._file, size, place))
        elif name.partition(".")[0] == "overspan":
            try:
                package, file, text = self._read(name)
            except OSError:
                return None
            code = compile(text, file, "exec", dont_inherit=True)
        else:
            return None
        return ModuleSpec(name, loader, loader_state=code, is_package=package)

    def create_module(self, spec: ModuleSpec) -> None:
        """An ordinary module."""

    def exec_module(self, module: ModuleType) -> None:
        """Run the module's code."""
        spec = module.__spec__
        assert spec is not None
        code, spec.loader_state = spec.loader_state, None
        exec(code, module.__dict__)

    def get_source(self, name: str) -> str:
        """The text of a module, for tracebacks. Raises OSError."""
        return self._read(name)[2].decode()

    def _read(self, name: str) -> tuple[bool, str, bytes]:
        """Whether a module is a package, its file in the zip and its text. Raises OSError where there is none."""
        stem = name.replace(".", "/")
        try:
            return False, f"{stem}.py", self._archive.get_data(f"{stem}.py")
        except OSError:
            return True, f"{stem}/__init__.py", self._archive.get_data(f"{stem}/__init__.py")


def _import_quickly(archive: zipimporter, name: str) -> None:
    """Import a module of the zip and all that it needs; to collect garbage meanwhile takes a tenth of the start."""
    gc.disable()
    importer: Any = Importer(archive)
    sys.meta_path.insert(0, importer)
    __import__(name)
    importer.close()


def main() -> int:
    """Run the entry that the command line names."""
    program, *words = sys.argv
    if program.startswith("/proc/self/fd/"):
        # The application is a file without a name: the programs that it starts do not get it.
        os.set_inheritable(int(program.rpartition("/")[2]), False)
    module = ENTRIES.get(words[0], _HOST)
    name = f"{_PACKAGE}.{module}"
    loader = globals().get("__loader__")
    if isinstance(loader, zipimporter):
        _import_quickly(loader, name)
    else:
        __import__(name)
    entry = sys.modules[name]
    # What was imported is kept out of later rounds of the collector, so that forked processes share it.
    gc.freeze()
    gc.enable()
    status: int = entry.main(words if module == _HOST else words[1:])
    return status


sys.exit(main())

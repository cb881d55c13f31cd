"""Every program that runs beside the work, by its first word; another first word is a host's directory.

The zip application carries this file as its `__main__`; `python -m overspan.bridge.runtime` runs the same table.
"""

import gc
import os
import sys
from collections.abc import Mapping
from zipimport import zipimporter

_PACKAGE = "overspan.bridge.runtime"
_HOST = "local.supervisor"
ENTRIES: Mapping[str, str] = {
    # Run by the local adapter.
    "forkserver": "local.forkserver",
    "shell": "shell",
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
    "lodging": "slurm.shell_folder",
    "relay": "slurm.relay_login",
    "sender": "slurm.relay_node",
    "unshared": "slurm.unshared_supervisor",
    "visit": "slurm.remote_shell",
}
"""Entry and module, whose `main` gets the words behind the entry."""


class Importer(zipimporter):
    """Reads each module of the zip once.

    zipimport reads and unmarshals a module twice, the first time only to learn the name of its file.
    """

    def get_filename(self, name: str) -> str:
        """The name of a module's file, from the module's name alone."""
        stem = f"{self.archive}/{self.prefix}{name.rpartition('.')[2]}"
        return stem + ("/__init__.py" if self.is_package(name) else ".py")


def _shorten_start() -> None:
    """Prepare imports from the zip; collecting garbage while modules load costs a tenth of the start."""
    gc.disable()
    sys.path_hooks.insert(0, Importer)
    sys.path_importer_cache.clear()


def main() -> int:
    """Run the entry that the command line names."""
    program, *words = sys.argv
    if program.startswith("/proc/self/fd/"):
        # The application is a file without a name: the programs that it starts do not get it.
        os.set_inheritable(int(program.rpartition("/")[2]), False)
    module = ENTRIES.get(words[0], _HOST)
    name = f"{_PACKAGE}.{module}"
    __import__(name)
    entry = sys.modules[name]
    # What was imported is kept out of later rounds of the collector, so that forked processes share it.
    gc.freeze()
    gc.enable()
    status: int = entry.main(words if module == _HOST else words[1:])
    return status


if isinstance(globals().get("__loader__"), zipimporter):
    _shorten_start()
sys.exit(main())

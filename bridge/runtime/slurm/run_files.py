"""The file port of a run: a folder that all nodes see, or streams over channels (`streamed_files`).

A supervisor works in a run directory in either case. Behind the port is what brings a file from where it was written
to where it is read: nothing where the folder is shared, else the channels of the agents and of a relay.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Callable, Protocol

from overspan.bridge.model.job import Job
from overspan.bridge.model.records import NamedTuple
from overspan.bridge.runtime.core.allocation import own_program
from overspan.bridge.runtime.core.mounts import list_storage_links, remove_links
from overspan.bridge.runtime.core.node_runs import prepare_folder, prepare_work
from overspan.bridge.runtime.core.run_directory import RunDirectory
from overspan.bridge.runtime.core.streams import NodeKey
from overspan.bridge.runtime.slurm.member_locations import append_locations, locations_path


class NodeWork(NamedTuple):
    """What an agent is told of files: the fields of its launch that name any, and the run directory as it finds it."""

    run_dir: str
    fields: Mapping[str, Any]


class RunFiles(Protocol):
    """The port. `program` are the words that start an agent, `greeting` the bytes that it reads before its launch.

    Where the files of the nodes are not `seen` here, the agents report those that make a task ready.
    """

    directory: RunDirectory
    program: tuple[str, ...]
    greeting: bytes
    seen: bool

    def prepare(self, job: Job, key: NodeKey, host: str, image: Sequence[str], storage: Mapping[str, str]) -> NodeWork:
        """Prepare what a node run reads and writes; `storage` are places by targets. Raises OSError."""

    def keep(self, part: Mapping[str, Any]) -> None:
        """Keep what an agent has sent of a file. Raises OSError and ValueError."""

    def take_notices(self) -> bytes:
        """What the notices have got since the last call, where agents have to be told."""

    def tell_locations(self, task: str, line: bytes) -> None:
        """Tell the supervisors of other tasks of a set where this one runs. Raises OSError."""

    def close_orders(self, settle: Callable[[], bool]) -> bool:
        """Have orders refused from now on; `settle` takes the last ones, and says whether to close still. OSError."""

    def remove_links(self) -> None:
        """Remove the links to what was brought from object stores."""

    def finish(self, terminated: bool) -> None:
        """Everything is written, or Slurm ends the allocation: wait until it is where it is read."""


class SharedFiles:
    """The run directory is a folder that all nodes and the login node see."""

    greeting = b""
    seen = True

    def __init__(self, directory: RunDirectory) -> None:
        self.directory = directory
        self.program = (*own_program(), "node")
        self._links: dict[str, str] = {}

    def prepare(self, job: Job, key: NodeKey, host: str, image: Sequence[str], storage: Mapping[str, str]) -> NodeWork:
        """Make the folder with its links, scripts and list of streams."""
        cwd = prepare_folder(job, key, self.directory, storage)
        links = list_storage_links(cwd, storage)
        self._links.update(links)
        command, paths = prepare_work(job, key, self.directory, cwd, host)
        fields = {
            "argv": command.argv,
            "cwd": cwd,
            "stdin": paths.input,
            "stdout": paths.output,
            "stderr": paths.error,
            "append": paths.append,
            "folders_awaited": paths.folders_awaited,
            "marker": command.setup_marker,
            "links": links,
        }
        return NodeWork(self.directory.path, fields)

    def keep(self, part: Mapping[str, Any]) -> None:
        """Nothing is sent."""

    def take_notices(self) -> bytes:
        """Programs read the file itself."""
        return b""

    def tell_locations(self, task: str, line: bytes) -> None:
        """Add it to the file that the others read."""
        append_locations(locations_path(self.directory.path, task, self.directory.launch), line)

    def close_orders(self, settle: Callable[[], bool]) -> bool:
        """Leave the mark under the lock of those who write orders; False where one of them has it."""
        with lock_orders(self.directory.file("orders.jsonl")) as locked:
            if not locked or not settle():
                return False
            open(self.directory.file("closed"), "ab").close()
            return True

    def remove_links(self) -> None:
        """Remove those of this launch, but not where the next one has the same: data may be sent beside a requeue."""
        following = RunDirectory(self.directory.path, self.directory.launch + 1)
        if not os.path.exists(following.file("plan.json")):
            remove_links(self._links)

    def finish(self, terminated: bool) -> None:
        """It is there already."""


@contextlib.contextmanager
def lock_orders(path: str) -> Iterator[bool]:
    """Lock an orders file against writers; False where another process holds the lock."""
    with open(f"{path}.lock", "ab") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        yield True

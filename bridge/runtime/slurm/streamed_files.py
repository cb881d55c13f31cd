"""The files of a run whose nodes share no folder: they go with the launch, and come back over the channels.

The run directory is a private folder of the supervisor's node. Its agents get scripts, notices and the submitter's own
files with their launches, and send back what programs write. A relay repeats the folder on the login node
(`relay_login`); nothing depends on whether there is one, but the end, which waits a little for it.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any, Callable, Optional

from overspan.bridge.model.job import Job
from overspan.bridge.model.spec import ReadyKind
from overspan.bridge.runtime.core.environment import MEMBERS_FILE
from overspan.bridge.runtime.core.members_file import describe_members
from overspan.bridge.runtime.core.node_runs import mark_setup
from overspan.bridge.runtime.core.run_directory import RunDirectory
from overspan.bridge.runtime.core.streams import NodeKey, StreamPaths, choose_paths
from overspan.bridge.runtime.core.task_scripts import prepare_command
from overspan.bridge.runtime.slurm.bootstrap import entry_words, pack_application
from overspan.bridge.runtime.slurm.file_links import measure_file
from overspan.bridge.runtime.slurm.file_parts import is_log, name_log, write_part
from overspan.bridge.runtime.slurm.member_locations import append_locations
from overspan.bridge.runtime.slurm.node_staging import FOLDER_PLACEHOLDER, NOTICE
from overspan.bridge.runtime.slurm.relay_node import CLOSING, OVER, TAKEN
from overspan.bridge.runtime.slurm.run_files import NodeWork

WAIT_SECONDS = 60.0
TERMINATED_SECONDS = 3.0
"""How long the end waits for the relay where Slurm ends the allocation: it kills soon (KillWait)."""


class StreamedFiles:
    """The port over channels; `home` is the run directory on the login node, `inline` the submitter's packed files."""

    seen = False

    def __init__(self, directory: RunDirectory, home: str, inline: str = "") -> None:
        self.directory = directory
        self.program = tuple(entry_words(sys.executable, "node"))
        with open(sys.argv[0], "rb") as file:
            self.greeting = pack_application(file.read())
        self._home = home
        self._inline = inline
        self._noticed = 0
        self._closing_at: Optional[float] = None

    # --- of a node run -----------------------------------------------------------------------------------------------

    def prepare(self, job: Job, key: NodeKey, host: str, image: Sequence[str], storage: Mapping[str, str]) -> NodeWork:
        """The paths of the node run with a placeholder for its agent's folder, and the files that go there."""
        spec = job.spec_of(key.task)
        cwd = spec.workdir or job.spec.origin.directory
        command = prepare_command(spec, self.directory.folder("scripts"), mark_setup(self.directory, key))
        paths = choose_paths(job, key, self.directory, cwd, host)
        self._record(key, paths)
        brought = any(f"{FOLDER_PLACEHOLDER}/" in word for word in (cwd, *spec.file_mounts.values(), *image))
        awaited = key.node == 0 and job.task(key.task).ready_at is None and spec.ready
        fields = {
            "argv": tuple(self._move(word) for word in command.argv),
            "cwd": cwd,
            "stdin": paths.input,
            "stdout": self._move(paths.output),
            "stderr": self._move(paths.error),
            "append": paths.append,
            "marker": self._move(command.setup_marker),
            "files": {**self._read_scripts(command.argv), **_render_members(job)},
            "mounts": {**spec.file_mounts, **spec.volumes},
            "streamed": True,
            "parcel": self._inline if brought else "",
        }
        if awaited and awaited.kind is ReadyKind.FILE:
            fields.update(awaited=os.path.join(cwd, awaited.target), period=awaited.period)
        return NodeWork(FOLDER_PLACEHOLDER, fields)

    def _move(self, path: str) -> str:
        """A path below the run directory as one below the agent's folder: all of its files are in there."""
        inside = path.startswith(f"{self.directory.path}/")
        return f"{FOLDER_PLACEHOLDER}/{os.path.basename(path)}" if inside else path

    def _read_scripts(self, argv: Sequence[str]) -> dict[str, str]:
        """The files among some words, which the agent writes."""
        found = {}
        for word in argv:
            if self._move(word) != word and os.path.isfile(word):
                with open(word, "rb") as file:
                    found[os.path.basename(word)] = file.read().decode("utf-8", "surrogateescape")
        return found

    def _record(self, key: NodeKey, paths: StreamPaths) -> None:
        """Put on the list where the output of a node run will be on the login node."""
        streams = {"output": paths.output, "error": paths.error if paths.error != paths.output else ""}
        lines = []
        for stream in [stream for stream, path in streams.items() if path]:
            name = name_log(key, stream)
            write_part(self.directory.path, {"file": name, "data": ""})
            line = {"task": key.task, "node": key.node, "attempt": key.attempt, "run": key.run, "stream": stream}
            lines.append(json.dumps({**line, "path": f"{self._home}/{name}", "start": 0}) + "\n")
        _append(self.directory.file("streams.jsonl"), "".join(lines))

    def keep(self, part: Mapping[str, Any]) -> None:
        """Add what a program has written to its file here."""
        if not is_log(str(part["file"])):
            raise ValueError(f"{part['file']!r} is no output")
        write_part(self.directory.path, part)

    def take_notices(self) -> bytes:
        """What the file of notices has got: each node has one of its own."""
        try:
            with open(os.path.join(self.directory.path, NOTICE), "rb") as file:
                file.seek(self._noticed)
                data = file.read()
        except OSError:
            return b""
        self._noticed += len(data)
        return data

    # --- of the supervisor -------------------------------------------------------------------------------------------

    def tell_locations(self, task: str, line: bytes) -> None:
        """Leave it for the relay, which adds it to the file of which the others have copies."""
        append_locations(self.directory.file("seats.jsonl"), line)

    def close_orders(self, settle: Callable[[], bool]) -> bool:
        """Have the relay leave the mark unless there are more orders than those here; without a relay, leave alone."""
        if os.path.exists(self.directory.file("closed")):
            return settle()
        size = measure_file(self.directory.file("orders.jsonl"))
        if not settle():
            self._closing_at = None
            return False
        self._closing_at = self._closing_at or time.monotonic()
        path = os.path.join(self.directory.path, CLOSING)
        with open(f"{path}.part", "w", encoding="ascii") as file:
            file.write(str(size))
        os.replace(f"{path}.part", path)
        return time.monotonic() > self._closing_at + WAIT_SECONDS

    def remove_links(self) -> None:
        """None is made: without a shared root no store is mounted."""

    def finish(self, terminated: bool) -> None:
        """Tell the relay that this is all, and wait until it has that."""
        _append(os.path.join(self.directory.path, OVER), "")
        deadline = time.monotonic() + (TERMINATED_SECONDS if terminated else WAIT_SECONDS)
        while not os.path.exists(os.path.join(self.directory.path, TAKEN)) and time.monotonic() < deadline:
            time.sleep(0.1)


def _render_members(job: Job) -> dict[str, str]:
    """The members file, where members come and go."""
    return {MEMBERS_FILE: describe_members(job)} if job.spec.changes_size else {}


def _append(path: str, text: str) -> None:
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600), "w") as file:
        file.write(text)

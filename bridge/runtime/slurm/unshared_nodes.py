"""The node runs of a launch whose nodes share no folder: files go with the launch, output comes over the channel."""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Sequence
from typing import Any, Optional

from overspan.bridge.model.events import Event
from overspan.bridge.model.job import Job
from overspan.bridge.model.spec import Ready, ReadyKind
from overspan.bridge.runtime.core.node_runs import mark_setup
from overspan.bridge.runtime.core.shim_control import Shim
from overspan.bridge.runtime.core.streams import NodeKey, StreamPaths, choose_paths
from overspan.bridge.runtime.core.task_scripts import prepare_command
from overspan.bridge.runtime.slurm.channel import RemoteLaunch, encode_line
from overspan.bridge.runtime.slurm.node_staging import FOLDER_PLACEHOLDER, NOTICE
from overspan.bridge.runtime.slurm.nodes import LaunchContext, NodeWork, RemoteNodes, refuse_batch

_SUFFIX = {"output": "out", "error": "err"}


class UnsharedNodes(RemoteNodes):
    """As others, with nothing of the run directory seen by the agents; `home` is its place on the login node.

    The `inline` files go to the agents of tasks that use them.
    """

    def __init__(self, context: LaunchContext, home: str, greeting: bytes, inline: str = "") -> None:
        super().__init__(context)
        self._home = home
        self._application = greeting
        self._inline = inline
        self._logs: dict[tuple[NodeKey, str], int] = {}
        self._noticed = 0

    def collect(self, ended: Sequence[Shim], now: float) -> list[Event]:
        """What the agents have told; output is kept before any end is told."""
        self._keep_output()
        return super().collect(ended, now)

    def reap(self) -> bool:
        """As for others; output still comes while Slurm ends the allocation."""
        self._keep_output()
        return super().reap()

    def signal(self, task: str, attempt: int, signum: int, scope: str = "tree") -> bool:
        """As for others; a notice that belongs to the signal goes before it."""
        self._pass_notices()
        return super().signal(task, attempt, signum, scope)

    # --- output ------------------------------------------------------------------------------------------------------

    def _keep_output(self) -> None:
        for live in self._live.values():
            messages, live.srun.messages = live.srun.messages, []
            for message in messages:
                if "log" in message:
                    self._keep(live.key, message["log"])
                else:
                    live.srun.messages.append(message)

    def _keep(self, key: NodeKey, message: Any) -> None:
        """Add what a program has written to its file here; a full disk leaves a gap."""
        try:
            stream, data = str(message["stream"]), base64.b64decode(message["data"])
            fd = self._open_log(key, stream)
            while data:
                data = data[os.write(fd, data) :]
        except (OSError, KeyError, TypeError, ValueError) as error:
            self._context.log(f"{key}: some of its output is not kept: {error}")

    def _open_log(self, key: NodeKey, stream: str) -> int:
        if (key, stream) not in self._logs:
            path = os.path.join(self._context.directory.folder("logs"), f"{key}.{_SUFFIX[stream]}")
            self._logs[key, stream] = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        return self._logs[key, stream]

    def _forget(self, key: NodeKey) -> None:
        for name in [name for name in self._logs if name[0] == key]:
            os.close(self._logs.pop(name))
        super()._forget(key)

    def _pass_notices(self) -> None:
        """Tell every agent what the file of notices has got."""
        try:
            with open(os.path.join(self._context.directory.path, NOTICE), encoding="utf-8") as file:
                file.seek(self._noticed)
                text = file.read()
                self._noticed = file.tell()
        except OSError:
            return
        if text:
            line = encode_line({"notice": {"text": text}})
            for live in self._live.values():
                live.srun.send(line)

    # --- launches ----------------------------------------------------------------------------------------------------

    def _greeting(self) -> bytes:
        return self._application

    def _launch(self, job: Job, key: NodeKey) -> RemoteLaunch:
        directory, spec = self._context.directory, job.spec_of(key.task)
        refuse_batch(job, key)
        cwd = spec.workdir or job.spec.origin.directory
        command = prepare_command(spec, directory.folder("scripts"), mark_setup(directory, key))
        paths = choose_paths(job, key, directory, cwd, self._node(key))
        self._record(key, paths)
        launch = self._describe(job, key, NodeWork(command, paths, cwd, FOLDER_PLACEHOLDER))
        brought = any(f"{FOLDER_PLACEHOLDER}/" in word for word in (cwd, *spec.file_mounts.values(), *launch.image))
        return launch._replace(
            argv=tuple(self._move(word) for word in command.argv),
            stdout=self._move(paths.output),
            stderr=self._move(paths.error),
            folders_awaited=False,
            marker=self._move(command.setup_marker),
            files=self._read_scripts(command.argv),
            mounts={**spec.file_mounts, **spec.volumes},
            mirrored=True,
            parcel=self._inline if brought else "",
            **_await_file(spec.ready if key.node == 0 and job.task(key.task).ready_at is None else None, cwd),
        )

    def _move(self, path: str) -> str:
        """A path below the run directory as one below the agent's folder: all of its files are in there."""
        inside = path.startswith(f"{self._context.directory.path}/")
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
        for stream, path in streams.items():
            if path:
                self._open_log(key, stream)
                place = f"{self._home}/logs/{key}.{_SUFFIX[stream]}"
                line = {"task": key.task, "node": key.node, "attempt": key.attempt, "run": key.run, "stream": stream}
                lines.append(json.dumps({**line, "path": place, "start": 0}) + "\n")
        fd = os.open(self._context.directory.file("streams.jsonl"), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            os.write(fd, "".join(lines).encode())
        finally:
            os.close(fd)


def _await_file(ready: Optional[Ready], cwd: str) -> dict[str, Any]:
    """The fields of a launch that have its agent look for the file that makes the task ready."""
    if ready is None or ready.kind is not ReadyKind.FILE:
        return {}
    return {"awaited": os.path.join(cwd, ready.target), "period": ready.period}

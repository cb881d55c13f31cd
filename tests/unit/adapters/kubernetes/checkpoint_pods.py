"""Pods in which the checkpoint scanner runs, played by this machine."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from tests.unit.adapters.kubernetes.pods import TOKEN, T, running

from overspan.adapters.kubernetes.api.answers import ApiAnswer
from overspan.adapters.kubernetes.api.executing import ExecCommand
from overspan.adapters.kubernetes.checkpoints.source import KubernetesCheckpoints
from overspan.adapters.kubernetes.observation.records import PodRecord
from overspan.bridge.model.errors import OverspanError, Unreachable
from overspan.bridge.model.job import Attempt, Job, NodeRun, new_job
from overspan.bridge.model.spec import JobSpec, TaskSpec
from overspan.bridge.model.states import State

HANDLE = f"lab/{TOKEN}"


def make_writer(volumes: Mapping[str, str], image: str = "", *, over: bool = False) -> Job:
    """A job whose only task writes checkpoints, and has begun on node-1."""
    job = new_job(7, JobSpec("train", (TaskSpec(name="trainer", run="true", image=image, volumes=volumes),)), T)
    ended = T + 60 if over else None
    node = NodeRun(0, started_at=T + 5, ended_at=ended, node="node-1" if over else "")
    state = State.COMPLETED if over else State.RUNNING
    attempt = Attempt(0, state, T, (node,), started_at=T + 5, ended_at=ended)
    task = replace(job.tasks[0], state=state, attempts=(attempt,))
    return replace(job, tasks=(task,), state=state)


class PodCluster:
    """The API as the source sees it: exec, and single pods. Commands run here; `broken` answers in a pod's place."""

    def __init__(self, settings: Any) -> None:
        self.settings = settings
        self.namespace = "lab"
        self.job_pods: list[PodRecord] = [running("trainer", node="node-1")]
        self.watchers: dict[str, Mapping[str, Any]] = {}
        self.start_at_once = True
        self.refusal: ApiAnswer | None = None
        self.away = False
        self.asked: list[str] = []
        self.broken: dict[str, OverspanError | int | threading.Event] = {}
        self.installation = "inst"
        self.source = KubernetesCheckpoints(self, self, settings, lambda: self.installation)  # type: ignore[arg-type]

    # --- what the connection does

    async def run(self, function: Any, *arguments: Any) -> Any:
        return await asyncio.to_thread(function, *arguments)

    def execute(self, command: ExecCommand, timeout: float) -> tuple[int, str]:
        self.asked.append(command.pod)
        broken = self.broken.get(command.pod, 0)
        if isinstance(broken, OverspanError):
            raise broken
        if isinstance(broken, threading.Event):
            broken.wait(60)
        elif broken:
            return broken, "what it said"
        assert command.line.endswith(b"\n") and shutil.which("python3")
        with subprocess.Popen(command.words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
            assert process.stdin is not None and process.stdout is not None
            # As over the websocket: the end of the input is not told.
            process.stdin.write(command.line)
            process.stdin.flush()
            output = process.stdout.read().decode()
            return process.wait(), output

    # --- what the launches do

    async def find(self, handle: object) -> object:
        return handle

    def pods(self, watched: object) -> Sequence[PodRecord]:
        return self.job_pods

    def calls(self, namespace: str) -> PodCluster:
        return self

    # --- what the calls do

    async def get(self, kind: str, name: str) -> Mapping[str, Any] | None:
        return self.watchers.get(name)

    async def create(self, document: Mapping[str, Any]) -> ApiAnswer:
        if self.refusal is not None:
            return self.refusal
        name = document["metadata"]["name"]
        started = {"name": "main", "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}}}
        status = {"phase": "Running", "containerStatuses": [started]} if self.start_at_once else {"phase": "Pending"}
        self.watchers[name] = {**document, "status": status}
        return ApiAnswer(201, {})

    async def list(self, kind: str, selector: str) -> list[Mapping[str, Any]]:
        assert selector == "overspan.io/watcher=inst"
        if self.away:
            raise Unreachable("away")
        return list(self.watchers.values())

    async def discard(self, found: Mapping[str, Any], document: Mapping[str, Any]) -> None:
        del self.watchers[found["metadata"]["name"]]

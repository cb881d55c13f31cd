"""The supervisor of a group on the fake Slurm: the real lifecycle over a real run directory; programs are behaviours.

It is the batch script of an allocation. It ends with that; what it has not written then is for Slurm's verdict.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from pathlib import Path

from tests.fakes.slurm_controller import KILL, TERM, FakeSlurm
from tests.fakes.slurm_jobs import Behaviour, NativeJob

from overspan.adapters.slurm.observation.journals import JournalChunk, read_orders
from overspan.bridge.lifecycle.decision import decide
from overspan.bridge.lifecycle.reduction import reduce
from overspan.bridge.model import events
from overspan.bridge.model.documents import decode
from overspan.bridge.model.events import Event, event_to_document
from overspan.bridge.model.job import Job
from overspan.bridge.model.spec import TaskSpec

LOOK = 1.0
"""Seconds after which it looks for orders by itself."""
START = 0.05

Programs = Callable[[TaskSpec], Behaviour]
Key = tuple[str, int, int]
"""A node run: task, attempt, node."""


def is_supervisor(native: NativeJob) -> bool:
    """Whether the batch script is a group's supervisor."""
    return " slurm " in native.request.script.splitlines()[-1] and "/lib/supervisor-" in native.request.script


class FakeSupervisor:
    """One launch of a group in one run of a native job."""

    def __init__(
        self, slurm: FakeSlurm, native: NativeJob, programs: Programs, on_program: Callable[[FakeSupervisor, Key], None]
    ) -> None:
        folder, launch = shlex.split(native.request.script.splitlines()[-1])[-2:]
        self.slurm, self.native, self.programs, self.on_program = slurm, native, programs, on_program
        self.folder, self.run = Path(folder), native.run
        self.journal, self.orders = (self.folder / f"{name}.{launch}.jsonl" for name in ("journal", "orders"))
        self.job = decode(Job, json.loads((self.folder / f"plan.{launch}.json").read_text())["job"])
        self.launch, self.taken, self.running = int(launch), 0, set[Key]()
        self._write({"format": 1, "job": self.job.id, "launch": self.launch})
        parts = slurm.list_components(native.het_job) or [native]
        nodes = [node for part in parts for node in part.nodes]
        places = [(task.name, index) for task in self.job.spec.tasks for index in range(task.num_nodes)]
        members = tuple(
            (task, index, nodes[place % len(nodes)], "10.0.0.1", ()) for place, (task, index) in enumerate(places)
        )
        self._record(events.Granted(slurm.now, members))
        self._turn()

    @property
    def _lives(self) -> bool:
        return self.native.run == self.run and self.native.state == "RUNNING"

    def _later(self, seconds: float, call: Callable[[], None]) -> None:
        self.slurm.after(seconds, lambda: call() if self._lives else None)

    def _turn(self) -> None:
        data = self.orders.read_bytes() if self.orders.exists() else b""
        for number, event in read_orders(JournalChunk(len(data), data)):
            if number > self.taken:
                self.taken = number
                self._record(event, number)
        while not self.job.over and self.job.launch == self.launch:
            found = decide(self.job, self.slurm.now)
            if not found.events:
                self._later(LOOK, self._turn)
                return
            for event in found.events:
                self._record(event)
                self._act(event)
        self._write({"end": True})
        code = 0 if self.job.launch != self.launch else self.job.exit_code or 0
        self.slurm.after(0.0, lambda: self.slurm.end_script(self.native, self.run, code))

    def _record(self, event: Event, order: int = 0) -> None:
        self.job = reduce(self.job, event)
        self._write({**event_to_document(event), **({"order": order} if order else {})})

    def _write(self, document: dict[str, object]) -> None:
        with self.journal.open("a") as file:
            file.write(json.dumps(document) + "\n")

    def _act(self, event: Event) -> None:
        if isinstance(event, events.Launch):
            for node in range(self.job.spec_of(event.task).num_nodes):
                self.running.add((event.task, event.attempt, node))
                self._later(START, lambda key=(event.task, event.attempt, node): self._start(key))  # type: ignore[misc]
        elif isinstance(event, (events.Terminate, events.Kill)):
            grace = self.programs(self.job.spec_of(event.task)).on_term
            wait, signal = (0.0, KILL) if isinstance(event, events.Kill) else (grace, TERM)
            for key in [key for key in self.running if key[:2] == (event.task, event.attempt)]:
                if wait is not None:
                    self._later(wait, lambda key=key: self._end(key, 0, signal))  # type: ignore[misc]

    def _start(self, key: Key) -> None:
        task, attempt, node = key
        program = self.programs(self.job.spec_of(task))
        self.on_program(self, key)
        output = self.folder / "logs" / f"{task}.{attempt}.{node}"
        output.parent.mkdir(exist_ok=True)
        output.write_text(program.output)
        place = {"task": task, "node": node, "attempt": attempt, "run": 0, "stream": "output"}
        with (self.folder / "streams.jsonl").open("a") as file:
            file.write(json.dumps({**place, "path": str(output), "start": 0}) + "\n")
        self._record(events.NodeStarted(self.slurm.now, *key))
        if program.seconds is not None:
            self._later(program.seconds, lambda: self._end(key, program.code, program.signal))

    def _end(self, key: Key, code: int, signal: int) -> None:
        if key in self.running:
            self.running.remove(key)
            task, attempt, node = key
            self._record(events.NodeEnded(self.slurm.now, task, attempt, node, 0, code, signal))
            self._turn()

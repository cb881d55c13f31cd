"""The supervisor of one task of a set on the fake Slurm: it carries out orders, and journals what became of them."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

from tests.fakes.slurm_controller import KILL, TERM, FakeSlurm
from tests.fakes.slurm_jobs import NativeJob
from tests.fakes.slurm_supervisor import LOOK, START, Programs

from overspan.adapters.slurm.observation.journals import JournalChunk, read_orders
from overspan.bridge.model import events
from overspan.bridge.model.documents import decode
from overspan.bridge.model.events import Event, event_to_document
from overspan.bridge.model.job import Job


def is_set_supervisor(native: NativeJob) -> bool:
    """Whether the batch script is the supervisor of a set's task."""
    return " member " in native.request.script.splitlines()[-1] and "/lib/supervisor-" in native.request.script


class FakeSetSupervisor:
    """One native job of a set. Its task has one node here, and the job ends with the first attempt in it."""

    def __init__(self, slurm: FakeSlurm, native: NativeJob, programs: Programs) -> None:
        run, launch, self.task, first = shlex.split(native.request.script.splitlines()[-1])[-4:]
        self.slurm, self.native = slurm, native
        self.folder = Path(run) / "members" / self.task / first
        self.launch, self.taken, self.attempt = launch, 0, -1
        job = decode(Job, json.loads((self.folder / f"plan.{launch}.json").read_text())["job"])
        self.program = programs(job.spec_of(self.task))
        self._write({"format": 1, "job": job.id, "launch": int(launch)})
        member = (self.task, 0, native.nodes[0], "10.0.0.1", ())
        self._write(event_to_document(events.Granted(slurm.now, (member,))))
        self._turn()

    @property
    def _lives(self) -> bool:
        return self.native.state == "RUNNING" and not (self.folder / f"closed.{self.launch}").exists()

    def _turn(self) -> None:
        if not self._lives:
            return
        path = self.folder / f"orders.{self.launch}.jsonl"
        data = path.read_bytes() if path.exists() else b""
        for number, event in read_orders(JournalChunk(len(data), data)):
            if number > self.taken:
                self.taken = number
                self._write({**event_to_document(event), "order": number})
                self._act(event)
        self.slurm.after(LOOK, self._turn)

    def _act(self, event: Event) -> None:
        if isinstance(event, events.Launch):
            self.attempt = event.attempt
            self.slurm.after(START, self._start)
        elif isinstance(event, events.Kill):
            self._end(0, KILL)
        elif isinstance(event, events.Terminate) and self.program.on_term is not None:
            self.slurm.after(self.program.on_term, lambda: self._end(0, TERM))

    def _start(self) -> None:
        if self._lives:
            self._write(event_to_document(events.NodeStarted(self.slurm.now, self.task, self.attempt, 0)))
            if self.program.seconds is not None:
                self.slurm.after(self.program.seconds, lambda: self._end(self.program.code, self.program.signal))

    def _end(self, code: int, signal: int) -> None:
        if self._lives:
            self._write(
                event_to_document(events.NodeEnded(self.slurm.now, self.task, self.attempt, 0, 0, code, signal))
            )
            self._write({"end": True})
            (self.folder / f"closed.{self.launch}").touch()
            self.slurm.after(0.0, lambda: self.slurm.end_script(self.native, self.native.run, code or signal))

    def _write(self, document: dict[str, object]) -> None:
        with (self.folder / f"journal.{self.launch}.jsonl").open("a") as file:
            file.write(json.dumps(document) + "\n")

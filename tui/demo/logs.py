"""The logs of the lab's jobs: made when they are read, from the job's seed and how long it has run."""

from __future__ import annotations

from overspan.bridge.client.messages import LogPart, Stream, StreamKey
from overspan.bridge.model.errors import InvalidRequest, NotFound
from overspan.tui.demo.documents import find_paths
from overspan.tui.demo.lab import DemoLab
from overspan.tui.demo.outputs import GrowingLog, last_words
from overspan.tui.demo.records import DemoJob, DemoTask, RunOfTask

Address = tuple[int, int, int, int]
"""Job, task, attempt and node of a log."""


class LabLogs:
    """Reads logs as the daemon does. Everything goes to the output, as sbatch has it."""

    def __init__(self, lab: DemoLab) -> None:
        self._lab = lab
        self._known: dict[Address, GrowingLog] = {}

    def list(self, job: DemoJob, task: str, times: bool) -> list[Stream]:
        """The logs that a job has."""
        if job.is_array:
            return []
        found = []
        for offset, each in enumerate(job.tasks):
            for run in each.attempts if task in ("", each.wish.name) else ():
                for node in run.nodes if run.started_at is not None else ():
                    address = (job.id, offset, run.number, node.index)
                    size = len(self._print(each, run, address))
                    marks = self._mark(each, run, address, size) if times else None
                    path = find_paths(job, each.wish.name)[0]
                    found.append(Stream(each.wish.name, node.index, run.number, "output", path, size, "", marks))
        return found

    def read(self, job: DemoJob, key: StreamKey, offset: int, limit: int) -> LogPart:
        """Bytes of one log; a negative offset counts from the end. Raises NotFound."""
        place, task = self._find_task(job, key.task)
        begun = [run for run in task.attempts if run.started_at is not None]
        if not begun:
            raise NotFound(f"job {job.id} has not started, so it has no output", remedy="wait until it runs")
        run = begun[-1] if key.attempt is None else next((one for one in begun if one.number == key.attempt), None)
        node = key.node or 0
        if run is None or node >= len(run.nodes) or key.stream == "error":
            raise NotFound(f"job {job.id} has no such log", remedy="`span logs` lists those that there are")
        data = self._print(task, run, (job.id, place, run.number, node))
        begin = max(0, len(data) + offset) if offset < 0 else min(offset, len(data))
        path = find_paths(job, task.wish.name)[0]
        return LogPart(data[begin : begin + limit], begin, len(data), path, over=not run.live)

    @staticmethod
    def _find_task(job: DemoJob, name: str) -> tuple[int, DemoTask]:
        for offset, task in enumerate(job.tasks):
            if name in ("", task.wish.name):
                return offset, task
        names = ", ".join(task.wish.name for task in job.tasks)
        raise InvalidRequest(f"job {job.id} has no task {name!r}", remedy=f"its tasks: {names}")

    def _print(self, task: DemoTask, run: RunOfTask, address: Address) -> bytes:
        log = self._find_log(task, address)
        return log.read(self._find_age(run)) + (b"" if run.ended_at is None else b"\n" + last_words(run.life))

    def _find_log(self, task: DemoTask, address: Address) -> GrowingLog:
        if address not in self._known:
            self._known[address] = GrowingLog(task.wish.output, f"{self._lab.seed}/{address}")
        return self._known[address]

    def _find_age(self, run: RunOfTask) -> float:
        """For how long it has run, without the time for which it was suspended."""
        assert run.started_at is not None
        end = self._lab.now if run.ended_at is None else run.ended_at
        return end - run.started_at - run.suspended

    def _mark(self, task: DemoTask, run: RunOfTask, address: Address, size: int) -> tuple[tuple[float, int], ...]:
        begin = run.started_at or 0.0
        marks = self._find_log(task, address).list_marks(self._find_age(run))
        end = self._lab.now if run.ended_at is None else run.ended_at
        return (*((begin + at, part) for at, part in marks), (end, size))

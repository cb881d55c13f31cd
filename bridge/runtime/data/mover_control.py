"""The supervisor's hand on the data mover of a launch: started when it is needed, and again when it was killed."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Optional, Protocol

from overspan.bridge.model import events
from overspan.bridge.model.events import Event
from overspan.bridge.model.job import Job
from overspan.bridge.model.names import one_line
from overspan.bridge.runtime.core.allocation import own_program
from overspan.bridge.runtime.core.run_directory import RunDirectory
from overspan.bridge.runtime.data.requests import ABANDON, END, FETCH, FLUSH, MOUNT, DataAnswer, DataRequest, MoverFiles

_FIRST_LOOK, _LAST_LOOK = 0.02, 0.25
_TELL_SECONDS = 5.0
"""How often the bytes that are left are told."""
_START_SECONDS = 1.0
"""Between two starts of a mover that ends by itself."""
_END_SECONDS = 5.0
"""How long a mover has to end before it is killed."""
_WORDS = 200
NETWORK_VARIABLES = ("SSL_CERT_FILE", "SSL_CERT_DIR", "HTTPS_PROXY", "https_proxy", "NO_PROXY", "no_proxy")
"""What says how servers are reached, and whom to trust."""
_KEPT = ("PATH", "HOME", "LANG", "TMPDIR", *NETWORK_VARIABLES)
"""What a mover needs of the supervisor's environment."""


class MoverProcess(Protocol):
    """The process of a mover; the next one takes up what it left."""

    def lives(self) -> bool:
        """Whether it lives."""

    def start(self, argv: Sequence[str], log: str) -> None:
        """Start another one. Raises OSError."""

    def kill(self) -> None:
        """Have it ended at once."""


def keep_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """What a mover gets of a supervisor's environment."""
    return {name: environment[name] for name in _KEPT if name in environment}


class DataMover:
    """The mover of one launch, as its supervisor has it. `root` is the folder that has the data and the stores."""

    def __init__(self, directory: RunDirectory, root: str, process: MoverProcess) -> None:
        self._directory = directory
        self._root = root
        self._files = MoverFiles(directory)
        self._process = process
        self._asked: set[DataRequest] = set()
        self._answers: dict[DataRequest, DataAnswer] = {}
        self._start_at = 0.0
        self._told_at: dict[DataRequest, float] = {}
        self._told: dict[DataRequest, tuple[int, str]] = {}
        self._pause = _FIRST_LOOK
        self._look_at: Optional[float] = None
        self._kill_at: Optional[float] = None
        self.ended = not os.path.isdir(self._files.folder)
        """Whether there is no mover, because no task needs one yet or any more."""

    def fetch(self, task: str, attempt: int, now: float, *, mounted: bool = False) -> Optional[DataAnswer]:
        """Have a task's data brought here, without what is `mounted`; None while that goes on. Raises OSError."""
        return self._ask(DataRequest(MOUNT if mounted else FETCH, task, attempt), now)

    def flush(self, job: Job, now: float) -> list[Event]:
        """Have what attempts have written sent; the news of that."""
        news: list[Event] = []
        for task in job.tasks:
            attempt = task.current
            if attempt is None or not attempt.flushing:
                continue
            request = DataRequest(FLUSH, task.name, attempt.number)
            try:
                answer = self._ask(request, now)
            except OSError:
                # A full disk: the time-out counts all the same.
                answer = None
            if answer is not None:
                error = one_line(answer.error, _WORDS)
                news.append(events.Flushed(now, task.name, attempt.number, error, answer.left))
            else:
                news += self._tell(request, now)
        return news

    def send_all(self, job: Job, now: float) -> bool:
        """Have all that was written sent, also while programs run; whether it was, or there is no mover."""
        if self.ended:
            return True
        waits = False
        for task in job.tasks:
            if task.current is not None and job.spec_of(task.name).flushes:
                waits = self._ask(DataRequest(FLUSH, task.name, task.current.number), now) is None or waits
        return not waits

    def abandon(self, task: str, attempt: int) -> None:
        """Have nothing more of an attempt sent."""
        try:
            self._files.ask(DataRequest(ABANDON, task, attempt))
        except OSError:
            pass

    def end(self, now: float) -> bool:
        """Have the mover end; whether it has."""
        if self.ended:
            return True
        request = DataRequest(END)
        if request not in self._asked:
            self._kill_at = now + _END_SECONDS
            try:
                self._files.ask(request)
                self._asked.add(request)
            except OSError:
                pass
        self.ended = not self._process.lives()
        if not self.ended and self._kill_at is not None and now >= self._kill_at:
            self._process.kill()
        self._look_again(now)
        return self.ended

    def move_clock(self, seconds: float) -> None:
        """The machine's clock was set by that much: what is due stays as far away as it was."""
        self._start_at += seconds
        self._told_at = {request: at + seconds for request, at in self._told_at.items()}
        if self._look_at is not None:
            self._look_at += seconds
        if self._kill_at is not None:
            self._kill_at += seconds

    @property
    def wake_at(self) -> Optional[float]:
        """When to look for answers again; None while no request is open."""
        waits = self._asked - self._answers.keys()
        return self._look_at if waits and not self.ended else None

    def _ask(self, request: DataRequest, now: float) -> Optional[DataAnswer]:
        if request not in self._asked:
            self._files.make()
            self._files.ask(request)
            self._asked.add(request)
            self._pause = _FIRST_LOOK
            self.ended = False
        if request not in self._answers:
            for answer in self._files.read_answers():
                self._answers[answer.request] = answer
                self._pause = _FIRST_LOOK
        if request not in self._answers:
            self._insist(now)
            self._look_again(now)
        return self._answers.get(request)

    def _look_again(self, now: float) -> None:
        if self._look_at is None or self._look_at <= now:
            self._look_at = now + self._pause
            self._pause = min(self._pause * 1.5, _LAST_LOOK)

    def _tell(self, request: DataRequest, now: float) -> list[Event]:
        """How far a flush is, every few seconds where that has changed."""
        if now - self._told_at.get(request, now - _TELL_SECONDS + 1) < _TELL_SECONDS:
            self._told_at.setdefault(request, now - _TELL_SECONDS + 1)
            return []
        self._told_at[request] = now
        progress = self._files.read_progress(request.task, request.attempt)
        facts = None if progress is None else (progress.left, one_line(progress.trouble, _WORDS))
        if facts is None or self._told.get(request) == facts:
            return []
        self._told[request] = facts
        return [events.Flushing(now, request.task, request.attempt, *facts)]

    def _insist(self, now: float) -> None:
        """Start a mover where none lives."""
        if now < self._start_at or self._process.lives():
            return
        self._start_at = now + _START_SECONDS
        directory = self._directory
        words = (*own_program(), "data", self._root, directory.path, str(directory.launch))
        self._process.start(words, self._files.log)

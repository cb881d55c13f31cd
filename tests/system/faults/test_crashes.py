"""kill -9 of the daemon, of supervisors and of their fork server. Rows MJ19 and CS02 (local) of docs/acceptance.md.

Every job appends its own word to one file with O_APPEND, so each start of user code is a line there.
"""

from __future__ import annotations

import json
import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tests.system.kills import KILLS
from tests.system.processes import find, is_daemon

JOBS = 3 * KILLS
GROUP_EVERY = 6
"""Each sixth job is a group: in turn of tasks that follow each other, and of tasks that run beside each other."""
CODES = (0, 0, 0, 3, 77)


@dataclass(frozen=True)
class Answered:
    """A submission whose id was printed: the words its tasks write, and the exit code that it has to have."""

    id: int
    words: tuple[str, ...]
    code: int


@dataclass
class Load:
    """Submits jobs with the real commands until enough were answered; a submission that failed may or may not run.

    It goes on until there were enough kills too: without commands nobody starts a daemon that was killed.
    """

    span: Any
    seed: int
    disturbed: Callable[[], bool]
    answered: list[Answered] = field(default_factory=list)
    tried: list[str] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)
    failure: str = ""

    @property
    def file(self) -> Path:
        """Where the jobs write."""
        folder: Path = self.span.folder
        return folder / "starts"

    def run(self) -> None:
        """Submit from two threads."""
        threads = [threading.Thread(target=self._submit_many, args=(part,)) for part in range(2)]
        for thread in threads:
            thread.start()
        self.threads = threads

    @property
    def busy(self) -> bool:
        """Whether submissions are still being made."""
        return any(thread.is_alive() for thread in self.threads)

    def _submit_many(self, part: int) -> None:
        chance = random.Random(f"{self.seed}.{part}")
        try:
            for number in range(100 * JOBS):
                if len(self.answered) >= JOBS and self.disturbed():
                    return
                group = number % GROUP_EVERY == 0
                self._submit(f"{part}-{number}", chance.choice(CODES), group, number % (2 * GROUP_EVERY) == 0)
        except AssertionError as error:
            self.failure = str(error)

    def _submit(self, word: str, code: int, group: bool, beside: bool) -> None:
        words = (f"{word}.a", f"{word}.b") if group else (word,)
        with self.lock:
            self.tried += words
        if group:
            file = self.span.folder / f"{word}.yaml"
            file.write_text(group_of(word, self.file, code, beside))
            done = self.span.run("submit", str(file), "--parsable", check=False)
        else:
            done = self.span.run("sbatch", "--parsable", "--wrap", line_of(word, self.file, code), check=False)
        if done.returncode == 0:
            with self.lock:
                self.answered.append(Answered(int(done.stdout), words, code))
        elif not done.stderr or done.returncode == 2:
            self.failure = f"exit code {done.returncode}: {done.stderr}"

    def check(self) -> None:
        """Each answered job ran once and ended truly; nothing at all ran twice."""
        assert not self.failure, self.failure
        starts = Counter(self.file.read_text().split())
        assert {word: count for word, count in starts.items() if count > 1} == {}
        assert set(starts) <= set(self.tried)
        assert len({job.id for job in self.answered}) == len(self.answered) >= JOBS
        for job in self.answered:
            self._check_job(job, starts)

    def _check_job(self, job: Answered, starts: Counter[str]) -> None:
        shown = self.span.job(job.id)
        told = json.dumps(shown, indent=1)
        assert [starts[word] for word in job.words] == [1] * len(job.words), f"{job}\n{told}"
        assert shown["state"] == ("FAILED" if job.code else "COMPLETED"), f"{job}\n{told}"
        assert shown["exit_code"] == job.code, f"{job}\n{told}"
        assert all(len(task["attempts"]) == 1 for task in shown["tasks"]), told


def line_of(word: str, file: Path, code: int, other: str = "") -> str:
    """A command that says once that it ran, and ends with a code, not before another one has said so too."""
    met = f"touch {file}.{word}; until test -e {file}.{other}; do sleep 0.02; done; " if other else ""
    return f"echo {word} >> {file}; {met}sleep 0.0{len(word)}; exit {code}"


def group_of(word: str, file: Path, code: int, beside: bool) -> str:
    """A group of two tasks, of which the second one ends with the code: behind the first, or while both live."""
    first, second = f"{word}.a", f"{word}.b"
    others, execution = ((second, first), "parallel") if beside else (("", ""), "serial")
    return (
        f"name: g{word}\nexecution: {execution}\n"
        f"---\nname: a\nresources: {{cpus: 0.1}}\nrun: {line_of(first, file, 0, others[0])}\n"
        f"---\nname: b\nresources: {{cpus: 0.1}}\nrun: {line_of(second, file, code, others[1])}\n"
    )


def is_supervisor(folder: Path) -> bool:
    """Whether this is a supervisor."""
    return (folder / "comm").read_bytes().strip() == b"span-supervisor"


def is_fork_server(folder: Path) -> bool:
    """Whether supervisors are forked from this."""
    return (folder / "comm").read_bytes().strip() == b"span-forkserver"


class Killer:
    """Kills one kind of process at random moments."""

    def __init__(self, state: Path, seed: int, kinds: tuple[Callable[[Path], bool], ...]) -> None:
        self.state = state
        self.chance = random.Random(seed)
        self.kinds = kinds
        self.kills = 0

    def run(self, busy: Callable[[], bool], most: int) -> None:
        """Kill until there were enough kills, or there is nothing left to disturb."""
        while self.kills < most and busy():
            # The moment of a kill is the test's chance, not a wait for anything.
            time.sleep(self.chance.uniform(0.0, 0.9))
            pids = find(self.state, self.chance.choice(self.kinds))
            if pids:
                self._kill(self.chance.choice(pids))

    def _kill(self, pid: int) -> None:
        try:
            os.kill(pid, signal.SIGKILL)
            self.kills += 1
        except ProcessLookupError:
            pass


def settle(span: Any, load: Load) -> None:
    """Wait for the end of every job."""
    for thread in load.threads:
        thread.join(300)
    assert not load.busy
    span.wait_until(lambda: not span.run("squeue", "--noheader").stdout.strip(), 90, "all jobs to end")


def test_the_daemon_is_killed_at_random_moments(span: Any) -> None:
    killer = Killer(span.state, 1, (is_daemon,))
    load = Load(span, 1, lambda: killer.kills >= KILLS)
    load.run()
    killer.run(lambda: load.busy, KILLS)
    settle(span, load)
    load.check()
    assert killer.kills == KILLS


@pytest.mark.parametrize(
    ("seed", "kinds"),
    [(2, (is_supervisor,)), (3, (is_supervisor, is_daemon, is_fork_server)), (4, (is_fork_server, is_supervisor))],
    ids=["supervisors", "everything", "fork servers"],
)
def test_supervisors_killed_at_random_moments(span: Any, seed: int, kinds: tuple[Callable[[Path], bool], ...]) -> None:
    killer = Killer(span.state, seed, kinds)
    load = Load(span, seed, lambda: killer.kills >= KILLS)
    load.run()
    killer.run(lambda: load.busy, KILLS)
    settle(span, load)
    load.check()
    assert killer.kills == KILLS


def without_start(line: str) -> str:
    """A journal's line; one that tells of a start as something of the same length that means nothing."""
    if "NodeStarted" not in line:
        return f"{line}\n"
    nothing = {"event": "Queued", "at": 1.0, "reason": ""}
    short = len(line) - len(json.dumps(nothing, separators=(",", ":")))
    return json.dumps({**nothing, "reason": "x" * short}, separators=(",", ":")) + "\n"


def test_work_that_runs_is_not_given_up_when_no_supervisor_starts(span: Any) -> None:
    """Also where the last supervisor died between the start of the program and its line in the journal."""
    go = span.folder / "go"
    job = span.wrap(f"echo up; while ! test -e {go}; do sleep 0.05; done; echo done")
    span.wait_until(lambda: "up" in span.log(job), 20, "the start")
    span.until(job, "RUNNING")
    span.kill_daemon()
    supervisors = find(span.state, is_supervisor)
    assert supervisors
    for pid in supervisors:
        os.kill(pid, signal.SIGKILL)
    span.wait_until(lambda: not find(span.state, is_supervisor), 10, "the supervisor's end")
    journal = next(span.state.glob(f"clusters/local/runs/{job}/journal.0.jsonl"))
    journal.write_text("".join(map(without_start, journal.read_text().splitlines())))
    broken = span.folder / "python"
    broken.write_text(f"#!/bin/sh\necho try >> {span.folder}/tries\nexit 1\n")
    broken.chmod(0o755)
    good = span.config.read_text()
    span.config.write_text(good.replace("kind: local", f"kind: local, python: {broken}"))
    span.run("ping")
    tries = span.folder / "tries"
    try:
        span.wait_until(lambda: tries.exists() and len(tries.read_text().split()) >= 8, 40, "eight tries")
        assert [span.job(job)["state"] for _ in range(5)] == ["RUNNING"] * 5
    except AssertionError:
        # Nobody would end the work of a launch that was given up.
        go.touch()
        raise
    span.kill_daemon()
    span.config.write_text(good)
    span.run("ping")
    go.touch()
    assert span.run("wait", str(job)).returncode == 0
    assert span.log(job) == "up\ndone\n"

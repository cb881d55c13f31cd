"""`span top` on a terminal: to the first frame, from key to paint, and what it takes while it shows changes."""

from __future__ import annotations

import itertools
import random
import statistics
import sys
import threading
import time

from benchmarks.installation import Installation, submit_held, until
from benchmarks.rows import Bar, Row
from benchmarks.terminal import LINES, Terminal
from overspan.bridge.client import CancelOrder

JOBS = 10_000
MANY = 100_000
KEYS = 40
SECONDS = 10.0
VISIBLE = LINES - 6
"""Jobs that are in sight at least; the frame takes the other lines."""


def top() -> list[Row]:
    """10,000 waiting jobs, with nothing else to do, and with changes."""
    with Installation() as span:
        submit_held(span, JOBS)
        rows = []
        with Terminal([span.program, "top"], span.environment) as terminal:
            # The newest stands on top: this one is the last in sight.
            terminal.wait_for(f" {JOBS - VISIBLE + 1} ")
            first = terminal.processor * 1000
            rows.append(Row("`span top`, 10,000 jobs: processor to the first frame", first, Bar(starts=60), "ms"))
            terminal.wait_quiet()
            rows.append(Row("`span top`, 10,000 jobs: memory (PSS)", terminal.memory, Bar(size=80), "MB"))
            rows += [*_time_keys(terminal, "10,000 jobs"), *_watch_idle(terminal), *_watch_changes(span, terminal)]
        return rows


def _time_keys(terminal: Terminal, what: str) -> list[Row]:
    moved = statistics.median(terminal.time_key(key) for key in itertools.islice(itertools.cycle("jjk"), KEYS))
    paged = statistics.median(terminal.time_key("\x06") for _ in range(KEYS // 4))
    return [
        Row(f"`span top`, {what}: key to paint", moved, Bar(starts=3), "ms"),
        Row(f"`span top`, {what}: page down to paint", paged, Bar(starts=6), "ms"),
    ]


def _watch_idle(terminal: Terminal) -> list[Row]:
    terminal.wait_quiet()
    used, written = _watch(terminal)
    return [
        Row("`span top`, nothing runs: processor", used, Bar(starts=0.2), "% of a core"),
        Row("`span top`, nothing runs: written", written, Bar(size=0), "KB/s"),
    ]


def _watch_changes(span: Installation, terminal: Terminal) -> list[Row]:
    terminal.press("g")
    done = threading.Event()
    changes = _Changes(span, done)
    changes.start()
    try:
        until(lambda: changes.count > 100, 60)
        count, begun = changes.count, time.perf_counter()
        used, written = _watch(terminal)
        rate = (changes.count - count) / (time.perf_counter() - begun)
    finally:
        done.set()
        changes.join()
    return [
        Row("`span top`, changes while it was watched, for comparison", rate, None, "/s"),
        Row("`span top`, 100 changes a second: processor", used, Bar(starts=5), "% of a core"),
        Row("`span top`, 100 changes a second: written", written, Bar(size=2), "KB/s"),
    ]


class _Changes(threading.Thread):
    """Changes jobs, a hundred a second: gives those in sight other names, and cancels others, in turn."""

    def __init__(self, span: Installation, done: threading.Event) -> None:
        super().__init__(daemon=True)
        self._span = span
        self._done = done
        self.count = 0

    def run(self) -> None:
        """Change one after another, each at its time."""
        pick, begun = random.Random(1), time.monotonic()
        with self._span.client() as client:
            while not self._done.wait(max(0.0, begun + self.count / 100 - time.monotonic())):
                if self.count % 2:
                    client.update(str(JOBS - pick.randrange(VISIBLE)), {"name": f"n{self.count}"})
                else:
                    client.cancel(CancelOrder((str(self.count // 2 + 1),)))
                self.count += 1


def _watch(terminal: Terminal) -> tuple[float, float]:
    """Per cent of a core, and KB a second, over some seconds."""
    used, written, begun = terminal.processor, terminal.written, time.perf_counter()
    time.sleep(SECONDS)
    seconds = time.perf_counter() - begun
    return (terminal.processor - used) / seconds * 100, (terminal.written - written) / seconds / 1024


def top_running() -> list[Row]:
    """A screen full of running jobs, whose times change each second."""
    with Installation() as span, span.client() as client:
        for _ in range(VISIBLE):
            client.submit({"name": "one", "run": "sleep 600", "resources": {"cpus": 0.1}})
        until(lambda: span.run("squeue", "--noheader", "-t", "R").count("\n") == VISIBLE, 120)
        with Terminal([span.program, "top"], span.environment) as terminal:
            terminal.wait_for(f" {VISIBLE} ")
            # The first screens are no part of it, and times that change each second never let it be quiet.
            time.sleep(3)
            used, written = _watch(terminal)
            return [
                Row("`span top`, a screen of running jobs: processor", used, Bar(starts=2), "% of a core"),
                Row("`span top`, a screen of running jobs: written", written, Bar(size=1), "KB/s"),
            ]


def top_many() -> list[Row]:
    """100,000 jobs from a source in the same process: what the terminal UI itself takes."""
    with Installation() as span, Terminal([sys.executable, "-m", "benchmarks.many_jobs"], span.environment) as terminal:
        terminal.wait_for(f" {MANY - VISIBLE + 1} ")
        first = terminal.processor * 1000
        terminal.wait_quiet()
        return [
            Row("`span top`, 100,000 jobs: processor to the first frame", first, Bar(starts=300), "ms"),
            Row("`span top`, 100,000 jobs: memory (PSS)", terminal.memory, Bar(size=300), "MB"),
            *_time_keys(terminal, "100,000 jobs"),
        ]

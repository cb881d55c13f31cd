"""Measures what 10,000 checkpoints in one watched folder cost the daemon, and how soon a new one is evaluated."""

from __future__ import annotations

import os
import statistics
import time
from pathlib import Path
from typing import Any

from benchmarks.installation import Installation, processor_seconds, proportional_memory, until
from benchmarks.rows import Bar, Row
from overspan.bridge.client.client import Client

COUNT = 10_000
TRIALS = 7
SECONDS = 10.0
_WATCH = """
name: train
on_checkpoint:
  name: quality
  path: {folder}
  pattern: "step_{{step:int}}"
  ready: {{marker: DONE}}
  select: {{every: {every}}}
  max_parallel: {trials}
  task: {{run: "true", resources: {{cpus: 0.1}}}}
resources: {{cpus: 0.1}}
run: sleep 600
"""


def checkpoints() -> list[Row]:
    """All but a few are left out by the selection, so that what is measured is looking at them."""
    with Installation() as span, span.client() as client:
        folder = Path(span.folder, "run")
        for step in range(1, COUNT + 1):
            _write(folder, step)
        pids = span.processes()
        before = proportional_memory(pids)
        job = client.submit(_WATCH.format(folder=folder, every=COUNT, trials=TRIALS + 2))
        until(lambda: len(_list(client, job.id)) == 1, 120)
        rest = processor_seconds(pids)
        time.sleep(SECONDS)
        idle = (processor_seconds(pids) - rest) / SECONDS * 100
        memory = proportional_memory(pids) - before
        delays = []
        for trial in range(2, TRIALS + 2):
            made = time.time()
            _write(folder, trial * COUNT)
            until(lambda trial=trial: len(_list(client, job.id)) == trial, 60)
            delays.append((_list(client, job.id)[-1]["submitted_at"] - made) * 1000)
        span.run("scancel", str(job.id))
    title = f"{COUNT:,} checkpoints in a watched folder"
    return [
        Row(f"{title}: the daemon's memory for them (PSS)", memory, Bar(size=50), "MB"),
        Row(f"{title}: the daemon's processor, nothing new", idle, Bar(starts=5), "% of a core"),
        Row(f"{title}: a complete one to its evaluation's submission", statistics.median(delays), Bar(starts=20), "ms"),
    ]


def _write(folder: Path, step: int) -> None:
    """A checkpoint that appears as a whole."""
    fresh = folder.parent / f"new_{step}"
    fresh.mkdir(parents=True)
    (fresh / "DONE").touch()
    folder.mkdir(exist_ok=True)
    os.rename(fresh, folder / f"step_{step}")


def _list(client: Client, job: int) -> list[dict[str, Any]]:
    """The submitted evaluations, in the order of their steps."""
    watches = client.evals(str(job))
    found = [each for watch in watches for each in watch["evaluations"] if each["submitted_at"] is not None]
    return sorted(found, key=lambda each: each["step"])

"""A damaged run directory through the commands: the job ends, ping names it, and what it held is free again."""

from __future__ import annotations

import json
import os
import shutil
import signal
from pathlib import Path
from typing import Any

from overspan.bridge.runtime.core.live_processes import find_live_processes

GROUP = """
name: pair
execution: parallel
primary_tasks: [trainer]
---
name: trainer
resources: {{cpus: 0.1}}
run: |
  trap 'echo asked >> {folder}/trainer.asked; exit 0' TERM
  echo ran > {folder}/trainer.ran
  while :; do sleep 0.05; done
---
name: helper
resources: {{cpus: 0.1}}
run: |
  echo ran > {folder}/helper.ran
  while :; do sleep 0.05; done
"""


def test_a_group_with_a_damaged_journal_ends_with_its_auxiliaries(span: Any) -> None:
    job = span.submit(GROUP.format(folder=span.folder))
    for name in ("trainer", "helper"):
        span.wait_until(lambda name=name: (span.folder / f"{name}.ran").exists(), 30, "the work")
    root = span.state / "clusters" / "local"
    with (root / "runs" / str(job) / "journal.0.jsonl").open("a") as file:
        file.write("GARBAGE {{{\n")
    os.kill(json.loads((root / "hosts" / "groups-0" / "lock").read_text())["pid"], signal.SIGKILL)
    shown = span.until(job, "FAILED", timeout=60)
    assert shown["reason"] == "SystemFailure"
    assert not any(find_live_processes(str(root / "runs" / str(job))))
    assert (span.folder / "trainer.asked").read_text() == "asked\n"
    assert "journal.0.jsonl, line " in span.run("ping", check=False).stdout


def test_a_job_whose_folder_is_removed_ends_and_is_named_by_ping(span: Any) -> None:
    job = span.wrap(f"echo ran > {span.folder}/ran; while :; do sleep 0.05; done")
    span.until(job, "RUNNING")
    span.wait_until(lambda: (span.folder / "ran").exists(), 30, "the work")
    shutil.rmtree(Path(span.state) / "clusters" / "local" / "runs" / str(job))
    shown = span.until(job, "FAILED", timeout=60)
    assert shown["reason"] == "SystemFailure"
    ping = span.run("ping", check=False)
    assert ping.returncode == 1 and f"job {job} cannot be looked after" in ping.stdout + ping.stderr
    assert "cannot be looked after" in (span.state / "daemon.log").read_text()
    # Its CPU is free.
    span.until(span.wrap("true", "-c", "1"), "COMPLETED")


def test_a_cancel_of_a_job_whose_folder_is_removed_counts(span: Any) -> None:
    job = span.wrap(f"echo ran > {span.folder}/ran; while :; do sleep 0.05; done")
    span.until(job, "RUNNING")
    span.wait_until(lambda: (span.folder / "ran").exists(), 30, "the work")
    shutil.rmtree(Path(span.state) / "clusters" / "local" / "runs" / str(job))
    span.run("scancel", str(job))
    span.until(job, "CANCELLED", timeout=60)

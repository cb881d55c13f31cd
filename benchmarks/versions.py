"""Measures other checkouts beside this one, in turn, by processor time: `python -m benchmarks.versions CHECKOUT...`.

Each checkout has its own `.venv` (`make environment`). Prints the ratio of this one's median to each other one's.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import statistics
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.installation import Installation, find_daemon, processor_seconds, until

CONFIG = "clusters:\n  local: {kind: local, cpus: 1, memory: 4T}\n"
"""One processor, which the first job keeps: all others wait in the cluster's queue."""

_LONGEST_START = 120
_SUBMIT = """
import sys
from concurrent.futures import ThreadPoolExecutor
from overspan import Client

def submit(count):
    with Client() as client:
        for _ in range(count):
            client.submit({"name": "waiting", "run": "true", "resources": {"cpus": 1}})

with ThreadPoolExecutor(8) as threads:
    list(threads.map(submit, [int(sys.argv[1]) // 8] * 8))
"""


def main() -> None:
    """Measure the cases, and print a table of seconds and ratios."""
    parser = argparse.ArgumentParser(description="Compare this checkout's processor time with that of others.")
    parser.add_argument("others", nargs="+", type=Path, metavar="CHECKOUT", help="a folder with a .venv of its own")
    parser.add_argument("--runs", type=int, default=15, help="counted runs of each command (default: 15)")
    parser.add_argument("--jobs", type=int, default=10_000, help="jobs that wait (default: 10000); 0: commands alone")
    chosen = parser.parse_args()
    programs = [sys.executable, *(str(other.resolve() / ".venv/bin/python") for other in chosen.others)]
    print("| processor time | this one | " + " | ".join(f"{other.name}, ratio" for other in chosen.others) + " |")
    print("|---|---|" + "---|" * len(chosen.others), flush=True)
    with contextlib.ExitStack() as stack:
        spans = [stack.enter_context(Installation(CONFIG, program)) for program in programs]
        for span in spans:
            span.run("sbatch", "--wrap", "sleep 3000")
        _measure_commands(spans, chosen.runs)
        if chosen.jobs:
            _measure_queue(spans, chosen.runs, chosen.jobs)


def _measure_commands(spans: Sequence[Installation], runs: int) -> None:
    """Commands on an empty queue. The arrays are removed behind them."""
    _print_row("`span --help`", spans, _command("--help"), runs)
    _print_row("`span sbatch`", spans, _command("sbatch", "--hold", "--wrap", "true"), runs)
    array = _command("sbatch", "--hold", "--array=1-10000", "--wrap", "true")
    _print_row("`span sbatch`, an array of 10,000", spans, array, runs)
    for span in spans:
        span.run("scancel", "--me", "-t", "PENDING")


def _measure_queue(spans: Sequence[Installation], runs: int, jobs: int) -> None:
    """A queue of many jobs: made, listed, read by a new daemon, and cancelled."""
    few = jobs // 10
    _print_row(f"the daemon for {few:,} submissions", spans, _submissions(few), 1)
    _print_row(f"`span squeue`, {few:,} jobs", spans, _command("squeue"), runs)
    _print_row(f"the daemon for {jobs - few:,} submissions more", spans, _submissions(jobs - few), 1)
    _print_row(f"`span squeue`, {jobs:,} jobs", spans, _command("squeue"), runs)
    _print_row(f"`span squeue -o`, {jobs:,} jobs", spans, _command("squeue", "-o", "%i %j %T %M %R"), runs)
    _print_row(f"the daemon's start, {jobs:,} jobs waiting", spans, _time_start, 5)
    cancel = ("scancel", "--me", "-t", "PENDING")
    _print_row(
        f"the daemon for a cancel of {jobs:,} jobs", spans, lambda span: _time_daemon(span, span.program, *cancel), 1
    )
    _print_row(f"`span sacct`, {jobs:,} ended jobs", spans, _command("sacct", "-X"), runs)


def _command(*words: str) -> Callable[[Installation], float]:
    return lambda span: _time_command(span, [span.program, *words])


def _submissions(count: int) -> Callable[[Installation], float]:
    return lambda span: _time_daemon(span, span.python, "-c", _SUBMIT, str(count))


def _print_row(name: str, spans: Sequence[Installation], measure: Callable[[Installation], float], runs: int) -> None:
    times: list[list[float]] = [[] for _ in spans]
    for run in range(runs + (runs > 1)):
        for span, found in zip(spans, times, strict=True):
            used = measure(span)
            if run or runs == 1:
                found.append(used)
    own, *others = [statistics.median(found) for found in times]
    print(f"| {name} | {own:.3f} s | " + " | ".join(f"{own / other:.2f}" for other in others) + " |", flush=True)


def _time_command(span: Installation, words: list[str]) -> float:
    """Processor seconds of a command and of what it waited for."""
    output = [(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)]
    pid = os.posix_spawn(words[0], words, span.environment, file_actions=output)
    _, status, usage = os.wait4(pid, 0)
    if status:
        raise RuntimeError(f"{' '.join(words[:3])} ended with status {status}")
    return usage.ru_utime + usage.ru_stime


def _time_daemon(span: Installation, *words: str) -> float:
    """Processor seconds of the daemon while a command runs."""
    pids = [find_daemon(span)]
    before = processor_seconds(pids)
    subprocess.run(words, env=span.environment, check=True, stdout=subprocess.DEVNULL)
    span.run("squeue")
    return processor_seconds(pids) - before


def _time_start(span: Installation) -> float:
    """Processor seconds of a new daemon to its first answer, after the one before was killed."""
    os.kill(find_daemon(span), signal.SIGKILL)
    until(lambda: span.run("squeue", "--noheader", "-j", "1"), _LONGEST_START)
    return processor_seconds([find_daemon(span)])


if __name__ == "__main__":
    main()

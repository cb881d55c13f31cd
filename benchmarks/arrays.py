"""Arrays and many jobs by Slurm's verbs: submission, listing, cancel, and how full a throttle keeps its slots."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

from benchmarks.installation import Installation, until, whole_process
from benchmarks.rows import Bar, Row

FORMAT = "%i|%P|%j|%u|%T|%M|%l|%D|%R|%Q|%E|%Z"
SLOTS = 20
ELEMENTS = 1000


def arrays() -> list[Row]:
    """An array of 10,000 submitted, listed split and collapsed, and cancelled."""
    with Installation() as span:
        words = [span.program, "sbatch", "--hold", "--array=0-9999", "--wrap", "true"]
        submitted = whole_process(words, span.environment, runs=5)
        listed = whole_process([span.program, "squeue", "-o", FORMAT], span.environment)
        split = whole_process([span.program, "squeue", "-r", "-o", FORMAT], span.environment, runs=3)
        return [
            Row("an array of 10,000 submitted", submitted / 1000, Bar(starts=30), "s"),
            Row("`span squeue -o`, 6 arrays of 10,000", listed, Bar(starts=15), "ms"),
            Row("`span squeue -r -o`, 60,000 waiting elements", split, Bar(starts=100), "ms"),
        ]


def mixed() -> list[Row]:
    """`squeue -o` over 10,000 rows of every kind, and `scancel` of 1,000 waiting jobs by id."""
    with Installation() as span, span.client() as client:
        text = "name: g{}\nexecution: parallel\nhold: true\n---\nname: a\nrun: x\n---\nname: b\nrun: x\n"
        first = client.submit({"name": "held", "run": "true"}, hold=True).id
        ids = [str(client.submit({"name": "held", "run": "true"}, hold=True).id) for _ in range(1000)]
        for number in range(500):
            client.submit(text.format(number))
            client.submit({"name": "sweep", "run": "true", "array": "0-99:7%5"}, hold=True)
        for number in range(7000):
            client.submit({"name": f"n{number}", "run": "true", "needs": f"afterok:{first}"}, hold=number % 2 == 0)
        words = [span.program, "squeue", "-o", FORMAT]
        rows = subprocess.run(words, env=span.environment, capture_output=True, text=True).stdout.count("\n") - 1
        listed = whole_process(words, span.environment)
        begun = time.perf_counter()
        span.run("scancel", *ids)
        cancelled = time.perf_counter() - begun
        return [
            Row(f"`span squeue -o`, {rows:,} mixed rows", listed, Bar(starts=15), "ms"),
            Row("`span scancel` of 1,000 waiting jobs by id", cancelled, Bar(starts=100), "s"),
        ]


def throttle() -> list[Row]:
    """The share of the slots' time that a throttled array of one-second elements leaves unused."""
    with Installation() as span:
        times = Path(span.folder, "times")
        command = f'begun=$(date +%s.%N); sleep 1; echo "$begun $(date +%s.%N)" >> {times}'
        array = span.run("sbatch", "--parsable", f"--array=1-{ELEMENTS}%{SLOTS}", "--wrap", command, folder=span.folder)
        until(lambda: times.exists() and times.read_text().count("\n") == ELEMENTS, 300)
        spans = [tuple(map(float, line.split())) for line in times.read_text().splitlines()]
        span.run("wait", array.strip())
    used = sum(end - begin for begin, end in spans)
    whole = max(end for _, end in spans) - min(begin for begin, _ in spans)
    # Of each slot, which has one element a second.
    idle = (1 - used / SLOTS / whole) * 100
    return [Row(f"throttle of {SLOTS}, 1,000 elements of 1 s: idle share", idle, Bar(starts=5), "% of a core")]

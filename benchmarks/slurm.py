"""The bars of a Slurm cluster that is reached over ssh: groups, ends, many live jobs, many submissions.

Needs the containers of tests/rigs; where those cannot run there is nothing to measure.
"""

from __future__ import annotations

import contextlib
import re
import shutil
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import yaml
from tests.rigs.engine import RigMissing
from tests.rigs.reach import open_access
from tests.rigs.slurm import SlurmRig, open_rig

from benchmarks.installation import Installation, processor_seconds, proportional_memory, until
from benchmarks.rows import Bar, Row

TICK = 1.0
LIVE = 500
TICKS = 20
MANY = 1000
CONNECTIONS = 100
ELEMENTS = 450
BEHIND = 20
_QUESTIONS = re.compile(r"REQUEST_JOB_(?:USER_)?INFO(?:_SINGLE)?\s+\(\s*\d+\)\s+count:(\d+)")
_SMALL = {"run": "true", "cluster": "rig", "resources": {"cpus": 1, "memory": "50M"}}
_LATER = {**_SMALL, "name": "later", "slurm": {"begin": "now+1day"}}

GROUP = """
name: g{number}
cluster: rig
execution: parallel
primary_tasks: [trainer]
---
name: trainer
resources: {{cpus: 1, memory: 50M}}
run: |
  date +%s.%N > {folder}/first
  while [ ! -e {folder}/up ]; do sleep 0.01; done
  date +%s.%N > {folder}/done
---
name: server
resources: {{cpus: 1, memory: 50M}}
run: |
  trap 'date +%s.%N > {folder}/term; exit 0' TERM
  touch {folder}/up
  while :; do sleep 0.01; done
"""


def slurm() -> list[Row]:
    """All bars of a cluster over ssh with a tick of one second."""
    try:
        with _open() as (span, rig):
            return [*_groups(span, rig), *_behind(span, rig), *_live(span, rig), *_many(span, rig)]
    except RigMissing as missing:
        print(f"no Slurm to measure: {missing}", file=sys.stderr)
        return []


@contextlib.contextmanager
def _open() -> Iterator[tuple[Installation, SlurmRig]]:
    if shutil.which("ssh") is None:
        raise RigMissing("no OpenSSH client on this machine")
    with open_rig() as rig, tempfile.TemporaryDirectory() as folder, open_access(rig, Path(folder)) as access:
        settings = {"kind": "slurm", "tick": TICK, **access.settings}
        with Installation(yaml.safe_dump({"clusters": {"rig": settings}})) as span:
            yield span, rig


def _groups(span: Installation, rig: SlurmRig) -> list[Row]:
    firsts, terms, stores, singles = [], [], [], []
    with span.client() as client:
        for number in range(7):
            folder = f"/home/researcher/g{number}"
            assert rig.run(["mkdir", folder]).rc == 0
            begun = time.time()
            job = client.submit(GROUP.format(number=number, folder=folder))
            job.wait(60)
            seen = time.time()
            said = rig.run(["sh", "-c", f"cd {folder}; cat first done term"]).stdout.split()
            first, done, term = map(float, said)
            firsts.append(first - begun)
            terms.append((term - done) * 1000)
            stores.append(seen - term)
        for _ in range(5):
            job = client.submit({**_SMALL, "name": "one", "run": "date +%s.%N"})
            job.wait(60)
            singles.append(time.time() - float(span.run("logs", str(job.id)).split()[-1]))
    # The first one brings the supervisor's archive to the cluster.
    return [
        Row(
            "Slurm: a group on idle nodes, submission to the trainer's first line",
            statistics.median(firsts),
            Bar(beside=TICK, starts=200),
            "s",
        ),
        Row("Slurm: the trainer's end to the auxiliary's TERM", statistics.median(terms), Bar(starts=20), "ms"),
        Row(
            "Slurm: a group's end to its state at a client", statistics.median(stores), Bar(beside=TICK, starts=50), "s"
        ),
        Row(
            "Slurm: a single job's end to its state at a client, tick 1 s",
            statistics.median(singles),
            Bar(beside=TICK, starts=50),
            "s",
        ),
    ]


def _behind(span: Installation, rig: SlurmRig) -> list[Row]:
    """Single submissions while the elements of an array start and end, and what the daemon then has in memory."""
    times = []
    span.run("sbatch", "-M", "rig", "--mem=50", f"--array=0-{ELEMENTS - 1}", "--wrap", "sleep 1")
    until(lambda: _count_queued(rig) > 0, 60)
    for _ in range(BEHIND):
        begun = time.perf_counter()
        span.run("sbatch", "-M", "rig", "--mem=50", "--wrap", "true")
        times.append((time.perf_counter() - begun) * 1000)
    memory = proportional_memory(span.processes())
    span.run("scancel", "--me")
    until(lambda: not _count_queued(rig), 120)
    return [
        Row(
            f"Slurm: `span sbatch` behind an array of {ELEMENTS}, as a whole process",
            statistics.median(times),
            Bar(starts=20),
            "ms",
        ),
        Row("Slurm: the daemon's memory with it (PSS)", memory, Bar(size=100), "MB"),
    ]


def _live(span: Installation, rig: SlurmRig) -> list[Row]:
    """What jobs that wait in Slurm's queue cost."""
    _submit(span, LIVE)
    until(lambda: _count_queued(rig) >= LIVE, 120)
    pids = span.processes()
    time.sleep(3 * TICK)
    questions, before, begun = _count_questions(rig), processor_seconds(pids), time.monotonic()
    time.sleep(TICKS * TICK)
    seconds = time.monotonic() - begun
    asked, used = _count_questions(rig) - questions, processor_seconds(pids) - before
    span.run("scancel", "--me")
    until(lambda: not _count_queued(rig), 120)
    return [
        Row(f"Slurm: squeues a tick, {LIVE} live jobs (sdiag)", asked / (seconds / TICK), Bar(size=1.05), "/tick"),
        Row(
            f"Slurm: the daemon's processor, {LIVE} live jobs, tick 1 s",
            used / seconds * 100,
            Bar(starts=10),
            "% of a core",
        ),
    ]


def _many(span: Installation, rig: SlurmRig) -> list[Row]:
    """Submissions from outside, and by a loop on the login node for comparison."""
    script = "printf '#!/bin/sh\\n#SBATCH --mem=50 --begin=now+1day\\ntrue\\n' > s.sh; "
    begun = time.perf_counter()
    assert rig.run(["sh", "-c", f"{script} for i in $(seq {MANY}); do sbatch --parsable s.sh; done"]).rc == 0
    loop = MANY / (time.perf_counter() - begun)
    rig.run(["scancel", "--user=researcher"])
    until(lambda: not _count_queued(rig), 120)
    begun = time.perf_counter()
    _submit(span, MANY)
    until(lambda: _count_queued(rig) >= MANY, 120)
    ours = MANY / (time.perf_counter() - begun)
    return [
        Row("Slurm: sbatch in a loop on the login node, for comparison", loop, None, "/s"),
        Row(f"Slurm: {MANY} single jobs submitted over ssh", ours, Bar(size=loop / 2), "/s", at_least=True),
    ]


def _submit(span: Installation, count: int) -> None:
    def work(share: int) -> None:
        with span.client() as client:
            for _ in range(share):
                client.submit(_LATER)

    shares = [count // CONNECTIONS + (number < count % CONNECTIONS) for number in range(CONNECTIONS)]
    threads = [threading.Thread(target=work, args=(share,)) for share in shares]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _count_queued(rig: SlurmRig) -> int:
    return rig.run(["squeue", "-h", "-t", "PD,R", "-o", "%i"]).stdout.count("\n")


def _count_questions(rig: SlurmRig) -> int:
    return sum(map(int, _QUESTIONS.findall(rig.run(["sdiag"], user="root").stdout)))

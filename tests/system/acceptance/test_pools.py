"""Pools as users have them: warm workers of this machine, one queue, and what is lost and found again."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from statistics import median
from typing import Any

import pytest
from tests.system.pools import apply, await_ready, find_worker, list_ready, node_of, show

from overspan import JobExecutor
from overspan.bridge.client import Client

pytestmark = pytest.mark.shared_daemon

Span = Any


def test_a_fixed_pool_sets_up_each_worker_once_and_ranks_run_once(span: Span, tmp_path: Path) -> None:
    """PL01, PL02: 3 workers READY, set-up once each; ranks 0..N-1, each once; a job's own set-up is left out."""
    marks, ran = tmp_path / "setups", tmp_path / "ran"
    apply(span, "fixed", f"pool: {{workers: 3}}\nresources: {{cpus: 2}}\nsetup: echo $OVERSPAN_JOB_ID >> {marks}\n")
    workers = await_ready(span, "fixed", 3)
    job = tmp_path / "job.yaml"
    job.write_text(
        "name: work\nresources: {cpus: 1}\nsetup: exit 1\n"
        f'run: echo "$SKYPILOT_JOB_RANK of $SKYPILOT_NUM_JOBS" >> {ran}\n'
    )
    sent = span.run("submit", "-p", "fixed", "--num-jobs", "20", str(job), "--parsable")
    assert "setup has no effect in a pool" in sent.stderr
    assert span.run("wait", sent.stdout.strip()).returncode == 0
    assert sorted(ran.read_text().splitlines()) == sorted(f"{rank} of 20" for rank in range(20))
    assert sorted(f"fixed-{line}" for line in marks.read_text().split()) == sorted(workers)
    assert {node_of(span, f"{sent.stdout.strip()}_{rank}") for rank in range(20)} <= set(workers)


def test_first_come_first_served_and_a_priority_jumps(span: Span, tmp_path: Path) -> None:
    """PL05: jobs start in order; one with a priority is next."""
    ran, gate = tmp_path / "ran", tmp_path / "gate"
    apply(span, "line", "pool: {workers: 1}\nresources: {cpus: 1}\n")
    await_ready(span, "line", 1)
    first = span.wrap(f"while [ ! -e {gate} ]; do sleep 0.05; done", "--pool", "line")
    span.until(first, "RUNNING")
    jobs = [span.wrap(f"echo {number} >> {ran}", "--pool=line") for number in range(20)]
    jobs.append(span.wrap(f"echo urgent >> {ran}", "--pool", "line", "--priority=5"))
    gate.touch()
    for job in jobs:
        span.until(job, "COMPLETED")
    assert ran.read_text().split() == ["urgent", *map(str, range(20))]


def test_several_jobs_on_a_worker_with_a_device_each_and_shares_of_one(span: Span, tmp_path: Path) -> None:
    """PL06, PL07: one-GPU jobs run beside each other, each with its device; halves share one; sizes are numbers."""
    gate, ran = tmp_path / "gate", tmp_path / "ran"
    apply(span, "wide", 'pool: {workers: 1}\nresources: {cpus: 8, accelerators: "gpu:4"}\n')
    (worker,) = await_ready(span, "wide", 1)
    run = f'echo "$CUDA_VISIBLE_DEVICES" >> {ran}; while [ ! -e {gate} ]; do sleep 0.05; done'
    text = "name: j\nresources: {cpus: %s, accelerators: %s}\nrun: %s\n"
    whole = [span.submit(text % (1, 1, json.dumps(run)), "-p", "wide") for _ in range(3)]
    halves = [span.submit(text % (1, 0.5, json.dumps(run)), "-p", "wide") for _ in range(2)]
    for job in (*whole, *halves):
        span.until(job, "RUNNING")
    span.wait_until(lambda: len(ran.read_text().split()) == 5, 10, "five devices")
    devices = Counter(ran.read_text().split())
    assert sorted(devices) == ["0", "1", "2", "3"] and sorted(devices.values()) == [1, 1, 1, 2]
    waits = span.submit(text % (1, 1, "'true'"), "-p", "wide")
    large = span.run("sbatch", "--pool", "wide", "-c", "16", "--wrap", "true", check=False)
    assert large.returncode == 1 and "wanted 16 CPU; a worker has 8 CPU" in large.stderr
    fits = span.wrap("true", "--pool", "wide", "-c", "2")
    span.until(fits, "COMPLETED")
    assert span.job(waits)["state"] == "PENDING" and node_of(span, fits) == worker
    gate.touch()
    span.until(waits, "COMPLETED")


def test_the_pool_grows_in_one_decision_and_back_to_none(span: Span, tmp_path: Path) -> None:
    """PL09, PL10: 100 waiting jobs have the highest number at once; none is left when idle; the first job wakes it."""
    size = "pool: {min_workers: 0, max_workers: 4, downscale_delay_seconds: 1}\nresources: {cpus: 1}\n"
    apply(span, "elastic", size)
    assert show(span, "elastic")["state"] == "IDLE"
    array = int(span.run("sbatch", "--parsable", "--pool", "elastic", "--array=1-100", "--wrap", "sleep 0.1").stdout)
    span.wait_until(lambda: show(span, "elastic")["wanted"] > 0, 5, "workers to be wanted")
    assert show(span, "elastic")["wanted"] == 4
    span.until(array, "COMPLETED", timeout=60)
    span.wait_until(lambda: not show(span, "elastic")["workers"], 20, "no worker to be left")
    span.until(span.wrap("true", "--pool", "elastic"), "COMPLETED")


CLASSES = """
pool:
  max_workers: 4
  downscale_delay_seconds: 600
  classes:
  - {{name: large, resources: {{cpus: 4}}, max_workers: 2, weight: 2}}
  - {{name: small, resources: {{cpus: 1}}, min_workers: {least}, max_workers: 3}}
setup: echo {words}
"""


def count_classes(span: Span, name: str) -> dict[str, int]:
    """How many workers of each class are ready."""
    return Counter(each["class"] for each in show(span, name)["workers"] if each["state"] == "READY")


def test_each_class_of_workers_has_numbers_of_its_own(span: Span, tmp_path: Path) -> None:
    """PL08: a class starts for the jobs that fit it, by weight, within its numbers; those stay over a restart."""
    gate = tmp_path / "gate"
    hold = f"while [ ! -e {gate} ]; do sleep 0.05; done"
    told = apply(span, "mixed", CLASSES.format(least=1, words="one"))
    assert [(each["name"], each["min_workers"], each["max_workers"]) for each in told["classes"]] == [
        ("large", 0, 2),
        ("small", 1, 3),
    ]
    (first,) = await_ready(span, "mixed", 1)
    large = [span.wrap(hold, "--pool", "mixed", "-c", "4") for _ in range(3)]
    await_ready(span, "mixed", 3)
    assert count_classes(span, "mixed") == {"large": 2, "small": 1}
    small = [span.wrap(hold, "--pool", "mixed") for _ in range(3)]
    await_ready(span, "mixed", 4)
    assert count_classes(span, "mixed") == {"large": 2, "small": 2}
    shown = span.run("pool", "show", "mixed").stdout
    assert "CLASS" in shown and first in shown and "WEIGHT" in shown
    span.kill_daemon()
    span.run("pool", "resize", "mixed", "2-2", "--class", "small")
    gate.write_text("")
    for job in (*large, *small):
        span.until(job, "COMPLETED")
    assert count_classes(span, "mixed") == {"large": 2, "small": 2}
    told = apply(span, "mixed", CLASSES.format(least=3, words="one"))
    await_ready(span, "mixed", 4)
    span.wait_until(lambda: count_classes(span, "mixed") == {"large": 1, "small": 3}, 20, "the new numbers")
    assert first in list_ready(span, "mixed"), "a change of numbers keeps workers"
    refused = span.run("pool", "resize", "mixed", "9-9", "--class", "small", check=False)
    assert "min_workers of its classes together" in refused.stderr
    span.run("pool", "delete", "mixed")


def test_a_larger_pool_keeps_its_workers_and_a_smaller_one_ends_idle_ones(span: Span, tmp_path: Path) -> None:
    """PL11: 1 -> 3 keeps the first one; 3 -> 1 keeps the one that has a job."""
    gate = tmp_path / "gate"
    apply(span, "grown", "pool: {workers: 1}\nresources: {cpus: 1}\n")
    first = await_ready(span, "grown", 1)
    job = span.wrap(f"while [ ! -e {gate} ]; do sleep 0.05; done", "--pool", "grown")
    span.until(job, "RUNNING")
    apply(span, "grown", "pool: {workers: 3}\nresources: {cpus: 1}\n")
    assert set(first) < set(await_ready(span, "grown", 3))
    span.run("pool", "apply", "-p", "grown", "--workers", "1")
    span.wait_until(lambda: len(show(span, "grown")["workers"]) == 1, 20, "one worker")
    assert list_ready(span, "grown") == first
    gate.touch()
    span.until(job, "COMPLETED")


def test_another_file_rolls_and_what_runs_finishes_where_it_is(span: Span, tmp_path: Path) -> None:
    """PL12: the running job finishes on the old worker, new jobs are on a new one."""
    gate = tmp_path / "gate"
    apply(span, "rolled", "pool: {workers: 1}\nresources: {cpus: 2}\nsetup: echo one\n")
    (old,) = await_ready(span, "rolled", 1)
    running = span.wrap(f"while [ ! -e {gate} ]; do sleep 0.05; done", "--pool", "rolled")
    span.until(running, "RUNNING")
    apply(span, "rolled", "pool: {workers: 1}\nresources: {cpus: 2}\nsetup: echo two\n")
    (new,) = await_ready(span, "rolled", 1)
    assert new != old and "two" in span.run("pool", "logs", "rolled", new).stdout
    later = span.wrap("true", "--pool", "rolled")
    span.until(later, "COMPLETED")
    assert node_of(span, later) == new and span.job(running)["state"] == "RUNNING"
    gate.touch()
    span.until(running, "COMPLETED")
    assert node_of(span, running) == old
    span.wait_until(
        lambda: [each["name"] for each in show(span, "rolled")["workers"]] == [new], 20, "the old one's end"
    )


def test_a_worker_whose_time_is_nearly_over_is_replaced_and_given_nothing_that_outlasts_it(
    span: Span, tmp_path: Path
) -> None:
    """PL16: a job goes to a worker that outlives it; the next worker is ready before the old one's end."""
    apply(span, "timed", "pool: {workers: 1}\nresources: {cpus: 2}\ntime: 40s\n")
    (old,) = await_ready(span, "timed", 1)
    job = "name: j\nresources: {{cpus: 1}}\ntime: {}s\ngrace_period: 1\nrun: 'true'\n"
    file = tmp_path / "long.yaml"
    file.write_text(job.format(60))
    refused = span.run("submit", "-p", "timed", str(file), check=False)
    assert "a worker lives 0:40" in refused.stderr
    short = span.submit(job.format(2), "-p", "timed")
    span.until(short, "COMPLETED")
    assert node_of(span, short) == old
    # Longer than what the old one has left from when its successor is started.
    (worker,) = show(span, "timed")["workers"]
    span.wait_until(lambda: time.time() > worker["ends_at"] - 20, 60, "the old worker's last seconds")
    waiting = span.submit(job.format(20), "-p", "timed")
    span.until(waiting, "COMPLETED", timeout=60)
    assert node_of(span, waiting) != old
    assert span.job(waiting)["restarts"] == 0
    # Its successor has work as soon as it is there, and the old one is ended with the pool's next look.
    span.until(worker["job"], "CANCELLED")


def test_a_lost_worker_is_replaced_and_its_jobs_run_again_once(span: Span, tmp_path: Path) -> None:
    """PL13: a killed worker's job is put back with the next number; what it left behind does not go on."""
    ran = tmp_path / "ran"
    apply(span, "lost", "pool: {workers: 1}\nresources: {cpus: 2}\n")
    (old,) = await_ready(span, "lost", 1)
    job = span.wrap(f"echo start ${{SLURM_RESTART_COUNT:-0}} >> {ran}; sleep 2; echo end >> {ran}", "--pool", "lost")
    span.until(job, "RUNNING")
    span.wait_until(ran.exists, 5, "its first line")
    os.kill(find_worker(span, int(old.rpartition("-")[2])), signal.SIGKILL)
    span.until(job, "COMPLETED", timeout=40)
    assert ran.read_text().splitlines() == ["start 0", "start 1", "end"]
    assert node_of(span, job) != old and any("is gone" in row["text"] for row in span.timeline(job))


def test_cancel_one_and_all(span: Span, tmp_path: Path) -> None:
    """PL14: pending and running jobs, one by its id and all of the pool, in 3 s; the workers stay."""
    apply(span, "cancels", "pool: {workers: 1}\nresources: {cpus: 2}\n")
    workers = await_ready(span, "cancels", 1)
    jobs = [span.wrap("sleep 600 & sleep 600", "--pool", "cancels") for _ in range(5)]
    for job in jobs[:2]:
        span.until(job, "RUNNING")
    began = time.monotonic()
    span.run("scancel", str(jobs[0]))
    span.until(jobs[0], "CANCELLED")
    span.until(jobs[2], "RUNNING")
    span.run("scancel", "--pool", "cancels")
    for job in jobs:
        span.until(job, "CANCELLED")
    assert time.monotonic() - began < 3 * 6
    assert list_ready(span, "cancels") == workers
    assert not show(span, "cancels")["workers"][0]["jobs"]


def test_a_pool_with_jobs_is_deleted_by_choice(span: Span, tmp_path: Path) -> None:
    """PL18: without a choice it is refused; --requeue has jobs wait for a pool of that name, --cancel ends them."""
    text, ran = "pool: {workers: 1}\nresources: {cpus: 1}\n", tmp_path / "ran"
    apply(span, "gone", text)
    await_ready(span, "gone", 1)
    job = span.wrap(f"echo once >> {ran}; [ $(wc -l < {ran}) = 2 ] || sleep 600", "--pool", "gone")
    span.until(job, "RUNNING")
    refused = span.run("pool", "delete", "gone", check=False)
    assert refused.returncode != 0 and "has 1 jobs" in refused.stderr and "--requeue" in refused.stderr
    span.run("pool", "delete", "gone", "--requeue")
    span.until(job, "PENDING")
    span.wait_until(lambda: not show(span, "gone")["workers"], 20, "its workers' end")
    apply(span, "gone", text)
    span.until(job, "COMPLETED", timeout=40)
    again = span.wrap("sleep 600", "--pool", "gone")
    span.until(again, "RUNNING")
    assert "its 1 jobs are cancelled" in span.run("pool", "down", "gone", "--cancel", "-y").stdout
    span.until(again, "CANCELLED")
    assert any("the end of pool gone" in row["text"] for row in span.timeline(again))
    span.wait_until(lambda: not show(span, "gone"), 20, "the pool's end")
    assert "there is no pool named 'gone'" in span.run("sbatch", "--pool", "gone", "--wrap", "x", check=False).stderr


def test_a_pool_of_the_name_of_one_that_is_gone_runs_jobs(span: Span, tmp_path: Path) -> None:
    """The daemon that has ended a pool asks the new one about its jobs, and gives back what they held."""
    for _ in range(2):
        apply(span, "again", "pool: {workers: 1}\nresources: {cpus: 1}\n")
        await_ready(span, "again", 1)
        for _ in range(2):
            job = span.wrap("true", "--pool", "again")
            assert span.run("wait", str(job), check=False).returncode == 0, span.look("sacct", "-j", str(job))
        span.run("pool", "delete", "again")
        span.wait_until(lambda: not show(span, "again"), 20, "the end of the pool")


def test_a_set_up_that_fails_is_not_tried_for_ever_and_what_it_left_running_stays(span: Span, tmp_path: Path) -> None:
    """Three failures, the reason and the log; a server that set-up starts outlives it, and no job's end ends it."""
    apply(span, "broken", "pool: {workers: 1}\nresources: {cpus: 1}\nsetup: echo no such thing; exit 7\n")
    span.wait_until(lambda: show(span, "broken")["state"] == "FAILED", 60, "the pool's failure")
    pool = show(span, "broken")
    assert "before it was ready" in pool["message"] and not pool["workers"]
    assert "no such thing" in span.run("pool", "logs", "broken").stdout
    pid = tmp_path / "pid"
    server = f"setsid sh -c 'echo $$ > {pid}; exec sleep 1000' > /dev/null 2>&1 &"
    apply(span, "broken", f"pool: {{workers: 1}}\nresources: {{cpus: 1}}\nsetup: {json.dumps(server)}\n")
    await_ready(span, "broken", 1)
    span.until(span.wrap(f"kill -0 $(cat {pid}); sleep 300 & true", "--pool", "broken"), "COMPLETED")
    number = int(pid.read_text())
    assert Path(f"/proc/{number}").exists()
    span.run("pool", "delete", "broken")
    span.wait_until(lambda: not Path(f"/proc/{number}").exists(), 20, "the server's end")


def test_what_is_not_built_is_refused_in_one_sentence(span: Span, tmp_path: Path) -> None:
    """Elastic tasks in a pool, scripts and workers of several nodes, wrong numbers and names."""
    apply(span, "refuses", "pool: {workers: 0}\nresources: {cpus: 2}\n")
    group = tmp_path / "group.yaml"
    elastic = "elastic: {min: 1, max: 2}"
    group.write_text(
        "name: g\nexecution: parallel\npool: refuses\nprimary_tasks: [a]\n"
        f"---\nname: a\nrun: x\n---\nname: b\n{elastic}\nrun: x\n"
    )
    assert "elastic tasks do not run in a pool" in span.run("submit", str(group), check=False).stderr
    script = span.run("sbatch", "--pool", "refuses", "-N", "2", "--wrap", "true", check=False)
    assert "a batch script in a pool runs on one node" in script.stderr
    file = tmp_path / "p.yaml"
    for text, words in (
        ("pool: {workers: 1, max_workers: 2}\n", "exclude each other"),
        ("pool: {min_workers: 3, max_workers: 2}\n", "below min_workers"),
        ("run: x\n", "describes no pool"),
        ("pool: {workers: 1}\nnum_nodes: 2\n", "one task on one node"),
        ("pool: {workers: 1}\nresources: {cpus: 1000}\n", "not available"),
    ):
        file.write_text(text)
        done = span.run("pool", "apply", "-p", "other", str(file), check=False)
        assert done.returncode != 0 and words in done.stderr, (text, done.stderr)
    file.write_text("pool: {workers: 1}\n")
    assert "lower-case" in span.run("pool", "apply", "-p", "Not_a_name", str(file), check=False).stderr
    assert "already" in span.run("pool", "apply", "-p", "local", str(file), check=False).stderr
    assert "which is no job" in span.run("submit", str(file), check=False).stderr


def test_an_idle_worker_and_the_next_job_take_the_time_of_five_interpreters(span: Span, tmp_path: Path) -> None:
    """PL03, PL04: medians, beside what a bare interpreter takes at the same time, which is 10 ms on a quiet machine."""
    apply(span, "quick", "pool: {workers: 1}\nresources: {cpus: 1}\n")
    await_ready(span, "quick", 1)
    clock, bare, starts, turns = "date +%s.%N", [], [], []
    with Client(environment=span.environment) as client:
        for number in range(7):
            begun, first, second = (tmp_path / f"{name}{number}" for name in ("begun", "first", "second"))
            at = time.time()
            subprocess.run([sys.executable, "-c", "pass"], check=True)
            bare.append(time.time() - at)
            text = "#!/bin/sh\n#SBATCH --pool=quick -o /dev/null\n"
            at = time.time()
            client.submit(f"{text}{clock} > {begun}\n").wait(60)
            starts.append(float(begun.read_text()) - at)
            client.submit(f"{text}sleep 0.5; {clock} > {first}\n")
            client.submit(f"{text}{clock} > {second}\n").wait(60)
            turns.append(float(second.read_text()) - float(first.read_text()))
    assert median(starts) < 5 * max(median(bare), 0.01)
    assert median(turns) < 5 * max(median(bare), 0.01)


def test_a_thousand_waiting_jobs_cost_the_daemon_nothing(span: Span, tmp_path: Path) -> None:
    """PL17: nothing asks for each of them while they wait."""
    apply(span, "full", "pool: {workers: 1}\nresources: {cpus: 1}\n")
    await_ready(span, "full", 1)
    span.until(span.wrap("sleep 600", "--pool", "full"), "RUNNING")
    with Client(environment=span.environment) as client:
        for _ in range(1000):
            client.submit("#!/bin/sh\n#SBATCH --pool=full -o /dev/null\ntrue\n")
    assert show(span, "full")["waiting"] == 1000
    time.sleep(2)
    before = _count_ticks(span.daemon)
    time.sleep(5)
    assert (_count_ticks(span.daemon) - before) / os.sysconf("SC_CLK_TCK") < 5 * 0.2


def _count_ticks(pid: int) -> int:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def test_calls_of_an_executor_are_jobs_of_a_pool(span: Span) -> None:
    """PL20: concurrent.futures over warm workers."""
    apply(span, "calls", "pool: {workers: 1}\nresources: {cpus: 2}\n")
    job = {"resources": {"cpus": 1}}
    with JobExecutor(pool="calls", job=job, environment=span.environment) as executor:
        assert list(executor.map(math.factorial, range(5))) == [1, 1, 2, 6, 24]
        failing = executor.submit(math.sqrt, -1)
        assert isinstance(failing.exception(timeout=60), ValueError)
    rows = json.loads(span.run("sacct", "-X", "--json").stdout)["jobs"]
    assert {row["cluster"] for row in rows if row["name"] in ("factorial", "sqrt")} == {"calls"}

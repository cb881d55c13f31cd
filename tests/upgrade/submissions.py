"""What the corpus has: one job of each kind and state that a state folder can hold."""

from __future__ import annotations

from tests.upgrade.installation import Installation
from tests.waiting import wait_until

ENDED = """
---
name: NAME
execution: parallel
primary_tasks: [trainer]
termination_delay: 1s
---
name: server
resources: {cpus: 0.5}
run: echo begun; exec sleep 3600  # hang
---
name: trainer
resources: {cpus: 0.5}
run: echo trained; sleep 0.5
"""
RUNNING = """
---
name: NAME
execution: parallel
primary_tasks: [trainer]
---
name: server
num_nodes: 2
on_failure: restart
resources: {cpus: 0.5}
run: echo begun; exec sleep 3600  # hang
---
name: trainer
grace_period: 5s
time: 5h
resources: {cpus: 0.5}
run: echo begun; exec sleep 3600  # hang
"""
RESTARTED = """
---
name: restarted
execution: parallel
---
name: flaky
max_restarts_on_errors: 2
resources: {cpus: 0.5}
run: |
  echo attempt $OVERSPAN_ATTEMPT
  exit $((OVERSPAN_ATTEMPT ? 0 : 5))
"""
NEEDS = """
---
name: staged
execution: parallel
---
name: first
resources: {cpus: 0.5}
run: echo first; exec sleep 3600  # hang
---
name: second
needs: [first]
resources: {cpus: 0.5}
run: echo second
"""
LIMITED = "name: limited\ntime: 1s\nresources: {cpus: 0.5}\nrun: echo begun; exec sleep 3600  # hang\n"
SECRET = "name: secret\nsecrets: [TOKEN]\nresources: {cpus: 0.5}\nrun: echo ${#TOKEN} letters\n"
SINGLE = "name: NAME\nresources: {cpus: 0.5}\nrun: echo begun; CODE\n"
HETJOB = """
---
name: hetjob
execution: parallel
primary_tasks: [trainer]
---
name: server
resources: {cpus: 1, memory: 100M}
slurm: {partition: short}
run: echo begun; exec sleep 3600  # hang
---
name: trainer
resources: {cpus: 1, memory: 100M, accelerators: "gpu:1"}
run: echo begun; exec sleep 3600  # hang
"""
RACE = (
    "name: race\nrace: true\ncluster: [slurm, pods]\nresources: {cpus: 16}\nrun: echo begun; exec sleep 3600  # hang\n"
)
CRONTAB = "#SCRON --time=10 --job-name=nightly\n0 5 31 12 * echo nightly\n"
HANG = "echo begun; exec sleep 3600  # hang"


def submit_all(span: Installation) -> dict[str, int]:
    """Submit everything, and wait until each job is where it should be; the jobs by name."""
    return {**_submit_here(span), **_submit_to_slurm(span), **_submit_pods(span), **_submit_away(span)}


def _submit_here(span: Installation) -> dict[str, int]:
    jobs = {
        "completed": span.batch("echo hello; echo talk >&2", "-J", "completed"),
        "failed": span.batch("echo begun; exit 3", "-J", "failed"),
        "killed": span.batch("kill -SEGV $$", "-J", "killed"),
        "cancelled": span.batch(HANG, "-J", "cancelled"),
        "running": span.batch(HANG, "-J", "running", "--time=5:00:00"),
        "requeued": span.batch(HANG, "-J", "requeued"),
        "array-ended": span.batch("echo $SLURM_ARRAY_TASK_ID; exit $((SLURM_ARRAY_TASK_ID == 2))", "-a", "0-3%2"),
        "array-live": span.batch(HANG, "-J", "array-live", "-a", "1-4%2"),
        "group-ended": span.submit("group-ended", ENDED.replace("NAME", "group-ended")),
        "group-running": span.submit("group-running", RUNNING.replace("NAME", "group-running")),
        "restarted": span.submit("restarted", RESTARTED),
        "staged": span.submit("staged", NEEDS),
        "limited": span.submit("limited", LIMITED),
        "secret": span.submit("secret", SECRET, "--secret", "TOKEN=not-a-secret"),
        "held": span.batch("echo held", "-J", "held", "--hold"),
        "later": span.batch("echo later", "-J", "later", "--begin=now+10days"),
        "held-group": span.submit("held-group", ENDED.replace("NAME", "held-group"), "--hold"),
    }
    jobs["dependent"] = span.batch("echo after", "-J", "dependent", f"--dependency=afterany:{jobs['running']}")
    jobs["never"] = span.batch("echo never", "-J", "never", f"--dependency=afterok:{jobs['failed']}")
    jobs["wide"] = span.batch("echo wide; sleep 1", "-J", "wide", "--cpus-per-task=16")
    jobs["cancelled-waiting"] = span.batch("echo wide", "-J", "cancelled-waiting", "--hold")
    for name in ("cancelled", "running", "requeued", "group-running", "staged"):
        span.until(jobs[name], "RUNNING")
    span.run("scancel", str(jobs["cancelled"]), str(jobs["cancelled-waiting"]))
    span.run("scontrol", "requeue", str(jobs["requeued"]))
    span.run("cron", "-", stdin=CRONTAB)
    for name in ("completed", "failed", "killed", "cancelled", "group-ended", "restarted", "limited", "secret"):
        span.until(jobs[name], "COMPLETED", "FAILED", "CANCELLED", "TIMEOUT")
    wait_until(lambda: span.show(jobs["requeued"])["state"] == "RUNNING", 30, "its second launch")
    return jobs


def _submit_to_slurm(span: Installation) -> dict[str, int]:
    on = ("-M", "slurm")
    jobs = {
        "slurm-completed": span.batch("echo begun; echo ended", "-J", "slurm-completed", *on),
        "slurm-failed": span.batch("exit 4", "-J", "slurm-failed", *on),
        "slurm-running": span.batch(HANG, "-J", "slurm-running", *on),
        "slurm-cancelled": span.batch(HANG, "-J", "slurm-cancelled", *on),
        "slurm-array": span.batch(HANG, "-J", "slurm-array", "-a", "0-3%1", *on),
        "slurm-group-ended": span.submit("slurm-ended", ENDED.replace("NAME", "slurm-ended"), *on),
        "slurm-group": span.submit("slurm-group", RUNNING.replace("NAME", "slurm-group"), *on),
        "slurm-hetjob": span.submit("slurm-hetjob", HETJOB, *on),
        "slurm-wide": span.batch(HANG, "-J", "slurm-wide", "-N", "2", "-c", "12", *on),
        "slurm-held": span.batch(HANG, "-J", "slurm-held", "--hold", *on),
    }
    for name in ("slurm-running", "slurm-cancelled", "slurm-group", "slurm-hetjob", "slurm-wide"):
        span.until(jobs[name], "RUNNING")
    span.run("scancel", str(jobs["slurm-cancelled"]))
    for name in ("slurm-completed", "slurm-failed", "slurm-cancelled", "slurm-group-ended"):
        span.until(jobs[name], "COMPLETED", "FAILED", "CANCELLED")
    jobs["slurm-set"] = span.submit(
        "slurm-set", RUNNING.replace("NAME", "slurm-set").replace("execution", "restart: task\nexecution"), *on
    )
    span.until(jobs["slurm-set"], "RUNNING")
    jobs["slurm-waiting"] = span.batch(HANG, "-J", "slurm-waiting", "-N", "3", "-c", "16", *on)
    return jobs


def _submit_pods(span: Installation) -> dict[str, int]:
    on = ("-M", "pods")
    jobs = {
        "pod-completed": span.submit("pod-a", SINGLE.replace("NAME", "pod-completed").replace("CODE", "true"), *on),
        "pod-failed": span.submit("pod-b", SINGLE.replace("NAME", "pod-failed").replace("CODE", "exit 6"), *on),
        "pod-running": span.submit("pod-c", SINGLE.replace("NAME", "pod-running").replace("CODE", HANG), *on),
        "pods-ended": span.submit("pods-ended", ENDED.replace("NAME", "pods-ended"), *on),
        "pods-running": span.submit("pods-running", RUNNING.replace("NAME", "pods-running"), *on),
    }
    for name in ("pod-completed", "pod-failed", "pods-ended"):
        span.until(jobs[name], "COMPLETED", "FAILED")
    for name in ("pod-running", "pods-running"):
        span.until(jobs[name], "RUNNING")
    wide = SINGLE.replace("NAME", "pod-waiting").replace("CODE", HANG).replace("0.5", "5")
    jobs["pod-waiting"] = span.submit("pod-waiting", wide, *on)
    jobs["race"] = span.submit("race", RACE)
    return jobs


def _submit_away(span: Installation) -> dict[str, int]:
    jobs = {name: span.batch("echo away", "-J", name, "-M", "away") for name in ("away", "away-cancelled")}
    span.run("scancel", str(jobs["away-cancelled"]), check=False)
    return jobs

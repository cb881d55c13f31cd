"""`span srun` and `span salloc` outside of a job over real pods: allocation, steps, signals and every kind of end."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.rigs.kube import KubeRig
from tests.system.interactive import SPAN, Begin, check_terminal, newest, open_commands
from tests.system.kubernetes.conftest import KubeSpan

PYTHON = "rig/python:1"


@pytest.fixture
def span(kube: KubeSpan, kube_rig: KubeRig, kube_namespace: str) -> KubeSpan:
    """The cluster with an image that has Python."""
    kube.connect(kube_rig, kube_namespace, image=PYTHON, cpus=0.1)
    return kube


@pytest.fixture
def begin(span: KubeSpan) -> Iterator[Begin]:
    with open_commands(span) as start:
        yield start


def test_srun_has_its_streams_and_exit_code(span: KubeSpan) -> None:
    words = ("sh", "-c", "read x; echo $x $SLURM_PROCID $GREETING; echo err >&2; exit $((SLURM_PROCID + 3))")
    done = span.run(
        "srun", "-N2", "-l", "-Jtwo", *words, check=False, stdin="hello\n", environment={"GREETING": "it's\n$HOME"}
    )
    assert done.returncode == 4, done.stderr
    assert sorted(done.stdout.splitlines()) == [f"{rank}: hello {rank} it's $HOME" for rank in (0, 1)]
    errors = done.stderr.splitlines()
    assert {"0: err", "1: err"} <= set(errors) and not any("command terminated" in line for line in errors)
    facts = span.until(newest(span), "FAILED")
    assert (facts["name"], facts["exit_code"]) == ("two", 4)
    done = span.run("srun", "hostname")
    job = newest(span)
    assert done.stdout == f"hostname-{job}\n" and "14 days" not in done.stderr
    assert span.until(job, "COMPLETED")["exit_code"] == 0
    span.until_empty()


def test_salloc_runs_its_command_here_and_srun_inside_takes_steps(span: KubeSpan) -> None:
    script = (
        f"echo id=$SLURM_JOB_ID nodes=$SLURM_NNODES; {SPAN} srun sh -c 'echo rank $SLURM_PROCID of $SLURM_NTASKS';"
        f" {SPAN} srun -n1 sh -c 'exit 7'; echo code=$?; exit 4"
    )
    done = span.run("salloc", "-N2", "-n2", "sh", "-c", script, check=False)
    assert done.returncode == 4, done.stderr
    job = newest(span)
    first, *ranks, code = done.stdout.splitlines()
    assert first == f"id={job} nodes=2" and sorted(ranks) == ["rank 0 of 2", "rank 1 of 2"] and code == "code=7"
    assert f"salloc: Granted job allocation {job}" in done.stderr
    assert f"salloc: Relinquishing job allocation {job}" in done.stderr
    assert span.until(job, "COMPLETED")["exit_code"] == 0


def test_interrupts_reach_srun_and_the_second_ends_the_allocation(span: KubeSpan, begin: Begin) -> None:
    process = begin("srun", "sh", "-c", "echo up; exec sleep 600")
    assert process.stdout is not None and process.stdout.readline() == "up\n"
    job = newest(span)
    process.send_signal(signal.SIGINT)
    assert process.stderr is not None
    assert any("interrupt (one more within 1 sec to abort)" in line for line in process.stderr)
    process.send_signal(signal.SIGINT)
    process.send_signal(signal.SIGTERM)
    _, told = process.communicate(timeout=60)
    assert process.returncode != 0, told
    span.until(job, "FAILED")


def test_a_killed_command_leaves_nothing(span: KubeSpan, begin: Begin) -> None:
    process = begin("srun", "sh", "-c", "echo up; exec sleep 600")
    assert process.stdout is not None and process.stdout.readline() == "up\n"
    job = newest(span)
    process.kill()
    process.communicate()
    span.until(job, "CANCELLED", "FAILED", "COMPLETED", timeout=60)
    span.until_empty()


def test_a_killed_srun_ends_its_step_and_not_the_allocation(span: KubeSpan, begin: Begin) -> None:
    script = f"{SPAN} srun sh -c 'echo up; exec sleep 600' & echo $!; wait $!; echo left; read x; {SPAN} srun echo next"
    process = begin("salloc", "sh", "-c", script)
    assert process.stdout is not None
    pid = int(process.stdout.readline())
    assert process.stdout.readline() == "up\n"
    os.kill(pid, signal.SIGKILL)
    assert process.stdout.readline() == "left\n"
    (pod,) = span.pods()
    look = (
        "exec",
        pod,
        "-c",
        "main",
        "--",
        "sh",
        "-c",
        "cat /proc/[0-9]*/cmdline | tr '\\0' ' '; ls -d /overspan/run/*",
    )

    def is_gone() -> bool:
        told = span.kubectl(*look)
        return "sleep 600" not in told and "/step." not in told

    span.wait_until(is_gone, 60, "the end of the step and of its folder")
    out, told = process.communicate("go\n", timeout=60)
    assert (process.returncode, out) == (0, "next\n"), told


def test_a_new_daemon_keeps_what_is_held(span: KubeSpan, begin: Begin) -> None:
    process = begin("salloc", "sh", "-c", f"echo up; read x; exec {SPAN} srun echo step")
    assert process.stdout is not None and process.stdout.readline() == "up\n"
    job = newest(span)
    span.run("shutdown")
    assert span.job(job)["state"] == "RUNNING"
    out, told = process.communicate("go\n", timeout=60)
    assert (process.returncode, out) == (0, "step\n"), told
    span.until(job, "COMPLETED")


def test_scancel_from_elsewhere_ends_step_and_command(span: KubeSpan, begin: Begin) -> None:
    process = begin("srun", "-N2", "sh", "-c", "echo up; exec sleep 600")
    assert process.stdout is not None and process.stdout.readline() == "up\n"
    job = newest(span)
    span.run("scancel", str(job))
    process.communicate(timeout=60)
    assert process.returncode != 0
    span.until(job, "CANCELLED")


def test_an_allocation_without_a_shell_takes_steps_by_its_id(span: KubeSpan, begin: Begin) -> None:
    process = begin("salloc", "--no-shell", "-t1")
    process.communicate(timeout=60)
    job = str(newest(span))
    done = span.run("srun", f"--jobid={job}", "sh", "-c", "echo $SLURM_JOB_ID; pwd")
    assert done.stdout.split() == [job, "/overspan/run"]
    span.run("scancel", job)
    span.until(int(job), "CANCELLED")
    late = span.run("srun", f"--jobid={job}", "true", check=False)
    assert late.returncode == 1 and late.stderr


def test_a_terminal_is_given(span: KubeSpan) -> None:
    check_terminal(span)


def test_an_image_without_python_takes_no_steps(kube: KubeSpan) -> None:
    done = kube.run("srun", "true", check=False)
    assert done.returncode == 1 and "has no python3, which srun needs in a pod" in done.stderr
    kube.until(newest(kube), "CANCELLED")


def test_a_machine_without_kubectl_says_so(span: KubeSpan, tmp_path: Path) -> None:
    done = span.run("srun", "true", environment={"PATH": str(tmp_path)}, check=False)
    assert done.returncode == 1 and "kubectl" in done.stderr and "internal error" not in done.stderr
    span.until(newest(span), "CANCELLED")


def test_a_job_that_takes_no_steps_says_why(span: KubeSpan, tmp_path: Path) -> None:
    path = tmp_path / "plain.sh"
    path.write_text("#!/bin/sh\necho begun\nexec sleep 600\n")
    job = span.run("sbatch", "--parsable", str(path)).stdout.strip().split(";")[0]
    span.until(int(job), "RUNNING")
    span.wait_until(lambda: "begun" in span.log(int(job)), 30, "the script to run")
    done = span.run("srun", f"--jobid={job}", "true", check=False)
    assert done.returncode == 1 and "have no srun" in done.stderr and "commands: always" in done.stderr
    group = span.submit("name: two\nresources: {image_id: 'docker:rig/python:1'}\nrun: exec sleep 600\n")
    span.until(group, "RUNNING")
    done = span.run("srun", f"--jobid={group}", "true", check=False)
    assert done.returncode == 1 and "a group takes no steps" in done.stderr


def test_components_of_one_step_are_ranks_in_pods(span: KubeSpan) -> None:
    """`:` gives each component its own words; all are one step in one allocation of pods."""
    rank = "echo $0 rank $SLURM_PROCID of $SLURM_NTASKS"
    words = ("-N1", "-n1", "sh", "-c", rank, "a", ":", "-N1", "-n2", "sh", "-c", rank, "b")
    done = span.run("srun", *words, check=False)
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == ["a rank 0 of 3", "b rank 1 of 3", "b rank 2 of 3"]
    span.until_empty()


def test_a_kubectl_that_hangs_keeps_neither_the_command_nor_the_allocation(span: KubeSpan, begin: Begin) -> None:
    """The way to the pods hangs: a TERM, and the allocation's end from elsewhere, end srun all the same."""
    for number, ask in enumerate(("TERM", "scancel")):
        process = begin("srun", "sh", "-c", "echo up; exec sleep 600")
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n", process.communicate(timeout=60)[1]
        job = newest(span)
        for pid in list_children(process.pid):
            os.kill(pid, signal.SIGSTOP)
        if ask == "TERM":
            process.terminate()
        else:
            span.run("scancel", str(job))
        process.communicate(timeout=120)
        assert process.returncode, number
        span.until(job, "CANCELLED", "FAILED", timeout=60)
    span.until_empty()


def list_children(parent: int) -> list[int]:
    """The processes below a process that run kubectl."""
    found, pids = [], [parent]
    while pids:
        pid = pids.pop()
        for task in Path(f"/proc/{pid}/task").glob("*/children"):
            pids += map(int, task.read_text().split())
        if b"kubectl" in Path(f"/proc/{pid}/cmdline").read_bytes():
            found.append(pid)
    return found

"""`span srun` and `span salloc` outside of a job on a real Slurm: allocation, steps, signals and every kind of end."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.system.conftest import Span
from tests.system.interactive import SPAN, Begin, check_terminal, newest, open_commands
from tests.system.slurm.conftest import Site
from tests.system.slurm.fillers import fill
from tests.system.slurm.groups import connect, native_of
from tests.waiting import WaitUntil

SMALL = ("-M", "rig", "--mem=100")


@pytest.fixture
def remote(site: Site, tmp_path: Path, wait_until: WaitUntil) -> Iterator[Span]:
    span = connect(site, tmp_path, wait_until)
    yield span
    span.close()


@pytest.fixture
def begin(remote: Span) -> Iterator[Begin]:
    with open_commands(remote) as start:
        yield start


def until_free(span: Span, site: Site, native: str) -> None:
    span.wait_until(lambda: not site.slurm("squeue", "-hj", native), 60, "the nodes to be free")


def test_srun_has_its_streams_and_exit_code(remote: Span, site: Site) -> None:
    words = ("sh", "-c", "read x; echo $x $SLURM_PROCID; echo err >&2; exit 3")
    done = remote.run("srun", *SMALL, "-N2", "-l", "-Jtwo", *words, check=False, stdin="hello\n")
    assert done.returncode == 3
    assert sorted(done.stdout.splitlines()) == ["0: hello 0", "1: hello 1"]
    assert {"0: err", "1: err"} <= set(done.stderr.splitlines())
    job = newest(remote)
    facts = remote.until(job, "FAILED")
    assert (facts["name"], facts["exit_code"]) == ("two", 3)
    native = native_of(remote, job)
    until_free(remote, site, native)
    done = remote.run("srun", *SMALL, "-n3", "-c1", "hostname")
    assert len(done.stdout.split()) == 3
    assert remote.until(newest(remote), "COMPLETED")["exit_code"] == 0


def test_salloc_runs_its_command_here_and_srun_inside_takes_steps(remote: Span, site: Site) -> None:
    script = (
        f"echo id=$SLURM_JOB_ID nodes=$SLURM_NNODES; {SPAN} srun sh -c 'echo rank $SLURM_PROCID of $SLURM_NTASKS';"
        f" {SPAN} srun -n1 sh -c 'exit 7'; echo code=$?; exit 4"
    )
    done = remote.run("salloc", *SMALL, "-N2", "-n2", "sh", "-c", script, check=False)
    assert done.returncode == 4, done.stderr
    job = newest(remote)
    first, *ranks, code = done.stdout.splitlines()
    assert first == f"id={job} nodes=2" and sorted(ranks) == ["rank 0 of 2", "rank 1 of 2"] and code == "code=7"
    assert f"salloc: Granted job allocation {job}" in done.stderr
    assert f"salloc: Relinquishing job allocation {job}" in done.stderr
    remote.until(job, "COMPLETED")
    until_free(remote, site, native_of(remote, job))


def test_interrupts_reach_srun_and_the_second_ends_the_allocation(remote: Span, site: Site, begin: Begin) -> None:
    process = begin("srun", *SMALL, "sh", "-c", "echo up; exec sleep 600")
    assert process.stdout is not None and process.stdout.readline() == "up\n"
    job = newest(remote)
    process.send_signal(signal.SIGINT)
    assert process.stderr is not None
    said = process.stderr.readline()
    if "queued and waiting for resources" in said:
        said = process.stderr.readline()
    assert "interrupt (one more within 1 sec to abort)" in said
    process.send_signal(signal.SIGINT)
    process.send_signal(signal.SIGTERM)
    _, told = process.communicate(timeout=60)
    assert process.returncode != 0, told
    remote.until(job, "FAILED")
    until_free(remote, site, native_of(remote, job))


def test_an_interrupt_in_the_queue_leaves_nothing(remote: Span, site: Site, begin: Begin) -> None:
    with fill(site, remote.wait_until, "--exclusive", "-w", "node1"):
        process = begin("salloc", *SMALL, "-w", "node1", "true")
        assert process.stderr is not None
        first, second = process.stderr.readline(), process.stderr.readline()
        job = first.split()[-1]
        assert first == f"salloc: Pending job allocation {job}\n"
        assert second == f"salloc: job {job} queued and waiting for resources\n"
        native = native_of(remote, job)
        process.send_signal(signal.SIGINT)
        _, told = process.communicate(timeout=60)
        assert process.returncode == 1 and told == f"salloc: Job allocation {job} has been revoked.\n"
        remote.until(job, "CANCELLED")
        assert not site.slurm("squeue", "-hj", native)


def test_a_killed_command_leaves_nothing(remote: Span, site: Site, begin: Begin) -> None:
    process = begin("srun", *SMALL, "sh", "-c", "echo up; exec sleep 600")
    assert process.stdout is not None and process.stdout.readline() == "up\n"
    job = newest(remote)
    native = native_of(remote, job)
    process.kill()
    process.communicate()
    remote.until(job, "CANCELLED", "FAILED", "COMPLETED")
    until_free(remote, site, native)


def test_a_new_daemon_keeps_what_is_held_and_ends_what_is_not(remote: Span, site: Site, begin: Begin) -> None:
    process = begin("salloc", *SMALL, "sh", "-c", f"echo up; read x; exec {SPAN} srun echo step")
    assert process.stdout is not None and process.stdout.readline() == "up\n"
    job = newest(remote)
    remote.run("shutdown")
    assert remote.job(job)["state"] == "RUNNING"
    out, told = process.communicate("go\n", timeout=60)
    assert (process.returncode, out) == (0, "step\n"), told
    remote.until(job, "COMPLETED")


def test_scancel_from_elsewhere_ends_step_and_command(remote: Span, site: Site, begin: Begin) -> None:
    process = begin("srun", *SMALL, "sh", "-c", "echo up; exec sleep 600")
    assert process.stdout is not None and process.stdout.readline() == "up\n"
    job = newest(remote)
    site.slurm("scancel", native_of(remote, job))
    _, told = process.communicate(timeout=60)
    assert process.returncode != 0 and "CANCELLED" in told
    remote.until(job, "CANCELLED")


def test_an_allocation_without_a_shell_takes_steps_by_its_id(remote: Span, site: Site, begin: Begin) -> None:
    process = begin("salloc", *SMALL, "--no-shell", "-t1")
    process.communicate(timeout=60)
    job = str(newest(remote))
    done = remote.run("srun", f"--jobid={job}", "sh", "-c", "echo $SLURM_JOB_ID")
    assert done.stdout.strip() == native_of(remote, job)
    remote.run("scancel", job)
    remote.until(job, "CANCELLED")
    late = remote.run("srun", f"--jobid={job}", "true", check=False)
    assert late.returncode == 1 and late.stderr


def test_a_terminal_is_given(remote: Span, site: Site) -> None:
    check_terminal(remote, *SMALL)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--x11",), "--x11 is not carried"),
        (("-I5",), "--immediate is not carried"),
        ((":", "-n1"), "components (`:`)"),
    ],
)
def test_what_is_not_carried_is_refused_by_name(remote: Span, words: tuple[str, ...], said: str) -> None:
    done = remote.run("salloc", *SMALL, *words, "true", check=False)
    assert done.returncode == 1 and said in done.stderr
    assert json.loads(remote.run("squeue", "--json").stdout)["jobs"] == []


def test_a_login_node_that_is_away_at_the_end_is_told_later(remote: Span, site: Site, begin: Begin) -> None:
    config = remote.folder / "ssh_config"
    config.write_text(site.access.config.read_text())
    settings = {"kind": "slurm", "tick": 0.5, **site.access.settings, "ssh_config": str(config)}
    remote.config.write_text(json.dumps({"clusters": {"rig": settings}, "ticks": {"retry": 1, "retry_limit": 1}}))
    process = begin("salloc", *SMALL, "sh", "-c", "echo up; read x")
    assert process.stdout is not None and process.stdout.readline() == "up\n"
    job = newest(remote)
    native = native_of(remote, job)
    config.write_text("Host rig\n  HostName 127.0.0.1\n  Port 9\n")
    site.rig.run(["pkill", "-u", "researcher", "sshd"])
    remote.wait_until(lambda: "not answered" in remote.run("squeue").stderr, 30, "the cluster to be away")
    _, told = process.communicate("go\n", timeout=60)
    assert process.returncode == 0 and "cluster rig has not answered since" in told
    assert site.slurm("squeue", "-hj", native, "-o", "%T").strip() == "RUNNING"
    config.write_text(site.access.config.read_text())
    until_free(remote, site, native)
    remote.until(job, "COMPLETED", "CANCELLED")


def test_a_killed_srun_ends_its_step_and_not_the_allocation(remote: Span, site: Site, begin: Begin) -> None:
    script = f"{SPAN} srun sh -c 'echo up; exec sleep 600' & echo $!; wait $!; echo left; read x; {SPAN} srun echo next"
    process = begin("salloc", *SMALL, "sh", "-c", script)
    assert process.stdout is not None
    pid = int(process.stdout.readline())
    assert process.stdout.readline() == "up\n"
    os.kill(pid, signal.SIGKILL)
    assert process.stdout.readline() == "left\n"
    native = native_of(remote, newest(remote))
    remote.wait_until(lambda: f"{native}.0" not in site.slurm("squeue", "-hs", "-j", native), 60, "the end of the step")
    out, told = process.communicate("go\n", timeout=60)
    assert (process.returncode, out) == (0, "next\n"), told


def test_more_steps_than_the_connection_takes_and_what_they_find(remote: Span, site: Site) -> None:
    step = f"{SPAN} srun -n1 --mem=10 --overlap --export=ALL,GREETING sh -c 'echo \"$GREETING\"; pwd; sleep 3'"
    script = "; ".join([f"{step} &"] * 5).replace("&;", "&") + " wait; " + f"{SPAN} squeue -h -o %T"
    greeting = "it's\n$HOME"
    done = remote.run("salloc", *SMALL, "sh", "-c", script, environment={"GREETING": greeting}, check=False)
    assert done.returncode == 0, done.stderr
    folder = site.slurm("sh", "-c", "cd; pwd").strip()
    assert done.stdout.count(greeting) == 5 and done.stdout.count(f"{folder}/.overspan/runs/") == 5
    assert done.stdout.endswith("RUNNING\n") and "not answered" not in done.stderr

"""Steps inside batch scripts: real supervisors, shims, step daemons and ranks."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.system.steps.scripts import script, start_script

from overspan.bridge.runtime.core import kernel

if TYPE_CHECKING:
    from tests.system.conftest import Span

pytestmark = pytest.mark.shared_daemon

SPAN = str(Path(sys.executable).with_name("span"))
TRAPS = """
trap 'echo batch got it' USR1
span srun -l bash -c 'trap "echo rank got USR1; exit 5" USR1; echo ready; while :; do sleep 0.05; done' &
wait; wait; wait
echo end
"""
LATE = ("--time=120", "--signal=USR1@3600")
"""An hour goes by before the signal, unless the limit is lowered."""


def run_script(span: Span, body: str, *directives: str, code: int = 0) -> str:
    """Run a batch script to its end; gives its output."""
    done = span.run("sbatch", "--wait", "-o", "out", script(span, body, *directives), check=False)
    assert done.returncode == code, done.stderr + (span.folder / "out").read_text()
    return (span.folder / "out").read_text()


def give_notice(span: Span, job: int) -> None:
    """Let the signal of `LATE` be due: its hour before the limit has begun."""
    span.run("scontrol", "update", f"jobid={job}", "timelimit=60")


def kill_all(pids: Iterable[int]) -> None:
    """Kill processes, of which one may have taken others with it."""
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def find_processes(word: str) -> list[int]:
    """Living processes with a word on their command line."""
    found = []
    for pid in kernel.list_pids():
        try:
            line = Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            continue
        process = kernel.read_process(pid)
        if word.encode() in line and pid != os.getpid() and process is not None and process.state not in "ZX":
            found.append(pid)
    return found


def find_named(span: Span, name: str) -> list[int]:
    """Living processes of that name that belong to this test."""
    mark = str(span.state).encode()
    found = []
    for pid in kernel.list_pids():
        try:
            ours = mark in Path(f"/proc/{pid}/environ").read_bytes() + Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            continue
        if ours and kernel.read_comm(pid) == name:
            found.append(pid)
    return found


def test_two_nodes_with_four_tasks_each_are_eight_ranks(span: Span) -> None:
    body = "span srun sh -c 'echo \"$SLURM_PROCID/$SLURM_NTASKS $(hostname) $SLURM_NODEID.$SLURM_LOCALID\"'"
    lines = sorted(run_script(span, body, "--nodes=2", "--ntasks-per-node=4").splitlines())
    assert lines == [f"{rank}/8 batch-{rank // 4} {rank // 4}.{rank % 4}" for rank in range(8)]


def test_names_addresses_and_shapes_agree_on_every_node(span: Span) -> None:
    body = (
        "span srun -l python3 -c 'import os, socket; e = os.environ;"
        ' print(socket.gethostbyname(e["SLURMD_NODENAME"]) == e["OVERSPAN_ADDR"], e["SLURM_STEP_NODELIST"],'
        ' e["SLURM_STEP_TASKS_PER_NODE"], e["SLURM_GTIDS"], e["SLURM_TASK_PID"] == str(os.getpid()))\''
    )
    lines = sorted(run_script(span, body, "-N2", "-n3").splitlines())
    assert lines == [
        "0: True batch-[0-1] 2,1 0,1 True",
        "1: True batch-[0-1] 2,1 0,1 True",
        "2: True batch-[0-1] 2,1 2 True",
    ]


@pytest.mark.own_daemon
def test_exit_codes_and_their_texts(span: Span) -> None:
    body = """
span srun sh -c 'exit $((SLURM_PROCID * 3))'; echo rc $?
span srun -n1 sh -c 'kill -9 $$'; echo rc $?
span srun -n1 nosuch; echo rc $?
span srun -n1 --foo true; echo rc $?
span srun -N3 true; echo rc $?
"""
    text = run_script(span, body, "-N2", "-n2")
    assert text.splitlines() == [
        "srun: error: batch-1: task 1: Exited with exit code 3",
        "rc 3",
        "srun: warning: can't run 1 processes on 2 nodes, setting nnodes to 1",
        "srun: error: batch-0: task 0: Killed",
        "srun: Force Terminated StepId=1.1",
        "rc 137",
        "srun: warning: can't run 1 processes on 2 nodes, setting nnodes to 1",
        "slurmstepd: error: execve(): nosuch: No such file or directory",
        "srun: error: batch-0: task 0: Exited with exit code 2",
        "rc 2",
        "srun: unrecognized option '--foo'",
        'Try "srun --help" for more information',
        "rc 255",
        "srun: error: Unable to create step for job 1: Only allocated 2 nodes asked for 3",
        "rc 1",
    ]


@pytest.mark.own_daemon
def test_files_of_ranks(span: Span) -> None:
    body = "span srun --output o.%j.%s.%2t --error e.%J sh -c 'echo out $SLURM_PROCID; echo err $SLURM_PROCID >&2'"
    run_script(span, body, "-N2", "-n2")
    names = sorted(path.name for path in span.folder.glob("[oe].*"))
    assert names == ["e.1.0", "o.1.0.00", "o.1.0.01"]
    assert [(span.folder / name).read_text() for name in names[1:]] == ["out 0\n", "out 1\n"]
    assert sorted((span.folder / "e.1.0").read_text().split("\n")) == ["", "err 0", "err 1"]


def test_input_goes_to_every_rank(span: Span) -> None:
    assert sorted(run_script(span, "printf 'a\\nb' | span srun -l cat", "-N2").splitlines()) == [
        *("0: a", "0: b", "1: a", "1: b"),
    ]


def test_the_allocation_is_found_by_the_job_id_alone(span: Span) -> None:
    body = """
for name in $(compgen -e | grep -E '^(SLURM|SRUN|SBATCH|OVERSPAN)' | grep -v '^SLURM_JOB_ID$'); do unset $name; done
span srun -n2 --nodes=2 -l sh -c 'hostname; echo $SLURM_JOB_NODELIST'
"""
    lines = sorted(run_script(span, body, "-N2").splitlines())
    assert lines == ["0: batch-0", "0: batch-[0-1]", "1: batch-1", "1: batch-[0-1]"]


@pytest.mark.own_daemon
def test_components_of_a_hetjob(span: Span) -> None:
    body = """
span srun --het-group=0,1 sh -c 'echo all $SLURM_PROCID/$SLURM_NTASKS $(hostname)'
span srun sh -c 'echo A $SLURM_PROCID' : -n1 sh -c 'echo B $SLURM_PROCID $(hostname)'
"""
    lines = sorted(run_script(span, body, "-N1 -n2", "hetjob", "-N1").splitlines())
    assert lines == [
        *("A 0", "A 1", "B 2 het-1-0"),
        *("all 0/3 het-0-0", "all 1/3 het-0-0", "all 2/3 het-1-0"),
    ]
    assert [task["state"] for task in span.job(1)["tasks"]] == ["COMPLETED", "COMPLETED"]


def test_gpus_of_tasks(span: Span) -> None:
    body = "span srun -l --gpus-per-task=1 sh -c 'echo $CUDA_VISIBLE_DEVICES'"
    lines = run_script(span, body, "-N1", "-n2", "--gpus-per-node=2").splitlines()
    assert sorted(line.partition(" ")[2] for line in lines) == ["0", "1"]


@pytest.mark.own_daemon
def test_the_body_alone_decides_how_the_job_ends(span: Span) -> None:
    run_script(span, "span srun true; exit 3", "-N2", code=3)
    assert span.job(1)["state"] == "FAILED"
    run_script(span, "span srun false; exit 0", "-N2")
    assert span.job(2)["state"] == "COMPLETED"


def test_a_signal_before_the_limit_reaches_the_ranks_not_the_shell(span: Span) -> None:
    job = start_script(span, TRAPS, "-N2", *LATE, lines=2)
    give_notice(span, job)
    span.until(job, "COMPLETED")
    text = (span.folder / "out").read_text()
    assert sorted(line for line in text.splitlines() if line.startswith(("0: rank", "1: rank"))) == [
        *("0: rank got USR1", "1: rank got USR1"),
    ]
    assert "batch got it" not in text and text.endswith("end\n")


def test_a_checkpoint_at_the_signal_and_a_requeue_from_inside(span: Span) -> None:
    body = """
[ "${SLURM_RESTART_COUNT:-0}" = 0 ] || { cat saved; exit 0; }
span srun bash -c 'trap "echo state >saved; span scontrol requeue $SLURM_JOB_ID; sleep 600" USR1
    echo ready; while :; do sleep 0.05; done'
"""
    job = start_script(span, body, *LATE, lines=1)
    give_notice(span, job)
    span.until(job, "COMPLETED")
    assert (span.folder / "out").read_text().endswith("state\n")


@pytest.mark.parametrize("victim", ["srun", "span-step", "job"])
def test_nothing_is_left_when_something_is_killed(span: Span, victim: str) -> None:
    mark = f"marked-{os.getpid()}-{victim}"
    body = f"span srun bash -c 'echo ready; (exec -a {mark} sleep 300) & exec -a {mark} sleep 300'"
    body += "; until [ -e go ]; do sleep 0.05; done"
    job = start_script(span, body, "-N2", lines=2)
    span.wait_until(lambda: len(find_processes(f"{mark}\0")) == 4, 10, "the ranks and what they left")
    if victim == "job":
        span.run("scancel", str(job))
        span.until(job, "CANCELLED")
    elif victim == "srun":
        kill_all(find_srun(span))
    else:
        kill_all(find_named(span, victim))
    span.wait_until(lambda: not find_processes(f"{mark}\0"), 15, "the end of every rank")
    (span.folder / "go").touch()
    span.until(job, "CANCELLED" if victim == "job" else "COMPLETED")


def find_srun(span: Span) -> list[int]:
    """The srun programs of this test, without the runners that were forked from them."""
    found = set(find_processes("\0srun\0")) & set(find_processes(str(span.state)))
    return [pid for pid in found if kernel.read_comm(pid) != "span-step"]


def test_a_step_daemon_that_dies_is_a_lost_node(span: Span) -> None:
    job = start_script(span, "span srun bash -c 'echo ready; sleep 300'", "-N2", "--no-requeue", lines=2)
    (daemon,) = find_named(span, "span-stepd")
    os.kill(daemon, signal.SIGKILL)
    span.until(job, "NODE_FAIL")
    span.wait_until(lambda: not find_named(span, "span-step"), 10, "the end of the step")


def test_a_supervisor_that_is_killed_loses_no_step(span: Span) -> None:
    body = "span srun bash -c 'echo ready; until [ -e go ]; do sleep 0.05; done; echo done'; exit 4"
    job = start_script(span, body, "-N2", lines=2)
    kill_all(find_named(span, "span-supervisor"))
    (span.folder / "go").touch()
    span.until(job, "FAILED")
    assert span.job(job)["exit_code"] == 4
    assert (span.folder / "out").read_text().count("done") == 2


@pytest.mark.own_daemon
def test_one_bad_exit_ends_the_others(span: Span) -> None:
    # The bad one ends once the other runs.
    bad = "[ $SLURM_PROCID = 1 ] && { until [ -e up ]; do sleep 0.05; done; exit 7; }"
    body = f"span srun -K sh -c '{bad}; touch up; sleep 300'; echo rc $?"
    text = run_script(span, body, "-N2")
    assert "srun: error: batch-1: task 1: Exited with exit code 7\nsrun: Terminating StepId=1.0" in text
    assert "srun: error: batch-0: task 0: Terminated" in text and text.endswith("rc 143\n")


@pytest.mark.own_daemon
def test_ends_that_are_alike_are_told_in_one_line(span: Span) -> None:
    body = "span srun -n3 sh -c 'echo ready; until [ -e die ]; do sleep 0.05; done; kill -9 $$'; echo rc $?"
    job = start_script(span, body, lines=3)
    # Srun stands still meanwhile: it gathers what it hears within a moment, and a busy machine tears ends apart.
    (srun,) = find_srun(span)
    os.kill(srun, signal.SIGSTOP)
    (span.folder / "die").touch()
    span.wait_until(lambda: not find_named(span, "span-step"), 10, "all to be told")
    os.kill(srun, signal.SIGCONT)
    span.until(job, "COMPLETED")
    text, host = (span.folder / "out").read_text(), os.uname().nodename
    assert text.splitlines()[-3:] == [
        *(f"srun: error: {host}: tasks 0-2: Killed", "srun: Force Terminated StepId=1.0", "rc 137"),
    ]


@pytest.mark.own_daemon
def test_components_write_to_files_of_their_own(span: Span) -> None:
    body = "span srun -n2 -o a sh -c 'echo first' : -o b-%j --open-mode=append sh -c 'echo second; echo bad >&2'"
    (span.folder / "b-1").write_text("old\n")
    run_script(span, body, "-n2", "hetjob", "-n1")
    assert (span.folder / "a").read_text() == "first\nfirst\n"
    assert sorted((span.folder / "b-1").read_text().splitlines()) == ["bad", "old", "second"]


def test_signals_of_scancel(span: Span) -> None:
    body = "trap 'echo batch got it' USR1; echo ready; until [ -e go ]; do sleep 0.05; done"
    job = start_script(span, body, lines=1)
    out = span.folder / "out"
    span.run("scancel", "-s", "USR1", str(job))
    span.run("scancel", "-b", "-s", "USR1", str(job))
    span.wait_until(lambda: out.read_text().count("batch got it") == 1, 10, "the signal to the script alone")
    span.run("scancel", "-f", "-s", "USR1", str(job))
    span.wait_until(lambda: out.read_text().count("batch got it") == 2, 10, "the signal to all")
    (span.folder / "go").touch()
    span.until(job, "COMPLETED")
    assert out.read_text().count("batch got it") == 2


def test_a_folder_with_the_jobs_id_may_come_late(span: Span) -> None:
    job = int(span.run("sbatch", "--parsable", "--hold", "-o", "late/%j/out", "--wrap", "echo here").stdout)
    begun = span.state / f"clusters/local/runs/{job}/nodes"
    # The program has a few seconds from its start: the command that lets it start is not waited for.
    with subprocess.Popen([SPAN, "release", str(job)], env=span.environment):
        span.wait_until(lambda: list(begun.glob("*.claim")), 20, "the start")
        (span.folder / "late" / str(job)).mkdir(parents=True)
    span.until(job, "COMPLETED")
    assert (span.folder / "late" / str(job) / "out").read_text() == "here\n"
    span.until(span.wrap("true", "-o", "missing/out"), "FAILED")


def test_multi_prog_runs_what_the_file_says(span: Span) -> None:
    (span.folder / "programs").write_text("0 echo server %t\n* echo worker %t %o\n")
    assert sorted(run_script(span, "span srun --multi-prog programs", "-N2", "-n3").splitlines()) == [
        *("server 0", "worker 1 1", "worker 2 2"),
    ]


def test_suspended_ranks_stand_still(span: Span) -> None:
    body = """span srun python3 -c '
import signal
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCONT})
print("ready", flush=True)
signal.sigwait({signal.SIGCONT})
print("resumed")'"""
    job = start_script(span, body, "-N2", lines=2)
    ranks = find_processes("signal.sigwait")
    assert len(ranks) >= 2
    span.run("scontrol", "suspend", str(job))
    span.until(job, "SUSPENDED")
    span.wait_until(lambda: all(find_state(pid) == "T" for pid in ranks), 10, "ranks that are stopped")
    assert "resumed" not in (span.folder / "out").read_text()
    span.run("scontrol", "resume", str(job))
    span.until(job, "COMPLETED")
    assert (span.folder / "out").read_text().count("resumed") == 2


def find_state(pid: int) -> str:
    process = kernel.read_process(pid)
    return "" if process is None else process.state


def test_a_task_of_a_job_file_has_steps_of_its_own(span: Span) -> None:
    command = "span srun -n2 sh -c 'echo $(hostname) $SLURM_PROCID/$SLURM_NTASKS'"
    job = span.submit(f"name: pair\nnum_nodes: 2\nrun: |\n  {command}\n")
    span.until(job, "COMPLETED")
    lines = sorted(line.partition("| ")[2] for line in span.log(job).splitlines())
    assert lines == ["pair-0 0/2", "pair-0 1/2", "pair-1 0/2", "pair-1 1/2"]


def test_the_last_line_of_a_step_says_why_it_was_cancelled(span: Span) -> None:
    job = start_script(span, "span srun bash -c 'echo ready; sleep 300'", "-t", "60", lines=1)
    span.run("scontrol", "update", f"jobid={job}", "timelimit=0:01")
    span.until(job, "TIMEOUT")
    lines = [line for line in (span.folder / "out").read_text().splitlines() if "CANCELLED AT" in line]
    words = [re.sub(r" ON \S+ CANCELLED AT \S+ ", " ", line) for line in lines]
    assert words == [f"slurmstepd: error: *** {what} DUE TO TIME LIMIT ***" for what in (f"JOB {job}", f"STEP {job}.0")]

"""A group inside one allocation: supervisor and agents are real, Slurm is a stand-in."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.system.runtime.allocations import HELD, Allocation, find_programs
from tests.waiting import WaitUntil

from overspan.bridge.model import events
from overspan.bridge.model.causes import Cause
from overspan.bridge.model.spec import Backoff, Need, NeedKind, Ready, ReadyKind, RetryPolicy, TaskSpec
from overspan.bridge.model.states import State
from overspan.bridge.runtime.core import isolation, kernel

FOREVER = "echo up; while :; do sleep 0.05; done"
QUICK = Backoff(first=0.0)


@pytest.fixture
def allocation(tmp_path: Path, wait_until: WaitUntil) -> Iterator[Allocation]:
    made = Allocation(tmp_path, wait_until)
    yield made
    made.clean()


def test_a_group_runs_to_its_end(allocation: Allocation) -> None:
    write = "echo $OVERSPAN_HOST $SLURM_JOB_ID $SLURM_NTASKS $SLURM_PROCID $SLURM_NODELIST $SLURM_STEP_NODELIST"
    allocation.plan(TaskSpec("train", run=write, num_nodes=2), TaskSpec("judge", run=write))
    allocation.start(SLURM_MEM_PER_NODE="100", CUDA_VISIBLE_DEVICES="0,1")
    assert allocation.end() == 0, allocation.log.read_text()
    assert allocation.ended and allocation.replay().state is State.COMPLETED
    (granted,) = allocation.events("Granted")
    assert granted["members"] == [
        ["train", 0, "n1", "192.0.2.1", []],
        ["train", 1, "n2", "192.0.2.2", []],
        ["judge", 0, "n1", "192.0.2.1", []],
    ]
    assert allocation.text("train.1.0.0") == "train-1.rl 40 2 1 n[1-2] n[1-2]\n"
    assert allocation.text("judge.0.0.0") == "judge-0.rl 40 1 0 n1 n1\n"
    program = f"{allocation.python} -I -S {allocation.archive} node"
    assert sorted(allocation.sruns()) == [
        f"--nodes=1 --ntasks=1 --nodelist=n1 --exact --mem=10M --job-name=judge {program}",
        f"--nodes=1 --ntasks=1 --nodelist=n1 --exact --mem=10M --job-name=train {program}",
        f"--nodes=1 --ntasks=1 --nodelist=n2 --exact --mem=10M --job-name=train {program}",
    ]
    started, ended = allocation.events("NodeStarted", "judge"), allocation.events("NodeEnded", "judge")
    assert granted["at"] <= started[0]["at"] <= ended[0]["at"]
    assert not allocation.below() and not find_programs(allocation.folder)


def test_an_auxiliary_is_ended_after_the_primary(allocation: Allocation) -> None:
    serve = "trap 'echo flushing; sleep 0.2; echo flushed; exit 0' TERM; " + FOREVER
    allocation.plan(
        TaskSpec("train", run="until [ -e go ]; do sleep 0.02; done"),
        TaskSpec("serve", run=serve, primary=False, grace_period=300),
        TaskSpec("deaf", run="trap '' TERM; " + FOREVER, primary=False, grace_period=1),
    )
    allocation.start()
    for key in ("serve.0.0.0", "deaf.0.0.0"):
        allocation.until_text(key, "up")
    (allocation.work / "go").touch()
    assert allocation.end() == 0
    assert allocation.replay().state is State.COMPLETED
    assert allocation.text("serve.0.0.0") == "up\nflushing\nflushed\n"
    (end,) = allocation.events("NodeEnded", "train")
    (term,) = allocation.events("Terminate", "serve")
    assert end["at"] <= term["at"]
    (killed,) = allocation.events("NodeEnded", "deaf")
    assert killed["signal"] == signal.SIGKILL
    assert allocation.replay().task("deaf").state is State.COMPLETED


def test_what_ends_just_after_its_parent_is_not_waited_for(allocation: Allocation) -> None:
    run = "(trap 'exit 0' TERM; echo up; while :; do sleep 0.001; done) & wait"
    names = [f"serve{number}" for number in range(6)]
    allocation.plan(
        TaskSpec("train", run="until [ -e go ]; do sleep 0.02; done"),
        *(TaskSpec(name, run=run, primary=False, grace_period=300) for name in names),
    )
    allocation.start()
    for name in names:
        allocation.until_text(f"{name}.0.0.0", "up")
    (allocation.work / "go").touch()
    assert allocation.end() == 0


@pytest.mark.parametrize(
    ("run", "code", "number", "status"), [("exit 7", 7, 0, 7), ("kill -USR1 $$; sleep 9", 0, signal.SIGUSR1, 1)]
)
def test_exit_codes_and_signals_are_kept(allocation: Allocation, run: str, code: int, number: int, status: int) -> None:
    allocation.plan(TaskSpec("main", run=run))
    allocation.start()
    assert allocation.end() == status
    job = allocation.replay()
    assert (job.state, job.exit_code, job.signal) == (State.FAILED, code, number)


def test_a_program_that_kills_itself_by_term_fails_a_second_later(allocation: Allocation) -> None:
    allocation.plan(TaskSpec("main", run="kill -TERM $$; sleep 900"))
    allocation.start()
    assert allocation.end() == 1
    job = allocation.replay()
    assert (job.state, job.signal) == (State.FAILED, signal.SIGTERM)
    (granted,), (ended,) = allocation.events("Granted"), allocation.events("NodeEnded")
    assert ended["at"] - granted["at"] < 600


def test_the_setup_is_told_apart(allocation: Allocation) -> None:
    allocation.plan(TaskSpec("main", setup="exit 3", run="true"))
    allocation.start()
    assert allocation.end() == 3
    assert allocation.replay().reason == "SetupFailed"


def test_what_cannot_be_started_says_why_and_where(allocation: Allocation) -> None:
    allocation.plan(TaskSpec("main", run="true", workdir="/does/not/exist"))
    allocation.start()
    assert allocation.end() == 1
    (ended,) = allocation.events("NodeEnded")
    assert ended["cause"] == "launch"
    assert ended["detail"] == "cannot enter the working directory /does/not/exist: No such file or directory on n1"


def test_a_failed_task_starts_again_in_place(allocation: Allocation) -> None:
    run = "echo $OVERSPAN_ATTEMPT; [ $OVERSPAN_ATTEMPT = 1 ]"
    allocation.plan(TaskSpec("main", run=run, retry=RetryPolicy(max_restarts_on_errors=2, backoff=QUICK)))
    allocation.start()
    assert allocation.end() == 0
    assert [allocation.text(f"main.0.{number}.0") for number in (0, 1)] == ["0\n", "1\n"]
    assert len(allocation.sruns()) == 2


def test_a_cancel_is_term_and_grace(allocation: Allocation) -> None:
    stubborn = "trap 'echo flushed; exit 0' TERM; " + FOREVER
    allocation.plan(TaskSpec("a", run=stubborn), TaskSpec("b", run=stubborn, primary=False))
    allocation.start()
    for key in ("a.0.0.0", "b.0.0.0"):
        allocation.until_text(key, "up")
    allocation.order(events.Cancel(time.time(), by="alice"))
    assert allocation.end() == 1
    assert allocation.ended and allocation.replay().state is State.CANCELLED
    assert [allocation.text(key) for key in ("a.0.0.0", "b.0.0.0")] == ["up\nflushed\n"] * 2
    assert not find_programs(allocation.folder)


def test_a_signal_reaches_the_program_once(allocation: Allocation) -> None:
    run = "trap 'echo got' USR1; until [ -e go ]; do [ -e up ] || { echo up; : >up; }; sleep 0.02; done"
    allocation.plan(TaskSpec("main", run=run))
    allocation.start()
    allocation.until_text("main.0.0.0", "up")
    allocation.order(events.Signal(time.time(), int(signal.SIGUSR1)))
    allocation.until_text("main.0.0.0", "got")
    (allocation.work / "go").touch()
    assert allocation.end() == 0
    assert allocation.text("main.0.0.0") == "up\ngot\n"


def test_a_task_waits_for_another_that_is_ready(allocation: Allocation) -> None:
    ready = Ready(ReadyKind.FILE, "ready", 0.05)
    allocation.plan(
        TaskSpec("serve", run="sleep 0.1; touch ready; " + FOREVER, primary=False, ready=ready, grace_period=300),
        TaskSpec("main", run="test -e ready", needs=(Need("serve", NeedKind.READY),)),
    )
    allocation.start()
    assert allocation.end() == 0
    assert allocation.events("TaskReady")[0]["at"] <= allocation.events("NodeStarted", "main")[0]["at"]


def test_without_its_supervisor_an_agent_ends_everything(allocation: Allocation) -> None:
    run = "trap 'echo flushed; exit 0' TERM; (trap '' TERM; while :; do sleep 0.05; done) & " + FOREVER
    # What has to be done in it is done by a shell that may have to wait for its turn.
    allocation.plan(TaskSpec("main", run=run, grace_period=10))
    allocation.start()
    allocation.until_text("main.0.0.0", "up")
    assert allocation.process is not None
    allocation.process.kill()
    allocation.wait_until(lambda: not find_programs(allocation.folder), 10, "the end of everything")
    assert allocation.text("main.0.0.0") == "up\nflushed\n"
    allocation.wait_until(lambda: not allocation.below(), 10, "the end of srun")
    assert not allocation.ended


def test_slurms_term_leaves_the_journal_open(allocation: Allocation) -> None:
    """As scancel on the whole job: every process of every step has TERM, then the batch script."""
    slow = "trap 'echo got; until [ -e go ]; do sleep 0.02; done; echo flushed; exit 0' TERM; " + FOREVER
    allocation.plan(TaskSpec("quick", run=FOREVER), TaskSpec("slow", run=slow))
    allocation.start(HELD)
    for key in ("quick.0.0.0", "slow.0.0.0"):
        allocation.until_text(key, "up")
    before = allocation.until("NodeStarted", count=2) and allocation.lines
    for process in (*find_programs(allocation.folder), *find_agents(allocation)):
        kernel.signal_process(process, signal.SIGTERM)
    allocation.until_text("slow.0.0.0", "got")
    allocation.wait_until(lambda: len(find_agents(allocation)) == 1, 10, "the end of quick's agent")
    assert allocation.process is not None
    allocation.process.send_signal(signal.SIGTERM)
    allocation.wait_until(lambda: "TERM" in allocation.log.read_text(), 10, "the supervisor has it")
    (allocation.work / "go").touch()
    assert allocation.end() == 128 + signal.SIGTERM
    assert allocation.text("slow.0.0.0") == "up\ngot\nflushed\n"
    assert allocation.lines == before
    assert not allocation.below()


def test_a_term_that_only_the_supervisor_got_is_passed_on(allocation: Allocation) -> None:
    allocation.plan(TaskSpec("main", run="trap 'echo flushed; exit 0' TERM; " + FOREVER))
    allocation.start()
    allocation.until_text("main.0.0.0", "up")
    allocation.until("NodeStarted")
    assert allocation.process is not None
    allocation.process.send_signal(signal.SIGTERM)
    assert allocation.end() == 128 + signal.SIGTERM
    assert allocation.text("main.0.0.0") == "up\nflushed\n"
    assert not allocation.ended and not allocation.events("NodeEnded")


def test_a_step_that_slurm_cannot_make_is_a_failed_launch(allocation: Allocation) -> None:
    (allocation.folder / "refuse").touch()
    allocation.plan(TaskSpec("main", run="true"))
    allocation.start()
    assert allocation.end() == 1
    (ended,) = allocation.events("NodeEnded")
    text = "srun: error: Unable to create step for job 40: Requested node configuration is not available"
    assert (ended["cause"], ended["signal"], ended["detail"]) == ("launch", 53, text)
    assert f"main.0.0.0: {text}" in allocation.log.read_text()


def test_without_srun_nothing_starts(allocation: Allocation) -> None:
    (allocation.folder / "bin" / "srun").unlink()
    allocation.plan(TaskSpec("main", run="true"))
    allocation.start(PATH=f"{allocation.folder}/bin")
    assert allocation.end() == 1
    assert "srun" in allocation.events("NodeEnded")[0]["detail"]


def test_a_killed_agent_is_a_lost_node(allocation: Allocation) -> None:
    allocation.plan(TaskSpec("main", run=FOREVER, retry=RetryPolicy(max_recoveries=0)))
    allocation.start()
    allocation.until_text("main.0.0.0", "up")
    assert kernel.signal_process(find_agents(allocation)[0], signal.SIGKILL)
    assert allocation.end() == 1
    (ended,) = allocation.events("NodeEnded")
    assert ended["cause"] == Cause.NODE.value
    assert allocation.replay().state is State.NODE_FAIL


def test_a_component_whose_tasks_have_ended_is_given_back(allocation: Allocation) -> None:
    allocation.plan(
        TaskSpec("train", run="until [ -e go ]; do sleep 0.02; done"),
        TaskSpec(
            "warm", run="echo $SLURM_HET_SIZE $SLURM_JOB_ID_HET_GROUP_1 $SLURM_JOB_NODELIST_HET_GROUP_1 $SLURM_NODELIST"
        ),
        components=[["train"], ["warm"]],
    )
    allocation.start()
    given = allocation.folder / "scancels"
    allocation.wait_until(given.exists, 10, "scancel")
    allocation.wait_until(lambda: given.read_text() == "41\n", 10, "its raw id")
    (allocation.work / "go").touch()
    assert allocation.end() == 0
    assert allocation.text("warm.0.0.0") == "2 41 n2 n2\n"
    assert any("--het-group=1 --nodes=1 --ntasks=1 --nodelist=n2" in words for words in allocation.sruns())
    assert given.read_text() == "41\n"


def test_names_are_resolved_inside(allocation: Allocation) -> None:
    if isolation.probe().method == isolation.ENV:
        pytest.skip("neither user namespaces nor libnss_wrapper.so here")
    run = "getent hosts peer-0.rl main-0; echo $HOSTNAME"
    allocation.plan(TaskSpec("main", run=run), TaskSpec("peer", run="true", num_nodes=2))
    allocation.start()
    assert allocation.end() == 0
    lines = allocation.text("main.0.0.0").splitlines()
    assert [line.split()[:2] for line in lines[:2]] == [["192.0.2.1", "peer-0.rl"], ["192.0.2.1", "main-0.rl"]]
    assert lines[2] == "main-0"


def test_a_plan_of_another_submission_is_refused(allocation: Allocation) -> None:
    allocation.plan(TaskSpec("main", run="true"))
    path = allocation.path / "placement.0.json"
    path.write_text(path.read_text().replace("t-7", "t-8"))
    allocation.start()
    assert allocation.end() == 70
    assert "are not of one submission" in allocation.log.read_text()


def find_agents(allocation: Allocation) -> list[kernel.Process]:
    """The living agents."""
    return [process for process in allocation.below() if kernel.read_comm(process.pid) == "span-agent"]

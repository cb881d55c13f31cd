"""A run directory that is damaged, gone or out of reach: its run ends with the reason, and nothing else does."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.contract.conformance import Follower
from tests.system.local.machine import list_supervisors
from tests.system.local.stories import make_job, open_on, order_of, play, submit

from overspan.adapters.local import LocalCluster
from overspan.bridge.model.events import Cancel
from overspan.bridge.model.states import State
from overspan.bridge.runtime.core import kernel
from overspan.bridge.runtime.core.live_processes import find_live_processes

# Says that it was asked to end, and leaves a child that carries nothing of its environment.
WORK = """
trap 'echo asked >> asked; exit 0' TERM
env -i sleep 1000 &
setsid sleep 1000 &
echo ran >> ran
while :; do sleep 0.05; done
"""
HASTY = """
import sys
sys.path.insert(0, sys.argv[-3])
from overspan.bridge.runtime.local import forkserver, supervisor
supervisor.PATIENCE = 0.1
sys.exit(forkserver.main())
"""


def append_garbage(run: Path) -> None:
    with (run / "journal.0.jsonl").open("a") as file:
        file.write("GARBAGE {{{\n")


def fill_with_bytes(run: Path) -> None:
    (run / "journal.0.jsonl").write_bytes(bytes(range(256)) * 64 + b"\n")


def empty_the_journal(run: Path) -> None:
    (run / "journal.0.jsonl").write_bytes(b"")


def remove_the_journal(run: Path) -> None:
    (run / "journal.0.jsonl").unlink()


def put_a_folder_there(run: Path) -> None:
    (run / "journal.0.jsonl").unlink()
    (run / "journal.0.jsonl").mkdir()


def remove_the_plan(run: Path) -> None:
    (run / "plan.0.json").unlink()


def damage_the_plan(run: Path) -> None:
    (run / "plan.0.json").write_text('{"format": 1, "token": "t", "job": {"id"')


def damage_the_grant(run: Path) -> None:
    (run / "grant.0.json").write_text("[")


def remove_the_claims(run: Path) -> None:
    shutil.rmtree(run / "nodes")


def damage_the_records(run: Path) -> None:
    for record in (run / "nodes").glob("*.start"):
        record.write_text("GARBAGE {{{\n")


def make_orders_a_folder(run: Path) -> None:
    (run / "orders.0.jsonl").mkdir()


def remove_everything(run: Path) -> None:
    shutil.rmtree(run)


def put_a_file_there(run: Path) -> None:
    shutil.rmtree(run)
    run.write_text("")


DEAD = [
    append_garbage,
    fill_with_bytes,
    empty_the_journal,
    put_a_folder_there,
    remove_the_plan,
    damage_the_plan,
    damage_the_grant,
    remove_the_claims,
    damage_the_records,
    make_orders_a_folder,
    remove_everything,
    put_a_file_there,
]
ALIVE = [remove_the_journal, put_a_folder_there, make_orders_a_folder, remove_everything]


@pytest.fixture
def hasty(root: Path) -> str:
    """An interpreter whose supervisors believe damage at once."""
    python = root.parent / "python"
    python.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -I -S -c {shlex.quote(HASTY)} "$@"\n')
    python.chmod(0o755)
    return str(python)


def kill_supervisors(root: Path) -> None:
    for process in list_supervisors(root):
        assert kernel.signal_process(process, signal.SIGKILL)


async def begin(cluster: LocalCluster, root: Path, group: bool) -> Follower:
    """Job 1, which is to be damaged, beside job 2, which is not."""
    follower = await submit(cluster, make_job(root, 1, WORK, group=group), make_job(root, 2))
    await follower.until_state("1.0", State.RUNNING)
    await follower.until_state("2.0", State.RUNNING)
    await follower.until(lambda: (root.parent / "ran").exists(), "the work")
    return follower


async def see_the_end(cluster: LocalCluster, follower: Follower, root: Path) -> None:
    """Job 1 has ended, all of it, and job 2 goes on."""
    job = follower.jobs["1.0"]
    assert (job.reason, job.launch) == ("SystemFailure", 0)
    left = find_live_processes(str(root / "runs" / "1"))
    assert not left.shims and not left.orphans
    assert (root.parent / "asked").read_text() == "asked\n"
    assert (root.parent / "ran").read_text() == "ran\n"
    await follower.until(lambda: not (root / "tickets" / "1.0").exists(), "the ticket is given back")
    assert (await cluster.nodes())[0].cpus_used == 1
    (trouble,) = cluster.troubles()
    assert trouble.startswith("job 1 cannot be looked after, so it was ended: ") and len(trouble) > 60
    assert follower.jobs["2.0"].state is State.RUNNING
    (root.parent / "go").touch()
    await follower.until_state("2.0", State.FAILED)
    assert follower.jobs["2.0"].exit_code == 5
    await follower.until(lambda: not list((root / "tickets").iterdir()), "all tickets are given back")
    assert (await cluster.nodes())[0].cpus_used == 0


@pytest.mark.parametrize("group", [False, True], ids=["single", "group"])
@pytest.mark.parametrize("damage", DEAD)
def test_a_run_whose_supervisor_dies_and_whose_folder_is_damaged_ends(
    root: Path, hasty: str, damage: Callable[[Path], None], group: bool
) -> None:
    async def story(cluster: LocalCluster) -> None:
        follower = await begin(cluster, root, group)
        damage(root / "runs" / "1")
        kill_supervisors(root)
        await follower.until_state("1.0", State.FAILED)
        await see_the_end(cluster, follower, root)

    play(open_on(root, cpus=2, python=hasty), story)


@pytest.mark.parametrize("damage", ALIVE)
def test_a_run_whose_folder_is_damaged_below_its_living_supervisor_ends(
    root: Path, hasty: str, damage: Callable[[Path], None]
) -> None:
    async def story(cluster: LocalCluster) -> None:
        follower = await begin(cluster, root, group=False)
        damage(root / "runs" / "1")
        await follower.until_state("1.0", State.FAILED)
        await see_the_end(cluster, follower, root)

    play(open_on(root, cpus=2, python=hasty), story)


def test_a_program_whose_shim_dies_without_a_record_is_ended_and_not_started_again(root: Path, hasty: str) -> None:
    async def story(cluster: LocalCluster) -> None:
        follower = await begin(cluster, root, group=False)
        damage_the_records(root / "runs" / "1")
        for shim in find_live_processes(str(root / "runs" / "1")).shims:
            assert kernel.signal_process(shim, signal.SIGKILL)
        await follower.until_state("1.0", State.FAILED)
        await see_the_end(cluster, follower, root)

    play(open_on(root, cpus=2, python=hasty), story)


@pytest.mark.parametrize("supervised", [False, True], ids=["dead", "alive"])
@pytest.mark.parametrize("damage", [append_garbage, damage_the_plan, damage_the_grant, remove_everything])
def test_a_run_that_was_damaged_while_no_daemon_was_there_ends(
    root: Path, hasty: str, damage: Callable[[Path], None], supervised: bool
) -> None:
    jobs = {"1.0": make_job(root, 1, WORK), "2.0": make_job(root, 2)}

    async def first(cluster: LocalCluster) -> None:
        await begin(cluster, root, group=False)

    async def second(cluster: LocalCluster) -> None:
        follower = Follower(cluster, jobs)
        if supervised and damage in (append_garbage, damage_the_plan):
            # What a living supervisor has in memory it does not read again.
            await follower.until_state("1.0", State.RUNNING)
            kill_supervisors(root)
        await follower.until_state("2.0", State.RUNNING)
        await follower.until_state("1.0", State.FAILED)
        await see_the_end(cluster, follower, root)

    play(open_on(root, cpus=2, python=hasty), first)
    damage(root / "runs" / "1")
    if not supervised:
        kill_supervisors(root)
    play(open_on(root, cpus=2, python=hasty), second)


def test_cancelling_a_run_whose_folder_is_gone_ends_it_as_cancelled(root: Path, hasty: str) -> None:
    async def story(cluster: LocalCluster) -> None:
        follower = await begin(cluster, root, group=True)
        for process in list_supervisors(root):
            kernel.signal_process(process, signal.SIGSTOP)
        shutil.rmtree(root / "runs" / "1")
        assert await cluster.order([order_of("c", "1.0", Cancel(time.time()))]) == [None]
        await follower.until_state("1.0", State.CANCELLED)
        assert (root.parent / "asked").read_text() == "asked\n"
        for process in list_supervisors(root):
            kernel.signal_process(process, signal.SIGCONT)

    play(open_on(root, cpus=2, python=hasty), story)


def test_a_program_that_had_ended_has_its_own_outcome_although_the_journal_is_damaged(root: Path, hasty: str) -> None:
    async def story(cluster: LocalCluster) -> None:
        follower = await submit(cluster, make_job(root, 1, "touch ran; while [ ! -e go ]; do sleep 0.02; done; exit 7"))
        await follower.until_state("1.0", State.RUNNING)
        for process in list_supervisors(root):
            kernel.signal_process(process, signal.SIGSTOP)
        (root.parent / "go").touch()
        nodes = root / "runs" / "1" / "nodes"
        await follower.until(lambda: bool(list(nodes.glob("*.end"))), "the record of the end")
        append_garbage(root / "runs" / "1")
        kill_supervisors(root)
        await follower.until_state("1.0", State.FAILED)
        assert (follower.jobs["1.0"].exit_code, follower.jobs["1.0"].reason) == (7, "NonZeroExitCode")

    play(open_on(root, python=hasty), story)


def test_a_waiting_job_that_can_have_no_folder_keeps_nobody_from_starting(root: Path, hasty: str) -> None:
    async def story(cluster: LocalCluster) -> None:
        follower = await submit(cluster, make_job(root, 1), make_job(root, 2), make_job(root, 3, "exit 3"))
        await follower.until_state("1.0", State.RUNNING)
        (root / "runs" / "2").touch()
        (root.parent / "go").touch()
        await follower.until_state("3.0", State.FAILED)
        await follower.until(lambda: follower.jobs["2.0"].launch == 1, "the second job is to be submitted again")
        assert follower.jobs["3.0"].exit_code == 3

    play(open_on(root, python=hasty), story)


def test_a_shim_whose_folder_is_gone_leaves_nothing_behind(root: Path, hasty: str) -> None:
    async def story(cluster: LocalCluster) -> None:
        follower = await submit(
            cluster, make_job(root, 1, "setsid sleep 1000 & touch ran; while [ ! -e go ]; do sleep 0.02; done")
        )
        await follower.until_state("1.0", State.RUNNING)
        await follower.until(lambda: (root.parent / "ran").exists(), "the work")
        for process in list_supervisors(root):
            kernel.signal_process(process, signal.SIGSTOP)
        run = str(root / "runs" / "1")
        shutil.rmtree(run)
        (root.parent / "go").touch()
        await follower.until(lambda: not any(find_live_processes(run)[1:]), "everything has ended")
        for process in list_supervisors(root):
            kernel.signal_process(process, signal.SIGCONT)
        await follower.until_state("1.0", State.FAILED)
        assert os.path.basename(run) == "1"

    play(open_on(root, python=hasty), story)

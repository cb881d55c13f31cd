"""What Slurm itself decides about jobs on a real site: limits, maintenance, holds, lost nodes, preemption, typed GPUs.

Two nodes with GPUs of the type a100. A partition `low` whose jobs are ended for those of `high`.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from tests.contract.conformance import Follower
from tests.rigs.plugin import rig_or_skip
from tests.rigs.reach import open_access
from tests.rigs.slurm import Variant
from tests.system.slurm.conftest import Site
from tests.waiting import wait_until

from overspan.adapters.contract import Accepted, Launch, LogRequest, Order, Refusal
from overspan.adapters.slurm import SlurmCluster
from overspan.adapters.slurm.handles import Handle, parse_any
from overspan.bridge.model import events
from overspan.bridge.model.job import Job
from overspan.bridge.model.resources import Gpus, Resources
from overspan.bridge.model.spec import Form, Origin, SignalBefore
from overspan.bridge.model.states import State

LINES = {
    "NodeName=": "NodeName=node[1-2] CPUs=8 RealMemory=4000 Gres=gpu:a100:2 State=UNKNOWN",
    "PartitionName=main": "PartitionName=main Nodes=node[1-2] Default=YES DefaultTime=00:07:00 MaxTime=UNLIMITED",
    "PartitionName=short": "PartitionName=short Nodes=node[1-2] MaxTime=00:10:00",
    "PartitionName=low": "PartitionName=low Nodes=node[1-2] PriorityTier=1 PreemptMode=CANCEL",
    "PartitionName=high": "PartitionName=high Nodes=node[1-2] PriorityTier=9 PreemptMode=OFF",
    "PreemptType": "PreemptType=preempt/partition_prio",
    "PreemptMode": "PreemptMode=CANCEL",
}
FILES = {"/etc/slurm/gres.conf": "NodeName=node[1-2] Name=gpu Type=a100 File=/dev/fakegpu[0-1]\n"}
MINUTE = 60
SMALL = Resources(memory_mib=50)
# Slurm looks at the limits each half minute, and signals half a minute early: this one at a look after a quarter of a
# minute. What is requeued may start again two minutes later.
CHECKPOINT = """\
trap 'echo saved; scontrol requeue $SLURM_JOB_ID; sleep 60' USR1
[ -z "$SLURM_RESTART_COUNT" ] || { echo "run $SLURM_RESTART_COUNT"; exit 0; }
while :; do sleep 0.1; done
"""


@pytest.fixture(scope="module")
def limits(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    variant = Variant("limits", LINES, FILES, nodes=2, closed=frozenset())
    with rig_or_skip(variant) as rig, open_access(rig, tmp_path_factory.mktemp("ssh")) as access:
        yield Site(access)


def job_of(site: Site, run: str, header: dict[str, Any] | None = None, **task: Any) -> Job:
    """A small job with one task; `header` are keys of its specification."""
    job = site.job(run, **(header or {}))
    spec = replace(job.spec.tasks[0], **task)
    return replace(job, spec=replace(job.spec, tasks=(spec,)), tasks=(replace(job.tasks[0], time=spec.time),))


def script_of(site: Site, options: str, run: str) -> Job:
    """A batch script with a line of options."""
    text = f"#!/bin/bash\n#SBATCH --mem=50 {options}\n{run}\n"
    origin = Origin(directory="/home/researcher", command=("sbatch", "x"))
    return job_of(site, text, {"origin": origin}, form=Form.BATCH)


def native_of(handle: str) -> str:
    found = parse_any(handle)
    return str(found.native if isinstance(found, Handle) else found.parts[0].native)


def tell_root(site: Site, *words: str) -> None:
    done = site.rig.run(list(words), user="root")
    assert done.rc == 0, done.stderr


def await_end(site: Site, node: str, native: str) -> None:
    """Wait until a node has nothing left of a job that was requeued, and the second of its requeue is over.

    Slurm takes a late end of it for that of the next run, and a credential of the second in which the former one was
    revoked for that one.
    """
    ask = ["pgrep", "-f", rf"slurmstepd: .{native}\."]
    container = site.rig.containers[node]
    wait_until(lambda: container.exec_run(ask).exit_code != 0, 30, "the job to be gone")
    passed = f"[ $(date +%s) -gt $((1 + $(squeue -hj {native} -o %V))) ]"
    command = ["sh", "-c", f"SLURM_TIME_FORMAT=%s; export SLURM_TIME_FORMAT; {passed}"]
    wait_until(lambda: site.rig.run(command).rc == 0, 30, "the second of the requeue to be over")


async def read_log(cluster: SlurmCluster, handle: str, node: int = 0) -> str:
    return (await cluster.logs(LogRequest(handle, "main", node=node))).data.decode()


async def until_reason(follower: Follower, handle: str, reason: str) -> None:
    await follower.until(
        lambda: follower.jobs[handle].reason.partition(",")[0] == reason, f"{handle} waits for {reason}"
    )


NODE1 = {"slurm": {"nodelist": "node1"}}


@pytest.fixture(scope="module")
def expiring(limits: Site) -> tuple[str, Job]:
    """A job that waits for Slurm's look at the time limits; it begins with the module."""
    job = job_of(limits, "sleep 300", time=MINUTE, native=NODE1)
    handles: list[str] = []

    async def story(cluster: SlurmCluster) -> None:
        handle, follower = await limits.start(cluster, job)
        handles.append(handle)
        await follower.until_state(handle, State.RUNNING)

    limits.play(story)
    # A time that is over when the controller reads it is none.
    tell_root(limits, "scontrol", "update", f"JobId={native_of(handles[0])}", "EndTime=now+10")
    return handles[0], job


@pytest.mark.usefixtures("expiring")
class TestTime:
    def test_the_partitions_default_and_its_maximum(self, limits: Site) -> None:
        async def story(cluster: SlurmCluster) -> None:
            handle, follower = await limits.start(cluster, job_of(limits, "sleep 3600"))
            await follower.until_state(handle, State.RUNNING)
            assert limits.slurm("squeue", "-hj", native_of(handle), "-o", "%l").strip() == "7:00"
            long = job_of(limits, "true", {"partition": "short"}, time=20 * MINUTE)
            other, waiting = await limits.start(cluster, long)
            await until_reason(waiting, other, "PartitionTimeLimit")
            assert await cluster.order([Order(f"t{long.id}", other, events.SetTime(time.time(), 9 * MINUTE))]) == [None]
            await waiting.until_state(other, State.COMPLETED)
            await cluster.order([Order(f"c{long.id}", handle, events.Cancel(time.time(), grace=0))])

        limits.play(story)

    def test_no_limit_waits_for_the_end_of_maintenance(self, limits: Site) -> None:
        async def story(cluster: SlurmCluster) -> None:
            name = "reservationname=maint"
            when = ("starttime=now+20minutes", "duration=60", "flags=maint,ignore_jobs", "nodes=ALL", "users=root")
            tell_root(limits, "scontrol", "create", "reservation", name, *when)
            try:
                endless, follower = await limits.start(cluster, job_of(limits, "echo ran", time=0))
                await until_reason(follower, endless, "ReqNodeNotAvail")
                brief, other = await limits.start(cluster, job_of(limits, "true", time=5 * MINUTE))
                await other.until_state(brief, State.COMPLETED)
                assert follower.jobs[endless].state is State.PENDING
            finally:
                tell_root(limits, "scontrol", "delete", name)
            await follower.until_state(endless, State.COMPLETED)

        limits.play(story)


class TestGpus:
    def test_steps_of_typed_gpus_start(self, limits: Site) -> None:
        async def story(cluster: SlurmCluster) -> None:
            step = "srun --gres={} sh -c 'echo $SLURM_STEP_ID'; "
            run = step.format("gpu:a100:1") + step.format("gpu:1") + step.format("none") + "srun echo all"
            wanted = Resources(memory_mib=50, gpus=(Gpus(1, "a100"),))
            handle, follower = await limits.start(cluster, job_of(limits, run, resources=wanted))
            await follower.until_state(handle, State.COMPLETED)
            said = await read_log(cluster, handle)
            # A step waits, and says so, while Slurm is still clearing away the one before.
            told = [line for line in said.splitlines() if not re.match(r"srun: (Job \d+ s|S)tep creat", line)]
            assert told == ["0", "1", "2", "all"], said
            untyped = replace(wanted, gpus=(Gpus(2),))
            handle, follower = await limits.start(cluster, job_of(limits, "srun echo two", resources=untyped))
            await follower.until_state(handle, State.COMPLETED)
            assert await read_log(cluster, handle) == "two\n"

        limits.play(story)

    def test_rank_addresses_and_count_on_each_of_two_nodes(self, limits: Site) -> None:
        async def story(cluster: SlurmCluster) -> None:
            run = "echo $SKYPILOT_NODE_RANK $SKYPILOT_NUM_NODES $SKYPILOT_NUM_GPUS_PER_NODE $SKYPILOT_NODE_IPS"
            run += "; echo $SLURM_NODEID $SLURM_NNODES $SLURM_JOB_NODELIST"
            wanted = Resources(memory_mib=50, gpus=(Gpus(2, "A100"),))
            handle, follower = await limits.start(cluster, job_of(limits, run, num_nodes=2, resources=wanted))
            await follower.until_state(handle, State.COMPLETED)
            said = [(await read_log(cluster, handle, node)).split() for node in (0, 1)]
            assert [words[:3] for words in said] == [["0", "2", "2"], ["1", "2", "2"]]
            assert said[0][3:5] == said[1][3:5] and len(set(said[0][3:5])) == 2
            assert [words[5:] for words in said] == [["0", "2", "node[1-2]"], ["1", "2", "node[1-2]"]]

        limits.play(story)


def test_two_nodes_of_four_tasks_are_eight_ranks(limits: Site) -> None:
    async def story(cluster: SlurmCluster) -> None:
        run = "srun sh -c 'echo $SLURM_PROCID $SLURM_NTASKS $SLURM_NODEID'"
        handle, follower = await limits.start(cluster, script_of(limits, "-N2 --ntasks-per-node=4 -t 2", run))
        await follower.until_state(handle, State.COMPLETED)
        ranks = sorted((await read_log(cluster, handle)).splitlines())
        assert ranks == [f"{rank} 8 {rank // 4}" for rank in range(8)]

    limits.play(story)


class TestTaken:
    def test_a_preempted_job_says_so(self, limits: Site) -> None:
        async def story(cluster: SlurmCluster) -> None:
            low = script_of(limits, "-p low -w node2 --exclusive -t 5 --no-requeue", "sleep 300")
            handle, follower = await limits.start(cluster, low)
            await follower.until_state(handle, State.RUNNING)
            high, other = await limits.start(cluster, script_of(limits, "-p high -w node2 --exclusive -t 5", "true"))
            await follower.until(lambda: bool(lost_of(follower, handle)), "it is preempted")
            assert lost_of(follower, handle) == ["preemption"]
            assert "PREEMPTED" in str(follower.told(handle)[-1])
            await other.until_state(high, State.COMPLETED)

        limits.play(story)

    def test_a_lost_node_makes_the_next_attempt_of_the_same_job(self, limits: Site) -> None:
        async def story(cluster: SlurmCluster) -> None:
            run = 'echo "run ${SLURM_RESTART_COUNT:-0}"; [ -n "$SLURM_RESTART_COUNT" ] || sleep 300'
            job = script_of(limits, "-w node2 --requeue -t 5 --open-mode=append", run)
            handle, follower = await limits.start(cluster, job)
            await follower.until_state(handle, State.RUNNING)
            tell_root(limits, "scontrol", "update", "nodename=node2", "state=down", "reason=test")
            try:
                await follower.until(lambda: follower.jobs[handle].launch == 1, "it waits again")
                await_end(limits, "node2", native_of(handle))
            finally:
                tell_root(limits, "scontrol", "update", "nodename=node2", "state=idle")
            # The accounting, which alone knows why, may be late.
            assert lost_of(follower, handle)[0] in ("node", "requeue")
            await finish_second(limits, cluster, follower.jobs[handle], handle)

        limits.play(story)

    def test_a_hold_of_the_sites_is_shown_and_not_ours_to_end(self, limits: Site) -> None:
        async def story(cluster: SlurmCluster) -> None:
            job = job_of(limits, "true", time=MINUTE, resources=SMALL)
            handle, follower = await limits.start(cluster, replace(job, begin=time.time() + 3600))
            tell_root(limits, "scontrol", "hold", native_of(handle))
            await until_reason(follower, handle, "JobHeldAdmin")
            (refusal,) = await cluster.order([Order(f"h{job.id}", handle, events.Release(time.time()))])
            assert isinstance(refusal, Refusal) and "denied" in refusal.message and not refusal.transient
            assert await cluster.order([Order(f"x{job.id}", handle, events.Cancel(time.time()))]) == [None]
            await follower.until_state(handle, State.CANCELLED)

        limits.play(story)


class TestEndsOfTime:
    def test_a_job_over_its_limit_ends_as_timeout(self, limits: Site, expiring: tuple[str, Job]) -> None:
        async def story(cluster: SlurmCluster) -> None:
            handle, job = expiring
            follower = Follower(cluster, {handle: job})
            await follower.until_state(handle, State.TIMEOUT)
            ended = follower.jobs[handle]
            assert ended.late == 0 and "TimeLimit" in str(follower.told(handle)[-1])

        limits.play(story)

    def test_a_signal_before_the_limit_lets_a_job_requeue_itself(self, limits: Site) -> None:
        async def story(cluster: SlurmCluster) -> None:
            signal = SignalBefore("USR1", 15)
            job = job_of(limits, CHECKPOINT, {"requeue": True}, time=MINUTE, signal=signal, native=NODE1)
            handle, follower = await limits.start(cluster, job)
            await follower.until(lambda: follower.jobs[handle].launch == 1 or follower.jobs[handle].over, "its end")
            assert follower.jobs[handle].state is State.PENDING
            assert "saved" in await read_log(cluster, handle)
            assert lost_of(follower, handle) == ["requeue"]
            await_end(limits, "node1", native_of(handle))
            await finish_second(limits, cluster, follower.jobs[handle], handle)

        limits.play(story)


def lost_of(follower: Follower, handle: str) -> list[str]:
    """Why launches were lost."""
    return [event.cause for event in follower.events[handle] if isinstance(event, events.LaunchLost)]


async def finish_second(site: Site, cluster: SlurmCluster, again: Job, handle: str) -> None:
    """The second run of a job that Slurm has requeued: found by the daemon, and run to its end at once."""
    (answer,) = await cluster.submit([Launch(f"site-{again.id}-1", again)])
    assert isinstance(answer, Accepted) and native_of(answer.handle) == native_of(handle)
    tell_root(site, "scontrol", "update", f"JobId={native_of(handle)}", "StartTime=now")
    follower = Follower(cluster, {answer.handle: again})
    await follower.until_state(answer.handle, State.COMPLETED)
    ended = follower.jobs[answer.handle]
    assert [attempt.number for attempt in ended.tasks[0].attempts] == [0, 1]
    assert ended.late == 0 and "run 1" in await read_log(cluster, answer.handle)


def test_a_limit_that_the_site_enforces_is_refused_in_its_words(limits: Site) -> None:
    text = limits.slurm("cat", "/etc/slurm/slurm.conf")
    limits.rig.put("/etc/slurm/slurm.conf", f"{text}EnforcePartLimits=ALL\n")
    tell_root(limits, "scontrol", "reconfigure")
    try:

        async def story(cluster: SlurmCluster) -> None:
            job = job_of(limits, "true", {"partition": "short"}, time=20 * MINUTE)
            (answer,) = await cluster.submit([Launch(f"site-{job.id}-0", job)])
            assert isinstance(answer, Refusal) and not answer.transient
            assert "Requested time limit is invalid" in answer.message

        limits.play(story)
    finally:
        limits.rig.put("/etc/slurm/slurm.conf", text)
        tell_root(limits, "scontrol", "reconfigure")

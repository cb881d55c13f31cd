"""Jobs that Slurm requeues while their former run takes its time to end: one native job, one run at a time."""

from __future__ import annotations

import time

from tests.contract.conformance import Follower
from tests.system.slurm.conftest import Site

from overspan.adapters.contract import Accepted, Launch, Order
from overspan.adapters.slurm import SlurmCluster
from overspan.adapters.slurm.handles import parse_handle
from overspan.bridge.model import events
from overspan.bridge.model.states import State

DEAF = "trap '' TERM; while :; do sleep 0.1; done"


def list_natives(site: Site, token: str) -> list[str]:
    """The native jobs of a job, in whatever state, with those."""
    lines = site.slurm("squeue", "-h", "-t", "all", "-u", "researcher", "-o", "%A %T %k").splitlines()
    return [line.rpartition(" ")[0] for line in lines if token in line]


class TestRequeued:
    def test_a_requeued_job_that_is_still_completing_is_not_submitted_again(self, site: Site) -> None:
        async def story(cluster: SlurmCluster) -> None:
            job = site.job(DEAF, grace=1, requeue=True)
            handle, follower = await site.start(cluster, job)
            await follower.until_state(handle, State.RUNNING)
            native = str(parse_handle(handle).native)
            site.slurm("scontrol", "requeue", native)
            await follower.until(lambda: follower.jobs[handle].launch == 1, "the loss of its first run")
            again = follower.jobs[handle]
            (answer,) = await cluster.submit([Launch(f"site-{job.id}-1", again)])
            assert isinstance(answer, Accepted)
            assert list_natives(site, f"site-{job.id}-") == [f"{native} COMPLETING"]
            assert (parse_handle(answer.handle).native, parse_handle(answer.handle).run) == (int(native), 1)
            traces = [trace for trace in await cluster.find_traces() if trace.job == job.id]
            assert [(trace.handle, trace.objects) for trace in traces] == [
                (answer.handle, (f"job {native} COMPLETING",))
            ]
            second = Follower(cluster, {answer.handle: again})
            await second.until(lambda: second.jobs[answer.handle].reason == "BeginTime", "Slurm keeps it for a while")
            assert second.jobs[answer.handle].started_at is None
            await cluster.order([Order(f"c{job.id}", answer.handle, events.Cancel(time.time()))])
            await second.until_state(answer.handle, State.CANCELLED)
            assert list_natives(site, f"site-{job.id}-") == [f"{native} CANCELLED"]

        site.play(story)

    def test_a_job_that_is_cancelled_while_slurm_requeues_it_never_runs_again(self, site: Site) -> None:
        async def story(cluster: SlurmCluster) -> None:
            job = site.job(DEAF, grace=1, requeue=True)
            handle, follower = await site.start(cluster, job)
            await follower.until_state(handle, State.RUNNING)
            native = str(parse_handle(handle).native)
            # Slurm takes the signal of the cancel for the run, and has it back in its queue a moment later.
            await cluster.order([Order(f"c{job.id}", handle, events.Cancel(time.time()))])
            site.slurm("scontrol", "requeue", native)
            await follower.until_state(handle, State.CANCELLED)
            assert list_natives(site, f"site-{job.id}-") in ([f"{native} CANCELLED"], [f"{native} COMPLETING"])
            assert follower.jobs[handle].launch == 0

        site.play(story)

    def test_a_job_that_slurm_holds_after_a_requeue_is_shown_as_held_and_goes_on(self, site: Site) -> None:
        async def story(cluster: SlurmCluster) -> None:
            job = site.job("sleep 3600", requeue=True)
            handle, follower = await site.start(cluster, job)
            await follower.until_state(handle, State.RUNNING)
            native = str(parse_handle(handle).native)
            site.slurm("scontrol", "requeuehold", "State=SpecialExit", native)
            await follower.until(lambda: follower.jobs[handle].launch == 1, "the loss of its first run")
            again = follower.jobs[handle]
            (answer,) = await cluster.submit([Launch(f"site-{job.id}-1", again)])
            assert isinstance(answer, Accepted)
            second = Follower(cluster, {answer.handle: again})
            await second.until(lambda: second.jobs[answer.handle].held, "the hold")
            assert second.jobs[answer.handle].launch == 1
            assert list_natives(site, f"site-{job.id}-") == [f"{native} SPECIAL_EXIT"]
            await cluster.order([Order(f"r{job.id}", answer.handle, events.Release(time.time()))])
            await second.until(lambda: not second.jobs[answer.handle].held, "the release")
            await cluster.order([Order(f"c{job.id}", answer.handle, events.Cancel(time.time()))])
            await second.until_state(answer.handle, State.CANCELLED)

        site.play(story)

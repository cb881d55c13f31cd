"""Arrays as native arrays on a real Slurm, and verdicts at submission: what Slurm has of them, and who ends what."""

from __future__ import annotations

import time

from tests.contract.conformance import Follower
from tests.rigs.slurm import SlurmRig
from tests.system.conftest import Span
from tests.system.slurm.conftest import Site
from tests.system.slurm.daemons import link_up, remote, submit

from overspan.adapters.contract import Accepted, Launch, Order, Refusal
from overspan.adapters.slurm import SlurmCluster
from overspan.adapters.slurm.handles import parse_handle
from overspan.bridge.model import events
from overspan.bridge.model.ids import parse_array
from overspan.bridge.model.job import Job, new_element, new_job
from overspan.bridge.model.states import State

__all__ = ["remote"]


def make_elements(site: Site, run: str, array: str, throttle: int | None = None) -> list[Launch]:
    """The launches of a new array's elements."""
    head = site.job(run, array=parse_array(array))
    head = new_job(head.id, head.spec, head.submitted_at)
    jobs = [
        new_element(head, index, head.id * 1000 + place) for place, index in enumerate(parse_array(array).indices())
    ]
    return [Launch(f"site-{job.id}-0", job, throttle=throttle) for job in jobs]


async def start(cluster: SlurmCluster, launches: list[Launch]) -> Follower:
    jobs: dict[str, Job] = {}
    for launch, answer in zip(launches, await cluster.submit(launches), strict=True):
        assert isinstance(answer, Accepted), answer
        jobs[answer.handle] = launch.job
    return Follower(cluster, jobs)


def states(follower: Follower) -> list[str]:
    return [job.state.value for job in follower.jobs.values()]


def count_waiting(site: Site, native: int) -> int:
    return site.slurm("squeue", "-h", "-t", "PD", "-j", f"{native},{native}", "-o", "%i").count("\n")


def array_of(launch: Launch) -> int:
    assert launch.job.element is not None
    return launch.job.element.array


def test_an_array_is_one_native_array_with_its_throttle(site: Site) -> None:
    async def story(cluster: SlurmCluster) -> None:
        launches = make_elements(site, "sleep 3600", "1-6", throttle=2)
        array = array_of(launches[0])
        follower = await start(cluster, launches)
        handles = list(follower.jobs)
        natives = {parse_handle(handle).native for handle in handles}
        assert len(natives) == 1
        native = natives.pop()
        await follower.until(lambda: states(follower).count("RUNNING") == 2, "two run")
        await follower.until(lambda: follower.jobs[handles[5]].reason == "JobArrayTaskLimit", "the others wait")
        await cluster.set_throttle(array, 3)
        await follower.until(lambda: states(follower).count("RUNNING") == 3, "three run")
        # One that waits is ended alone; asked by its state, scancel would end all that wait.
        await cluster.order([Order("alone", handles[5], events.Cancel(time.time()))])
        await follower.until_state(handles[5], State.CANCELLED)
        assert states(follower).count("PENDING") == 2
        await cluster.set_throttle(array, None)
        await follower.until(lambda: states(follower).count("RUNNING") == 5, "all run")
        await cluster.order([Order(f"c{place}", one, events.Cancel(time.time())) for place, one in enumerate(handles)])
        await follower.until(lambda: set(states(follower)) == {"CANCELLED"}, "all are ended")
        assert count_waiting(site, native) == 0

    site.play(story)


def test_another_native_array_shares_the_throttle(site: Site) -> None:
    async def story(cluster: SlurmCluster) -> None:
        launches = make_elements(site, "sleep 3600", "1-4", throttle=2)
        follower = await start(cluster, launches[:2])
        first, _ = handles = list(follower.jobs)
        await follower.until(lambda: states(follower).count("RUNNING") == 2, "both run")
        (answer,) = await cluster.submit(launches[2:3])
        assert isinstance(answer, Refusal) and answer.transient and answer.reason == "JobArrayTaskLimit"
        await cluster.order([Order("end", first, events.Cancel(time.time(), grace=0))])
        await follower.until_state(first, State.CANCELLED)
        later = await start(cluster, launches[2:])
        for handle, job in later.jobs.items():
            follower.jobs[handle], follower.cursors[handle], follower.events[handle] = job, "", []
        third, fourth = later.jobs
        await follower.until(lambda: "RUNNING" in states(later) or states(follower).count("RUNNING") == 2, "one more")
        assert parse_handle(third).native != parse_handle(first).native
        assert follower.jobs[fourth].state is State.PENDING
        # What the first native array leaves over goes to the second.
        await cluster.order([Order("end2", handles[1], events.Cancel(time.time(), grace=0))])
        await follower.until_state(fourth, State.RUNNING)
        for place, handle in enumerate((third, fourth)):
            await cluster.order([Order(f"e{place}", handle, events.Cancel(time.time(), grace=0))])

    site.play(story)


def test_elements_are_found_again_by_token_and_index(site: Site) -> None:
    launches = make_elements(site, "sleep 3600", "3-5")
    natives: list[int] = []

    async def submit_all(cluster: SlurmCluster) -> None:
        natives.extend(parse_handle(handle).native for handle in (await start(cluster, launches)).jobs)

    async def find(cluster: SlurmCluster) -> None:
        # As after a crash: this process knows nothing of what was submitted.
        cluster._submitter._started_at = time.time() + 1000
        follower = await start(cluster, [launches[2], launches[0]])
        assert [parse_handle(handle).name for handle in follower.jobs] == [f"{natives[0]}_5", f"{natives[0]}_3"]
        site.slurm("scancel", str(natives[0]))
        await follower.until(lambda: set(states(follower)) == {"CANCELLED"}, "they are ended")

    site.play(submit_all)
    site.play(find)
    listed = site.slurm("squeue", "-h", "-t", "all", "-o", "%F %k").splitlines()
    assert len({line for line in listed if f"-{array_of(launches[0])}-0" in line}) == 1


SCRIPT = """#!/bin/bash
#SBATCH --mem=50 --array=1-3%2
echo "$SLURM_ARRAY_JOB_ID $SLURM_ARRAY_TASK_ID of $SLURM_ARRAY_TASK_COUNT"
"""


def test_the_whole_array_is_one_submission(remote: Span, site: Site) -> None:
    script = remote.folder / "array.sh"
    script.write_text(SCRIPT)
    array = remote.run("sbatch", "--parsable", "-M", "rig", str(script)).stdout.partition(";")[0]
    remote.until(array, "COMPLETED")
    said = [remote.log(f"{array}_{index}").split() for index in (1, 2, 3)]
    assert [words[1:] for words in said] == [[str(index), "of", "3"] for index in (1, 2, 3)]
    assert len({words[0] for words in said}) == 1
    natives = {str(remote.job(f"{array}_{index}")["native_id"]) for index in (1, 2, 3)}
    assert len(natives) == 3 and all(native.isdigit() for native in natives)


def test_a_task_of_a_file_knows_its_own_number(remote: Span) -> None:
    text = "name: sweep\narray: 2,7\nresources: {memory: 50M}\nrun: echo $OVERSPAN_JOB_ID $SKYPILOT_TASK_ID\n"
    file = remote.folder / "sweep.yaml"
    file.write_text(text)
    array = remote.run("submit", str(file), "--parsable", "-M", "rig").stdout.partition(";")[0].strip()
    remote.until(array, "COMPLETED")
    for index in (2, 7):
        number = str(remote.job(f"{array}_{index}")["id"])
        assert remote.log(f"{array}_{index}").split()[0] == number


def test_a_verdict_comes_in_slurms_words_and_none_in_time(remote: Span, slurm_rig: SlurmRig) -> None:
    link_up(remote)
    done = remote.run("sbatch", "-M", "rig", "-p", "nope", "--wrap", "true", check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert "Batch job submission failed: Invalid partition name specified" in done.stderr
    # Login node and controller are one machine here, which says nothing at all now.
    slurm_rig.containers["ctl"].pause()
    try:
        began = time.monotonic()
        job = submit(remote, "--wrap", "true")
        # Far less than one call of the cluster's may take.
        assert time.monotonic() - began < 30
        assert remote.job(job)["state"] == "PENDING"
    finally:
        slurm_rig.containers["ctl"].unpause()
    remote.until(job, "COMPLETED", timeout=60)

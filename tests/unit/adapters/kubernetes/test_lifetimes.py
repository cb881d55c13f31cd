"""How long pods live at most, and how far that lets a wall time grow."""

from __future__ import annotations

import time
from dataclasses import replace

from tests.unit.adapters.kubernetes.bench import Bench, make_job, play
from tests.unit.adapters.kubernetes.samples import configure, read_file

from overspan.adapters.kubernetes.manifests.lifetimes import limit_pod, longest_time
from overspan.bridge.model import events
from overspan.bridge.model.spec import TaskSpec


def test_a_limit_has_room_to_grow_as_far_as_the_pod_s_end() -> None:
    settings = configure(default_time="1-0")
    job = read_file("name: one\ntime: 2h\nrun: echo\n")
    task = job.spec.tasks[0]
    longest = longest_time(job, task, settings)
    assert longest == 4 * 3600 <= limit_pod(job, task, settings)
    raised = replace(job, tasks=(replace(job.tasks[0], time=3 * 3600),))
    assert longest_time(raised, task, settings) == 6 * 3600
    unlimited = replace(job, tasks=(replace(job.tasks[0], time=0),))
    assert longest_time(unlimited, task, settings) == 86400 < limit_pod(unlimited, task, settings)


def test_a_launch_knows_how_far_its_pods_reach(bench: Bench) -> None:
    async def story() -> None:
        async with bench.open() as cluster:
            handle = await bench.start(cluster, make_job(TaskSpec(name="main", run="true", time=60)))
            documents = bench.documents()
            assert len(documents) == 1, sorted(documents)
            (name,) = documents
            assert await cluster.longest_time(handle, "main") == 120
            assert bench.pod(name)["spec"]["activeDeadlineSeconds"] >= 120
            # The pods of the next attempt are made as these were, whatever the limit is by then.
            assert await bench.order(cluster, handle, events.SetTime(time.time(), 90)) is None
            assert await cluster.longest_time(handle, "main") == 120
        async with bench.open() as cluster:
            await cluster.release("bench", (), ())
            assert await cluster.longest_time(handle, "main") is None

    play(story)

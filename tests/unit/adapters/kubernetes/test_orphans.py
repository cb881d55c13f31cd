"""What launches have in a namespace, whoever made them, and its removal."""

from __future__ import annotations

import time

import pytest
from tests.fakes.kubernetes_objects import Key, to_rfc3339
from tests.unit.adapters.kubernetes.bench import INSTALLATION, Bench, make_job, play, read_log_request, solo

from overspan.adapters.contract import Accepted, Launch
from overspan.adapters.kubernetes.manifests.names import NAME, USER
from overspan.adapters.kubernetes.observation.projection import STUCK_SECONDS
from overspan.adapters.kubernetes.observation.records import TASK
from overspan.bridge.model.events import NodeEnded, NodeStarted


def test_launches_of_all_installations_are_listed(bench: Bench) -> None:
    async def story() -> None:
        async with bench.open() as cluster:
            await bench.start(cluster, make_job())
            other = solo(job_id=3)
            (answer,) = await cluster.submit([Launch("stranger-3-0", other)])
            assert isinstance(answer, Accepted)
            group, single = await cluster.find_traces()
            assert (group.installation, group.job, group.launch, group.running) == (INSTALLATION, 7, 0, 3)
            assert "Service demo" in group.objects and sum(one.startswith("Pod ") for one in group.objects) == 3
            assert (single.installation, single.job, single.running) == ("stranger", 3, 0)
            assert single.handle == answer.handle
            assert len(bench.pods()) == 4

    play(story)


def test_only_the_launches_that_are_named_are_removed(bench: Bench) -> None:
    async def story() -> None:
        async with bench.open() as cluster:
            handle = await bench.start(cluster, solo())
            (name,) = bench.pods()
            await cluster.submit([Launch("stranger-3-0", solo(job_id=3))])
            bench.api.streams.write_log(name, "precious\n")
            bench.api.pods.finish(name)
            await bench.until_told(cluster, handle, NodeEnded)
        async with bench.open() as cluster:
            # A daemon without a store: it has never seen any of these.
            mine, other = await cluster.find_traces()
            await cluster.remove_traces([mine])
            assert [trace.token for trace in await cluster.find_traces()] == [other.token]
            assert (await cluster.logs(read_log_request(handle, "main"))).data == b"precious\n"
            await cluster.remove_traces([other])
        for name in bench.pods():
            bench.api.pods.gone(name)
        assert bench.left() == []

    play(story)


def test_a_log_that_cannot_be_had_keeps_nothing(bench: Bench) -> None:
    async def story() -> None:
        async with bench.open() as cluster:
            handle = await bench.start(cluster, solo())
            (name,) = bench.pods()
            bench.api.pods.finish(name)
            await bench.until_told(cluster, handle, NodeEnded)
            bench.api.refuse("GET", "/log", 500, "the node does not answer", times=9)
            await cluster.remove_traces(await cluster.find_traces())
        assert bench.left() == []

    play(story)


def test_a_pod_of_a_lost_node_is_named_with_its_node(bench: Bench) -> None:
    async def story() -> None:
        async with bench.open() as cluster:
            await bench.start(cluster, solo("sleep 60"))
            (name,) = bench.pods()
            away = {"conditions": [{"type": "Ready", "status": "Unknown"}]}
            bench.api.objects.create_simple("nodes", "node-1", status=away)
            bench.api.objects.delete(Key("", "pods", "default", name), {})
            (trace,) = await cluster.find_traces()
            assert trace.stuck == ()
            long_ago = to_rfc3339(time.time() - STUCK_SECONDS - 1)
            bench.api.objects.replace(
                Key("", "pods", "default", name),
                lambda pod: {**pod, "metadata": {**pod["metadata"], "deletionTimestamp": long_ago}},
                check=False,
            )
            (trace,) = await cluster.find_traces()
            (text,) = trace.stuck
            assert name in text and "node-1 does not answer" in text and "out-of-service" in text
            bench.api.objects.delete(Key("", "nodes", "", "node-1"), {})
            (trace,) = await cluster.find_traces()
            assert "is gone" in trace.stuck[0]

    play(story)


@pytest.mark.parametrize("labels", [None, {"overspan.io/launch": "mine"}, {"app.kubernetes.io/managed-by": "me"}])
def test_a_pod_whose_labels_somebody_has_changed_is_found_and_removed(
    bench: Bench, labels: dict[str, str] | None
) -> None:
    async def story() -> None:
        async with bench.open() as cluster:
            handle = await bench.start(cluster, solo("sleep 60"))
            (name,) = bench.pods()
        edit_labels(bench, name, labels)
        async with bench.open() as cluster:
            (trace,) = await cluster.find_traces()
            assert (trace.handle, trace.running) == (handle, 1) and f"Pod {name}" in trace.objects
            await cluster.remove_traces([trace])
        bench.api.pods.gone(name)
        assert bench.left() == []

    play(story)


def test_a_later_daemon_finds_a_pod_whose_labels_were_changed_meanwhile(bench: Bench) -> None:
    async def story() -> None:
        async with bench.open() as cluster:
            handle = await bench.start(cluster, solo("sleep 60"))
            (name,) = bench.pods()
            await bench.until_told(cluster, handle, NodeStarted)
        before = edit_labels(bench, name, None)
        async with bench.open() as cluster:
            await bench.step(cluster)
            # Those that people alone select by are not known here.
            found = {key: value for key, value in before.items() if key not in (TASK, NAME, USER)}
            assert bench.pod(name)["metadata"]["labels"].items() >= found.items()
            bench.api.pods.finish(name, 3)
            assert (await bench.until_told(cluster, handle, NodeEnded)).exit_code == 3

    play(story)


def edit_labels(bench: Bench, name: str, labels: dict[str, str] | None) -> dict[str, str]:
    """Change labels of a pod, or take all away; gives those that it had."""
    before = dict(bench.pod(name)["metadata"]["labels"])
    changed = {} if labels is None else {**before, **labels}
    bench.api.objects.replace(
        Key("", "pods", "default", name), lambda pod: {**pod, "metadata": {**pod["metadata"], "labels": changed}}
    )
    return before

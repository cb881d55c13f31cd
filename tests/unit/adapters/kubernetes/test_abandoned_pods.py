"""Ended pods whose daemon is away: another one lets them go, and their ends are not lost."""

from __future__ import annotations

import contextlib
import shlex
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.fakes.kubernetes_objects import Document, Key, to_rfc3339
from tests.unit.adapters.kubernetes.bench import Bench, make_job, play, read_log_request, solo
from tests.unit.adapters.kubernetes.kubernetes_pods import ended, make_record

from overspan.adapters.kubernetes.launches.abandoned_pods import ABANDONED_SECONDS
from overspan.adapters.kubernetes.manifests.names import FINALIZER, FREE, name_anchor, name_end
from overspan.adapters.kubernetes.observation.records import PodRecord, read_pod, read_record, write_record
from overspan.bridge.model.errors import NotFound, Unreachable
from overspan.bridge.model.events import NodeEnded, NodeStarted

OTHER = "stranger"


def change(bench: Bench, name: str, **metadata: Any) -> None:
    """Change a pod's metadata as nobody may through the API."""

    def lay(pod: Document) -> Document:
        return {**pod, "metadata": {**pod["metadata"], **metadata}}

    bench.api.objects.replace(Key("", "pods", "default", name), lay, check=False)


def end_deleted(bench: Bench, name: str, code: int, deleted_before: float) -> None:
    """Have a pod end, and be deleted a minute later, so many seconds ago; its finalizer keeps it."""
    bench.api.pods.finish(name, code)
    bench.api.objects.delete(Key("", "pods", "default", name), {})
    assert name in bench.pods()
    deleted = time.time() - deleted_before
    change(bench, name, deletionTimestamp=to_rfc3339(deleted))
    state = ended(code)
    state["terminated"]["finishedAt"] = to_rfc3339(deleted - 60)
    bench.api.pods.set_status(name, {"containerStatuses": [{"name": "main", "state": state}]})


async def leave_ended(bench: Bench, code: int, deleted_before: float) -> tuple[str, str]:
    """A pod that ended and was deleted while its daemon was away; gives the launch's handle and the pod's name."""
    async with bench.open() as cluster:
        handle = await bench.start(cluster, solo())
        (name,) = bench.pods()
        await bench.until_told(cluster, handle, NodeStarted)
    end_deleted(bench, name, code, deleted_before)
    return handle, name


@pytest.mark.parametrize("code", [0, 3])
def test_another_daemon_lets_it_go_and_its_own_still_learns_of_the_end(bench: Bench, code: int) -> None:
    async def story() -> None:
        handle, _ = await leave_ended(bench, code, ABANDONED_SECONDS + 5)
        async with bench.open() as cluster:
            await cluster.release(OTHER, (), ())
        assert bench.pods() == []
        async with bench.open() as cluster:
            end = await bench.until_told(cluster, handle, NodeEnded)
            assert (end.exit_code, end.cause) == (code, "")
            # Its log went with its containers, long before.
            with pytest.raises(NotFound):
                await cluster.logs(read_log_request(handle, "main"))
            await cluster.release("bench", (), ())
        assert bench.left() == []

    play(story)


def test_all_pods_of_a_group_go_with_one_change_of_its_anchor(bench: Bench) -> None:
    async def story() -> None:
        async with bench.open() as cluster:
            handle = await bench.start(cluster, make_job())
            await bench.until_told(cluster, handle, NodeStarted)
        names = bench.pods()
        for name in names:
            end_deleted(bench, name, 0, ABANDONED_SECONDS + 5)
        before = len(bench.api.requests)
        async with bench.open() as cluster:
            await cluster.release(OTHER, (), ())
        assert bench.pods() == [] and len(names) == 3
        changes = [one for one in bench.api.requests[before:] if one.method == "PATCH" and "configmaps" in one.path]
        assert len(changes) == 1
        async with bench.open() as cluster:
            await bench.until(
                cluster, lambda: sum(isinstance(one, NodeEnded) for one in bench.told[handle]) == 3, "all three ends"
            )

    play(story)


def test_a_daemon_that_was_only_cut_off_learns_of_it_too(bench: Bench) -> None:
    """A laptop that was closed: the same process sees no more than that the pod has gone."""

    async def story() -> None:
        async with bench.open() as cluster:
            handle = await bench.start(cluster, solo())
            (name,) = bench.pods()
            await bench.until_told(cluster, handle, NodeStarted)
            bench.api.stop()
            bench.api.pods.finish(name, 3)
            end = read_pod(bench.pod(name))
            anchor = Key("", "configmaps", "default", name_anchor(end.token))
            kept = {name_end(name): write_record(end)}
            bench.api.objects.replace(anchor, lambda one: {**one, "data": {**one["data"], **kept}})
            bench.api.objects.delete(Key("", "pods", "default", name), {})
            change(bench, name, finalizers=[])
            assert bench.pods() == []
            bench.api.objects.compact()
            bench.api.start()
            told: list[NodeEnded] = []
            while not told:
                # Until the watch has tried again, the cluster is still away.
                with contextlib.suppress(Unreachable):
                    await bench.step(cluster, 0.2)
                told = [event for event in bench.told[handle] if isinstance(event, NodeEnded)]
            assert [(end.exit_code, end.cause) for end in told] == [(3, "")]

    play(story)


def test_what_its_own_daemon_may_still_read_stays(bench: Bench) -> None:
    async def story() -> None:
        _, name = await leave_ended(bench, 0, ABANDONED_SECONDS - 60)
        async with bench.open() as cluster:
            await cluster.release(OTHER, (), ())
        assert bench.pods() == [name]

    play(story)


def test_what_runs_or_was_not_deleted_stays(bench: Bench) -> None:
    async def story() -> None:
        async with bench.open() as cluster:
            await bench.start(cluster, solo(job_id=7))
            await bench.start(cluster, solo(job_id=8))
        running, over = sorted(bench.pods())
        bench.api.pods.finish(over)
        bench.api.objects.delete(Key("", "pods", "default", running), {})
        change(bench, running, deletionTimestamp=to_rfc3339(time.time() - ABANDONED_SECONDS - 5))
        async with bench.open() as cluster:
            await cluster.release(OTHER, (), ())
        assert sorted(bench.pods()) == [running, over]

    play(story)


def test_a_pod_goes_with_its_namespace_although_its_anchor_is_gone(bench: Bench) -> None:
    async def story() -> None:
        await leave_ended(bench, 0, ABANDONED_SECONDS + 5)
        (anchor,) = [one for one in bench.names("configmaps") if one.startswith("overspan-")]
        bench.api.objects.delete(Key("", "configmaps", "default", anchor), {})
        async with bench.open() as cluster:
            await cluster.release(OTHER, (), ())
        assert bench.pods() == []

    play(story)


def test_a_launch_of_a_version_that_reads_no_ends_is_left_alone(bench: Bench) -> None:
    async def story() -> None:
        _, name = await leave_ended(bench, 0, ABANDONED_SECONDS + 5)
        (anchor,) = [one for one in bench.names("configmaps") if one.startswith("overspan-")]

        def take_away(one: Document) -> Document:
            notes = {key: text for key, text in notes_of(one).items() if key != FREE}
            return {**one, "metadata": {**one["metadata"], "annotations": notes}}

        bench.api.objects.replace(Key("", "configmaps", "default", anchor), take_away)
        async with bench.open() as cluster:
            await cluster.release(OTHER, (), ())
        assert bench.pods() == [name]

    play(story)


def test_where_that_may_not_be_done_it_is_tried_again(bench: Bench) -> None:
    async def story() -> None:
        _, name = await leave_ended(bench, 0, ABANDONED_SECONDS + 5)
        bench.api.denied.add(("patch", "configmaps"))
        async with bench.open() as cluster:
            await cluster.release(OTHER, (), ())
        # Its end is kept nowhere, so it stays.
        assert bench.pods() == [name]
        bench.api.denied.clear()
        async with bench.open() as cluster:
            await cluster.release(OTHER, (), ())
        assert bench.pods() == []

    play(story)


def test_a_record_comes_back_as_it_was_written() -> None:
    record = make_record(ended(3, "Error", message="x" * 5000), phase="Failed")
    kept = read_record(write_record(record))
    assert kept is not None and kept == record._replace(message="x" * 1024, last_word="x" * 1024)
    assert len(write_record(make_record(ended(0), phase="Succeeded"))) < 800
    later = write_record(record).replace("{", '{"of_a_later_version":[1],', 1)
    assert read_record(later) == kept


@given(st.text())
def test_another_text_is_no_record(text: str) -> None:
    assert read_record(text) is None or isinstance(read_record(text), PodRecord)


def test_the_anchor_says_how_its_pods_go_without_any_daemon(bench: Bench, tmp_path: Path) -> None:
    async def story() -> None:
        async with bench.open() as cluster:
            await bench.start(cluster, solo())

    play(story)
    (anchor,) = bench.api.objects.select(Key("", "configmaps", "default"), lambda one: FREE in notes_of(one))[0]
    command = notes_of(anchor)[FREE]
    (pod,) = bench.documents().values()
    assert FINALIZER in pod["metadata"]["finalizers"] and read_pod(pod).token in command
    (tmp_path / "kubectl").write_text('#!/bin/sh\nprintf "%s\\n" "$*" >> calls\n[ "$3" = patch ] || echo pod/x\n')
    (tmp_path / "kubectl").chmod(0o755)
    subprocess.run(["sh", "-c", command], check=True, cwd=tmp_path, env={"PATH": f"{tmp_path}:/usr/bin:/bin"})
    asked, patched = (tmp_path / "calls").read_text().splitlines()
    assert shlex.split(asked)[:4] == ["-n", "default", "get", "pods"] and "status.phase!=Running" in asked
    assert patched == '-n default patch --type=merge -p {"metadata":{"finalizers":null}} pod/x'


def notes_of(document: Document) -> dict[str, str]:
    return dict(document["metadata"].get("annotations") or {})

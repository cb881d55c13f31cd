"""The checkpoint source of a Kubernetes cluster: which pod is asked, and what hangs, is missing or is forbidden."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from tests.unit.adapters.kubernetes.checkpoint_pods import HANDLE, PodCluster, make_writer
from tests.unit.adapters.kubernetes.pods import ended, pod, running
from tests.unit.adapters.kubernetes.samples import configure

from overspan.adapters.checkpoint_sources import WatchedFolder
from overspan.adapters.kubernetes.api.answers import ApiAnswer
from overspan.adapters.kubernetes.api.executing import CannotRun
from overspan.adapters.kubernetes.checkpoints import source, watcher_pods
from overspan.adapters.kubernetes.checkpoints.mounts import find_mount
from overspan.bridge.model.checkpoints.listings import FolderListing, ListingRequest
from overspan.bridge.model.errors import Denied, InvalidRequest, TimedOut, Unreachable
from overspan.bridge.model.job import Job, new_job

NFS = {"nfs": {"server": "nas", "path": "/scratch"}}
POD = "demo-trainer-0-a0"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a checkpoint, which pods have at the same path."""
    path = tmp_path / "run"
    (path / "step_1").mkdir(parents=True)
    (path / "step_1" / "w").write_text("x")
    return path


def make_cluster(folder: Path, volume: dict[str, Any] | None = None, **settings: Any) -> PodCluster:
    volumes = {"scratch": {**(volume or NFS), "path": str(folder.parent)}}
    return PodCluster(configure(**{"volumes": volumes, "image": "any/python:1", **settings}))


def watch(folder: Path, job: Job, key: str = "k") -> WatchedFolder:
    request = ListingRequest(key, str(folder), (r"step_[0-9]+",))
    return WatchedFolder(request, job, "trainer", "" if job.tasks[0].over else HANDLE)


def look(cluster: PodCluster, *folders: WatchedFolder) -> list[FolderListing]:
    async def ask() -> list[FolderListing]:
        try:
            return await cluster.source.list(folders)
        finally:
            await cluster.source.close()

    return asyncio.run(ask())


def names(listing: FolderListing) -> list[str]:
    return [found.name for found in listing.found]


def test_a_pod_of_the_task_is_asked_while_one_runs(folder: Path) -> None:
    cluster = make_cluster(folder)
    cluster.job_pods = [running("trainer", 1), running("trainer", 0), running("server", 0), ended("trainer", 0)]
    job = make_writer({})
    first, second = look(cluster, watch(folder, job), watch(folder / "none", job, "other"))
    assert names(first) == ["step_1"] and second.missing
    assert cluster.asked == [POD] and not cluster.watchers


def test_before_the_first_start_the_folder_is_not_there_yet(folder: Path) -> None:
    cluster = make_cluster(folder)
    job = new_job(7, make_writer({}).spec, 0.0)
    (listing,) = look(cluster, watch(folder, job))
    assert listing.missing and not cluster.asked and not cluster.watchers


def test_between_two_attempts_nobody_is_asked(folder: Path) -> None:
    cluster = make_cluster(folder)
    cluster.job_pods = [ended("trainer"), pod("trainer", attempt=1)]
    (listing,) = look(cluster, watch(folder, make_writer({})))
    assert listing.unreadable == "no pod of trainer runs at the moment" and not cluster.watchers


def test_after_the_end_a_watcher_pod_mounts_the_volume(folder: Path) -> None:
    cluster = make_cluster(folder, checkpoint_image="site/python:3")
    cluster.start_at_once = False
    over = watch(folder, make_writer({}, over=True))
    (first,) = look(cluster, over)
    assert first.unreadable == "the pod that looks for checkpoints is being started"
    (made,) = cluster.watchers.values()
    (container,) = made["spec"]["containers"]
    assert container["image"] == "site/python:3"
    assert [mount["mountPath"] for mount in container["volumeMounts"]] == [str(folder.parent)]
    assert [volume["nfs"]["server"] for volume in made["spec"]["volumes"]] == ["nas"]
    assert "affinity" not in made["spec"]
    (second,) = look(cluster, over)
    assert "which looks for checkpoints, does not run yet" in second.unreadable
    (name,) = cluster.watchers
    cluster.watchers.clear()
    cluster.start_at_once = True
    look(cluster, over)
    assert names(look(cluster, over)[0]) == ["step_1"] and cluster.asked == [name]


@pytest.mark.parametrize(("volume", "bound"), [({"hostPath": {"path": "/x"}}, True), ({"claim": "c"}, False)])
def test_a_watcher_is_on_the_node_that_alone_has_the_files(folder: Path, volume: dict[str, Any], bound: bool) -> None:
    cluster = make_cluster(folder, volume)
    look(cluster, watch(folder, make_writer({}, over=True)))
    (made,) = cluster.watchers.values()
    assert ("node-1" in str(made["spec"].get("affinity"))) is bound


GONE = CannotRun("a command in a pod could not be run: failed to load task: no running task found: not found")
NO_SHELL = CannotRun('a command in a pod could not be run: exec: "/bin/sh": stat /bin/sh: no such file or directory')


def test_a_pod_that_ends_meanwhile_says_nothing_of_its_image(folder: Path) -> None:
    """A look between the end of the program and the news of it: the last checkpoint is found afterwards."""
    cluster = make_cluster(folder)
    cluster.broken[POD] = GONE
    (first,) = look(cluster, watch(folder, make_writer({})))
    assert "no running task" in first.unreadable
    cluster.broken.clear()
    over = watch(folder, make_writer({}, over=True))
    look(cluster, over)
    assert names(look(cluster, over)[0]) == ["step_1"]


@pytest.mark.parametrize("answer", [127, NO_SHELL], ids=["no python3", "no shell"])
def test_a_watcher_is_asked_where_the_image_cannot_look(folder: Path, answer: Any) -> None:
    cluster = make_cluster(folder, checkpoint_image="site/python:3")
    cluster.broken[POD] = answer
    folders = watch(folder, make_writer({}))
    (first,) = look(cluster, folders)
    assert first.unreadable == "any/python:1 has no python3 (3.9 or newer): another pod is asked"
    look(cluster, folders)
    assert names(look(cluster, folders)[0]) == ["step_1"]


def test_where_no_image_can_look_the_setting_is_named(folder: Path) -> None:
    cluster = make_cluster(folder)
    cluster.broken[POD] = 127
    folders = watch(folder, make_writer({}))
    look(cluster, folders)
    (listing,) = look(cluster, folders)
    assert "set `checkpoint_image` of the cluster" in listing.unreadable and not cluster.watchers


def test_what_may_not_be_done_is_told_with_the_folder(folder: Path) -> None:
    cluster = make_cluster(folder)
    cluster.broken[POD] = Denied("pods/exec is forbidden: ana may not create it")
    assert "pods/exec is forbidden" in look(cluster, watch(folder, make_writer({})))[0].unreadable
    cluster.refusal = ApiAnswer(403, {"message": "exceeded quota: pods=4"})
    (listing,) = look(cluster, watch(folder, make_writer({}, over=True)))
    assert "exceeded quota" in listing.unreadable


def test_an_api_that_does_not_answer_is_no_folders_fault(folder: Path) -> None:
    cluster = make_cluster(folder)
    cluster.broken[POD] = Unreachable("away")
    with pytest.raises(Unreachable, match="away"):
        look(cluster, watch(folder, make_writer({})))


def play(story: Callable[[], Awaitable[None]]) -> None:
    async def run() -> None:
        async with asyncio.timeout(60):
            await story()

    asyncio.run(run())


def test_a_pod_that_hangs_delays_no_other_and_its_answer_is_taken_later(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source, "SOON_SECONDS", 0.5)
    cluster = make_cluster(folder)
    hangs = cluster.broken[POD] = threading.Event()
    slow, quick = watch(folder, make_writer({})), watch(folder, make_writer({}, over=True), "quick")

    async def story() -> None:
        await cluster.source.list([quick])
        async with asyncio.timeout(60):
            first, second = await cluster.source.list([slow, quick])
            while not names(second):
                first, second = await cluster.source.list([slow, quick])
        assert first.unreadable == f"the pod {POD} does not answer; it is asked again"
        assert names(second) == ["step_1"]
        hangs.set()
        async with asyncio.timeout(30):
            while not names((await cluster.source.list([slow, quick]))[0]):
                await asyncio.sleep(0.01)
        assert cluster.asked.count(POD) == 1
        await cluster.source.close()

    play(story)


def test_what_becomes_of_a_pod_that_nobody_asks_for_any_more_is_nobodys_trouble(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source, "SOON_SECONDS", 0.1)
    cluster = make_cluster(folder)
    hangs = cluster.broken[POD] = threading.Event()
    slow, quick = watch(folder, make_writer({})), watch(folder, make_writer({}, over=True), "quick")

    async def story() -> None:
        await cluster.source.list([slow, quick])
        await cluster.source.list([quick])
        del cluster.broken[POD]
        hangs.set()
        async with asyncio.timeout(30):
            while not names((await cluster.source.list([slow]))[0]):
                await asyncio.sleep(0.01)
        assert cluster.asked.count(POD) == 2, "the answer to a question of long ago is not taken"
        await cluster.source.close()

    play(story)


def test_a_pod_that_never_answers_is_asked_ever_more_rarely(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1000.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    cluster = make_cluster(folder)
    cluster.broken[POD] = TimedOut("a command in a pod did not end within 60 s")
    folders = watch(folder, make_writer({}))
    for passed, count in ((0, 1), (59, 1), (2, 2), (100, 2), (30, 3)):
        now[0] += passed
        (listing,) = look(cluster, folders)
        assert listing.unreadable and len(cluster.asked) == count


def test_watchers_that_nobody_uses_are_deleted_by_a_later_daemon_too(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watcher_pods, "UNUSED_SECONDS", 0.2)
    monkeypatch.setattr(source, "UNUSED_SECONDS", 0.2)
    cluster = make_cluster(folder)
    over = watch(folder, make_writer({}, over=True))

    async def story() -> None:
        await cluster.source.list([over])
        assert len(cluster.watchers) == 1
        while cluster.watchers:
            await asyncio.sleep(0.01)
        await cluster.source.list([over])
        await cluster.source.close()
        assert len(cluster.watchers) == 1
        later = make_cluster(folder)
        later.watchers = cluster.watchers
        await later.source.sweep("lab")
        assert not later.watchers

    play(story)


def test_a_daemon_that_does_not_know_its_name_makes_no_watcher_and_deletes_none(folder: Path) -> None:
    cluster = make_cluster(folder)
    cluster.installation = ""
    over = watch(folder, make_writer({}, over=True))
    assert "has just begun" in look(cluster, over)[0].unreadable and not cluster.watchers
    asyncio.run(cluster.source.sweep("lab"))
    cluster.installation = "inst"
    look(cluster, over)
    assert len(cluster.watchers) == 1
    cluster.away = True
    asyncio.run(cluster.source.sweep("lab"))
    assert len(cluster.watchers) == 1


@pytest.mark.parametrize(
    ("settings", "path", "message"),
    [
        ({}, "/data/run", "on no volume of the pods of trainer"),
        ({"volumes": {"s": {**NFS, "path": "/data"}}}, "/database/run", "on no volume"),
        ({"volumes": {"s": {**NFS, "path": "/data"}}}, "run", "is relative"),
        ({"volumes": {"s": {"emptyDir": {}, "path": "/data"}}}, "/data/run", r"goes with its pod \(emptyDir\)"),
    ],
)
def test_folders_that_cannot_be_watched(settings: dict[str, Any], path: str, message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        find_mount(make_writer({}), "trainer", path, configure(**settings))


def test_the_innermost_mount_counts_and_overlays_too() -> None:
    overlay = {
        "spec": {
            "volumes": [{"name": "own", "persistentVolumeClaim": {"claimName": "deep"}}],
            "containers": [{"volumeMounts": [{"name": "own", "mountPath": "/data/deep"}]}],
        }
    }
    settings = configure(volumes={"s": {**NFS, "path": "/data"}}, kubernetes=overlay)
    job = make_writer({"/data/other": "claim-a"})
    found = [
        next(iter(find_mount(job, "trainer", path, settings).volume.keys() - {"name"}))
        for path in ("/data/run", "/data/other/run", "/data/deep")
    ]
    assert found == ["nfs", "persistentVolumeClaim", "persistentVolumeClaim"]

"""Folders of object stores in pods: what is rendered, what is told of them, and what decisions ask of their pods."""

from __future__ import annotations

import asyncio
import base64
import io
import json
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from tests.unit.adapters.kubernetes.pods import GO, TOKEN, T, ended, group, placed, running

from overspan.adapters.contract import ClusterConfig, Launch
from overspan.adapters.kubernetes.api.answers import ApiAnswer
from overspan.adapters.kubernetes.api.connection import Connection
from overspan.adapters.kubernetes.launches.flushes import list_doubtful, read_progress
from overspan.adapters.kubernetes.launches.gang import GangBackend
from overspan.adapters.kubernetes.launches.pod_actions import (
    DeletePod,
    ExecInPod,
    GiveUpData,
    LaunchFacts,
    kill_words,
    plan_actions,
)
from overspan.adapters.kubernetes.launches.sidecars import SidecarCheck
from overspan.adapters.kubernetes.launches.submission import render_launch
from overspan.adapters.kubernetes.manifests.storage import find_mount_obstacle
from overspan.adapters.kubernetes.observation.evidence import FlushEnd, judge_end, judge_flush
from overspan.adapters.kubernetes.observation.launch_progress import WatchedLaunch
from overspan.adapters.kubernetes.observation.launch_summaries import TaskSummary
from overspan.adapters.kubernetes.observation.projection import (
    STUCK_SECONDS,
    Cursor,
    Progress,
    find_end,
    format_cursor,
    parse_cursor,
    project,
    take_snapshot,
    write_go,
)
from overspan.adapters.kubernetes.observation.records import PodRecord, read_pod
from overspan.adapters.kubernetes.planning import list_notes
from overspan.adapters.kubernetes.settings import Settings, Volume, read_settings
from overspan.bridge.model import events
from overspan.bridge.model.causes import Cause
from overspan.bridge.model.elastic import Elastic
from overspan.bridge.model.errors import Denied, InvalidRequest
from overspan.bridge.model.events import Flushed, Flushing, NodeEnded
from overspan.bridge.model.job import Job, new_job
from overspan.bridge.model.spec import JobSpec, TaskSpec
from overspan.bridge.model.storage import FlushPolicy, MountMode, StorageMount, StoreAccess
from overspan.bridge.runtime.data import pod_mover
from overspan.bridge.runtime.data.requests import FlushProgress

NOW = T + 100
SUMMARY = group(TaskSummary("trainer", 1, 0, flush=600))
SENT = json.dumps({"error": "", "left": 0})
STORES = {"s3": StoreAccess("s3", "http://store", access_key="key", secret_key="the-secret")}
SETTINGS = Settings(namespace="lab", image="python:3")


def cached(target: str = "/out", url: str = "s3://lab/run") -> StorageMount:
    return StorageMount(target, url, MountMode.MOUNT_CACHED, "s3")


def copy(target: str = "/in", url: str = "s3://lab/data") -> StorageMount:
    return StorageMount(target, url, MountMode.COPY, "s3")


def make_job(*mounts: StorageMount, **fields: Any) -> Job:
    return new_job(7, JobSpec("j", (TaskSpec("a", run="x", storage=mounts, **fields),)), 1.0)


def render(job: Job, settings: Settings = SETTINGS) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The pod of a job, and all other objects of its launch."""
    _, objects = render_launch(Launch(TOKEN, job), settings, GangBackend.SOFT, STORES)
    return objects.pods[0], [objects.anchor, *objects.owned()]


# --- rendering -------------------------------------------------------------------------------------------------------


def test_a_folder_that_is_written_has_a_container_that_ends_after_the_task_s() -> None:
    pod, _ = render(make_job(cached(), copy(), grace_period=20, flush=FlushPolicy(timeout=600)))
    fetch, data = pod["spec"]["initContainers"]
    assert fetch["name"] == "fetch" and "restartPolicy" not in fetch
    assert data["name"] == "data" and data["restartPolicy"] == "Always"
    assert {fetch["image"], data["image"]} == {"python:3"}
    assert pod["spec"]["terminationGracePeriodSeconds"] == 620
    (main,) = pod["spec"]["containers"]
    assert {"name": "OVERSPAN_KILL_AFTER", "value": "20"} in main["env"]
    paths = {mount["mountPath"]: mount for mount in main["volumeMounts"] if mount["name"] == "overspan-data"}
    assert set(paths) == {"/in", "/out"}
    assert paths["/in"]["readOnly"] and "readOnly" not in paths["/out"]
    assert all(mount["subPath"].startswith("data/7/") for mount in paths.values())


def test_pods_of_one_task_are_told_which_of_them_they_are() -> None:
    pod, _ = render(make_job(cached(), num_nodes=3))
    for container in pod["spec"]["initContainers"]:
        found = {entry["name"]: entry for entry in container["env"]}
        assert found["OVERSPAN_SESSION"]["value"] == TOKEN and found["OVERSPAN_NUM_NODES"]["value"] == "3"
        paths = [found[f"OVERSPAN_{name}"]["valueFrom"]["fieldRef"]["fieldPath"] for name in ("NODE_INDEX", "ATTEMPT")]
        assert paths == ["metadata.annotations['overspan.io/index']", "metadata.annotations['overspan.io/attempt']"]
    environment = dict.fromkeys(("OVERSPAN_SESSION",), "t-1") | {
        "OVERSPAN_ATTEMPT": "2",
        "OVERSPAN_NODE_INDEX": "1",
        "OVERSPAN_NUM_NODES": "3",
    }
    assert pod_mover.read_place(environment) == ("t-1-2", 1, 3)
    assert pod_mover.read_place({}) is None


def test_what_is_only_read_has_no_such_container_and_the_usual_grace() -> None:
    pod, _ = render(make_job(copy(), grace_period=20))
    assert [one["name"] for one in pod["spec"]["initContainers"]] == ["fetch"]
    assert pod["spec"]["terminationGracePeriodSeconds"] == 20
    assert "OVERSPAN_KILL_AFTER" not in json.dumps(pod["spec"]["containers"][0]["env"])


def test_a_pod_that_mounts_asks_for_the_device_and_has_no_credentials_and_no_right() -> None:
    read = replace(cached(), read_through=True)
    settings = SETTINGS.model_copy(update={"data_fuse": "example.com/fuse"})
    pod, _ = render(make_job(read, copy()), settings)
    spec = pod["spec"]
    (main,), (fetch, data) = spec["containers"], spec["initContainers"]
    assert [one["resources"]["limits"].get("example.com/fuse") for one in (main, fetch, data)] == ["1", None, None]
    assert {"key": "example.com/fuse", "operator": "Exists", "effect": "NoSchedule"} in spec["tolerations"]
    assert not any("securityContext" in one for one in (main, fetch, data))
    assert main["args"][0] == '["/out"]' and main["args"][1:3] == ["/bin/sh", "-c"]
    mounted = {mount["mountPath"]: mount for mount in main["volumeMounts"]}
    assert mounted["/overspan/mounts"]["subPath"] == "mounts" and mounted["/overspan/data-program"]["readOnly"]
    assert "overspan-stores" not in json.dumps(main)
    assert all('"fuse":true' in json.dumps(one["args"]).replace("\\", "") for one in (fetch, data))
    notes = list_notes(make_job(read), settings)
    assert any("read through the store" in note and "example.com/fuse" in note for note in notes)


@pytest.mark.parametrize("resource", ["", "example.com/fuse"])
def test_a_pod_that_does_not_mount_has_nothing_of_it(resource: str) -> None:
    # Without the setting, and with it where the job has no MOUNT.
    mount = cached() if resource else replace(cached(), read_through=True)
    pod, _ = render(make_job(mount), SETTINGS.model_copy(update={"data_fuse": resource}))
    text = json.dumps(pod)
    assert "fuse" not in text.replace("read_through", "") and "/overspan/mounts" not in text


def test_a_job_without_storage_has_nothing_of_it() -> None:
    pod, objects = render(make_job())
    assert "initContainers" not in pod["spec"]
    assert not any("data" in one["metadata"]["name"] for one in objects)


def test_the_movers_have_the_site_s_image_and_the_task_s_rights() -> None:
    settings = SETTINGS.model_copy(update={"data_image": "site/data:1"})
    rights = {"runAsUser": 1000}
    native = {"kubernetes": {"spec": {"containers": [{"name": "main", "securityContext": rights}]}}}
    pod, _ = render(make_job(cached(), native=native), settings)
    assert [one["image"] for one in pod["spec"]["initContainers"]] == ["site/data:1"] * 2
    assert all(one["securityContext"] == rights for one in pod["spec"]["initContainers"])


def test_the_cache_is_mounted_where_copies_are_fetched_alone() -> None:
    settings = SETTINGS.model_copy(update={"data_cache": Volume(claim="cache", sub_path="x")})
    pod, _ = render(make_job(copy(), cached()), settings)
    volume = {"name": "overspan-data-cache", "persistentVolumeClaim": {"claimName": "cache"}}
    assert volume in pod["spec"]["volumes"]
    mount = {"name": "overspan-data-cache", "mountPath": "/overspan/data-cache", "subPath": "x"}
    fetcher, sender = pod["spec"]["initContainers"]
    assert mount in fetcher["volumeMounts"] and mount not in sender["volumeMounts"]
    assert json.loads(fetcher["args"][-1])["cache"] == {"path": "/overspan/data-cache", "limit": None}
    pod, _ = render(make_job(cached()), settings)
    assert "overspan-data-cache" not in json.dumps(pod)


@pytest.mark.parametrize(
    ("cache", "words"),
    [
        ({"hostPath": {"path": "/x"}}, "allows no hostPath"),
        ({"claim": "c", "path": "/x"}, "mounted where data is moved alone"),
        ({"claim": "c", "nfs": {}}, "one source is wanted"),
    ],
)
def test_a_cache_that_pods_cannot_have_is_refused(cache: dict[str, object], words: str) -> None:
    config = ClusterConfig("c", "kubernetes", {"data_cache": cache, "security": "restricted"})
    with pytest.raises(InvalidRequest, match=words):
        read_settings(config)


def test_data_lies_in_a_folder_of_the_pod_s_own_on_a_volume_that_outlives_it() -> None:
    settings = SETTINGS.model_copy(update={"data_volume": Volume.model_validate({"claim": "kept", "sub_path": "x"})})
    pod, _ = render(make_job(cached()), settings)
    (volume,) = [one for one in pod["spec"]["volumes"] if one["name"] == "overspan-data"]
    assert volume["persistentVolumeClaim"] == {"claimName": "kept"}
    head, _, launch = TOKEN.rpartition("-")
    own = f"x/{head}/{launch}/{pod['metadata']['name']}"
    paths = {
        container["name"]: [mount["subPath"] for mount in container["volumeMounts"] if mount["name"] == "overspan-data"]
        for container in [*pod["spec"]["initContainers"], *pod["spec"]["containers"]]
    }
    assert paths["fetch"] == paths["data"] == [own]
    (path,) = paths["main"]
    assert path.startswith(f"{own}/data/7/")
    assert '"kept":true' in json.dumps(pod["spec"]["initContainers"][1]).replace("\\", "")


def test_data_that_is_only_read_goes_with_its_pod() -> None:
    settings = SETTINGS.model_copy(update={"data_volume": Volume(claim="kept")})
    assert render(make_job(copy()), settings)[0] == render(make_job(copy()))[0]


def test_the_plan_says_what_becomes_of_data_that_cannot_be_sent() -> None:
    job, kept = make_job(cached()), SETTINGS.model_copy(update={"data_volume": Volume(claim="kept")})
    notes = list_notes(job, SETTINGS, GangBackend.SOFT)
    assert "is lost with its pod: `span data rescue` cannot bring it back" in "\n".join(notes)
    notes = list_notes(job, kept, GangBackend.SOFT)
    assert "stays on the cluster's `data_volume`: `span data rescue` sends it later" in "\n".join(notes)


def test_credentials_are_in_one_secret_that_the_task_does_not_mount() -> None:
    pod, objects = render(make_job(cached()))
    (secret,) = [one for one in objects if one["kind"] == "Secret"]
    told = json.loads(base64.b64decode(secret["data"]["s3.json"]))
    assert told["secret_key"] == "the-secret"
    whole = json.dumps([one for one in objects if one is not secret])
    assert "the-secret" not in whole and base64.b64encode(b"the-secret").decode() not in whole
    mounted = {mount["name"] for mount in pod["spec"]["containers"][0]["volumeMounts"]}
    assert "overspan-stores" not in mounted


def test_a_pod_with_files_of_web_servers_alone_has_the_secret_that_it_mounts() -> None:
    pod, objects = render(make_job(StorageMount("/x", "https://host/x", MountMode.COPY, "https")))
    (secret,) = [one for one in objects if one["kind"] == "Secret"]
    assert secret["data"] == {}
    assert {"secretName": secret["metadata"]["name"]} in [each.get("secret") for each in pod["spec"]["volumes"]]


def test_a_store_that_is_not_known_any_more_refuses_the_launch() -> None:
    with pytest.raises(Denied, match="not in the configuration any more"):
        render_launch(Launch(TOKEN, make_job(cached())), SETTINGS, GangBackend.SOFT, {})


def test_the_program_has_all_that_it_imports(tmp_path: Path) -> None:
    _, objects = render(make_job(cached()))
    (program,) = [one for one in objects if "data.pyz" in (one.get("binaryData") or {})]
    data = base64.b64decode(program["binaryData"]["data.pyz"])
    assert len(data) < 200_000
    names = zipfile.ZipFile(io.BytesIO(data)).namelist()
    assert {"overspan/bridge/runtime/data/pod_mover.py", "overspan/bridge/runtime/data/s3.py", "__main__.py"} <= {
        *names
    }


def test_targets_below_the_home_are_links() -> None:
    pod, _ = render(make_job(cached("~/out")))
    (main,) = pod["spec"]["containers"]
    assert "/overspan/data-home/0" in {mount["mountPath"] for mount in main["volumeMounts"]}
    place = main["args"].index("/overspan/data-home/0")
    assert main["args"][place + 1] == "out"


def test_two_mounts_of_one_place_are_refused() -> None:
    with pytest.raises(InvalidRequest, match="mounted twice"):
        render(make_job(cached("/x"), copy("/x")))


@pytest.mark.parametrize(
    ("tasks", "why"),
    [
        ([TaskSpec("a", storage=(cached(),))], ""),
        ([TaskSpec("a", storage=(copy(),), num_nodes=4)], ""),
        ([TaskSpec("a", storage=(cached(),)), TaskSpec("b", storage=(cached(url="s3://lab/other"),))], ""),
        ([TaskSpec("a", storage=(cached(),)), TaskSpec("b", storage=(copy(url="s3://lab/run"),))], ""),
        ([TaskSpec("a", storage=(cached(),), num_nodes=2)], ""),
        ([TaskSpec("a", storage=(cached(),), elastic=Elastic(1, 2, 1))], "do not come and go"),
        ([TaskSpec("a", storage=(cached(),)), TaskSpec("b", storage=(cached(),))], "one task alone"),
    ],
)
def test_where_pods_can_have_folders_of_stores(tasks: list[TaskSpec], why: str) -> None:
    told = find_mount_obstacle(JobSpec("j", tuple(tasks), group=len(tasks) > 1))
    assert why in told if why else told == ""


# --- the mover's document --------------------------------------------------------------------------------------------


def test_a_mover_reads_what_is_rendered_for_it() -> None:
    job = make_job(cached(), copy())
    pod, _ = render(job)
    text = pod["spec"]["initContainers"][0]["args"][-1]
    read = pod_mover.read_job(text)
    assert (read.id, read.spec.tasks[0].name, read.spec.tasks[0].storage) == (7, "a", job.spec.tasks[0].storage)


# --- what is told ----------------------------------------------------------------------------------------------------


def sending(**fields: Any) -> PodRecord:
    """A pod whose program has ended, and whose data is on its way."""
    return ended(phase="Running", **fields)


def tell(pod: PodRecord, cursor: Cursor, gone: bool = False, now: float = NOW) -> tuple[list[events.Event], Cursor]:
    snapshot = take_snapshot([], [pod]) if gone else take_snapshot([pod])
    told = project(SUMMARY, snapshot, cursor, now)
    kept = parse_cursor(format_cursor(told.cursor, SUMMARY), SUMMARY)
    assert kept == told.cursor
    return list(told.events), told.cursor


def test_an_end_is_told_before_the_data_and_that_once() -> None:
    told, cursor = tell(sending(), Cursor(True))
    assert isinstance(told[-1], NodeEnded)
    assert tell(sending(), cursor) == ([], cursor)
    assert not cursor.over(sending())
    (flushed,), cursor = tell(sending(data_end=SENT), cursor)
    assert flushed == Flushed(NOW, "trainer", 0)
    assert tell(sending(data_end=SENT), cursor) == ([], cursor)
    assert cursor.over(sending())


def test_both_at_once_come_in_their_order() -> None:
    told, _ = tell(ended(data_end=SENT), Cursor(True))
    assert [type(event) for event in told[-2:]] == [NodeEnded, Flushed]


def test_a_pod_of_an_earlier_attempt_is_over_whatever_its_data() -> None:
    assert Cursor(True, {"trainer": Progress(1, (1,), True)}).over(sending())


@pytest.mark.parametrize(
    ("fields", "lost", "end"),
    [
        ({}, False, None),
        ({}, True, FlushEnd("the pod is gone that had it")),
        ({"data_end": SENT}, False, FlushEnd()),
        ({"data_end": SENT}, True, FlushEnd()),
        ({"data_end": json.dumps({"error": "no such bucket", "left": 5})}, False, FlushEnd("no such bucket", 5)),
        (
            {"phase": "Failed", "data_reason": "OOMKilled"},
            False,
            FlushEnd("what sends it has ended (OOMKilled)"),
        ),
        (
            {"phase": "Failed", "data_reason": "Error", "data_end": "no python3"},
            False,
            FlushEnd("what sends it has ended (Error): no python3"),
        ),
        ({"phase": "Failed", "data_end": "[]"}, False, FlushEnd("what sends it has ended (it never started): []")),
    ],
)
def test_what_came_of_the_data(fields: dict[str, Any], lost: bool, end: FlushEnd | None) -> None:
    assert judge_flush(sending()._replace(**fields), lost) == end


def test_data_of_a_pod_that_is_gone_is_not_waited_for() -> None:
    told, cursor = tell(sending(), Cursor(True), gone=True)
    flushed = told[-1]
    assert isinstance(flushed, Flushed) and "gone" in flushed.error
    assert not cursor.tasks["trainer"].sends


@pytest.mark.parametrize(("code", "cause"), [(1, Cause.SETUP), (75, Cause.BOOT), (137, Cause.NODE)])
def test_data_that_could_not_be_brought(code: int, cause: Cause) -> None:
    pod = placed(go=GO, phase="Failed", started_at=None, fetch_code=code, fetch_words="no such bucket")
    assert judge_end(pod, False) == (cause, "its data could not be brought: no such bucket")
    assert judge_end(pod, True)[0] is None


def test_a_pod_s_document_says_what_its_movers_left() -> None:
    def over(name: str, code: int, message: str) -> dict[str, Any]:
        return {"name": name, "state": {"terminated": {"exitCode": code, "message": message, "reason": "Error"}}}

    record = read_pod({"status": {"initContainerStatuses": [over("fetch", 75, "silent"), over("data", 1, SENT)]}})
    assert (record.fetch_code, record.fetch_words, record.data_end, record.data_reason) == (75, "silent", SENT, "Error")


# --- decisions -------------------------------------------------------------------------------------------------------


def plan(event: events.Event, pod: PodRecord) -> tuple[Any, ...]:
    return plan_actions(event, LaunchFacts(SUMMARY, take_snapshot([pod]), Cursor(True), NOW))


def test_an_end_leaves_the_pod_the_time_of_its_data() -> None:
    delete = plan(events.Terminate(NOW, "trainer", 0, "cancel", NOW + 30), running())[0]
    assert delete == DeletePod(running(), 630)


def test_a_program_is_killed_in_a_pod_that_stays_for_its_data() -> None:
    leaving = running(deleting_at=NOW + 600)
    assert plan(events.Kill(NOW, "trainer", 0), leaving) == (ExecInPod(leaving, kill_words("KILL", batch_only=False)),)
    # One whose program has not started has no data.
    assert plan(events.Kill(NOW, "trainer", 0), leaving._replace(started_at=None))[0].grace == 1


def test_data_that_nobody_waits_for_any_more_goes_with_its_pod() -> None:
    assert plan(events.AbandonFlush(NOW, "trainer", 0), sending()) == (GiveUpData(sending()),)
    assert plan(events.AbandonFlush(NOW, "trainer", 1), sending()) == ()
    assert plan(events.AbandonFlush(NOW, "trainer", 0), ended()) == ()


# --- how far it is ---------------------------------------------------------------------------------------------------


def test_what_is_left_is_told_where_it_has_changed() -> None:
    watched = WatchedLaunch(f"lab/{TOKEN}", SUMMARY, "uid", "lab")
    pod = sending()
    first = watched.project(take_snapshot([pod]), "", NOW)
    granted = watched.project(take_snapshot([pod]), first.cursor if first is not None else "", NOW)
    assert granted is not None
    watched.sending = {pod.uid: FlushProgress(500, "no answer")}
    report = watched.project(take_snapshot([pod]), granted.cursor, NOW)
    assert report is not None and report.events == (Flushing(NOW, "trainer", 0, 500, "no answer"),)
    assert watched.project(take_snapshot([pod]), report.cursor, NOW) is None
    over = sending(data_end=SENT)
    assert watched.list_sending(take_snapshot([over]), watched.cursor) == []


@pytest.mark.parametrize(
    ("line", "told"),
    [
        (b'{"left": 5, "trouble": "two\\nlines"}\n', FlushProgress(5, "two lines")),
        (b"2026-01-01T00:00:00 no answer\n", None),
        (b"[1]", None),
        (b"\xff", None),
    ],
)
def test_the_last_line_of_a_mover(line: bytes, told: FlushProgress | None) -> None:
    assert read_progress(line) == told


def test_a_deleted_pod_s_program_has_ended_when_its_mover_says_so() -> None:
    watched = WatchedLaunch(f"lab/{TOKEN}", SUMMARY, "uid", "lab")
    pod = running(asked_at=NOW, deleting_at=NOW + 630, go=write_go(T + 10, NOW))
    snapshot = watched.snapshot([pod], [])
    assert watched.list_leaving(snapshot) == [pod]
    assert watched.list_leaving(watched.snapshot([running()], [])) == []
    assert find_end(snapshot.pods["trainer", 0, 0], False, NOW + 5) is None
    watched.left[pod.uid] = NOW + 4
    record = watched.snapshot([pod], []).pods["trainer", 0, 0]
    end = find_end(record, False, NOW + 5)
    assert end is not None and (end.at, end.cause, end.exit_code) == (NOW + 5, "", 0)
    assert watched.list_leaving(watched.snapshot([pod], [])) == []
    # What nobody gives up, and is not there yet, is still on its way.
    assert judge_flush(record, False) is None
    assert plan(events.AbandonFlush(NOW, "trainer", 0), record) == (GiveUpData(record),)


def test_a_pod_on_a_node_that_does_not_answer_is_stuck_before_its_data_s_time_is_over() -> None:
    watched = WatchedLaunch(f"lab/{TOKEN}", SUMMARY, "uid", "lab")
    pod = running(asked_at=NOW, deleting_at=NOW + 630)
    assert list_doubtful(watched, [pod], NOW + 30 + STUCK_SECONDS) == []
    assert list_doubtful(watched, [pod, running()], NOW + 31 + STUCK_SECONDS) == [pod]
    assert list_doubtful(watched, [pod._replace(phase="Failed")], NOW + 3600) == []
    assert find_end(watched.snapshot([pod], []).pods["trainer", 0, 0], False, NOW + 100) is None
    watched.lost = frozenset({pod.uid})
    end = find_end(watched.snapshot([pod], []).pods["trainer", 0, 0], False, NOW + 100)
    assert end is not None and end.cause == Cause.NODE.value


class Versions:
    """A connection to an API server of some version."""

    def __init__(self, version: str) -> None:
        self.version, self.asked = version, 0

    async def call(self, method: str, path: str) -> ApiAnswer:
        assert (method, path) == ("GET", "/version")
        self.asked += 1
        return ApiAnswer(200, {"gitVersion": self.version} if self.version else {})


@pytest.mark.parametrize(
    ("version", "obstacle"), [("v1.28.3", "Kubernetes 1.28 has no sidecar containers"), ("v1.29.0", ""), ("", "")]
)
def test_clusters_without_sidecar_containers_are_told_by_their_version(version: str, obstacle: str) -> None:
    connection = Versions(version)
    check = SidecarCheck(cast(Connection, connection))
    assert asyncio.run(check.find_obstacle(make_job(copy()))) is None and connection.asked == 0
    for _ in range(2):
        found = asyncio.run(check.find_obstacle(make_job(cached())))
        assert obstacle in found.message if found is not None else not obstacle
    assert connection.asked == (2 if obstacle else 1)

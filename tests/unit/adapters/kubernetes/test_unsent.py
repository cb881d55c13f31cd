"""What pods could not send: a pod on each node tells or removes it."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

import pytest
from tests.unit.adapters.kubernetes.bench import INSTALLATION, make_job

from overspan.adapters.abilities import EndedLaunch
from overspan.adapters.kubernetes.api.answers import ApiAnswer
from overspan.adapters.kubernetes.api.executing import ExecCommand
from overspan.adapters.kubernetes.launches import rescue as rescue_module
from overspan.adapters.kubernetes.launches import volume_pods
from overspan.adapters.kubernetes.launches.launches import Launches
from overspan.adapters.kubernetes.launches.rescue import KubernetesRescue
from overspan.adapters.kubernetes.launches.unsent import KubernetesUnsent
from overspan.adapters.kubernetes.manifests.names import INSTALLATION as INSTALLATION_LABEL
from overspan.adapters.kubernetes.manifests.names import JOB
from overspan.adapters.kubernetes.settings import Settings, Volume
from overspan.bridge.model.errors import Unreachable
from overspan.bridge.model.job import Attempt, Job, NodeRun
from overspan.bridge.model.spec import TaskSpec
from overspan.bridge.model.states import State
from overspan.bridge.model.storage import MountMode, StorageMount, StoreAccess
from overspan.bridge.runtime.data.rescue import RescuedData
from overspan.bridge.runtime.data.unsent import UnsentListing

MOUNT = StorageMount("/out", "s3://lab/run", MountMode.MOUNT_CACHED, "s3")


class World:
    """A cluster whose pods start at once, unless their node is silent, and answer for each node."""

    def __init__(self) -> None:
        self.pods: dict[str, dict[str, Any]] = {}
        self.made: list[dict[str, Any]] = []
        self.asked: list[tuple[str, ...]] = []
        self.nodes: dict[str, str] = {}
        self.left: set[str] = set()
        self.words: list[tuple[str, ...]] = []
        self.said: str | None = None
        self.gate: threading.Barrier | None = None
        self.connection = self

    def calls(self, namespace: str) -> World:
        assert namespace == "lab"
        return self

    async def create(self, pod: dict[str, Any]) -> ApiAnswer:
        self.made.append(pod)
        self.pods[pod["metadata"]["name"]] = pod
        return ApiAnswer(201, pod)

    async def get(self, kind: str, name: str) -> Mapping[str, Any] | None:
        state = {"running": {"startedAt": "2026-11-27T00:00:00Z"}}
        status = {"phase": "Running", "containerStatuses": [{"name": "main", "state": state}]}
        return {**self.pods[name], "status": status}

    async def delete(self, kind: str, name: str) -> None:
        del self.pods[name]

    async def list(self, kind: str, selector: str) -> list[Mapping[str, Any]]:
        wanted = dict(part.split("=") for part in selector.split(","))
        if INSTALLATION_LABEL in wanted:
            return [{}] if f"{wanted[INSTALLATION_LABEL]}-{wanted[JOB]}" in self.left else []
        ((label, value),) = wanted.items()
        return [pod for pod in self.pods.values() if pod["metadata"]["labels"].get(label) == value]

    async def call(self, method: str, path: str) -> ApiAnswer:
        state = self.nodes.get(path.rpartition("/")[2], "True")
        if state == "gone":
            return ApiAnswer(404, {})
        return ApiAnswer(200, {"status": {"conditions": [{"type": "Ready", "status": state}]}})

    def execute(self, command: ExecCommand, seconds: float) -> tuple[int, str]:
        self.words.append(tuple(command.words[-4:]))
        if self.gate is not None:
            self.gate.wait(60)
            return 0, str(self.said)
        places = _read(command.line)
        self.asked.append((command.words[-1], *(pattern for _, pattern in places)))
        if self.said is not None:
            return 1, self.said
        rows = [[job, "s3://lab/run", "s3", 1, 8, 5.0, "left", pattern.replace("*", "x")] for job, pattern in places]
        return 0, "a word of the image\n" + json.dumps({"found": rows, "errors": []})


def _read(data: bytes) -> list[tuple[int, str]]:
    """What follows the program, of which the first ten bytes say how long it is."""
    return [(int(job), str(pattern)) for job, pattern, _ in json.loads(data[10 + int(data[:10]) :])]


def make_launch(number: int, *nodes: str, image: str = "work:1") -> EndedLaunch:
    """A job that wrote on these nodes."""
    job: Job = make_job(TaskSpec("writer", run="true", storage=(MOUNT,), image=image), job_id=number, group=False)
    runs = tuple(NodeRun(index, node=node) for index, node in enumerate(nodes))
    task = replace(job.tasks[0], attempts=(Attempt(0, State.FAILED, 1.0, runs),))
    return EndedLaunch(replace(job, tasks=(task,)), f"lab/{INSTALLATION}-{number}-0")


def open_unsent(world: World, volume: Volume, **settings: Any) -> KubernetesUnsent:
    return KubernetesUnsent(cast(Launches, world), Settings(data_volume=volume, **settings), volume)


DISK = Volume.model_validate({"hostPath": {"path": "/var/kept"}, "sub_path": "lab"})


def test_one_pod_looks_on_each_node_for_all_jobs_there() -> None:
    world = World()
    launches = [make_launch(7, "n1", "n2"), make_launch(8, "n1")]
    listing = asyncio.run(open_unsent(world, DISK).list_unsent(launches))
    patterns = [f"/overspan-rescue/{INSTALLATION}-{number}/*/*" for number in (7, 8)]
    assert sorted(world.asked) == sorted([("ls", *patterns), ("ls", patterns[0])])
    assert sorted((each.job, each.place) for each in listing.found) == [
        (7, f"n1:/var/kept/lab/{INSTALLATION}-7/x/x"),
        (7, f"n2:/var/kept/lab/{INSTALLATION}-7/x/x"),
        (8, f"n1:/var/kept/lab/{INSTALLATION}-8/x/x"),
    ]
    for pod in world.made:
        (mount,) = pod["spec"]["containers"][0]["volumeMounts"]
        assert mount == {"name": "data", "mountPath": "/overspan-rescue", "subPath": "lab"}
    assert world.pods == {}, "a pod was left"


def test_of_a_claim_one_pod_looks_anywhere() -> None:
    world, volume = World(), Volume(claim="kept")
    listing = asyncio.run(open_unsent(world, volume).list_unsent([make_launch(7, "n1", "n2")]))
    (pod,) = world.made
    assert "affinity" not in pod["spec"]
    assert [each.place for each in listing.found] == [f"kept/{INSTALLATION}-7/x/x"]


def test_images_of_other_users_have_pods_of_their_own_without_one_for_data() -> None:
    world, launches = World(), [make_launch(7, "n1"), make_launch(8, "n1", image="other:1")]
    asyncio.run(open_unsent(world, DISK).list_unsent(launches))
    assert {pod["spec"]["containers"][0]["image"] for pod in world.made} == {"work:1", "other:1"}
    world.made.clear()
    asyncio.run(open_unsent(world, DISK, data_image="python:3").list_unsent(launches))
    assert [pod["spec"]["containers"][0]["image"] for pod in world.made] == ["python:3"]


def test_a_node_that_does_not_answer_keeps_no_other() -> None:
    world = World()
    world.nodes = {"n1": "Unknown", "n3": "gone"}
    launches = [make_launch(7, "n1", "n3"), make_launch(8, "n2", "n3")]
    listing = asyncio.run(open_unsent(world, DISK).remove_unsent(launches))
    assert [each.job for each in listing.found] == [8]
    assert [(job, "node n1: it does not answer" in text) for job, text in listing.errors] == [(7, True)]
    assert len(world.made) == 1


def test_what_pods_may_still_send_is_not_removed() -> None:
    world = World()
    # Of an older launch, as its label of the job tells.
    world.left = {f"{INSTALLATION}-7"}
    launches = [make_launch(7, "n1"), make_launch(8, "n1")]
    listing = asyncio.run(open_unsent(world, DISK).remove_unsent(launches))
    assert [each.job for each in listing.found] == [8] and [job for job, _ in listing.errors] == [7]
    assert len(asyncio.run(open_unsent(world, DISK).list_unsent(launches)).found) == 2


def test_pods_of_a_daemon_that_was_killed_are_removed_first(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    monkeypatch.setattr(volume_pods, "_PAUSE", 0.0)
    labels = {volume_pods.RESCUE: f"look-{INSTALLATION}"}
    world.pods["old"] = {"metadata": {"name": "old", "labels": labels}}
    asyncio.run(open_unsent(world, DISK).list_unsent([make_launch(7, "n1")]))
    assert world.pods == {}


def test_an_image_without_python_is_named_with_the_remedy() -> None:
    world = World()
    world.said = "python3: not found"
    listing = asyncio.run(open_unsent(world, DISK).list_unsent([make_launch(7, "n1")]))
    ((job, text),) = listing.errors
    assert job == 7 and "python3: not found" in text and "`data_image`" in text
    assert asyncio.run(open_unsent(world, DISK).list_unsent([])) == UnsentListing()


class TestRescue:
    def test_jobs_are_sent_beside_each_other(self) -> None:
        world = World()
        world.said = '{"files": 1, "size": 8, "newer": []}'
        # Each waits in its pod for the other one.
        world.gate = threading.Barrier(2)
        rescue = KubernetesRescue(cast(Launches, world), Settings(data_volume=DISK), {"s3": StoreAccess("s3")})

        async def send() -> list[RescuedData | None]:
            return await asyncio.gather(*(rescue.send(*make_launch(number, "n1")) for number in (7, 8)))

        assert asyncio.run(send()) == [RescuedData(1, 8), RescuedData(1, 8)]
        assert world.pods == {}
        # The whole of the volume's part: of a mount of the job's own folder, that could not be removed.
        mounts = [pod["spec"]["containers"][0]["volumeMounts"] for pod in world.made]
        assert mounts == [[{"name": "data", "mountPath": "/overspan-rescue", "subPath": "lab"}]] * 2
        assert {words[1:] for words in world.words} == {
            ("/overspan-rescue", str(number), f"{INSTALLATION}-{number}/*/*") for number in (7, 8)
        }

    def test_a_node_that_fails_keeps_no_other_from_sending(self, monkeypatch: pytest.MonkeyPatch) -> None:
        world, sent = World(), []
        rescue = KubernetesRescue(cast(Launches, world), Settings(data_volume=DISK), {"s3": StoreAccess("s3")})

        async def run(launches: Any, calls: Any, pod: Mapping[str, Any], program: Any) -> tuple[int, str]:
            if "n1" in json.dumps(pod):
                raise Unreachable("node n1 is away")
            sent.append(pod)
            return 0, "null"

        monkeypatch.setattr(rescue_module, "run_in_pod", run)
        with pytest.raises(Unreachable, match="node n1 is away"):
            asyncio.run(rescue.send(*make_launch(7, "n1", "n2")))
        assert len(sent) == 1

    def test_the_nodes_of_the_newest_attempts_are_first(self, monkeypatch: pytest.MonkeyPatch) -> None:
        world, sent = World(), list[str]()
        job, handle = make_launch(7, "n1", "n2", "n3")
        runs = [
            replace(run, started_at=at) for run, at in zip(job.tasks[0].attempts[0].nodes, (5.0, 9.0, 7.0), strict=True)
        ]
        again = replace(runs[0], started_at=1.0)
        attempts = (Attempt(0, State.FAILED, 1.0, tuple(runs)), Attempt(1, State.FAILED, 1.0, (again,)))
        job = replace(job, tasks=(replace(job.tasks[0], attempts=attempts),))
        rescue = KubernetesRescue(cast(Launches, world), Settings(data_volume=DISK), {"s3": StoreAccess("s3")})

        async def run(launches: Any, calls: Any, pod: Mapping[str, Any], program: Any) -> tuple[int, str]:
            sent.extend(node for node in ("n1", "n2", "n3") if f'"{node}"' in json.dumps(pod))
            return 0, "null"

        monkeypatch.setattr(rescue_module, "run_in_pod", run)
        asyncio.run(rescue.send(job, handle))
        assert sent == ["n2", "n3", "n1"]

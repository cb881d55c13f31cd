"""An adapter on a fake API server, with a test in the place of the daemon and of the nodes."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar
from unittest.mock import patch

from tests.fakes.kubernetes_api import KubernetesApi
from tests.fakes.kubernetes_http import Request
from tests.fakes.kubernetes_objects import Document, Key

from overspan.adapters.contract import (
    Accepted,
    ClusterConfig,
    Launch,
    LogRequest,
    Order,
    Refusal,
    Report,
    SomeUnanswered,
)
from overspan.adapters.kubernetes import cluster as cluster_module
from overspan.adapters.kubernetes.cluster import KubernetesCluster, open_cluster
from overspan.adapters.kubernetes.observation.records import LAUNCH
from overspan.bridge.model.events import Event, Granted, Queued
from overspan.bridge.model.events import Launch as Start
from overspan.bridge.model.job import Job, new_job
from overspan.bridge.model.spec import JobSpec, Origin, TaskSpec

INSTALLATION = "bench"
DEADLINE = 60.0
T = TypeVar("T")


class Bench:
    """One namespace, one daemon's cursors; `orders` counts what was ordered."""

    def __init__(self, api: KubernetesApi, folder: Path, **settings: Any) -> None:
        self.api = api
        kubeconfig = api.write_kubeconfig(folder / "kubeconfig")
        given = {"kubeconfig": kubeconfig, "image": "any/sh:1", "gang": "soft", **settings}
        self.config = ClusterConfig("kube", "kubernetes", given, state=str(folder / "state"))
        self.cursors: dict[str, str] = {}
        self.told: dict[str, list[Event]] = {}
        self._orders = 0

    @contextlib.asynccontextmanager
    async def open(self) -> AsyncIterator[KubernetesCluster]:
        """The adapter, as a daemon opens it: a second one is a restart."""
        cluster = open_cluster(self.config)
        try:
            yield cluster
        finally:
            # No node ends here what was told to: its last lines would be waited for.
            with patch.object(cluster_module, "LAST_LINES_SECONDS", 0.0):
                await cluster.close()

    async def submit(self, cluster: KubernetesCluster, *jobs: Job) -> list[Accepted | Refusal]:
        """Submit jobs as the daemon does."""
        answers = await cluster.submit([Launch(token_of(job), job) for job in jobs])
        for answer in answers:
            if isinstance(answer, Accepted):
                self.cursors.setdefault(answer.handle, "")
                self.told.setdefault(answer.handle, [])
        return answers

    async def start(self, cluster: KubernetesCluster, job: Job) -> str:
        """Submit a job, place its pods, and let them go; gives the handle."""
        (answer,) = await self.submit(cluster, job)
        assert isinstance(answer, Accepted), answer
        for name in self.pods(token_of(job)):
            self.place(name)
        await self.until_told(cluster, answer.handle, Granted)
        for task in job.spec.tasks:
            assert await self.order(cluster, answer.handle, Start(time.time(), task.name, 0)) is None
        return answer.handle

    def place(self, name: str) -> None:
        """Bind a pod, and start it: it waits at its start gate, or runs."""
        self.api.pods.bind(name)
        self.api.pods.run(name)

    async def order(self, cluster: KubernetesCluster, handle: str, event: Event, token: str = "") -> Refusal | None:
        """Give one order."""
        self._orders += 1
        order = Order(token or f"order-{self._orders}", handle, event)
        deadline = time.monotonic() + DEADLINE
        while True:
            try:
                return (await cluster.order([order]))[0]
            except SomeUnanswered:
                assert time.monotonic() < deadline, f"{event} is not answered"

    async def insist(self, cluster: KubernetesCluster, handle: str, event: Event) -> None:
        """Give one order, again while it is refused for the moment, and observe meanwhile: as the daemon does."""
        deadline = time.monotonic() + DEADLINE
        while (refusal := await self.order(cluster, handle, event)) is not None:
            assert refusal.transient and time.monotonic() < deadline, refusal
            await self.step(cluster, 0.2)

    async def step(self, cluster: KubernetesCluster, timeout: float = 0.0) -> tuple[Report, ...]:
        """Take in what is new."""
        observation = await cluster.observe(self.cursors, timeout)
        for report in observation.reports:
            self.cursors[report.handle] = report.cursor
            self.told[report.handle] += report.events
        return observation.reports

    async def until(self, cluster: KubernetesCluster, fact: Callable[[], bool], what: str) -> None:
        """Observe until something is so."""
        deadline = time.monotonic() + DEADLINE
        while not fact():
            assert time.monotonic() < deadline, f"{what}: {self.told}"
            await self.step(cluster, 0.2)

    async def until_told(self, cluster: KubernetesCluster, handle: str, kind: type[T]) -> T:
        """Observe until an event of a kind was told."""

        def find() -> T | None:
            return next((event for event in self.told[handle] if isinstance(event, kind)), None)

        await self.until(cluster, lambda: find() is not None, kind.__name__)
        found = find()
        assert found is not None
        return found

    def facts(self, handle: str) -> list[Event]:
        """What was told of a launch but for the reasons of its wait, which come when a watch is late."""
        return [event for event in self.told[handle] if not isinstance(event, Queued)]

    # --- the cluster ---

    def names(self, resource: str) -> list[str]:
        """The objects of a kind."""
        found = self.api.objects.select(Key("", resource, "default"), lambda _: True)[0]
        return [document["metadata"]["name"] for document in found]

    def pods(self, token: str = "") -> list[str]:
        """All pods, or those of a launch."""
        return [name for name, pod in self.documents().items() if token in ("", _launch_of(pod))]

    def documents(self) -> dict[str, Document]:
        """All pods by name, as they are at one moment."""
        found = self.api.objects.select(Key("", "pods", "default"), lambda _: True)[0]
        return {document["metadata"]["name"]: document for document in found}

    def pod(self, name: str) -> Document:
        """One pod."""
        return self.api.pods.get(name)

    def left(self) -> list[str]:
        """Everything that Overspan has made and that is still there."""
        return [f"{kind} {name}" for kind in ("pods", "services", "secrets", "configmaps") for name in self.names(kind)]

    def sent(self, method: str, part: str) -> Iterator[tuple[int, Request]]:
        """Requests whose path ends so, with their places in the order."""
        for place, request in enumerate(self.api.requests):
            if request.method == method and part in request.path:
                yield place, request


def _launch_of(pod: Document) -> str:
    return str((pod["metadata"].get("labels") or {}).get(LAUNCH, ""))


def body_of(request: Request) -> dict[str, Any]:
    """The body of a request."""
    document = request.document
    assert isinstance(document, dict)
    return document


def token_of(job: Job) -> str:
    """The token of a job's present launch."""
    return f"{INSTALLATION}-{job.id}-{job.launch}"


def make_job(*tasks: TaskSpec, name: str = "demo", job_id: int = 7, group: bool = True) -> Job:
    """A group, of a trainer and two rollouts unless given."""
    usual = (
        TaskSpec(name="trainer", run="echo trained", grace_period=5),
        TaskSpec(name="rollout", run="sleep 60", num_nodes=2, primary=False, grace_period=5),
    )
    return new_job(job_id, JobSpec(name=name, tasks=tasks or usual, group=group, origin=Origin()), time.time())


def solo(run: str = "echo done", job_id: int = 7) -> Job:
    """A job of one pod."""
    return make_job(TaskSpec(name="main", run=run, grace_period=5), job_id=job_id, group=False)


def play(story: Callable[[], Any]) -> None:
    """Run an async story, with a deadline."""

    async def tell() -> None:
        async with asyncio.timeout(3 * DEADLINE):
            await story()

    asyncio.run(tell())


def read_log_request(handle: str, task: str, **fields: Any) -> LogRequest:
    """A request of a log."""
    return LogRequest(handle, task, **fields)


def dump(document: Any) -> str:
    """A document, to look for words in it."""
    return json.dumps(document)

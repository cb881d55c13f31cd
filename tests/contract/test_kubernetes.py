"""The suite against a fake API server with nodes that run processes, and against a real Kubernetes."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.contract.conformance import Conformance, Rig
from tests.contract.deciding import DaemonSide, Memory
from tests.contract.kubernetes_nodes import FakeNodes
from tests.fakes.kubernetes_api import KubernetesApi
from tests.leaks import nothing_is_dropped
from tests.rigs.kube import KubeRig
from tests.rigs.plugin import kube_namespace, kube_rig

from overspan.adapters.contract import Adapter, ClusterConfig
from overspan.adapters.kubernetes.cluster import KubernetesCluster, open_cluster
from overspan.bridge.model.errors import OverspanError
from overspan.bridge.model.job import Job, new_job
from overspan.bridge.model.resources import Resources
from overspan.bridge.model.spec import JobSpec, Origin, TaskSpec

__all__ = ["kube_namespace", "kube_rig", "nothing_is_dropped"]

ANY = Resources(cpus=0.1)
INSTALLATION = "contract"


class KubernetesRig:
    """A namespace of a cluster as an adapter's settings, and small jobs for it."""

    task = "main"

    def __init__(self, settings: dict[str, Any], state: Path, group: bool) -> None:
        self._config = ClusterConfig("kube", "kubernetes", settings, state=str(state))
        self._group = group
        self._memory = Memory(INSTALLATION)
        self._ids = itertools.count(1)

    def open(self) -> Adapter:
        return DaemonSide(open_cluster(self._config), self._memory)

    def short_job(self, exit_code: int = 0) -> Job:
        return self._job(f"printf 'one\\ntwo\\nthree\\n'; exit {exit_code}")

    def long_job(self) -> Job:
        return self._job("exec sleep 300")

    def impossible_job(self) -> Job:
        # A name that is none for DNS.
        return self._job("true", name="x" * 80)

    def clean(self) -> None:
        """Nothing is wanted any more: everything goes."""

        async def release() -> None:
            adapter = open_cluster(self._config)
            try:
                await until_empty(adapter)
            finally:
                await adapter.close()

        asyncio.run(release())

    def _job(self, run: str, resources: Resources = ANY, name: str = "") -> Job:
        job_id = next(self._ids)
        tasks = [TaskSpec(name=self.task, run=run, resources=resources, grace_period=2)]
        if self._group:
            tasks.append(TaskSpec(name="helper", run="exec sleep 300", primary=False, resources=ANY, grace_period=1))
        spec = JobSpec(
            name=name or f"contract-{job_id}", tasks=tuple(tasks), group=self._group or bool(name), origin=Origin()
        )
        return new_job(job_id, spec, time.time())


async def until_empty(adapter: KubernetesCluster, seconds: float = 180.0) -> None:
    """Release until nothing of the installation is left: the log of a pod that has just ended may come later."""
    deadline = time.monotonic() + seconds
    namespace = await asyncio.to_thread(lambda: adapter.launches.connection.namespace)
    calls = adapter.launches.calls(namespace)
    while True:
        try:
            await adapter.release(INSTALLATION, (), ())
        except OverspanError as error:
            assert time.monotonic() < deadline, error
        left = [
            f"{kind} {document['metadata']['name']}"
            for kind in ("Pod", "Service", "Secret", "ConfigMap")
            for document in await calls.list(kind, f"overspan.io/installation={INSTALLATION}")
        ]
        if not left:
            return
        assert time.monotonic() < deadline, f"left: {left}"
        await asyncio.sleep(0.05)


class TestFakeApi(Conformance):
    @pytest.fixture(params=[False, True], ids=["single", "group"])
    def rig(self, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Rig]:
        with KubernetesApi() as api, FakeNodes(api, tmp_path):
            settings = {"kubeconfig": api.write_kubeconfig(tmp_path / "config"), "image": "any/sh:1"}
            rig = KubernetesRig(settings, tmp_path / "state", request.param)
            yield rig
            rig.clean()


class TestKubernetes(Conformance):
    @pytest.fixture(params=[False, True], ids=["single", "group"])
    def rig(
        self, request: pytest.FixtureRequest, kube_rig: KubeRig, kube_namespace: str, tmp_path: Path
    ) -> Iterator[Rig]:
        settings = {"kubeconfig": str(kube_rig.kubeconfig), "namespace": kube_namespace, "image": "rig/sh:1"}
        rig = KubernetesRig(settings, tmp_path, request.param)
        yield rig
        rig.clean()

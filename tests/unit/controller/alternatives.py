"""Jobs with a list of clusters."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from tests.unit.controller.fakes import Bench, FakeCluster, play

from overspan.bridge.config.settings import Settings

Scene = Callable[[Bench, FakeCluster, FakeCluster], Awaitable[None]]


LIST = "one clusters=local,far after=60"


def watch(scene: Scene, near: FakeCluster | None = None, far: FakeCluster | None = None, kind: str = "local") -> None:
    """Play with two clusters: `local`, of that kind, and `far`."""
    other = far or FakeCluster("far")

    def prepare(bench: Bench) -> None:
        bench.others["far"] = other
        clusters = {"local": {"kind": kind, "root": "/near"}, "far": {"kind": "local", "root": "/far"}}
        stores = {"s3": {"endpoint": "http://127.0.0.1:9"}}
        document = {"clusters": clusters, "default_cluster": "local", "stores": stores}
        bench.settings = Settings.model_validate(document)

    async def run(bench: Bench) -> None:
        await scene(bench, bench.cluster, other)

    play(run, near, prepare)


def cluster_of(bench: Bench, job_id: int = 1) -> str:
    """Where the job is."""
    entry = bench.controller.recorder.registry.get(job_id)
    assert entry is not None
    return entry.cluster

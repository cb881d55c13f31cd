"""Rights are missing, a cluster's name changes, logs lose their ends, pods move, groups have no place, scripts."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from tests.fakes.kubernetes_api import KubernetesApi
from tests.fakes.kubernetes_objects import Key
from tests.unit.controller.fakes import until
from tests.unit.messages.told_texts import Opened, Stage, Told, cancel, hear, submit

from overspan.adapters.kubernetes.observation import launch_progress
from overspan.bridge.controller.views.logs import LogQuery
from overspan.bridge.model import events

SCRIPT = "#!/bin/sh\ntrain\n"
ONE = "resources: {cpus: 1}\nmax_restarts_on_errors: 0\nrun: train\n"
WIDE = "num_nodes: 3\nresources: {cpus: 2}\nrun: train\n"
READY = {"conditions": [{"type": "Ready", "status": "True"}]}
LACK = "0/2 nodes are available: 2 Insufficient cpu. preemption: 0/2 nodes are available: 2 No victims found."

Scene = Callable[[Opened, KubernetesApi], Awaitable[Told]]


def play(stage: Stage, scene: Scene, **settings: Any) -> Told:
    """Play with a daemon whose only cluster is a fake API server, as `kube`."""
    with KubernetesApi() as api:
        kubeconfig = api.write_kubeconfig(stage.folder / "kubeconfig")
        given = {"kind": "kubernetes", "kubeconfig": kubeconfig, "image": "any/sh:1", "gang": "soft", **settings}

        async def story(bench: Opened) -> Told:
            return await scene(bench, api)

        return stage.daemon(story, kube=given)


def list_pods(api: KubernetesApi) -> list[str]:
    """The names of all pods."""
    return [pod["metadata"]["name"] for pod in api.objects.select(Key("", "pods", "default"), lambda _: True)[0]]


async def start(bench: Opened, api: KubernetesApi, text: str = ONE, node: str = "node-1") -> int:
    """Submit a job and have its pod run on a node."""
    number, _ = await submit(bench.controller, text)
    await until(lambda: bool(list_pods(api)))
    await run(bench, api, number, node)
    return number


async def run(bench: Opened, api: KubernetesApi, number: int, node: str) -> None:
    """Have the newest pod run there."""
    name = sorted(list_pods(api))[-1]
    api.pods.bind(name, node)
    api.pods.run(name)
    await until(lambda: bench.state(number) == "RUNNING")


def miss_a_right(stage: Stage) -> Told:
    """A signal is sent without the right to exec."""

    async def scene(bench: Opened, api: KubernetesApi) -> Told:
        api.denied.add(("get", "pods/exec"))
        number = await start(bench, api)
        # No node would run the trial pod of a check that finds its namespace.
        api.objects.delete(Key("", "namespaces", "", "default"), {})
        found = await bench.controller.health.check("kube")
        said = await cancel(bench.controller, number, "USR1")
        await until(lambda: any("Signal" in line.text for line in bench.repository.lines), 20)
        checked = [f"{one.what} {one.works}: {one.seen}\n{one.remedy}" for one in found if not one.works]
        return {**await hear(bench.controller, number), **said, "check": "\n".join(checked)}

    return play(stage, scene)


def rename(stage: Stage) -> Told:
    """The configuration names a cluster otherwise while a job of it runs."""

    async def scene(bench: Opened, api: KubernetesApi) -> Told:
        number = await start(bench, api)
        await bench.stop()
        bench.configure(other={"kind": "kubernetes", **bench.settings.clusters["kube"].own})
        await bench.start()
        said = await cancel(bench.controller, number)
        return {**await hear(bench.controller, number), **said}

    return play(stage, scene)


def move(stage: Stage) -> Told:
    """A pod is lost, and the next one runs on another node."""

    async def scene(bench: Opened, api: KubernetesApi) -> Told:
        number = await start(bench, api)
        (name,) = list_pods(api)
        api.objects.delete(Key("", "pods", "default", name), {})
        api.pods.finish(name, 137)
        await until(lambda: bench.state(number) == "PENDING")
        bench.clock.advance(120)
        await until(lambda: bool({*list_pods(api)} - {name}))
        await run(bench, api, number, "node-2")
        return await hear(bench.controller, number)

    return play(stage, scene)


def lose_an_end(stage: Stage) -> Told:
    """A pod ends while no daemon is there, and its node removes its log."""

    async def scene(bench: Opened, api: KubernetesApi) -> Told:
        number = await start(bench, api)
        (name,) = list_pods(api)
        api.streams.write_log(name, "first\n")
        await bench.controller.logs.read(str(number), LogQuery())
        await bench.stop()
        api.refuse("GET", f"/pods/{name}/log", 400, f'container "main" in pod "{name}" is terminated', times=1000)
        api.pods.finish(name)
        await bench.start()
        await until(lambda: bench.job(number).over)
        log = await bench.controller.logs.read(str(number), LogQuery())
        return {**await hear(bench.controller, number), "log": log.part.data.decode()}

    return play(stage, scene)


def fit_nowhere(stage: Stage) -> Told:
    """Two of three pods have a place."""
    stage.patch.setattr(launch_progress, "FACTS_SECONDS", 0.0)

    async def scene(bench: Opened, api: KubernetesApi) -> Told:
        number, _ = await submit(bench.controller, WIDE)
        await until(lambda: len(list_pods(api)) == 3)
        first, second, third = sorted(list_pods(api))
        lacking = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": LACK}
        api.pods.set_status(third, {"conditions": [lacking]})
        api.pods.bind(first)
        api.pods.bind(second)
        await until(lambda: "place" in bench.job(number).reason, 20)
        return await hear(bench.controller, number)

    return play(stage, scene)


def have_no_room(stage: Stage) -> Told:
    """A group that was held finds room for two of three pods."""

    async def scene(bench: Opened, api: KubernetesApi) -> Told:
        status = {"allocatable": {"cpu": "5", "memory": "64Gi", "pods": "110"}, **READY}
        api.objects.create_simple("nodes", "n1", status=status)
        number, _ = await submit(bench.controller, WIDE)
        await until(lambda: len(list_pods(api)) == 3)
        await bench.controller.orders.give(str(number), lambda at, task: events.Hold(at, "ada"))
        await until(lambda: not list_pods(api))
        await bench.controller.orders.give(str(number), lambda at, task: events.Release(at, "ada"))
        await until(lambda: "room" in bench.job(number).reason, 20)
        return await hear(bench.controller, number)

    return play(stage, scene)


def run_a_script(stage: Stage) -> Told:
    """A batch script whose folder no pod shares, with an input file and variables that no pod can have."""

    async def scene(bench: Opened, api: KubernetesApi) -> Told:
        variables = {"SEED": "7", "LONG": "x" * (101 << 10)}
        words = ("--output=out", "--error=err", "--input=in", "train.sh")
        number, said = await submit(bench.controller, SCRIPT, *words, environment=variables)
        return {**await hear(bench.controller, number), **said}

    return play(stage, scene)


def export_too_much(stage: Stage) -> Told:
    """The environment of a batch script is too large."""

    async def scene(bench: Opened, api: KubernetesApi) -> Told:
        large = {f"LARGE_{number}": "x" * (90 << 10) for number in range(6)}
        return (await submit(bench.controller, SCRIPT, environment=large))[1]

    return play(stage, scene)

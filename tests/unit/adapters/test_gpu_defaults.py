"""CPUs and memory that GPUs bring with them, on each kind of cluster: never more than a node has."""

from __future__ import annotations

import pytest
from tests.unit.adapters.kubernetes.samples import configure

from overspan.adapters.contract import Launch, Node
from overspan.adapters.gpu_defaults import bound_gpu_defaults
from overspan.adapters.kubernetes.manifests.resources import render_needs
from overspan.adapters.kubernetes.observation.nodes import PORTION
from overspan.adapters.local.queue.admission import find_refusal
from overspan.adapters.local.queue.booking import list_variants
from overspan.adapters.local.queue.capacity import Capacity
from overspan.adapters.local.settings import Settings as LocalSettings
from overspan.adapters.slurm.commands.queries import Site
from overspan.adapters.slurm.groups.packing import NodeSize
from overspan.adapters.slurm.groups.placement import plan_group
from overspan.adapters.slurm.rendering.renderer import ClusterFacts, Renderer
from overspan.adapters.slurm.settings import Settings
from overspan.bridge.model.job import Job, new_job
from overspan.bridge.model.resources import GpuDefaults, Gpus, Resources
from overspan.bridge.model.spec import JobSpec, TaskSpec

DEFAULTS = GpuDefaults()


def task(gpus: int, **more: float) -> TaskSpec:
    resources = Resources(gpus=(Gpus(gpus),), gpu_defaults=DEFAULTS, **more)  # type: ignore[arg-type]
    return TaskSpec("t", run="true", resources=resources)


def job_of(*tasks: TaskSpec) -> Job:
    return new_job(1, JobSpec("j", tasks, group=len(tasks) > 1), 0.0)


def machine(cpus: int, gib: int, gpus: int) -> Capacity:
    return Capacity(cpus * 1000, gib * 1024, ("",) * gpus)


@pytest.mark.parametrize(
    ("named", "cpus", "gib"),
    [({}, 8, 32), ({"cpus": 3.0}, 3, 12), ({"memory_mib": 1024}, 8, 1), ({"memory_mib_per_cpu": 1024}, 8, 8)],
)
def test_four_cpus_a_gpu_and_four_gb_a_cpu_where_none_are_named(named: dict[str, float], cpus: float, gib: int) -> None:
    need = task(2, **named).resources.need()
    assert (need.cpu_milli, need.memory_mib) == (cpus * 1000, gib * 1024)


def test_each_alternative_of_gpus_brings_its_own() -> None:
    resources = Resources(gpus=(Gpus(8, "A100"), Gpus(2, "H100")), gpu_defaults=DEFAULTS)
    assert [need.cpu_milli for need in resources.needs()] == [32_000, 8_000]


@pytest.mark.parametrize(
    ("capacity", "gpus", "cpus", "gib"),
    [
        (machine(128, 1024, 8), 8, 32, 128),
        (machine(16, 64, 8), 8, 16, 64),
        # Jobs of one GPU each find CPUs for all eight of them.
        (machine(16, 64, 8), 1, 2, 8),
        (machine(2, 4, 8), 1, 0.25, 0.5),
    ],
)
def test_a_machine_is_never_asked_for_more_than_it_has(capacity: Capacity, gpus: int, cpus: float, gib: float) -> None:
    ((member,),) = list_variants(job_of(task(gpus)), capacity)
    assert (member.need.cpu_milli, member.need.memory_mib) == (cpus * 1000, gib * 1024)


def test_the_rest_of_a_group_keeps_what_it_names() -> None:
    named = TaskSpec("server", run="true", resources=Resources(cpus=6, memory_mib=30 * 1024))
    job = job_of(task(8), named)
    capacity = machine(16, 64, 8)
    assert find_refusal(job, LocalSettings(), capacity) == ""
    ((trainer, server),) = list_variants(job, capacity)
    assert server.need.cpu_milli == 6000 and 0 < trainer.need.cpu_milli <= 10_000


def slurm(job: Job, *nodes: Node) -> tuple[str, ...]:
    site = Site((), {}, "/home/u", "u")
    call = Renderer(Settings(), "/r").render(Launch("token-1-0", job), ClusterFacts(site, nodes)).call
    return (*call.argv, *(line.removeprefix("#SBATCH ") for line in call.stdin.decode().splitlines()))


def node(cpus: int, gib: int, gpus: int, kind: str = "") -> Node:
    return Node("n", "main", "idle", cpus, 0, gib * 1024, 0, gpus, gpu_kind=kind)


def test_slurm_is_asked_for_cpus_and_memory_beside_the_gpus() -> None:
    words = slurm(job_of(task(8)), node(128, 1024, 8))
    assert {"--cpus-per-task=32", "--mem=131072M", "--gres=gpu:8"} <= set(words)


def test_a_node_of_slurms_with_few_cpus_is_not_refused() -> None:
    words = slurm(job_of(task(8)), node(128, 1024, 8), node(16, 64, 8), node(4, 8, 0))
    assert {"--cpus-per-task=16", "--mem=65536M"} <= set(words)


def test_a_group_on_slurm_fits_where_it_would_without_defaults() -> None:
    shares = TaskSpec("server", run="true", resources=Resources(cpus=4), share="t")
    sizes = (NodeSize("", 16, 64 * 1024, 8),)
    plan = plan_group(job_of(task(8), shares), sizes)
    (component,) = plan.components
    assert component.shape.cpus <= 16 and (component.shape.memory or 0) <= 64 * 1024
    assert plan.steps[0].need.cpus > 1


def test_pods_ask_for_them_too_and_leave_the_node_its_own() -> None:
    job = job_of(task(8))
    assert render_needs(job.spec.tasks[0], configure()).requests == {
        "cpu": "32",
        "memory": "131072Mi",
        "nvidia.com/gpu": "8",
    }
    bound = bound_gpu_defaults(job, [node(16, 64, 8)], PORTION).spec.tasks[0]
    assert render_needs(bound, configure()).requests["cpu"] == "14400m"


@pytest.mark.parametrize("kind", ["A100", ""])
def test_nodes_with_other_gpus_bound_nothing(kind: str) -> None:
    wanted = TaskSpec("t", resources=Resources(gpus=(Gpus(4, kind),), gpu_defaults=DEFAULTS))
    bound = bound_gpu_defaults(job_of(wanted), [node(8, 8, 8, "t4"), node(64, 512, 8, "a100-80gb")])
    assert bound.spec.tasks[0].resources.need().cpu_milli == (16_000 if kind else 4_000)


@pytest.mark.parametrize(
    ("wanted", "gres"),
    [
        ((Gpus(8, "a100"), Gpus(4, "h100")), "--gres=gpu:h100:4"),
        ((Gpus(4, "a100"), Gpus(4, "h100")), "--gres=gpu:a100:4"),
        # Where no node has enough of any, the refusal is Slurm's.
        ((Gpus(16, "a100"), Gpus(16, "h100")), "--gres=gpu:a100:16"),
    ],
)
def test_slurm_is_asked_for_the_first_alternative_that_a_node_can_hold(wanted: tuple[Gpus, ...], gres: str) -> None:
    job = job_of(TaskSpec("t", run="true", resources=Resources(gpus=wanted)))
    assert gres in slurm(job, node(64, 512, 4, "a100"), node(64, 512, 8, "h100"))

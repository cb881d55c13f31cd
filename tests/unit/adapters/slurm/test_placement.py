from __future__ import annotations

from dataclasses import replace

import hypothesis.strategies as st
import pytest
from hypothesis import example, given, settings
from tests.unit.adapters.slurm.samples import EXAMPLES, read_file

from overspan.adapters.contract import Node
from overspan.adapters.slurm.groups.lifetimes import MARGIN, latest_ends, longest_primary
from overspan.adapters.slurm.groups.packing import NodeSize, PackedUnit, fits, pack
from overspan.adapters.slurm.groups.placement import list_kinds, measure_sizes, plan_group, plan_on_nodes
from overspan.adapters.slurm.groups.plans import MemberId, PlacementPlan
from overspan.adapters.slurm.rendering.node_resources import NodeResources
from overspan.bridge.lifecycle.stages import carry
from overspan.bridge.model.errors import Rejected
from overspan.bridge.model.job import Job, new_job
from overspan.bridge.model.resources import Gpus, Resources
from overspan.bridge.model.spec import JobSpec, NeedKind, Start, TaskSpec
from overspan.bridge.model.spec import Need as TaskNeed

BIG = (NodeSize("", 64, 256_000, count=10),)


def group(*tasks: TaskSpec) -> Job:
    return new_job(42, JobSpec("g", tasks, group=True), 0.0)


def task(name: str, cpus: float = 1, nodes: int = 1, gpus: int = 0, **more: object) -> TaskSpec:
    resources = Resources(cpus=cpus, gpus=(Gpus(gpus),) if gpus else ())
    return TaskSpec(name, run=name, num_nodes=nodes, resources=resources, **more)  # type: ignore[arg-type]


def places(plan: PlacementPlan) -> dict[str, tuple[int, int]]:
    """Component and node of every member by its name."""
    return {
        f"{member.task}-{member.index}": (number, node)
        for number, component in enumerate(plan.components)
        for node, item in enumerate(component.bins)
        for member in item.members
    }


def test_five_small_tasks_fit_on_three_small_nodes_as_one_ordinary_job() -> None:
    job = read_file((EXAMPLES / "rlhf" / "rlhf.yaml").read_text())
    plan = plan_group(job, (NodeSize("", 4, 4000, count=3),))
    assert not plan.hetjob
    assert plan.nodes == 2
    found = places(plan)
    assert found["rollout-server-0"] != found["rollout-server-1"]


def test_two_shapes_are_a_hetjob_led_by_the_longest_primary() -> None:
    sizes = (NodeSize("", 64, 256_000, 8, count=4), NodeSize("", 32, 64_000, count=4))
    server = task("server", 32, 2, time=7200, primary=False, termination_delay=60)
    plan = plan_group(
        group(server, task("short", 2, time=60, spread=True), task("trainer", 64, 2, 8, time=3600)), sizes
    )
    assert [len(component.bins) for component in plan.components] == [2, 2, 1]
    assert plan.components[0].bins[0].members[0].task == "trainer"
    # The server goes with the primaries: 3600 + 30, its delay of 60, its grace of 30.
    assert plan.components[0].time == 3600 + 30 + 60 + 30 + MARGIN
    assert min(component.time or 0 for component in plan.components) == 60 + 30 + MARGIN


def test_a_small_task_goes_beside_a_large_one_and_leaves_one_job() -> None:
    plan = plan_group(group(task("trainer", 32, 4, 8), task("data", 2)), (NodeSize("", 64, 256_000, 8, count=4),))
    assert not plan.hetjob and plan.nodes == 4
    assert plan.components[0].shape == NodeResources(34, None, 8)


def test_shared_members_are_on_the_nodes_of_their_task() -> None:
    job = group(task("trainer", 8, 2), task("data", 1, 2, share="trainer"), task("log", 1, share="data"))
    plan = plan_group(job, BIG)
    found = places(plan)
    assert found["data-0"] == found["trainer-0"] == found["log-0"]
    assert found["data-1"] == found["trainer-1"]
    assert plan.nodes == 2


def test_a_share_of_more_members_than_nodes_gets_steps_of_its_own() -> None:
    plan = plan_group(group(task("trainer", 8), task("data", 1, 2, share="trainer")), BIG)
    assert [(step.members, step.nodes) for step in plan.steps_of("data")] == [((0,), (0,)), ((1,), (0,))]


def test_a_task_that_spreads_has_nodes_of_its_own() -> None:
    plan = plan_group(group(task("a", 1), task("b", 1), task("quiet", 1, 2, spread=True)), BIG)
    found = places(plan)
    assert found["a-0"] == found["b-0"]
    assert len({found["a-0"], found["quiet-0"], found["quiet-1"]}) == 3


def test_other_options_are_another_component() -> None:
    job = group(task("a"), task("b", native={"slurm": {"constraint": "fast"}}))
    plan = plan_group(job, BIG)
    assert [dict(component.options) for component in plan.components] == [{}, {"constraint": "fast"}]


def test_options_that_slurm_passes_on_are_told() -> None:
    job = group(task("a", native={"slurm": {"qos": "high"}}), task("b"))
    assert plan_group(job, BIG).notes == ("component 1 has --qos=high too: Slurm passes it on from an earlier one",)


def test_nothing_known_of_the_nodes_packs_nothing() -> None:
    assert plan_group(group(task("a"), task("b"))).nodes == 2


def test_members_without_memory_are_told_some_where_another_names_it() -> None:
    resources = Resources(cpus=2, memory_mib=8192)
    plan = plan_group(group(TaskSpec("a", resources=resources), task("b", 3)), BIG)
    assert {step.task: step.need.memory for step in plan.steps} == {"a": 8192, "b": 3 * 1024}
    assert plan.components[0].shape.memory == 8192 + 3 * 1024


@pytest.mark.parametrize(
    ("tasks", "words"),
    [
        ((task("a", 128),), "no node has 128 CPUs"),
        ((task("a", 1, 11),), "there are 10 nodes in the default partition"),
        ((task("a", native={"slurm": {"partition": "gone"}}),), "0 nodes in gone"),
    ],
)
def test_what_no_partition_can_hold_is_refused(tasks: tuple[TaskSpec, ...], words: str) -> None:
    with pytest.raises(Rejected) as refused:
        plan_group(group(*tasks), BIG)
    assert words in refused.value.remedy


def test_what_is_missing_is_said_with_the_kind_of_gpu_and_nothing_that_is_zero() -> None:
    wanted = TaskSpec("a", run="x", resources=Resources(cpus=1, gpus=(Gpus(1, "h100"),)))
    with pytest.raises(Rejected) as refused:
        plan_group(group(wanted), (NodeSize("", 4, 4000, 2, "a100", count=3),))
    assert refused.value.remedy == (
        "no node has 1 CPUs and 1 h100 GPUs for a: the largest has 4 CPUs, 4000 MiB and 2 a100 GPUs"
    )


STATES = "down drained draining drng fail failing maint reserved resv powered_down powering_down power_down planned "
STATES += "reboot unknown no_respond inval allocated mixed completing blocked"


@pytest.mark.parametrize("state", STATES.split())
def test_a_group_waits_for_nodes_that_take_no_job_today(state: str) -> None:
    up = Node("n1", "main", "idle", 4, 0, 4000, 0)
    away = [replace(up, name=f"n{number}", state=state) for number in (2, 3)]
    for nodes in ([up, *away], [replace(up, state=state), *away]):
        assert plan_on_nodes(group(task("a", 4, 3)), nodes).nodes == 3
        for never in (task("a", 4, 4), task("a", 5)):
            with pytest.raises(Rejected):
                plan_on_nodes(group(never), nodes)


def test_nodes_that_are_not_there_yet_hold_nothing() -> None:
    up = Node("n1", "main", "idle", 4, 0, 4000, 0)
    with pytest.raises(Rejected, match="not available"):
        plan_on_nodes(group(task("a", 4, 2)), [up, replace(up, name="n2", state="future")])


AWAY = "down drained draining fail failing maint powering_up powered_down reboot unknown no_respond perfctrs"


@pytest.mark.parametrize("state", AWAY.split())
def test_what_fits_on_the_nodes_of_today_waits_for_no_other(state: str) -> None:
    small = [Node(f"s{number}", "main", "idle", 4, 0, 4000, 0) for number in range(4)]
    large = Node("l", "main", state, 64, 0, 64_000, 0)
    parts = group(*(task(f"t{number}", 4) for number in range(4)))
    assert plan_on_nodes(parts, [*small, replace(large, state="idle")]).nodes == 1
    assert plan_on_nodes(parts, [*small, large]).nodes == 4


def test_sizes_are_those_of_all_nodes() -> None:
    node = Node("n1", "main", "idle", 4, 0, 4000, 0, gpus=2, gpu_kind="a100")
    nodes = [
        node,
        replace(node, name="n2"),
        replace(node, name="n3", state="future"),
        replace(node, partition="x", default=False),
    ]
    assert measure_sizes(nodes) == (
        NodeSize("", 4, 4000, 2, "a100", 2),
        NodeSize("main", 4, 4000, 2, "a100", 2),
        NodeSize("x", 4, 4000, 2, "a100", 1),
    )
    assert list_kinds(nodes) == ("a100",)


def test_ends_follow_needs_and_unlimited_primaries() -> None:
    chain = group(
        task("a", time=100), task("b", time=50, needs=(TaskNeed("a", NeedKind.OK),)), task("c", primary=False)
    )
    assert latest_ends(chain) == {"a": 130, "b": 210, "c": 210 + 0 + 30}
    assert longest_primary(chain).name == "b"
    unlimited = group(task("a", time=100), task("b"))
    assert longest_primary(unlimited).name == "b"
    assert latest_ends(unlimited) == {"a": 130, "b": None}


def test_in_a_stage_that_primaries_follow_auxiliaries_last_to_their_own_end() -> None:
    tasks = (
        task("a", time=100),
        task("b", time=500, primary=False),
        task("c", needs=(TaskNeed("a", NeedKind.OK), TaskNeed("b", NeedKind.ENDED))),
    )
    stage = carry(new_job(1, JobSpec("g", tasks, group=True, start=Start.TURNS), 0.0))
    assert latest_ends(stage) == {"a": 130, "b": 530}
    assert longest_primary(stage).name == "b"


def test_components_without_a_limit_stand_before_those_with_one() -> None:
    tasks = (task("a", 1, time=60, spread=True), task("b", 9, spread=True), task("c", 5, time=60, spread=True))
    plan = plan_group(group(*tasks, task("d", 3, spread=True)), BIG)
    assert [component.time is None for component in plan.components] == [True, True, False, False]


specs = st.builds(
    task,
    st.just("x"),
    st.sampled_from([0.1, 1, 2, 5, 8]),
    st.integers(1, 4),
    st.sampled_from([0, 0, 0, 1, 2]),
    time=st.sampled_from([None, 60, 600]),
    spread=st.sampled_from([False, False, False, True]),
    primary=st.booleans(),
)


@st.composite
def groups(draw: st.DrawFn) -> Job:
    drawn = draw(st.lists(specs, min_size=1, max_size=6))
    named = [replace(spec, name=f"t{place}", run="x") for place, spec in enumerate(drawn)]
    for place in range(1, len(named)):
        if draw(st.integers(0, 4)) == 0 and not named[place].spread:
            named[place] = replace(named[place], share=named[draw(st.integers(0, place - 1))].name)
    if draw(st.booleans()):
        named[-1] = replace(named[-1], native={"slurm": {"partition": "other"}})
    return group(*named)


clusters = st.lists(
    st.builds(
        NodeSize,
        st.just(""),
        st.sampled_from([4, 8, 16]),
        st.just(64_000),
        st.sampled_from([0, 2, 4]),
        st.just(""),
        st.integers(1, 8),
    ),
    min_size=1,
    max_size=3,
    unique_by=lambda size: (size.cpus, size.gpus),
).map(lambda sizes: [*sizes, *(replace(size, partition="other") for size in sizes)])


@given(groups(), clusters)
@settings(deadline=None, max_examples=150)
def test_every_plan_is_sound(job: Job, sizes: list[NodeSize]) -> None:
    try:
        plan = plan_group(job, sizes)
    except Rejected:
        return
    everyone = [MemberId(spec.name, index) for spec in job.spec.tasks for index in range(spec.num_nodes)]
    bins = [(component, item) for component in plan.components for item in component.bins]
    assert sorted(member for _, item in bins for member in item.members) == sorted(everyone)
    assert sorted(MemberId(step.task, index) for step in plan.steps for index in step.members) == sorted(everyone)
    for component, item in bins:
        wanted = dict(component.options).get("partition", "")
        assert any(fits(component.shape, size) for size in sizes if size.partition == wanted)
        assert sum(max(1, round(job.spec_of(m.task).resources.cpus or 1)) for m in item.members) <= component.shape.cpus
        spreading = {m.task for m in item.members if job.spec_of(m.task).spread}
        assert not spreading or len({_root(job, m.task) for m in item.members}) == 1
    for step in plan.steps:
        assert list(step.nodes) == sorted(set(step.nodes))
        inside = plan.components[step.component].bins
        assert all(MemberId(step.task, m) in inside[n].members for m, n in zip(step.members, step.nodes, strict=True))
    found = places(plan)
    for spec in job.spec.tasks:
        root = job.spec_of(_root(job, spec.name))
        for index in range(spec.num_nodes):
            assert found[f"{spec.name}-{index}"] == found[f"{root.name}-{index % root.num_nodes}"]
        if root is spec:
            assert len({found[f"{spec.name}-{index}"] for index in range(spec.num_nodes)}) == spec.num_nodes
    leader = longest_primary(job)
    assert found[f"{leader.name}-0"][0] == 0
    limits = [component.time for component in plan.components]
    assert limits[0] is None or all(limit is not None and limit <= limits[0] for limit in limits)
    assert plan_group(job, sizes) == plan


def _root(job: Job, name: str) -> str:
    while job.spec_of(name).share:
        name = job.spec_of(name).share
    return name


@given(st.lists(st.tuples(st.integers(1, 8), st.integers(1, 3)), min_size=1, max_size=6))
@example([(1, 2), (4, 2), (4, 3), (4, 2), (4, 3), (8, 1)])
@settings(deadline=None)
def test_never_more_nodes_than_one_plan_alone(shapes: list[tuple[int, int]]) -> None:
    units = [
        PackedUnit(f"t{place}", (MemberId(f"t{place}", index),), NodeResources(cpus), apart=count > 1)
        for place, (cpus, count) in enumerate(shapes)
        for index in range(count)
    ]
    packed = pack(units, [NodeSize("", 8, 1000, count=100)])
    assert packed is not None
    least = max(max(count for _, count in shapes), -(-sum(cpus * count for cpus, count in shapes) // 8))
    assert least <= len(packed.bins) <= len(units)
    assert len(packed.bins) <= first_fit(shapes, 8)


def first_fit(shapes: list[tuple[int, int]], room: int) -> int:
    """The nodes of the plainest plan: each member, largest first, on the first node with room and none of its task."""
    nodes: list[tuple[int, set[int]]] = []
    for _, place, cpus in sorted(
        (-cpus, place, cpus) for place, (cpus, count) in enumerate(shapes) for _ in range(count)
    ):
        for number, (used, inside) in enumerate(nodes):
            if used + cpus <= room and place not in inside:
                nodes[number] = (used + cpus, inside | {place})
                break
        else:
            nodes.append((cpus, {place}))
    return len(nodes)


def test_a_thousand_nodes_are_planned_by_one_step() -> None:
    sizes = (NodeSize("", 64, 256_000, 8, count=1200),)
    plan = plan_group(group(task("trainer", 8, 1000, 8), *(task(f"s{place}") for place in range(5))), sizes)
    assert plan.nodes == 1000 and len(plan.steps_of("trainer")) <= 2

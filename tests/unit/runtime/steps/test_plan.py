"""Which ranks a step has, where, and what they find. Pure."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.unit.runtime.steps.plans import TWO, allocation, nodes, plan

from overspan.bridge.model.options.srun import parse_words
from overspan.bridge.model.patterns import FilenameFields
from overspan.bridge.runtime.core.allocation import AllocatedComponent
from overspan.bridge.runtime.srun.node_requests import choose_readers, choose_streams, open_sinks
from overspan.bridge.runtime.srun.rank_layout import LayoutError, count_tasks, distribute, fold_counts
from overspan.bridge.runtime.srun.srun import find_own, read_command_line, share_nodes
from overspan.bridge.runtime.srun.step_options import (
    OptionError,
    StepOptions,
    StreamOptions,
    read_component_options,
    read_step_options,
)
from overspan.bridge.runtime.srun.step_plan import (
    Facts,
    PlanError,
    check_gpus,
    export_environment,
    rank_environment,
    step_environment,
)

FACTS = Facts("5", "login", "127.0.0.1", 0, 99, 0o22)


@pytest.mark.parametrize(
    ("count", "ntasks", "how", "placed"),
    [
        (2, 5, "block", [0, 0, 0, 1, 1]),
        (2, 5, "cyclic", [0, 1, 0, 1, 0]),
        (2, 5, "block:cyclic", [0, 0, 0, 1, 1]),
        (2, 8, "plane=3", [0, 0, 0, 1, 1, 1, 0, 1]),
        (3, 2, "block", [0, 1]),
    ],
)
def test_distribution(count: int, ntasks: int, how: str, placed: list[int]) -> None:
    ranks = distribute(count_tasks(count, ntasks), how)
    assert [rank.node for rank in ranks] == placed
    assert [rank.number for rank in ranks] == list(range(ntasks))
    for node in range(count):
        assert [rank.local for rank in ranks if rank.node == node] == list(range(placed.count(node)))


def test_distribution_refuses_what_it_does_not_know() -> None:
    with pytest.raises(LayoutError):
        distribute([1], "spiral")
    with pytest.raises(LayoutError):
        count_tasks(2, 5, 2)


def test_counts_are_folded() -> None:
    assert fold_counts([2, 2, 1]) == "2(x2),1"


@pytest.mark.parametrize(
    ("words", "environment", "counts"),
    [
        ("hostname", {}, (1, 1)),
        ("-n 3 hostname", {}, (2, 1)),
        ("-N1 hostname", {"SLURM_NTASKS": "2", "SLURM_NNODES": "2"}, (1,)),
        ("-N1 -n4 hostname", {"SLURM_NTASKS": "2", "SLURM_NNODES": "2"}, (4,)),
        ("hostname", {"SLURM_NTASKS": "6"}, (3, 3)),
        ("--ntasks-per-node=2 -N2 hostname", {}, (2, 2)),
        ("-w batch-1 hostname", {"SLURM_NTASKS": "2", "SLURM_NNODES": "2"}, (1,)),
        ("-x batch-0 hostname", {"SLURM_NNODES": "2"}, (1,)),
    ],
)
def test_shapes(words: str, environment: dict[str, str], counts: tuple[int, ...]) -> None:
    assert plan(words, TWO, environment=environment).components[0].counts == counts


def test_the_allocations_own_task_count_holds() -> None:
    four = AllocatedComponent(nodes(2), 0, 4, 4)
    assert plan("hostname", four).components[0].counts == (4, 4)
    with pytest.raises(PlanError, match="More processors requested than permitted"):
        plan("-n 9 hostname", four)
    assert plan("-n 9 -O hostname", four).components[0].counts == (5, 4)


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ("-N3 hostname", "Only allocated 2 nodes asked for 3"),
        ("-w other hostname", "Requested node configuration is not available"),
        ("--het-group=1 hostname", "invalid het group 1"),
    ],
)
def test_what_cannot_be(words: str, text: str) -> None:
    with pytest.raises(PlanError, match=text):
        plan(words, TWO)


def test_more_nodes_than_tasks_is_told() -> None:
    found = plan("-n1 hostname", TWO, environment={"SLURM_NNODES": "2"})
    assert found.warnings == ("can't run 1 processes on 2 nodes, setting nnodes to 1",)
    assert [node.name for node in found.nodes] == ["batch-0"]


def test_components_are_one_rank_space() -> None:
    parts = (AllocatedComponent(nodes(1, "het-0"), 2, 0, 0), AllocatedComponent(nodes(2, "het-1"), 0, 0, 0))
    found = plan("--het-group=0,1 hostname", *parts)
    assert [(place.rank, place.node, place.own_rank) for place in found.places] == [
        *((0, 0, 0), (1, 0, 1), (2, 1, 0), (3, 2, 1)),
    ]
    mixed = plan("-n1 a : -n3 b", *parts)
    assert [step_component.options.command for step_component in mixed.components] == [("a",), ("b",)]
    assert [place.component for place in mixed.places] == [0, 1, 1, 1]


def variables(words: str, rank: int, component: AllocatedComponent = TWO, **given: str) -> dict[str, str]:
    found = plan(words, component)
    base = step_environment(allocation(component), given, found, FACTS)
    return {**base, **rank_environment(found, found.places[rank], base)}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("SLURM_PROCID", "2"),
        ("SLURM_LOCALID", "0"),
        ("SLURM_NODEID", "1"),
        ("SLURM_NTASKS", "3"),
        ("SLURM_NPROCS", "3"),
        ("SLURM_NNODES", "2"),
        ("SLURM_GTIDS", "2"),
        ("SLURM_STEP_ID", "5"),
        ("SLURM_STEPID", "5"),
        ("SLURM_STEP_NODELIST", "batch-[0-1]"),
        ("SLURM_STEP_NUM_NODES", "2"),
        ("SLURM_STEP_NUM_TASKS", "3"),
        ("SLURM_STEP_TASKS_PER_NODE", "2,1"),
        ("SLURM_LAUNCH_NODE_IPADDR", "127.0.0.1"),
        ("SLURM_SRUN_COMM_HOST", "127.0.0.1"),
        ("SLURM_CPUS_PER_TASK", "2"),
        ("SLURM_UMASK", "0022"),
        ("SLURMD_NODENAME", "batch-1"),
        ("SLURM_JOB_ID", "7"),
        ("SLURM_JOB_NUM_NODES", "2"),
        ("OVERSPAN_NODE_INDEX", "1"),
        ("OVERSPAN_ADDR", "127.0.1.1"),
        ("MINE", "kept"),
    ],
)
def test_what_a_rank_finds(name: str, value: str) -> None:
    assert variables("-n3 -c2 hostname", 2, MINE="kept")[name] == value


def test_gpus_are_shared_out() -> None:
    two = AllocatedComponent(nodes(2, gpus=4), 0, 0, 0)
    each = [variables("-n4 --gpus-per-task=2 x", rank, two)["CUDA_VISIBLE_DEVICES"] for rank in range(4)]
    assert each == ["0,1", "2,3", "10,11", "12,13"]
    assert variables("-n2 --gres=gpu:1 x", 1, two)["CUDA_VISIBLE_DEVICES"] == "10"
    assert variables("-n2 --gpus=5 x", 1, two)["CUDA_VISIBLE_DEVICES"] == "10"
    assert variables("-n2 x", 0, two)["SLURM_JOB_GPUS"] == "0,1,2,3"
    with pytest.raises(PlanError, match="generic resource"):
        check_gpus(plan("-n1 -N1 --gpus-per-task=5 x", two))


@pytest.mark.parametrize(
    ("export", "names"),
    [
        ("ALL", {"A", "B", "SLURM_X"}),
        ("NONE", {"SLURM_X"}),
        ("A,C=1", {"A", "C", "SLURM_X"}),
        ("ALL,C=a=b", {"A", "B", "C", "SLURM_X"}),
    ],
)
def test_export(export: str, names: set[str]) -> None:
    found = export_environment({"A": "1", "B": "2", "SLURM_X": "3"}, export)
    assert set(found) == names
    assert found.get("C", "1") in ("1", "a=b")


def test_own_nodes() -> None:
    two = allocation(TWO)
    first, second = TWO.nodes
    assert find_own(two, {}) == [first]
    here = {"OVERSPAN_JOB_ID": "7", "OVERSPAN_TASK": "batch", "OVERSPAN_NODE_INDEX": "1"}
    assert find_own(two, here) == [second]
    assert find_own(two, {**here, "OVERSPAN_JOB_ID": "8"}) == [first]


@pytest.mark.parametrize(
    ("words", "environment", "changed"),
    [
        ("-K x", {}, {"kill_on_bad_exit": True}),
        ("--kill-on-bad-exit=0 x", {"SLURM_KILL_BAD_EXIT": "1"}, {}),
        ("-W 60 x", {}, {"wait": 60}),
        ("--pty x", {}, {"pty": True}),
    ],
)
def test_manners(words: str, environment: dict[str, str], changed: dict[str, Any]) -> None:
    assert read_step_options(parse_words("srun", words.split())[0], environment) == StepOptions()._replace(**changed)


@pytest.mark.parametrize(
    ("words", "environment", "flows"),
    [
        ("-l -u x", {}, [StreamOptions(label=True, unbuffered=True)]),
        ("x", {"SLURM_LABELIO": "1", "SLURM_UNBUFFEREDIO": "0"}, [StreamOptions(label=True)]),
        ("-o a -e b --open-mode=append x", {}, [StreamOptions(output="a", error="b", append=True)]),
        ("-o a x : -o b --open-mode=append y", {}, [StreamOptions(output="a"), StreamOptions(output="b", append=True)]),
        ("-l -o a x : -e b y : -o c z", {}, [StreamOptions(True, False, "a"), StreamOptions(True, False, "a", "b")]),
        ("x : -o b y", {"SRUN_OUTPUT": "all"}, [StreamOptions(output="all"), StreamOptions(output="b")]),
    ],
)
def test_each_component_has_its_streams(words: str, environment: dict[str, str], flows: list[StreamOptions]) -> None:
    command_line = read_command_line(words.split(), environment)
    assert [options.streams for _, options in command_line.components][: len(flows)] == flows


def test_readers_and_files_are_those_of_the_component(tmp_path: Path) -> None:
    laid = plan("-i none -n2 -N2 x : -n2 y", TWO, TWO)
    streams = [choose_streams(step_component.options.streams) for step_component in laid.components]
    assert choose_readers(StepOptions(), laid, streams) == frozenset()
    laid = plan(f"-n2 -N2 -o {tmp_path}/a-%j -i 1 x : -n2 -N2 -o {tmp_path}/b-%j -i all y", TWO, TWO)
    streams = [choose_streams(step_component.options.streams) for step_component in laid.components]
    assert choose_readers(StepOptions(), laid, streams) == {1, 2, 3}
    sinks = open_sinks(StepOptions(), laid, streams, FilenameFields(job=7))
    sinks.write(0, b"first\n", error=False)
    sinks.write(3, b"second\n", error=False)
    sinks.write(2, b"wrong", error=True)
    sinks.finish(2)
    assert ((tmp_path / "a-7").read_text(), (tmp_path / "b-7").read_text()) == ("first\n", "second\nwrong")


def test_the_command_of_a_component_may_stand_in_a_later_one() -> None:
    components = read_command_line(["-n1", ":", "-n2", "echo", "x", ":", "true"], {}).components
    assert [options.command for _, options in components] == [("echo", "x"), ("echo", "x"), ("true",)]


def test_components_in_an_ordinary_job_have_nodes_of_their_own() -> None:
    three = allocation(AllocatedComponent(nodes(3), 0, 0, 0))
    shared = share_nodes(three, read_command_line(["-N1", "a", ":", "-N2", "b"], {}))
    assert [[node.number for node in part.nodes] for part in shared.components] == [[0], [1, 2]]
    for words, text in (
        ("-N2 a : -N2 b", "Allocation failure of 2 nodes: job size of 3, already allocated 2 nodes"),
        ("--het-group=0 a", "No directives to start application"),
        ("--het-group=1-2 a", r"exceeds highest hetjob index \(2 > 0\)"),
    ):
        with pytest.raises(PlanError, match=text):
            share_nodes(three, read_command_line(words.split(), {}))


@pytest.mark.parametrize("words", ["-n 0 x", "-N 2-1 x", "--gpus=two x", "-c many x", "--mpi=smoke x", "-t 5min x"])
def test_bad_values(words: str) -> None:
    with pytest.raises(OptionError):
        read_command_line(words.split(), {})
    with pytest.raises(PlanError, match="No command"):
        read_command_line(["-n2"], {})


def test_cpus_per_task_comes_from_its_own_variable() -> None:
    part = parse_words("srun", ["x"])[0]
    assert read_component_options(part, {"SLURM_CPUS_PER_TASK": "4"}).cpus_per_task is None
    assert read_component_options(part, {"SRUN_CPUS_PER_TASK": "4"}).cpus_per_task == 4

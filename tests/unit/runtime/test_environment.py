"""The variables that every task finds."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

import pytest

from overspan.bridge.model.ids import ArraySpec, IndexRange, parse_array
from overspan.bridge.model.job import Element, Job, Placement, new_job
from overspan.bridge.model.resources import Resources
from overspan.bridge.model.spec import Form, JobSpec, Origin, TaskSpec
from overspan.bridge.runtime.core.environment import (
    NodeRunContext,
    build_environment,
    domain_of,
    has_names,
    list_members,
)

ORIGIN = Origin(user="alice", uid=1000, host="login1", directory="/home/alice/run")


def _job(*tasks: TaskSpec, **options: Any) -> Job:
    spec = JobSpec(options.pop("name", "RLHF"), tasks, **{"origin": ORIGIN, "group": len(tasks) > 1, **options})
    places = [(task.name, node) for task in tasks for node in range(task.num_nodes)]
    placed = tuple(
        Placement(task, node, "box", f"127.0.0.{number}", (number,)) for number, (task, node) in enumerate(places, 2)
    )
    return replace(new_job(42, spec, 0.0), placements=placed)


def _variables(job: Job, task: str, node: int = 0, **options: Any) -> dict[str, str]:
    place = NodeRunContext(task, node, options.get("attempt", 0), 0, "/runs/42", "local", options.get("extra", {}))
    return build_environment(job, place)


GROUP = _job(TaskSpec("trainer"), TaskSpec("roll_out", num_nodes=3, primary=False))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("OVERSPAN_JOB_ID", "42"),
        ("OVERSPAN_GROUP", "RLHF"),
        ("OVERSPAN_TASK", "roll_out"),
        ("OVERSPAN_NODE_INDEX", "2"),
        ("OVERSPAN_NUM_NODES", "3"),
        ("OVERSPAN_ATTEMPT", "4"),
        ("OVERSPAN_RUN_DIR", "/runs/42"),
        ("OVERSPAN_HOST", "roll-out-2.rlhf"),
        ("OVERSPAN_ADDR", "127.0.0.5"),
        ("OVERSPAN_MEMBERS", "trainer-0.rlhf,roll-out-0.rlhf,roll-out-1.rlhf,roll-out-2.rlhf"),
        ("OVERSPAN_TRAINER_HOSTS", "trainer-0.rlhf"),
        ("OVERSPAN_TRAINER_ADDRS", "127.0.0.2"),
        ("OVERSPAN_ROLL_OUT_HOSTS", "roll-out-0.rlhf,roll-out-1.rlhf,roll-out-2.rlhf"),
        ("OVERSPAN_ROLL_OUT_ADDRS", "127.0.0.3,127.0.0.4,127.0.0.5"),
        ("SLURM_JOB_ID", "42"),
        ("SLURM_JOBID", "42"),
        ("SLURM_JOB_NAME", "RLHF"),
        ("SLURM_CLUSTER_NAME", "local"),
        ("SLURM_JOB_PARTITION", "local"),
        ("SLURM_JOB_USER", "alice"),
        ("SLURM_JOB_UID", "1000"),
        ("SLURM_SUBMIT_DIR", "/home/alice/run"),
        ("SLURM_SUBMIT_HOST", "login1"),
        ("SLURM_NODEID", "2"),
        ("SLURM_PROCID", "2"),
        ("SLURM_LOCALID", "0"),
        ("SLURM_NTASKS", "3"),
        ("SLURM_NPROCS", "3"),
        ("SLURM_NNODES", "3"),
        ("SLURM_JOB_NUM_NODES", "3"),
        ("SLURM_JOB_NODELIST", "roll-out-[0-2]"),
        ("SLURM_NODELIST", "roll-out-[0-2]"),
        ("SLURM_TASKS_PER_NODE", "1(x3)"),
        ("SLURMD_NODENAME", "roll-out-2"),
        ("SLURM_HET_SIZE", "2"),
        ("SLURM_JOB_ID_HET_GROUP_0", "42"),
        ("SLURM_JOB_ID_HET_GROUP_1", "43"),
        ("SLURM_JOB_NODELIST_HET_GROUP_0", "trainer-0"),
        ("SLURM_JOB_NODELIST_HET_GROUP_1", "roll-out-[0-2]"),
        ("SLURM_NTASKS_HET_GROUP_1", "3"),
        ("SLURM_JOB_PARTITION_HET_GROUP_1", "local"),
        ("SLURM_JOB_GPUS", "5"),
        ("SLURM_GPUS_ON_NODE", "1"),
        ("CUDA_VISIBLE_DEVICES", "5"),
        ("SKYPILOT_NODE_RANK", "2"),
        ("SKYPILOT_NODE_IPS", "127.0.0.3\n127.0.0.4\n127.0.0.5"),
        ("SKYPILOT_NUM_NODES", "3"),
        ("SKYPILOT_NUM_GPUS_PER_NODE", "1"),
        ("SKYPILOT_TASK_ID", "overspan-42-roll_out"),
        ("SKYPILOT_TASK_IDS", "overspan-42-trainer\noverspan-42-roll_out"),
        ("SKYPILOT_MANAGED_JOB_ID", "42"),
        ("SKYPILOT_ROOT_JOB_ID", "42"),
        ("SKYPILOT_JOB_RANK", "0"),
        ("SKYPILOT_NUM_JOBS", "1"),
        ("SKYPILOT_JOBGROUP_NAME", "RLHF"),
    ],
)
def test_member_of_a_group(name: str, value: str) -> None:
    assert _variables(GROUP, "roll_out", 2, attempt=4).get(name) == value


def test_ordinary_single_job_is_neither_group_nor_heterogeneous() -> None:
    job = _job(TaskSpec("train"))
    variables = _variables(job, "train")
    assert not [name for name in variables if "HET" in name or name == "SKYPILOT_JOBGROUP_NAME"]
    assert (variables["OVERSPAN_GROUP"], variables["SLURM_JOB_NODELIST"]) == ("", "box")
    assert "SLURM_RESTART_COUNT" not in variables and not has_names(job)


def test_several_nodes_have_names_without_a_group() -> None:
    job = _job(TaskSpec("train", num_nodes=2))
    assert has_names(job)
    assert _variables(job, "train")["SLURM_JOB_NODELIST"] == "train-[0-1]"


def test_restart_count_is_of_resubmissions_only() -> None:
    variables = _variables(replace(GROUP, launch=2), "trainer", attempt=7)
    assert (variables["SLURM_RESTART_COUNT"], variables["OVERSPAN_ATTEMPT"]) == ("2", "7")


def test_partition_is_the_jobs_own_where_it_has_one() -> None:
    job = replace(GROUP, spec=replace(GROUP.spec, partition="gpu"))
    variables = _variables(job, "trainer")
    assert (variables["SLURM_JOB_PARTITION"], variables["SLURM_JOB_PARTITION_HET_GROUP_1"]) == ("gpu", "gpu")


def test_components_are_in_the_clusters_partition() -> None:
    place = NodeRunContext("trainer", 0, 0, 0, "/runs/42", "workstation", {})
    variables = build_environment(GROUP, place)
    assert variables["SLURM_JOB_PARTITION"] == variables["SLURM_JOB_PARTITION_HET_GROUP_0"] == "workstation"


def test_batch_script_is_process_0_on_a_node_and_counts_its_tasks() -> None:
    task = TaskSpec("job", form=Form.BATCH, num_nodes=2, ntasks_per_node=4, cpus_per_task=2)
    variables = _variables(_job(task), "job")
    expected = {
        "SLURM_PROCID": "0",
        "SLURM_NTASKS": "8",
        "SLURM_NTASKS_PER_NODE": "4",
        "SLURM_TASKS_PER_NODE": "4(x2)",
        "SLURM_CPUS_PER_TASK": "2",
    }
    assert {name: variables.get(name) for name in expected} == expected
    # sbatch tells a number of tasks only where one was asked for.
    assert "SLURM_NTASKS" not in _variables(_job(TaskSpec("job", form=Form.BATCH, num_nodes=2)), "job")


def test_size_of_the_resources() -> None:
    variables = _variables(_job(TaskSpec("job", resources=Resources(cpus=1.5), num_nodes=2)), "job")
    assert (variables["SLURM_CPUS_ON_NODE"], variables["SLURM_JOB_CPUS_PER_NODE"]) == ("2", "2(x2)")


def test_who_wins() -> None:
    task = TaskSpec("job", env={"A": "task", "B": "task", "SLURM_JOB_ID": "1"}, secrets={"B": "secret", "C": "secret"})
    environment = {
        "A": "job",
        "HOME": "/home/alice",
        "OVERSPAN_TASK": "outer",
        "SKYPILOT_NODE_RANK": "9",
        "SLURM_X": "1",
    }
    variables = _variables(_job(task, environment=environment), "job", extra={"C": "cluster", "SPAN_TOKEN": "t"})
    assert (variables["A"], variables["B"], variables["C"]) == ("task", "secret", "cluster")
    assert (variables["HOME"], variables["SPAN_TOKEN"]) == ("/home/alice", "t")
    # What an outer job left in the environment does not reach this one, and its own ids are nobody's to change.
    assert (variables["OVERSPAN_TASK"], variables["SKYPILOT_NODE_RANK"], variables["SLURM_JOB_ID"]) == (
        "job",
        "0",
        "42",
    )
    assert "SLURM_X" not in variables


def test_path_is_always_there() -> None:
    assert "/bin" in _variables(_job(TaskSpec("job")), "job")["PATH"]
    assert _variables(_job(TaskSpec("job"), environment={"PATH": "/mine"}), "job")["PATH"] == "/mine"


def test_domain_is_the_jobs_name_where_it_can_be_one() -> None:
    assert domain_of(GROUP) == "rlhf"
    assert domain_of(_job(TaskSpec("job"), name="my job!")) == "job-42"
    assert list_members(_job(TaskSpec("a", num_nodes=2), name="x")) == [
        ("127.0.0.2", ["a-0.x", "a-0"]),
        ("127.0.0.3", ["a-1.x", "a-1"]),
    ]


BATCH = TaskSpec("batch", form=Form.BATCH, run="#!/bin/sh\n", ntasks=4, cpus_per_task=2, num_nodes=2)


def test_an_element_of_an_array_knows_its_array() -> None:
    array = ArraySpec((IndexRange(1, 5, 2), IndexRange(9, 9)))
    job = replace(_job(BATCH, array=array), element=Element(40, 5))
    found = _variables(job, "batch")
    assert {name: value for name, value in found.items() if "ARRAY" in name or name == "SLURM_JOB_ID"} == {
        "SLURM_JOB_ID": "42",
        "SLURM_ARRAY_JOB_ID": "40",
        "SLURM_ARRAY_TASK_ID": "5",
        "SLURM_ARRAY_TASK_COUNT": "4",
        "SLURM_ARRAY_TASK_MIN": "1",
        "SLURM_ARRAY_TASK_MAX": "9",
        "SLURM_ARRAY_TASK_STEP": "2",
    }
    assert not [name for name in _variables(_job(BATCH), "batch") if "ARRAY" in name]


def test_a_batch_script_finds_what_slurm_gives_it() -> None:
    found = _variables(_job(BATCH, qos="high", account="lab"), "batch")
    wanted = {
        "ENVIRONMENT": "BATCH",
        "HOSTNAME": "batch-0",
        "SLURMD_NODENAME": "batch-0",
        "SLURM_TOPOLOGY_ADDR": "batch-0",
        "SLURM_JOB_QOS": "high",
        "SLURM_JOB_ACCOUNT": "lab",
        "SLURM_JOB_GID": str(os.getgid()),
        "SLURM_PRIO_PROCESS": "0",
        "SLURM_CPUS_ON_NODE": "4",
        "SLURM_JOB_CPUS_PER_NODE": "4(x2)",
        "SLURM_TASKS_PER_NODE": "2(x2)",
    }
    assert {name: found.get(name) for name in wanted} == wanted


def test_a_folder_of_commands_comes_first_on_the_path() -> None:
    job = _job(BATCH, environment={"PATH": "/usr/bin"})
    assert _variables(job, "batch", extra={"OVERSPAN_SHIMS": "/state/shims"})["PATH"] == "/state/shims:/usr/bin"
    assert _variables(job, "batch")["PATH"] == "/usr/bin"


def test_memory_is_told_as_it_was_asked_for() -> None:
    def memory(asked: Resources) -> dict[str, str]:
        task = TaskSpec("job", form=Form.BATCH, run="true", resources=asked)
        found = _variables(_job(task, name="job"), "job")
        return {name: value for name, value in found.items() if name.startswith("SLURM_MEM")}

    assert memory(Resources(cpus=2, memory_mib=100)) == {"SLURM_MEM_PER_NODE": "100"}
    assert memory(Resources(cpus=2, memory_mib_per_cpu=100)) == {"SLURM_MEM_PER_CPU": "100"}
    assert memory(Resources(cpus=2)) == {}


@pytest.mark.parametrize(("array", "index", "rank", "count"), [("0-3", 2, "2", "4"), ("1,5-9:2", 7, "2", "4")])
def test_an_element_has_its_place_in_its_array(array: str, index: int, rank: str, count: str) -> None:
    spec = JobSpec("sweep", (TaskSpec("sweep"),), array=parse_array(array))
    job = replace(new_job(43, spec, 0.0), element=Element(42, index))
    found = _variables(job, "sweep", 0)
    assert (found["SKYPILOT_JOB_RANK"], found["SKYPILOT_NUM_JOBS"]) == (rank, count)

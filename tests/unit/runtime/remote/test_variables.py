"""Whose variables a task finds in a Slurm step."""

from __future__ import annotations

import pytest

from overspan.bridge.runtime.slurm.variables import (
    count_gpus,
    merge_variables,
    pin_steps,
    prepare_srun,
    render_hostfile,
)

TASK = {
    "PATH": "/mine",
    "OVERSPAN_TASK": "train",
    "SLURM_JOB_ID": "7",
    "SLURM_JOB_NAME": "rl",
    "SLURM_NTASKS": "2",
    "SLURM_NNODES": "2",
    "SLURM_NODELIST": "n[1-2]",
    "SLURM_TASKS_PER_NODE": "1(x2)",
    "SLURM_PROCID": "1",
    "SLURM_SUBMIT_DIR": "",
    "SLURM_JOB_QOS": "normal",
    "SLURM_HET_SIZE": "2",
    "SLURM_JOB_ID_HET_GROUP_1": "8",
}
STEP = {
    "PATH": "/theirs",
    "HOME": "/home/alice",
    "SLURM_JOB_ID": "40",
    "SLURM_JOB_NAME": "train",
    "SLURM_NTASKS": "1",
    "SLURM_NNODES": "1",
    "SLURM_NODELIST": "n2",
    "SLURM_STEP_ID": "3",
    "SLURM_STEP_NODELIST": "n2",
    "SLURM_STEP_NUM_TASKS": "1",
    "SLURM_PROCID": "0",
    "SLURM_SUBMIT_DIR": "/login",
    "SLURMD_NODENAME": "n2",
    "OVERSPAN_TASK": "someone's",
    "PMI_RANK": "0",
}


def test_the_ids_are_slurms_and_the_shape_is_the_tasks() -> None:
    merged = merge_variables(TASK, STEP)
    assert merged["SLURM_JOB_ID"] == "40" and merged["SLURM_STEP_ID"] == "3" and merged["SLURMD_NODENAME"] == "n2"
    assert (merged["SLURM_NTASKS"], merged["SLURM_NODELIST"], merged["SLURM_PROCID"]) == ("2", "n[1-2]", "1")
    assert (merged["SLURM_STEP_NUM_TASKS"], merged["SLURM_STEP_NODELIST"]) == ("2", "n[1-2]")
    assert merged["SLURM_JOB_NAME"] == "rl"


def test_what_only_one_of_them_tells_is_kept() -> None:
    merged = merge_variables(TASK, STEP)
    assert merged["SLURM_JOB_QOS"] == "normal" and merged["OVERSPAN_TASK"] == "train"
    assert merged["SLURM_SUBMIT_DIR"] == "/login"
    assert "PMI_RANK" not in merged and "HOME" not in merged


def test_components_are_slurms_or_none() -> None:
    assert not [name for name in merge_variables(TASK, STEP) if "HET" in name]
    step = {**STEP, "SLURM_HET_SIZE": "3", "SLURM_JOB_ID_HET_GROUP_1": "41"}
    merged = merge_variables(TASK, step)
    assert (merged["SLURM_HET_SIZE"], merged["SLURM_JOB_ID_HET_GROUP_1"]) == ("3", "41")


def test_the_nodes_own_variables_fill_what_did_not_travel() -> None:
    merged = merge_variables(TASK, STEP, bare=True)
    assert (merged["HOME"], merged["PATH"], merged["OVERSPAN_TASK"]) == ("/home/alice", "/mine", "train")
    assert "PMI_RANK" not in merged


def test_devices_are_slurms() -> None:
    task = {**TASK, "CUDA_VISIBLE_DEVICES": "7", "SKYPILOT_NUM_GPUS_PER_NODE": "9"}
    step = {**STEP, "CUDA_VISIBLE_DEVICES": "0,1", "SLURM_STEP_GPUS": "2,3"}
    merged = merge_variables(task, step)
    assert (merged["CUDA_VISIBLE_DEVICES"], merged["SKYPILOT_NUM_GPUS_PER_NODE"]) == ("0,1", "2")
    assert merge_variables(task, STEP)["SKYPILOT_NUM_GPUS_PER_NODE"] == "0"


@pytest.mark.parametrize(
    ("step", "count"),
    [
        ({}, 0),
        ({"SLURM_GPUS_ON_NODE": "4", "CUDA_VISIBLE_DEVICES": "0"}, 4),
        ({"SLURM_STEP_GPUS": "0,2"}, 2),
        ({"CUDA_VISIBLE_DEVICES": "NoDevFiles"}, 0),
        ({"ROCR_VISIBLE_DEVICES": "0"}, 1),
    ],
)
def test_gpus_are_counted(step: dict[str, str], count: int) -> None:
    assert count_gpus(step) == count


def test_srun_does_not_take_the_batch_scripts_shape_for_options() -> None:
    batch = {
        "PATH": "/bin",
        "SLURM_JOB_ID": "40",
        "SLURM_CONF": "/etc/slurm.conf",
        "SLURM_NTASKS": "9",
        "SLURM_MEM_PER_CPU": "100",
        "SLURM_CPUS_PER_TASK": "4",
        "SRUN_CPUS_PER_TASK": "4",
        "CUDA_VISIBLE_DEVICES": "0,1",
        "SLURM_GPUS_ON_NODE": "2",
    }
    assert prepare_srun(batch) == {"PATH": "/bin", "SLURM_JOB_ID": "40", "SLURM_CONF": "/etc/slurm.conf"}


def test_a_step_inside_the_task_stays_on_its_nodes() -> None:
    assert render_hostfile(("n1", "n2"), "4") == "n1\nn1\nn2\nn2\n"
    assert render_hostfile(("n1", "n2"), "") == "n1\nn2\n"
    environment: dict[str, str] = {}
    pin_steps(environment, "/tmp/nodes")
    assert environment == {"SLURM_HOSTFILE": "/tmp/nodes", "SLURM_DISTRIBUTION": "arbitrary"}
    own = {"SLURM_HOSTFILE": "/mine"}
    pin_steps(own, "/tmp/nodes")
    assert own == {"SLURM_HOSTFILE": "/mine"}
    assert merge_variables(TASK, STEP)["SLURM_OVERLAP"] == "1"

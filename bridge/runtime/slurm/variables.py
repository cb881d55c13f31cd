"""Which variables a task finds in a Slurm step: Slurm's own, except those about the shape of the task. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

SHAPE = frozenset(
    f"SLURM_{name}"
    for name in (
        *("NTASKS", "NPROCS", "NNODES", "JOB_NUM_NODES", "NODELIST", "JOB_NODELIST", "NODEID", "PROCID", "LOCALID"),
        *("GTIDS", "TASKS_PER_NODE", "NTASKS_PER_NODE", "JOB_CPUS_PER_NODE"),
        *("JOB_NAME", "SUBMIT_DIR", "SUBMIT_HOST", "RESTART_COUNT", "TASK_PID"),
    )
)
"""Variables that tell of the task: an srun here is one node of it, and Slurm's values would tell of that."""

_STEP_SHAPE = {
    "SLURM_STEP_NODELIST": "SLURM_NODELIST",
    "SLURM_STEP_NUM_NODES": "SLURM_NNODES",
    "SLURM_STEP_NUM_TASKS": "SLURM_NTASKS",
    "SLURM_STEP_TASKS_PER_NODE": "SLURM_TASKS_PER_NODE",
}
"""What programs such as JAX read of a step (jax/_src/clusters/slurm_cluster.py): as if one srun ran the task."""

DEVICES = (
    *("CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL", "ZE_AFFINITY_MASK"),
    *("SLURM_STEP_GPUS", "SLURM_GPUS_ON_NODE", "SLURM_JOB_GPUS"),
)
"""What Slurm says of a step's devices (the gres/gpu plugins)."""

_INPUT = frozenset(
    f"SLURM_{name}"
    for name in (
        *("NTASKS", "NPROCS", "NNODES", "JOB_NUM_NODES", "NTASKS_PER_NODE", "TASKS_PER_NODE", "CPUS_PER_TASK"),
        *("MEM_PER_NODE", "MEM_PER_CPU", "MEM_PER_GPU", "GRES", "GPUS", "GPUS_PER_NODE", "GPUS_PER_TASK"),
        *("CPUS_PER_GPU", "GPUS_PER_SOCKET", "NTASKS_PER_GPU", "TRES_PER_TASK", "DISTRIBUTION", "EXPORT_ENV"),
        *("HINT", "THREADS_PER_CORE", "EXCLUSIVE", "OVERCOMMIT", "LABELIO", "STDINMODE", "STDOUTMODE", "STDERRMODE"),
        *("KILL_BAD_EXIT", "WAIT", "NODELIST", "HOSTFILE", "WORKING_DIR"),
    )
)
_HETJOB = ("_HET_GROUP_", "_PACK_GROUP_")
_SIZES = ("SLURM_HET_SIZE", "SLURM_PACK_SIZE")
_SLURM = ("SLURM_", "SLURMD_")
_OWN = (*_SLURM, "OVERSPAN_", "SKYPILOT_", "SPAN_", "SBATCH_", "SRUN_", "PMI", "OMPI_")


def prepare_srun(batch: Mapping[str, str]) -> dict[str, str]:
    """The environment of an srun, from the batch script's: without what srun(1) reads as options, or as devices."""
    return {
        name: value
        for name, value in batch.items()
        if name not in _INPUT and name not in DEVICES and not name.startswith("SRUN_")
    }


def merge_variables(task: Mapping[str, str], step: Mapping[str, str], bare: bool = False) -> dict[str, str]:
    """The environment of a task's program.

    `task` is what it finds on every cluster, `step` what Slurm set for the srun. Slurm's variables are Slurm's where
    it sets them, such as SLURM_JOB_ID and the devices; the shape of the task is the task's. A hetjob's components are
    the allocation's, which are not the tasks: srun cannot start a step where SLURM_HET_SIZE is not Slurm's (22.05).
    With `bare` the node's own variables fill what the submission left out.
    """
    result: dict[str, str] = {}
    if bare:
        result.update((name, value) for name, value in step.items() if not name.startswith(_OWN))
    result.update((name, value) for name, value in task.items() if not _tells_component(name))
    for name, value in step.items():
        if name in DEVICES or (name.startswith(_SLURM) and not (name in SHAPE and task.get(name))):
            result[name] = value
    # A step inside the task shares what the task has, and does not wait for its end (srun(1), --overlap).
    result.setdefault("SLURM_OVERLAP", "1")
    for name, source in _STEP_SHAPE.items():
        if name in step and source in task:
            result[name] = task[source]
    result["SKYPILOT_NUM_GPUS_PER_NODE"] = str(count_gpus(step))
    return result


def _tells_component(name: str) -> bool:
    return name in _SIZES or any(part in name for part in _HETJOB)


def render_hostfile(nodes: Sequence[str], ntasks: str) -> str:
    """The nodes of a task for SLURM_HOSTFILE: a line for each rank of a step of all its Slurm tasks, in blocks.

    srun knows no other variable that keeps a step to some nodes (srun(1), --distribution=arbitrary); it starts as many
    ranks as there are lines unless it is told.
    """
    each = -(-int(ntasks) // len(nodes)) if ntasks.isdigit() and nodes else 1
    return "".join(f"{node}\n" * max(1, each) for node in nodes)


def pin_steps(environment: dict[str, str], hostfile: str) -> None:
    """Have an srun inside the task start on the task's nodes, unless it or the user says otherwise."""
    if "SLURM_HOSTFILE" not in environment:
        environment["SLURM_HOSTFILE"] = hostfile
        environment["SLURM_DISTRIBUTION"] = "arbitrary"


def count_gpus(step: Mapping[str, str]) -> int:
    """How many GPUs a step has on its node, from what Slurm set for it."""
    told = step.get("SLURM_GPUS_ON_NODE", "")
    if told.isdigit():
        return int(told)
    for name in ("SLURM_STEP_GPUS", "CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"):
        listed = step.get(name, "")
        if listed and listed != "NoDevFiles":
            return len(listed.split(","))
    return 0

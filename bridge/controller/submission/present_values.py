"""What a resubmission may change of a job, with its present values. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from overspan.bridge.controller.submission.script_changes import list_gpu_options
from overspan.bridge.model.durations import format_limit
from overspan.bridge.model.options.resubmit import RESUBMIT_OPTIONS, OptionOwner
from overspan.bridge.model.resources import Resources
from overspan.bridge.model.sizes import format_memory_option
from overspan.bridge.model.spec import Form, JobSpec, TaskSpec

USUAL = ("time", "mem", "cpus-per-task", "nodes", "partition", "account", "qos", "clusters", "job-name", "comment")
"""Options that are listed without a value, too."""


def list_values(spec: JobSpec, cluster: str) -> dict[str, str]:
    """Values by OPTION, or TASK.OPTION where the job has several tasks; empty for what is not set.

    `cluster` is where the job is or was.
    """
    several = len(spec.tasks) > 1
    values: dict[str, str] = {}
    for task in spec.tasks:
        found = _list_of_task(spec, task)
        for option in RESUBMIT_OPTIONS:
            if option.owner is not OptionOwner.JOB and (found.get(option.name) or option.name in found.keys() & USUAL):
                values[f"{task.name}.{option.name}" if several else option.name] = found[option.name]
    of_job = _list_of_job(spec, cluster)
    return {**values, **{name: value for name, value in of_job.items() if value or name in USUAL}}


def _list_of_job(spec: JobSpec, cluster: str) -> dict[str, str]:
    return {
        "partition": spec.partition,
        "account": spec.account,
        "qos": spec.qos,
        "clusters": cluster,
        "job-name": spec.name,
        "comment": spec.comment,
        "priority": str(spec.priority) if spec.priority is not None else "",
        "nice": str(spec.nice) if spec.nice else "",
    }


def _list_of_task(spec: JobSpec, task: TaskSpec) -> dict[str, str]:
    resources = task.resources
    memory = resources.memory_mib
    values = {
        "time": format_limit(task.time),
        "mem": format_memory_option(memory) if memory else "" if memory is None else "0",
        "cpus-per-task": _count_cpus(task),
        "nodes": str(task.num_nodes),
        "ntasks": str(task.ntasks or ""),
        "ntasks-per-node": str(task.ntasks_per_node or ""),
        **_list_gpus(spec, task),
    }
    if resources.memory_mib_per_cpu is not None:
        del values["mem"]
        values["mem-per-cpu"] = format_memory_option(resources.memory_mib_per_cpu)
    native: Mapping[str, object] = {**spec.native.get("slurm", {}), **task.native.get("slurm", {})}
    names = {option.name for option in RESUBMIT_OPTIONS if option.owner is not OptionOwner.JOB}
    return {**values, **{name: str(value) for name, value in native.items() if name in names}}


def _count_cpus(task: TaskSpec) -> str:
    """CPUs of each process; of a task that does not name them, of each node."""
    if task.cpus_per_task is not None:
        return str(task.cpus_per_task)
    cpus = task.resources.cpus
    return "" if cpus is None or task.ntasks or task.ntasks_per_node else f"{cpus:.10g}"


def _list_gpus(spec: JobSpec, task: TaskSpec) -> dict[str, str]:
    if task.form is Form.BATCH and len(spec.tasks) == 1:
        return list_gpu_options(spec)
    return _write_gpus(task.resources)


def _write_gpus(resources: Resources) -> dict[str, str]:
    """GPUs of each node; of several alternatives the first."""
    gres = ",".join(map(str, resources.gres))
    return {"gpus-per-node": str(resources.gpus[0]) if resources.gpus else "", "gres": gres}

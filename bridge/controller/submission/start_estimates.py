"""What `sbatch --test-only` answers: when and where a job would start."""

from __future__ import annotations

from collections.abc import Sequence

from overspan.adapters.contract import Node
from overspan.bridge.model.durations import format_timestamp
from overspan.bridge.model.job import Job
from overspan.bridge.model.resources import MILLI
from overspan.bridge.model.slurm.hostlists import compress


def describe_trial(job: Job, number: int, nodes: Sequence[Node], now: float) -> str:
    """Slurm's sentence about a job that is not submitted; `number` is the id that it would have got.

    The time is the earliest one that the job's own wishes allow: queues are not foreseen here.
    """
    spec = job.spec
    processors = sum(task.num_nodes * -(-task.resources.need().cpu_milli // MILLI) for task in spec.tasks)
    wanted = sum(task.num_nodes for task in spec.tasks)
    partition = spec.partition or next((node.partition for node in nodes if node.default), "")
    names = list(dict.fromkeys(node.name for node in nodes if node.partition == partition))
    return (
        f"Job {number} to start at {format_timestamp(max(now, spec.begin or now))} using {max(1, processors)} "
        f"processors on nodes {compress(names[:wanted])} in partition {partition}"
    )

"""Allocations, and the plans of steps in them."""

from __future__ import annotations

from collections.abc import Mapping

from overspan.bridge.runtime.core.allocation import AllocatedComponent, AllocatedNode, Allocation
from overspan.bridge.runtime.srun.srun import read_command_line
from overspan.bridge.runtime.srun.step_plan import StepPlan, plan_step


def nodes(count: int, task: str = "batch", gpus: int = 0) -> tuple[AllocatedNode, ...]:
    return tuple(
        AllocatedNode(task, n, f"{task}-{n}", f"127.0.1.{n}", tuple(range(10 * n, 10 * n + gpus)), n > 0)
        for n in range(count)
    )


def allocation(*components: AllocatedComponent) -> Allocation:
    return Allocation("/runs/7/steps", 7, "job", "alice", None, True, components, {"SLURM_JOB_NUM_NODES": "2"})


def plan(words: str, *components: AllocatedComponent, environment: Mapping[str, str] | None = None) -> StepPlan:
    command_line = read_command_line(words.split(), environment or {})
    held = allocation(*components)
    return plan_step(held, command_line.components, [node for part in held.components for node in part.nodes])


TWO = AllocatedComponent(nodes(2), 0, 0, 0)

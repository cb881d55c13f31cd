"""The batch script of a group in one allocation: a supervisor that starts every task with srun."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from overspan.adapters.slurm.commands.options import render_directives, render_words
from overspan.adapters.slurm.groups.plans import PlacementPlan, PlannedComponent, PlannedStep
from overspan.adapters.slurm.rendering.node_resources import NodeResources, own_cpus, render_gres, render_memory
from overspan.adapters.slurm.rendering.script import (
    BatchSubmission,
    RenderContext,
    mark_comment,
    render_limit,
    render_queue_options,
)
from overspan.adapters.slurm.submission.dependencies import render_dependency
from overspan.bridge.model.job import Job

_OWN = frozenset(
    {
        *("comment", "requeue", "no-requeue", "export", "hold", "input", "open-mode"),
        *("nodes", "ntasks", "ntasks-per-node", "cpus-per-task", "cpus-per-gpu"),
        *("mem", "mem-per-cpu", "mem-per-gpu"),
        *("gres", "gpus", "gpus-per-node", "gpus-per-task", "gpus-per-socket"),
    }
)
"""Native options that would contradict the placement plan; `resources:` says what a task needs."""


@dataclass(frozen=True)
class SupervisorHost:
    """The supervisor in the batch script: its command, its log (a filename pattern), and its working directory."""

    command: tuple[str, ...]
    log: str
    directory: str
    options: Mapping[str, str] = field(default_factory=dict)
    """The cluster's defaults for options that the job does not set (account, QOS); `each` go to every component."""
    each: Mapping[str, str] = field(default_factory=dict)


def render_group(job: Job, plan: PlacementPlan, setting: RenderContext, host: SupervisorHost) -> BatchSubmission:
    """The submission of a group by its plan: an ordinary job for one component, else a hetjob.

    --no-requeue, because Slurm requeues only the leader of a hetjob when that loses its node (measured on 22.05). So a
    lost node ends the allocation, and the daemon submits the group again.
    """
    shared = {**_shared_options(job, setting, host), **host.options}
    lines = ["#!/bin/bash"]
    rest: dict[str, str] = {}
    for number, component in enumerate(plan.components):
        if number:
            lines.append("#SBATCH hetjob")
        options = {**(shared if number == 0 else {}), **host.each, **component_options(component)}
        written, unwritten = render_directives(options)
        lines += written
        rest |= unwritten
    script = "\n".join([*lines, f"exec {shlex.join(host.command)}", ""])
    words = render_words({**rest, "comment": mark_comment(job.spec.comment, setting.token)})
    ignored = sorted({name for component in plan.components for name in component.options if name in _OWN})
    notes = (*plan.notes, *(f"--{name} of `slurm:` has no effect in a group" for name in ignored))
    return BatchSubmission(argv=("sbatch", "--parsable", *words), script=script, notes=notes)


def _shared_options(job: Job, setting: RenderContext, host: SupervisorHost) -> dict[str, str]:
    options = {
        "job-name": job.spec.name,
        "chdir": host.directory,
        "output": host.log,
        "open-mode": "append",
        "no-requeue": "",
        "export": "ALL",
    }
    options.update(render_queue_options(job, setting.held or job.held))
    dependency = render_dependency(job.dependency, setting.native_ids)
    if dependency:
        options["dependency"] = dependency
    return options


def component_options(component: PlannedComponent) -> dict[str, str]:
    """The options of one component: its shape, its time limit, and the native options that do not change these."""
    shape = component.shape
    options = {
        "nodes": str(len(component.bins)),
        "ntasks-per-node": "1",
        "cpus-per-task": str(shape.cpus),
        **_memory(shape),
    }
    if render_gres(shape):
        options["gres"] = render_gres(shape)
    if component.time is not None:
        options["time"] = render_limit(component.time)
    return {**options, **{name: value for name, value in component.options.items() if name not in _OWN}}


def _memory(need: NodeResources) -> dict[str, str]:
    return {} if need.memory is None else {"mem": render_memory(need.memory)}


def step_options(step: PlannedStep, version: tuple[int, ...] = ()) -> tuple[str, ...]:
    """The srun options of a step's node runs, without those that choose component and node.

    Every step names its memory and gres, because the first step would otherwise get all of them. A member without a
    memory request shares the allocation's memory: --mem=0.
    """
    need = step.need
    return (
        own_cpus(version),
        f"--cpus-per-task={need.cpus}",
        f"--mem={render_memory(need.memory or 0)}",
        f"--gres={render_gres(need) or 'none'}",
        f"--job-name={step.task}",
        "--export=ALL",
        "--kill-on-bad-exit=0",
    )


def render_sruns(plan: PlacementPlan, step: PlannedStep, program: Sequence[str] = ()) -> list[tuple[str, ...]]:
    """The sruns of a step, one for each node run, as the supervisor makes them; `<k.n>` stands for a node's name.

    --nodelist pins the node; --relative does not (measured on 22.05).
    """
    group = (f"--het-group={step.component}",) if plan.hetjob else ()
    where = (("--nodes=1", "--ntasks=1", f"--nodelist=<{step.component}.{node}>") for node in step.nodes)
    return [("srun", *group, *words, *step_options(step), *program) for words in where]

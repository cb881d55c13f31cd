"""What `span plan` prints for a Slurm cluster: a group's components, nodes and steps, and the exact script."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from overspan.adapters.slurm.groups.plans import PlacementPlan
from overspan.adapters.slurm.groups.script import render_sruns
from overspan.adapters.slurm.rendering.images import FOLDER, HOSTS, quote_words
from overspan.adapters.slurm.rendering.node_resources import NodeResources, render_gres
from overspan.adapters.slurm.rendering.script import BatchSubmission
from overspan.adapters.slurm.unshared.inline_files import SECRETS
from overspan.bridge.model.durations import format_limit
from overspan.bridge.model.sizes import format_memory
from overspan.bridge.runtime.slurm.images import is_held


def render_submission(submission: BatchSubmission) -> str:
    """The command and the script. Secrets are mentioned, their values never shown."""
    lines = [f"# {note}" for note in submission.notes]
    lines.append("# " + shlex.join(submission.argv))
    if submission.secrets:
        lines.append("# its secrets travel in a file of their own (0600), which the script reads")
    if SECRETS in submission.variables:
        lines.append(f"# its secrets travel as the variable {SECRETS} of sbatch, and appear in no script and no log")
    return "\n".join(lines) + "\n" + submission.script


def render_placement(plan: PlacementPlan, program: Sequence[str] = ()) -> str:
    """Components, nodes and the sruns of every step, a line each; the sruns start the `program`."""
    kind = f"a hetjob of {len(plan.components)} components" if plan.hetjob else "one ordinary job"
    lines = [f"# {kind}, {plan.nodes} node{'s' * (plan.nodes != 1)}"]
    for number, component in enumerate(plan.components):
        limit = "the partition's limit" if component.time is None else format_limit(component.time)
        lines.append(f"# component {number}: {len(component.bins)} x {describe_need(component.shape)}, {limit}")
        for node, item in enumerate(component.bins):
            names = ", ".join(f"{member.task}-{member.index}" for member in item.members)
            lines.append(f"#   node {node}: {names}")
    for step in plan.steps:
        lines += ["# " + " ".join(words) for words in render_sruns(plan, step, program)]
        lines += [f"#   {describe_image(step.image)}"] if step.image else []
    return "\n".join(lines) + "\n"


def describe_image(words: Sequence[str]) -> str:
    """How a step's programs run in their image; `<hosts>` and `<folder>` stand for values that each node fills in."""
    text = quote_words([word.replace(HOSTS, "<hosts>").replace(FOLDER, "<folder>") for word in words])
    return f"in a container that such an srun holds: {text}" if is_held(words) else f"in the image: {text} PROGRAM"


def describe_need(need: NodeResources) -> str:
    """The resources of a node in words."""
    parts = [f"{need.cpus} CPU{'s' * (need.cpus != 1)}"]
    if need.memory is not None:
        parts.append(f"{format_memory(need.memory)} memory" if need.memory else "all memory")
    return ", ".join([*parts, *([render_gres(need)] if render_gres(need) else [])])

"""Renders a group's launch as one allocation: the sbatch command, and the files of its run directory. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from overspan.adapters.contract import Launch, Node
from overspan.adapters.gpu_defaults import bound_gpu_defaults
from overspan.adapters.slurm.files.application import name_archive
from overspan.adapters.slurm.groups.files import render_placement_file, render_plan_file
from overspan.adapters.slurm.groups.placement import measure_sizes, plan_on_nodes
from overspan.adapters.slurm.groups.plans import PlacementPlan
from overspan.adapters.slurm.groups.script import SupervisorHost, render_group
from overspan.adapters.slurm.rendering.images import FOLDER as OWN
from overspan.adapters.slurm.rendering.images import member_words, without_images
from overspan.adapters.slurm.rendering.script import BatchSubmission, RenderContext
from overspan.adapters.slurm.rendering.volumes import place_volumes
from overspan.adapters.slurm.settings import Settings
from overspan.adapters.slurm.submission.dependencies import name_needs
from overspan.adapters.slurm.unshared.groups import FOLDER, LOG, TRAVELS, unshared_words
from overspan.adapters.slurm.unshared.relocation import relocate
from overspan.bridge.model.job import Job


@dataclass(frozen=True)
class GroupFiles:
    """The submission of a group, its placement plan, and its files by their names in the run directory."""

    submission: BatchSubmission
    plan: PlacementPlan
    files: tuple[tuple[str, bytes], ...]


class GroupPlace(NamedTuple):
    """A group's destination: the cluster's name, root and nodes (none: not known), and the job's run directory."""

    cluster: str
    root: str
    folder: str
    nodes: Sequence[Node] = ()
    version: tuple[int, ...] = ()


def render_launch(launch: Launch, settings: Settings, place: GroupPlace, held: bool) -> GroupFiles:
    """Plan a launch for the cluster's nodes and render it.

    Raises Rejected if the group does not fit, InvalidRequest for options and images that are not allowed.
    """
    cluster, root, folder, nodes, version = place
    place_of_work = folder if settings.shared_root else FOLDER
    job = place_volumes(launch.job if settings.shared else relocate(launch.job, place_of_work), root)
    shown = folder if settings.shared_root else OWN
    images = {task.name: member_words(job, task, settings.containers, shown, version) for task in job.spec.tasks}
    job = bound_gpu_defaults(without_images(job), measure_sizes(nodes, settings.partition))
    plan = plan_on_nodes(job, nodes, settings.partition)
    plan = replace(plan, steps=tuple(replace(step, image=images[step.task]) for step in plan.steps))
    number = job.launch
    command, log = (*supervisor_words(settings, root), "slurm", folder, str(number)), name_log(folder, number)
    if not settings.shared_root:
        command, log = unshared_words(settings.python, folder, number), LOG
    host = SupervisorHost(command, log, place_of_work, *default_options(job, settings))
    submission = render_group(job, plan, RenderContext(launch.token, name_needs(launch.needs), held=held), host)
    if not settings.shared_root:
        submission = replace(submission, notes=(*submission.notes, TRAVELS))
    files = (
        (f"plan.{number}.json", render_plan_file(launch, job, cluster, settings.shared)),
        (f"placement.{number}.json", render_placement_file(launch.token, plan, version)),
    )
    return GroupFiles(submission, plan, files)


def name_log(folder: str, launch: int) -> str:
    """The path of the supervisor's own log, as a filename pattern of sbatch."""
    return f"{folder.replace('%', '%%')}/supervisor.{launch}.log"


def supervisor_words(settings: Settings, root: str) -> tuple[str, ...]:
    """The command of the supervisor's application, without its arguments."""
    return (settings.python, "-I", "-S", f"{root}/lib/{name_archive()}")


def agent_words(settings: Settings, root: str) -> tuple[str, ...]:
    """The command of an agent, for `span plan`; `<unpack>` stands for a long program text."""
    if settings.shared_root:
        return (*supervisor_words(settings, root), "node")
    return (settings.python, "-I", "-S", "-c", "<unpack>", "node")


def default_options(job: Job, settings: Settings) -> tuple[dict[str, str], dict[str, str]]:
    """The cluster's account and QOS for a job that names none, and the partition for components that name none."""
    spec = job.spec
    named = {"account": (spec.account, settings.account), "qos": (spec.qos, settings.qos)}
    options = {name: ours for name, (own, ours) in named.items() if ours and not own}
    return options, {"partition": settings.partition} if settings.partition else {}

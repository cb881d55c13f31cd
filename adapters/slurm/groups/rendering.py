"""Renders a native job of a group: the sbatch command, and the files of its run directory. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from overspan.adapters.contract import FORMAT, Decider, Launch, Node, Order
from overspan.adapters.gpu_defaults import bound_gpu_defaults
from overspan.adapters.slurm.files.application import name_archive
from overspan.adapters.slurm.groups.files import render_placement_file, render_plan_file
from overspan.adapters.slurm.groups.parts import PartLaunch, narrow, starts_together
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
from overspan.bridge.model.documents import decode, encode
from overspan.bridge.model.events import event_to_document
from overspan.bridge.model.job import Job
from overspan.bridge.model.spec import Dependency
from overspan.bridge.runtime.slurm.part_folders import name_part


@dataclass(frozen=True)
class GroupFiles:
    """The submission of a native job, its placement plan, and its files by their names in the run directory.

    `files` are those of the supervisor, `kept` those from which a replacement is made.
    """

    submission: BatchSubmission
    plan: PlacementPlan
    files: Mapping[str, bytes]
    kept: Mapping[str, bytes]


class GroupPlace(NamedTuple):
    """A group's destination: the cluster's name, root and nodes (none: not known), and the job's run directory."""

    cluster: str
    root: str
    folder: str
    nodes: Sequence[Node] = ()
    version: tuple[int, ...] = ()


def render_launch(launch: Launch, settings: Settings, place: GroupPlace, held: bool) -> GroupFiles:
    """Plan a native job for the cluster's nodes and render it: of the whole group, or of the part that is launched.

    Raises Rejected if the group does not fit, InvalidRequest for options and images that are not allowed.
    """
    cluster, root, folder, nodes, version = place
    part = launch if isinstance(launch, PartLaunch) else None
    place_of_work, shown = (folder, folder) if settings.shared_root else (FOLDER, OWN)
    job = place_volumes(launch.job if settings.shared else relocate(launch.job, place_of_work), root)
    own = job if part is None else narrow(job, part.task)
    words = {task.name: member_words(job, task, settings.containers, shown, version) for task in own.spec.tasks}
    sizes = measure_sizes(nodes, settings.partition)
    job, own = (bound_gpu_defaults(without_images(one), sizes) for one in (job, own))
    plan = plan_on_nodes(own, nodes, settings.partition)
    plan = replace(plan, steps=tuple(replace(step, image=words[step.task]) for step in plan.steps))
    if part is not None and part.order is not None:
        # What the group waited for was met before its start.
        own = replace(own, begin=None, dependency=Dependency())
    decider = Decider.SUPERVISOR if part is None else Decider.DAEMON
    number, path = job.launch, "" if part is None else f"{name_part(part.task, part.first)}/"
    setting = RenderContext(launch.token, name_needs(launch.needs), held=held or starts_together(launch))
    host = SupervisorHost(*_host_words(launch, settings, place), place_of_work, *default_options(job, settings))
    submission = render_group(own, plan, setting, host)
    if not settings.shared_root:
        submission = replace(submission, notes=(*submission.notes, TRAVELS))
    files, kept = dict[str, bytes](), dict[str, bytes]()
    files[f"{path}plan.{number}.json"] = render_plan_file(launch, job, cluster, settings.shared, decider)
    files[f"{path}placement.{number}.json"] = render_placement_file(launch.token, plan, version)
    if part is not None and part.order is not None:
        files[f"{path}orders.{number}.jsonl"] = render_first_order(part.order)
    elif part is not None:
        kept[f"{name_part(part.task)}/launch.{number}.json"] = render_launch_file(part)
    return GroupFiles(submission, plan, files, kept)


def _host_words(launch: Launch, settings: Settings, place: GroupPlace) -> tuple[tuple[str, ...], str]:
    """The supervisor's command, and the path of its own log."""
    part = (launch.task, str(launch.first)) if isinstance(launch, PartLaunch) else ()
    words = (place.folder, str(launch.job.launch), *part)
    if not settings.shared_root:
        return unshared_words(settings.python, *words), LOG
    folder = f"{place.folder}/{name_part(*part)}" if part else place.folder
    entry = "member" if part else "slurm"
    return (*supervisor_words(settings, place.root), entry, *words), name_log(folder, launch.job.launch)


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


def render_launch_file(launch: PartLaunch) -> bytes:
    """The file from which a replacement is made: the job with its secrets, and its daemon's environment."""
    document = {"format": FORMAT, "job": encode(launch.job), "environment": dict(launch.environment)}
    if launch.access:
        document["access"] = launch.access
    return json.dumps(document, separators=(",", ":")).encode()


def read_launch_file(data: bytes) -> tuple[Job, dict[str, str], str]:
    """The job, the environment and the way to the daemon in such a file. Raises ValueError for another format."""
    document = json.loads(data)
    if document.get("format") != FORMAT:
        raise ValueError(f"it has format {document.get('format')}; this version reads {FORMAT}")
    return decode(Job, document["job"]), document["environment"], document.get("access", "")


def inline_path(task: str, launch: int) -> str:
    """The file in the run directory with the inline files of a task's native jobs."""
    return f"{name_part(task)}/inline.{launch}.tar.gz"


def render_first_order(order: Order) -> bytes:
    """The orders file of a replacement, with the order to launch its attempt."""
    document = {"seq": 1, "event": event_to_document(order.event), "token": order.token}
    return json.dumps(document, separators=(",", ":")).encode() + b"\n"

"""Renders a native job of a set: the sbatch command, and the files of its run directory. Pure."""

from __future__ import annotations

import json
from dataclasses import replace

from overspan.adapters.contract import FORMAT
from overspan.adapters.slurm.groups.files import render_placement_file, render_plan_file
from overspan.adapters.slurm.groups.placement import plan_on_nodes
from overspan.adapters.slurm.groups.rendering import GroupFiles, GroupPlace, default_options, supervisor_words
from overspan.adapters.slurm.groups.script import SupervisorHost, render_group
from overspan.adapters.slurm.rendering.images import member_words, without_images
from overspan.adapters.slurm.rendering.script import RenderContext
from overspan.adapters.slurm.rendering.volumes import place_volumes
from overspan.adapters.slurm.sets.members import PartLaunch, narrow
from overspan.adapters.slurm.settings import Settings
from overspan.adapters.slurm.submission.dependencies import name_needs
from overspan.adapters.slurm.unshared.relocation import relocate
from overspan.bridge.model.documents import decode, encode
from overspan.bridge.model.events import event_to_document
from overspan.bridge.model.job import Job
from overspan.bridge.model.spec import Dependency


def member_path(launch: PartLaunch) -> str:
    """The folder of a native job's own files in the run directory."""
    return f"members/{launch.task}/{launch.first}"


def render_member(launch: PartLaunch, settings: Settings, place: GroupPlace, held: bool) -> GroupFiles:
    """Plan one task for the cluster's nodes and render its job; the folder is the run directory of the group.

    Raises Rejected if the task does not fit, InvalidRequest for options and images that are not allowed.
    """
    cluster, root, folder, nodes, version = place
    job = place_volumes(launch.job if settings.shared else relocate(launch.job, folder), root)
    words = member_words(job, job.spec_of(launch.task), settings.containers, folder, version)
    job = without_images(job)
    plan = plan_on_nodes(narrow(job, launch.task), nodes, settings.partition)
    plan = replace(plan, steps=tuple(replace(step, image=words) for step in plan.steps))
    number, path = job.launch, member_path(launch)
    command = (*supervisor_words(settings, root), "member", folder, str(number), launch.task, str(launch.first))
    log = f"{folder.replace('%', '%%')}/{path}/supervisor.{number}.log"
    host = SupervisorHost(command, log, folder, *default_options(job, settings))
    begun = replace(job, begin=None, dependency=Dependency()) if launch.first else job
    setting = RenderContext(launch.token, name_needs(launch.needs), held=held or not launch.first)
    submission = render_group(narrow(begun, launch.task), plan, setting, host)
    files = [
        (f"{path}/plan.{number}.json", render_plan_file(launch, job, cluster, settings.shared)),
        (f"{path}/placement.{number}.json", render_placement_file(launch.token, plan, version)),
    ]
    if launch.order is None:
        files.append((f"members/{launch.task}/launch.{number}.json", render_launch_file(launch)))
    else:
        files.append((f"{path}/orders.{number}.jsonl", render_first_order(launch)))
    return GroupFiles(submission, plan, tuple(files))


def render_launch_file(launch: PartLaunch) -> bytes:
    """The file from which a replacement is made: the job with its secrets, and its daemon's environment."""
    document = {"format": FORMAT, "job": encode(launch.job), "environment": dict(launch.environment)}
    return json.dumps(document, separators=(",", ":")).encode()


def read_launch_file(data: bytes) -> tuple[Job, dict[str, str]]:
    """The job and the environment in such a file. Raises ValueError for another format."""
    document = json.loads(data)
    if document.get("format") != FORMAT:
        raise ValueError(f"it has format {document.get('format')}; this version reads {FORMAT}")
    return decode(Job, document["job"]), document["environment"]


def render_first_order(launch: PartLaunch) -> bytes:
    """The orders file of a replacement, with the order to launch its attempt."""
    assert launch.order is not None
    document = {"seq": 1, "event": event_to_document(launch.order.event), "token": launch.order.token}
    return json.dumps(document, separators=(",", ":")).encode() + b"\n"

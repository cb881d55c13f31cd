"""Checks of a job's evaluations at its submission: that a cluster can see the folder, and run what is found there."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from overspan.adapters.checkpoint_sources import CheckpointSource, FolderCheck
from overspan.bridge.config.store_settings import find_store
from overspan.bridge.controller.core.checkpoint_paths import mount_folder, place_evaluation, translate_path
from overspan.bridge.controller.core.clusters import Cluster, Clusters
from overspan.bridge.model.documents import decode
from overspan.bridge.model.errors import InvalidRequest, OverspanError, Rejected
from overspan.bridge.model.evaluations import EvaluationSpec, ReadyRule
from overspan.bridge.model.file_paths import join_path
from overspan.bridge.model.job import Job
from overspan.bridge.model.parts import place_task
from overspan.bridge.model.spec import JobSpec
from overspan.bridge.model.storage import is_object_url, parse_object_url

TryJob = Callable[[JobSpec], Awaitable[None]]
"""Refuses a job that its clusters could never run."""


async def check_evaluations(job: Job, cluster: Cluster, clusters: Clusters, try_job: TryJob) -> tuple[str, ...]:
    """Notes on a job's evaluations. Raises what is wrong with one, with its name before it."""
    notes: list[str] = []
    for spec in job.spec.on_checkpoint:
        place = clusters.get(place_task(job, spec.task, cluster.name))
        notes += await check_evaluation(spec, job, place, clusters, try_job)
    return tuple(notes)


async def check_evaluation(
    spec: EvaluationSpec, job: Job, cluster: Cluster, clusters: Clusters, try_job: TryJob
) -> tuple[str, ...]:
    """Notes on one watch of a job's folder on its cluster; raises InvalidRequest and Rejected."""
    template = place_evaluation(decode(JobSpec, dict(spec.template)), cluster.name)
    path = clusters.shared_paths.locate_of(job, spec.path, cluster.name)
    if all(candidate.cluster == cluster.name for candidate in template.places):
        template = mount_folder(template, job.spec.task(spec.task), path)
    in_store = is_object_url(path)
    try:
        _check_kept(path, job, spec.task)
        if in_store:
            _check_store(path, clusters)
        elif not isinstance(cluster.adapter, CheckpointSource):
            raise Rejected(
                f"checkpoints on the cluster {cluster.name} cannot be looked for",
                remedy="`span sbatch` in the training script evaluates them without a watch",
            )
        if isinstance(cluster.adapter, FolderCheck) and not in_store:
            cluster.adapter.check_folder(clusters.shared_paths.move(job, cluster.name), spec.task, path)
        for candidate in template.places:
            translate_path(clusters, path, cluster.name, clusters.get(candidate.cluster).name)
        await try_job(template)
    except (InvalidRequest, Rejected) as error:
        raise _name_evaluation(error, spec.name) from error
    if spec.ready.rule is not ReadyRule.LAYOUT:
        return ()
    return (
        f"evaluation {spec.name}: a checkpoint is complete when the last file of its layout is there; where the layout"
        f" is none of the known ones, {spec.ready.quiet:g} s without a change count, which is a guess (`ready:`)",
    )


def _check_kept(path: str, job: Job, name: str) -> None:
    """Refuse a folder whose files leave the node with the job, for their store."""
    task = job.spec.task(name)
    cwd = task.workdir or job.spec.origin.directory
    for mount in task.storage:
        target = join_path(cwd, mount.target)
        if path == target or path.startswith(f"{target}/"):
            raise InvalidRequest(
                f"the checkpoints in {path} go to {mount.url}, and leave the node with the job",
                remedy=f"watch the store: `path: {mount.url}{path[len(target) :]}`",
            )


def _check_store(path: str, clusters: Clusters) -> None:
    url = parse_object_url(path)
    if not find_store(clusters.store_settings, url.bucket, url.scheme):
        raise InvalidRequest(
            f"no entry of `stores` in the configuration reaches {url}", remedy="add one; `span config` shows the files"
        )


def _name_evaluation(error: OverspanError, name: str) -> OverspanError:
    made = type(error)(f"evaluation {name}: {error.message}", remedy=error.remedy)
    made.place = error.place
    return made

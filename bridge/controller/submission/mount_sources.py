"""Checks at submission that the sources of `file_mounts` exist: those that are linked, and those that are uploaded."""

from __future__ import annotations

import os
from dataclasses import replace

from overspan.bridge.controller.core.clusters import Cluster
from overspan.bridge.controller.submission.folder_uploads import find_missing, find_upload_obstacle
from overspan.bridge.model.errors import InvalidRequest
from overspan.bridge.model.secret_names import hide_in_text
from overspan.bridge.model.spec import JobSpec
from overspan.bridge.readers.submission import Submission


def check_sources(spec: JobSpec, cluster: Cluster, submission: Submission) -> JobSpec:
    """The spec without the places of its mounts. InvalidRequest where a source is missing that the job would link to.

    Only on this machine, and only for a daemon that sees what the submitter sees: elsewhere the cluster says it. What
    a task waits for may yet make its sources.
    """
    here = cluster.traits.this_machine and submission.uid == os.geteuid()
    waits = bool(spec.dependency.needs) or spec.begin is not None or spec.cron is not None
    if spec.mount_places and here and not waits:
        missing = [
            source
            for task in spec.tasks
            if not task.needs
            for source in task.file_mounts.values()
            if source in spec.mount_places and not os.path.exists(source)
        ]
        _refuse(spec, list(dict.fromkeys(missing)))
    check_uploads(spec, submission)
    return _forget_places(spec)


def check_uploads(spec: JobSpec, submission: Submission) -> None:
    """Refuse files that cannot be sent to a bucket. Raises InvalidRequest with the lines of all of them."""
    sources = [source for task in spec.tasks for mount in task.storage for source in mount.sources]
    if obstacle := find_upload_obstacle(spec, submission):
        raise InvalidRequest(
            obstacle, remedy="send it with `span data put`, and mount its URL", place=spec.mount_places.get(sources[0])
        )
    wrong = {source: why for source in dict.fromkeys(sources) if (why := find_missing(source))}
    if wrong:
        places = spec.mount_places
        (source, first), *others = wrong.items()
        lines = [first, *(f"{places.get(other, '')}: {why}" for other, why in others)]
        raise InvalidRequest(hide_in_text("\n".join(lines), spec), remedy="see `file_mounts`", place=places.get(source))


def _refuse(spec: JobSpec, missing: list[str]) -> None:
    found = sorted((spec.mount_places[source], source) for source in missing)
    if found:
        lines = [f"there is no {found[0][1]} to mount", *(f"{place}: nor {source}" for place, source in found[1:])]
        # A secret may have been filled into a source.
        raise InvalidRequest(hide_in_text("\n".join(lines), spec), remedy="see `file_mounts`", place=found[0][0])


def _forget_places(spec: JobSpec) -> JobSpec:
    return replace(spec, mount_places={}) if spec.mount_places else spec

"""What people ask about evaluations: lists, runs by hand, watches of jobs that exist."""

from __future__ import annotations

from typing import Any

from overspan.bridge.controller.core.clusters import Clusters
from overspan.bridge.controller.core.references import Directory
from overspan.bridge.controller.features.evaluations.evaluations import Evaluations
from overspan.bridge.controller.submission.evaluation_checks import check_evaluation
from overspan.bridge.controller.submission.submitter import Submitter
from overspan.bridge.model.errors import Conflict, InvalidRequest
from overspan.bridge.model.parts import place_task
from overspan.bridge.readers.submission import Submission, read_watch_submission
from overspan.bridge.store.records import JobQuery


class EvaluationRequests:
    """The port of evaluations for the API."""

    def __init__(
        self, evaluations: Evaluations, directory: Directory, clusters: Clusters, submitter: Submitter
    ) -> None:
        self._evaluations = evaluations
        self._directory = directory
        self._clusters = clusters
        self._submitter = submitter

    async def describe(self, ref: str) -> list[dict[str, Any]]:
        """Every watch of a job with its evaluations, of an array those of its elements. Raises NotFound."""
        job = (await self._directory.find(ref)).entry.job
        if job.array is None:
            return await self._evaluations.describe(job.id)
        found = await self._evaluations.recorder.repository.find(JobQuery(arrays=(job.id,)))
        elements = {each.job.id: each.job.element for each in found}
        documents = await self._evaluations.describe(*elements)
        return [
            {**each, "element": element.ref} for each in documents if (element := elements[each["job"]]) is not None
        ]

    async def sum_up(self, user: str = "") -> list[dict[str, Any]]:
        """Every watch, newest first, with its evaluations counted; with a user, those that this user may see."""
        return await self._evaluations.sum_up(user)

    async def run(self, ref: str, checkpoint: str, name: str) -> list[dict[str, Any]]:
        """Evaluate a checkpoint once more. Raises NotFound, and InvalidRequest for a name that fits no pattern."""
        entry = (await self._directory.find(ref)).entry
        made = await self._evaluations.run(entry.job.id, checkpoint, name)
        return [
            {"id": each.id, "checkpoint": each.checkpoint, "run": each.run, "job": each.job_id or None} for each in made
        ]

    async def watch(self, ref: str, submission: Submission) -> tuple[str, tuple[str, ...]]:
        """Evaluate the checkpoints of a job that exists; the evaluation's name, and notes.

        Raises InvalidRequest and Rejected for what is wrong with it, Conflict where the job is over, is an array, or
        has an evaluation of that name.
        """
        target = await self._directory.find(ref)
        entry, job = target.entry, target.entry.job
        if target.waiting or job.array is not None:
            raise Conflict(f"job {ref} is an array", remedy="name one of its elements: N_i")
        tasks = tuple(task.name for task in job.tasks)
        primaries = [target.task] if target.task else [task.name for task in job.spec.tasks if task.primary]
        kinds, now = self._clusters.kinds(), self._submitter.recorder.clock()
        spec = read_watch_submission(submission, kinds, now, (tasks, primaries))
        cluster = self._clusters.get(place_task(job, spec.task, entry.cluster))
        notes = await check_evaluation(spec, job, cluster, self._clusters, self._submitter.try_evaluation)
        known = await self._evaluations.describe(job.id)
        if any(each["name"] == spec.name for each in known):
            raise Conflict(
                f"job {job.id} has an evaluation {spec.name!r} already", remedy="give this one another --name"
            )
        if not spec.template:
            raise InvalidRequest("an evaluation needs a job")
        await self._evaluations.add(job, cluster.name, entry.user, spec)
        return spec.name, notes

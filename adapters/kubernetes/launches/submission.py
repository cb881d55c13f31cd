"""Idempotent submission: each object of a launch has a fixed name, so what an earlier try created is found and kept."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from overspan.adapters.contract import NOT_HERE, Accepted, Launch, Refusal
from overspan.adapters.kubernetes.api.answers import ApiAnswer, is_quota, is_there, is_transient
from overspan.adapters.kubernetes.api.calls import Calls, finish_all
from overspan.adapters.kubernetes.api.refusals import find_remedy
from overspan.adapters.kubernetes.files import pack_files
from overspan.adapters.kubernetes.launches.gang import GangBackend
from overspan.adapters.kubernetes.launches.launches import CREATED, Handle, Launches, is_going
from overspan.adapters.kubernetes.launches.preflight import describe_conflict, is_leaving
from overspan.adapters.kubernetes.launches.releasing import Releaser
from overspan.adapters.kubernetes.launches.sidecars import SidecarCheck
from overspan.adapters.kubernetes.logs.output_files import OutputFiles
from overspan.adapters.kubernetes.manifests.names import INSTALLATION, JOB, name_anchor
from overspan.adapters.kubernetes.manifests.rendering import Document, LaunchPlan, Objects, own_all, plan_launch, render
from overspan.adapters.kubernetes.observation.launch_progress import WatchedLaunch
from overspan.adapters.kubernetes.observation.launch_summaries import summarize_launch
from overspan.adapters.kubernetes.observation.projection import is_stuck
from overspan.adapters.kubernetes.observation.records import LAUNCH, PodRecord, read_pod
from overspan.adapters.kubernetes.settings import Settings
from overspan.bridge.model.errors import OverspanError
from overspan.bridge.model.job import Job
from overspan.bridge.model.storage import StoreAccess

_QUOTA_REASONS = (
    (re.compile(r"requested: [^,]*(gpu|\.com/)"), "AssocGrpGRES"),
    (re.compile(r"requested: [^,]*memory"), "AssocGrpMemLimit"),
    (re.compile(r"requested: [^,]*cpu"), "AssocGrpCpuLimit"),
)
"""Slurm's reason for a quota's message (squeue(1), JOB REASON CODES); a count of pods is a limit on jobs."""
_TOKEN_ANNOTATION = "true"
_FEW = 16
"""Pods of a launch whose Service is made before them. Kubernetes looks at all pods of a Service for each that comes
(the controllers of Endpoints and EndpointSlices), so that for a thousand this costs more than the pods themselves."""


class Problem(NamedTuple):
    """Why an object could not be created."""

    message: str
    transient: bool
    reason: str = "BadConstraints"
    remedy: str = ""


class Submitter:
    """Turns launches into objects."""

    def __init__(
        self,
        launches: Launches,
        releaser: Releaser,
        settings: Settings,
        files: OutputFiles,
        sidecars: SidecarCheck,
        stores: Mapping[str, StoreAccess] = MappingProxyType({}),
    ) -> None:
        self._sidecars = sidecars
        self._stores = stores
        self._launches = launches
        self._releaser = releaser
        self._settings = settings
        self._files = files

    async def submit(
        self, launches: Sequence[Launch], namespace: str, backend: GangBackend
    ) -> list[Accepted | Refusal]:
        """Make each launch; one answer each, in order. Raises Unreachable where a call was not answered."""
        return await finish_all(self._submit(launch, namespace, backend) for launch in launches)

    async def _submit(self, launch: Launch, namespace: str, backend: GangBackend) -> Accepted | Refusal:
        obstacle = await self._sidecars.find_obstacle(launch.job)
        if obstacle is not None:
            return Refusal(launch.token, obstacle.message, remedy=obstacle.remedy)
        try:
            settings = fill(self._settings, namespace)
            plan, objects = await asyncio.to_thread(render_launch, launch, settings, backend, self._stores)
        except OverspanError as error:
            if error.transient:
                raise
            return Refusal(launch.token, error.message, remedy=error.remedy)
        await asyncio.to_thread(self._files.note, launch, self._settings)
        calls = self._launches.calls(namespace)
        handle = Handle(namespace, launch.token)
        if not launch.wanted and not await self._is_whole(calls, launch.token):
            # Nothing of an incomplete try has begun: its pods wait at their start gates.
            await self._releaser.remove(handle)
            return Refusal(launch.token, NOT_HERE)
        self._releaser.spare(launch.token)
        anchor = await self._make_anchor(calls, objects.anchor, launch.token)
        if isinstance(anchor, Problem):
            return _refuse(launch.token, anchor)
        uid = str(anchor["metadata"]["uid"])
        watched = self._launches.watched.get(launch.token)
        if watched is None or watched.gone or watched.anchor != uid:
            # State of a try whose removal was interrupted no longer counts.
            soft, queued = plan.backend is GangBackend.SOFT, plan.backend is GangBackend.KUEUE
            summary = summarize_launch(launch.token, launch.job)
            watched = WatchedLaunch(str(handle), summary, uid, namespace, soft=soft, queued=queued)
            self._launches.watched[launch.token] = watched
        # From here on its pods are watched.
        self._launches.watch(handle)
        if CREATED not in (anchor["metadata"].get("annotations") or {}):
            problem = await self._make_rest(calls, objects, uid, watched)
            if problem is not None:
                await self._releaser.remove(handle)
                return _refuse(launch.token, problem)
        return Accepted(launch.token, str(handle), uid)

    async def _is_whole(self, calls: Calls, token: str) -> bool:
        """Whether an earlier try has created all of a launch, and it is not being removed."""
        found = await calls.get("ConfigMap", name_anchor(token))
        if found is None or is_going(found) or (found["metadata"].get("labels") or {}).get(LAUNCH) != token:
            return False
        return CREATED in (found["metadata"].get("annotations") or {})

    async def _make_anchor(self, calls: Calls, document: Document, token: str) -> Mapping[str, Any] | Problem:
        answer = await calls.create(document)
        if answer.works:
            return answer.document
        if answer.status != 409:
            return _judge(answer, self._settings.security)
        found = await calls.get("ConfigMap", name_anchor(token))
        if found is None or is_going(found):
            return Problem(f"what was left of {token} is being removed", True, "Resources")
        if (found["metadata"].get("labels") or {}).get(LAUNCH) != token:
            return Problem(f"the ConfigMap {name_anchor(token)} belongs to another owner", False)
        return found

    async def _make_rest(self, calls: Calls, objects: Objects, uid: str, watched: WatchedLaunch) -> Problem | None:
        """Make what the anchor owns: first what the pods need. The first problem ends it."""
        anchor = str(objects.anchor["metadata"]["name"])
        late = objects.service is not None and len(objects.pods) > _FEW
        service = () if objects.service is None else (objects.service,)
        secrets = (*objects.exported, *(() if objects.secret is None else (objects.secret,)))
        first = (*objects.configs, *secrets, *objects.gang)
        batches = (first, objects.pods, service) if late else ((*first, *service), objects.pods)
        watched.busy += 1
        try:
            await asyncio.to_thread(own_all, [item for batch in batches for item in batch], anchor, uid)
            conflict = await self._check_late_object(calls, objects.service, watched.token) if late else None
            if conflict is not None:
                return conflict
            for batch in batches:
                problem = await self._make_all(calls, batch, watched.token)
                if problem is not None:
                    return problem
            marked = await calls.patch("ConfigMap", anchor, {"uid": uid, "annotations": {CREATED: _TOKEN_ANNOTATION}})
            return None if marked is not None else Problem("its anchor was removed meanwhile", True, "Resources")
        finally:
            watched.busy -= 1

    async def _check_late_object(self, calls: Calls, document: Document | None, token: str) -> Problem | None:
        """Check the name of an object that is created after all others, before anything is; None where it is free."""
        if document is None or await calls.get(str(document["kind"]), str(document["metadata"]["name"])) is None:
            return None
        return await self._judge_existing(calls, document, token)

    async def _make_all(self, calls: Calls, documents: Sequence[Document], token: str) -> Problem | None:
        """Make objects, or find those that an earlier try made. What will not pass later comes first of problems."""
        answers = await calls.create_all(documents)
        refused = [
            (document, answer)
            for document, answer in zip(documents, answers, strict=True)
            if answer is not None and not answer.works
        ]
        problems = await finish_all([self._judge(calls, document, answer, token) for document, answer in refused])
        found = [problem for problem in problems if problem is not None]
        return min(found, key=lambda problem: problem.transient, default=None)

    async def _judge(self, calls: Calls, document: Document, answer: ApiAnswer, token: str) -> Problem | None:
        """Why an object was not made; None where it is the one that an earlier try made."""
        if is_there(answer):
            return await self._judge_existing(calls, document, token)
        return _judge(answer, self._settings.security, str(document["kind"]))

    async def _judge_existing(self, calls: Calls, document: Document, token: str) -> Problem | None:
        """Judge the object that has the name already; None where an earlier try created it."""
        kind, name = str(document["kind"]), str(document["metadata"]["name"])
        found = await calls.find(document)
        if found is None or (is_going(found) and kind != "Pod"):
            return Problem(f"the {kind} {name} is being removed", True, "Resources")
        owner: Mapping[str, str] = found["metadata"].get("labels") or {}
        if owner.get(LAUNCH) == token:
            is_own = set(_list_owners(document)) <= set(_list_owners(found))
            return None if is_own else await self._renew(calls, document, found, token)
        own_labels = document["metadata"]["labels"]
        if all(owner.get(key) == own_labels[key] for key in (INSTALLATION, JOB)):
            # An earlier launch of the same job: it is over, since there is a later one.
            await self._releaser.remove(Handle(calls.namespace, str(owner.get(LAUNCH))))
            if kind == "Pod":
                await self._drop_stuck(calls, read_pod(found), token)
            return Problem(f"the {kind} {name} of its earlier launch is being removed", True, "Resources")
        if owner.get(INSTALLATION) == own_labels[INSTALLATION] and self._is_over(str(owner.get(LAUNCH))):
            return Problem(f"the {kind} {name} of job {owner.get(JOB)} is being removed", True, "Resources")
        if owner.get(INSTALLATION) == own_labels[INSTALLATION]:
            return Problem(
                f"waits for job {owner.get(JOB)}, which has the name {name}; another --name need not wait",
                True,
                "Resources",
            )
        if await is_leaving(calls, owner):
            return Problem(f"the {kind} {name} of job {owner.get(JOB)} of others is being removed", True, "Resources")
        taken = describe_conflict(kind, name, owner)
        return Problem(taken.message, False, remedy=taken.remedy)

    def _is_over(self, token: str) -> bool:
        """Whether a launch of this installation has ended, so that its objects go soon."""
        watched = self._launches.watched.get(token)
        if watched is None or watched.gone:
            return True
        pods = self._launches.pods(watched)
        return bool(pods) and all(pod.ended or pod.deleting_at is not None for pod in pods)

    async def _renew(self, calls: Calls, document: Document, old: Mapping[str, Any], token: str) -> Problem | None:
        """Replace an object that belongs to the anchor of an earlier try; a pod has to end first."""
        if document["kind"] == "Pod":
            await self._drop_stuck(calls, read_pod(old), token)
        else:
            await calls.discard(old, document)
            if (await calls.create(document)).works:
                return None
        return Problem(f"the {document['kind']} {document['metadata']['name']} is being removed", True, "Resources")

    async def _drop_stuck(self, calls: Calls, pod: PodRecord, token: str) -> None:
        """Remove a pod from a node that does not answer. One without a start gate stays: its program may run there."""
        watched = self._launches.watched.get(token)
        if watched is not None and watched.waits(pod.task) and not pod.go and is_stuck(pod, time.time()):
            await calls.delete_pod(pod, 0)


def _list_owners(document: Mapping[str, Any]) -> list[str]:
    return [str(one["uid"]) for one in document["metadata"].get("ownerReferences") or ()]


def render_launch(
    launch: Launch,
    settings: Settings,
    backend: GangBackend,
    stores: Mapping[str, StoreAccess] | None = None,
    *,
    trial: bool = False,
) -> tuple[LaunchPlan, Objects]:
    """The plan and the objects of a launch; large archives are written below `root`. Raises InvalidRequest.

    A `trial` has one pod of each task, which say what all of them would.
    """
    plan = plan_launch(launch, settings, backend, pack_files(launch.job, settings))
    return plan, render(launch, plan, settings, stores, trial=trial)


def fill(settings: Settings, namespace: str) -> Settings:
    """The settings with the namespace that a launch is in, as rendering wants them."""
    return settings.model_copy(update={"namespace": namespace})


def _judge(answer: ApiAnswer, security: str, kind: str = "") -> Problem:
    remedy = find_remedy(answer, security)
    if is_quota(answer):
        found = (reason for pattern, reason in _QUOTA_REASONS if pattern.search(answer.message))
        return Problem(answer.message, True, next(found, "AssocGrpJobsLimit"), remedy=remedy)
    if is_transient(answer) or answer.status == 409:
        return Problem(answer.message, True, "Resources")
    why = "; secrets and the environments of batch scripts travel as Secrets" if kind == "Secret" else ""
    return Problem(f"{answer.message}{why if answer.status == 403 else ''}", False, remedy=remedy)


def _refuse(token: str, problem: Problem) -> Refusal:
    return Refusal(token, problem.message, problem.transient, problem.reason, problem.remedy)


def admit(job: Job, settings: Settings) -> Refusal | None:
    """The refusal of a job that cannot be rendered for this cluster."""
    try:
        launch = Launch(f"trial-{job.id}-{job.launch}", job)
        render_launch(launch, fill(settings, settings.namespace or "default"), GangBackend.SOFT, trial=True)
    except OverspanError as error:
        return Refusal("", error.message, remedy=error.remedy)
    return None

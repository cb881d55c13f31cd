"""Names of a launch's objects, its labels and its annotations. Pure.

A launch is known by its token, INSTALLATION-JOB-LAUNCH, which is a label's value. A pod's name says who it is; nothing
is ever found by it.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from typing import NamedTuple

from overspan.adapters.kubernetes.observation.records import DOMAIN, LAUNCH, MEMBER
from overspan.bridge.model.errors import InvalidRequest
from overspan.bridge.model.job import Job
from overspan.bridge.model.names import MAX_LABEL, dns_label, member_name

MANAGED_BY = "app.kubernetes.io/managed-by"
MANAGER = "overspan"
INSTALLATION = DOMAIN + "installation"
JOB = DOMAIN + "job"
NAME = DOMAIN + "name"
"""Annotation of an anchor, and label of pods: the job's name."""
FREE = DOMAIN + "free-ended-pods"
"""Annotation of an anchor: the command that frees the launch's ended pods without any daemon."""
USER = DOMAIN + "user"
HOST = DOMAIN + "host"
"""Label of a pod on whose node others want to be: its member name, or its task's."""
GUEST = DOMAIN + "guest"
"""Label of a pod that runs on the nodes of another task: that task."""
FINALIZER = DOMAIN + "outcome"
END = "end."
"""How the anchor's entries begin that have ends of pods."""
ANCHOR_PREFIX = "overspan-"
"""How the names of anchors begin; the token of their launch follows."""

_LABEL_VALUE = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?")
"""Kubernetes' rule for the values of labels (Labels and Selectors, Syntax and character set)."""


class Token(NamedTuple):
    """The parts of a launch's token."""

    installation: str
    job: int
    launch: int


def parse_token(token: str) -> Token:
    """The parts of INSTALLATION-JOB-LAUNCH. Raises ValueError."""
    match = re.fullmatch(r"([A-Za-z0-9][A-Za-z0-9_.-]*)-([0-9]{1,18})-([0-9]{1,9})", token)
    if match is None or len(token) > MAX_LABEL - len(ANCHOR_PREFIX):
        raise ValueError(f"{token!r} is not the token of a launch")
    return Token(match[1], int(match[2]), int(match[3]))


def name_anchor(token: str) -> str:
    """The name of a launch's ConfigMap, and of its Secret and PodGroup."""
    return f"{ANCHOR_PREFIX}{token}".lower()


def name_end(pod: str) -> str:
    """The anchor's entry with the end of a pod that was let go while its daemon was away."""
    return f"{END}{pod}"


def name_archive(token: str, number: int) -> str:
    """The name of the ConfigMap that carries one archive of the submitter's files."""
    return f"{name_anchor(token)}-files-{number}"


def has_names(job: Job) -> bool:
    """Whether members get names of their own; as bridge.runtime.core.environment has it, before anything is placed."""
    members = sum(task.num_nodes for task in job.spec.tasks)
    return job.spec.inter_connection and (job.spec.group or job.spec.member is not None or members > 1)


def name_domain(job: Job) -> str:
    """The domain of the members' names, which is the Service's: the name of the group that a job is, or is a member of.

    Another job has its id in it, so that jobs and elements of one name do not meet. Raises InvalidRequest for a group
    whose name cannot be a Service's: such names begin with a letter (RFC 1035).
    """
    if job.spec.member is not None:
        return _make_label(job.spec.member.domain)
    if not job.spec.group:
        return _join_label(job.spec.name, str(job.id))
    label = _make_label(job.spec.name)
    if not label[0].isalpha():
        raise InvalidRequest(
            f"the group {job.spec.name!r} begins with a digit, and its name is a Service's on Kubernetes",
            remedy="give it a name that begins with a letter, by `name` or --name",
        )
    return label


def name_host(job: Job, task: str, index: int) -> str:
    """The host name of a member; InvalidRequest where it is no DNS label."""
    if not has_names(job) and _count_members(job) == 1:
        return name_domain(job)
    return _make_member(task, index + job.spec.first_index)


def name_pod(token: str, job: Job, member: tuple[str, int], attempt: int, run: int = 0) -> str:
    """The name of a pod: GROUP-TASK-INDEX-aATTEMPT, with -rRUN for a node that was started again alone.

    A further member of an elastic task also has its job's id: one of that index before it may still be there.
    Outside groups it has the job's id and a mark of the installation, since others may use the same job name:
    NAME-ID-MARK-aATTEMPT, or NAME-ID-MARK-TASK-INDEX-aATTEMPT where the job has several pods.
    """
    task, index = member
    if job.spec.member is not None:
        base = f"{name_domain(job)}-{name_host(job, task, index)}-{job.id}"
    elif job.spec.group:
        base = f"{name_domain(job)}-{_make_member(task, index)}"
    else:
        mark = hashlib.sha256(parse_token(token).installation.encode()).hexdigest()[:5]
        base = f"{name_domain(job)}-x{mark}"
        if _count_members(job) > 1 or job.stage is not None:
            # The stages of a pipeline are launches of one job, and the pod of the one before may still be there.
            base += f"-{_make_member(task, index)}"
    return f"{base}-a{attempt}" + (f"-r{run}" if run else "")


def label_launch(token: str) -> dict[str, str]:
    """The labels that every object of a launch has."""
    parts = parse_token(token)
    return {
        MANAGED_BY: MANAGER,
        INSTALLATION: parts.installation,
        LAUNCH: token,
        JOB: str(parts.job),
    }


def label_owner(user: str) -> dict[str, str]:
    """The labels of an object that belongs to a user and to no launch."""
    return {MANAGED_BY: MANAGER, **({USER: user} if _LABEL_VALUE.fullmatch(user) else {})}


def label_job(job: Job) -> dict[str, str]:
    """Labels by which people select a job's pods: its name and its user, each where it may be a label's value."""
    values = {NAME: job.spec.name, USER: job.spec.origin.user}
    return {name: value for name, value in values.items() if _LABEL_VALUE.fullmatch(value)}


def select_members(token: str, job: Job) -> dict[str, str]:
    """What the group's Service selects: a label of its own, which a lost pod loses before its successor is made.

    A further member of an elastic task has that of its group's launch.
    """
    member = job.spec.member
    if member is None:
        return {MEMBER: token}
    return {MEMBER: f"{parse_token(token).installation}-{member.group}-{member.launch}"}


def check_names(job: Job) -> None:
    """Raise InvalidRequest when a name of the job is none for DNS; nothing has been written then."""
    name_domain(job)
    for task in job.spec.tasks:
        name_host(job, task.name, task.num_nodes - 1)
    _check_collisions(task.name for task in job.spec.tasks)


def _check_collisions(names: Iterable[str]) -> None:
    seen: dict[str, str] = {}
    for name in names:
        other = seen.setdefault(_make_label(name), name)
        if other != name:
            raise InvalidRequest(
                f"the tasks {other!r} and {name!r} have the same host name", remedy="give one of them another name"
            )


def _count_members(job: Job) -> int:
    return sum(task.num_nodes for task in job.spec.tasks)


def _make_member(task: str, index: int) -> str:
    try:
        return member_name(task, index)
    except ValueError as error:
        raise InvalidRequest(str(error), remedy="give the task another `name`") from None


def _make_label(name: str) -> str:
    try:
        return dns_label(name)
    except ValueError as error:
        raise InvalidRequest(str(error), remedy="give the job another name, by `name` or --name") from None


def _join_label(name: str, end: str) -> str:
    """A DNS label that begins with a letter and ends with `end`; as much of the name as there is room for."""
    text = re.sub("[^a-z0-9]+", "-", name.lower()).strip("-")
    if not text[:1].isalpha():
        text = f"job-{text}".strip("-")
    return f"{text[: MAX_LABEL - 1 - len(end)].strip('-')}-{end}"

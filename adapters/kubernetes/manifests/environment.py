"""The variables of a pod: those of bridge.runtime.core.environment, before any pod has an address. Pure.

What all nodes of a task have in common is made once. Long values, such as the names of a thousand members, stand once
in the anchor and are named by the pods. Tasks of many nodes have a ConfigMap with all that their pods have in common
for the whole launch, and the program that starts the task, so that the API server has no more than the rest to read,
keep and tell for each of them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from overspan.adapters.kubernetes.manifests.names import has_names, name_anchor, name_domain, name_host
from overspan.adapters.kubernetes.manifests.numbered_texts import NumberedText, number_text
from overspan.adapters.kubernetes.manifests.scripts import MAX_TEXT, POD_DIR, PROGRAM_VARIABLE, RUN_DIR, WORK, escape
from overspan.bridge.model.errors import InvalidRequest
from overspan.bridge.model.job import Job, Placement
from overspan.bridge.model.names import env_name, member_host
from overspan.bridge.model.spec import Form, TaskSpec
from overspan.bridge.runtime.core.environment import MEMBERS_FILE, NodeRunContext, build_environment

Document = dict[str, Any]

LONG = 512
"""Letters from which on a value is kept in the anchor."""
FEW = 16
"""Pods of a task that carry all of their variables: a ConfigMap is one more thing that a kubelet waits for."""
_MAX_KEY = 253
"""Letters of a ConfigMap's key (API, DNS1123SubdomainMaxLength)."""
NODE_VARIABLES = (
    "OVERSPAN_NODE_INDEX",
    "OVERSPAN_HOST",
    "SKYPILOT_NODE_RANK",
    "SLURM_NODEID",
    "SLURM_PROCID",
    "SLURM_GTIDS",
    "SLURM_TOPOLOGY_ADDR",
    "SLURMD_NODENAME",
    "HOSTNAME",
)
"""What differs between the nodes of a task."""
_OF_ATTEMPT = "OVERSPAN_ATTEMPT"
"""What differs between the attempts of a launch."""
_IMAGE_HAS = ("PATH", "SLURM_JOB_GID", "CUDA_VISIBLE_DEVICES")
"""The image's own, or its device plug-in's, unless the file sets them."""
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class Owner(NamedTuple):
    """The launch whose variables are made; `environment` is the daemon's own."""

    token: str
    job: Job
    environment: Mapping[str, str]
    cluster: str


class TaskVariables(NamedTuple):
    """The variables of a task: env entries for all of its pods, and the texts that the anchor has."""

    common: tuple[Document, ...]
    texts: Mapping[str, str]
    own: Mapping[str, NumberedText]
    """Those of each node."""
    shared: Mapping[str, str]
    """Those that all pods take from the task's ConfigMap."""

    def render_node(self, index: int) -> list[Document]:
        """The env entries of one node."""
        return [{"name": name, "value": value(index)} for name, value in self.own.items()]


def check_variables(job: Job) -> None:
    """Raise InvalidRequest for what is no name of a variable, or a value that no program can be given."""
    for task in job.spec.tasks:
        # A script's are judged where it is known which of them travel (exporting.py).
        own = {} if task.form is Form.BATCH else task.env
        for name, value in (*own.items(), *task.secrets.items()):
            if not _VARIABLE.fullmatch(name):
                raise InvalidRequest(
                    f"{task.name}: {name!r} is not the name of a variable", remedy="use letters, digits and '_'"
                )
            if len(value.encode("utf-8", "surrogateescape")) > MAX_TEXT or "\0" in value:
                raise InvalidRequest(
                    f"{task.name}: the variable {name} is longer than {MAX_TEXT // 1024} KiB, or has a zero byte",
                    remedy="put it into a file of workdir",
                )


def select_carried(environment: Mapping[str, str]) -> dict[str, str]:
    """Those of the daemon's variables that mean something in a pod: paths on the daemon's machine do not."""
    return {name: value for name, value in environment.items() if not value.startswith(("/", "~"))}


def is_secret(name: str) -> bool:
    """Whether a variable of the daemon's is for the work alone."""
    return name.endswith(("TOKEN", "PASSWORD", "SECRET"))


def list_secrets(job: Job, environment: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    """The Secret's entries: their key, and the task (empty: all) and variable that each is of."""
    found = {f"job.{name}": ("", name) for name in select_carried(environment) if is_secret(name)}
    found.update({f"task.{task.name}.{name}": (task.name, name) for task in job.spec.tasks for name in task.secrets})
    return found


def shares_variables(task: TaskSpec) -> bool:
    """Whether the pods of a task have a ConfigMap for what is the same in all of them."""
    return task.num_nodes > FEW


def render_variables(owner: Owner, task: TaskSpec, attempt: int, gpus: int, *, shares: bool = False) -> TaskVariables:
    """The variables of an attempt's nodes.

    `owner.job` is as launch_plans.relocate gives it; `gpus` are a node's; `shares` is for a task with a ConfigMap.
    """
    placed = place_members(owner.job, task, gpus)
    entries = list_secrets(owner.job, owner.environment)
    secret = {name: key for key, (of, name) in entries.items() if of in ("", task.name)}
    dropped = _list_dropped(owner.job, task)
    texts: dict[str, str] = {}
    shared: dict[str, str] = {}
    common: list[Document] = []
    for name, value in build_values(owner, placed, task, attempt, 0).items():
        if name in NODE_VARIABLES or name in secret or name in dropped or len(value) > MAX_TEXT:
            continue
        if shares and name != _OF_ATTEMPT and len(name) <= _MAX_KEY:
            # Nothing is expanded there (kubelet, makeEnvironmentVariables).
            shared[name] = value
        else:
            common.append(_render(owner.token, task, (name, value), texts))
    if shares:
        shared[PROGRAM_VARIABLE] = WORK
    common += [_refer(name, "fieldRef", {"fieldPath": "status.podIP"}) for name in _list_addresses(owner.job)]
    anchor = name_anchor(owner.token)
    common += [_refer(name, "secretKeyRef", {"name": anchor, "key": key}) for name, key in secret.items()]
    return TaskVariables(tuple(common), texts, _draw_own(owner, placed, task, attempt), shared)


def _draw_own(owner: Owner, placed: Job, task: TaskSpec, attempt: int) -> dict[str, NumberedText]:
    """What differs between the nodes of a task, as Kubernetes is to read it."""
    own = [item for item in placed.placements if item.task == task.name]
    others = [item for item in placed.placements if item.task != task.name or item.index][:1]
    known: dict[int, dict[str, str]] = {}

    def build(name: str, index: int) -> str:
        if index not in known:
            # With two members a job has names where it has them with all; nothing else of a node's variables is of
            # others.
            item = own[index]
            few = replace(placed, placements=(item, *(other for other in others if other != item)))
            known[index] = build_values(owner, few, task, attempt, index)
        return escape(known[index][name])

    build(NODE_VARIABLES[0], 0)
    return {name: number_text(partial(build, name), task.num_nodes) for name in NODE_VARIABLES if name in known[0]}


def place_members(job: Job, task: TaskSpec, gpus: int) -> Job:
    """The job with every member at its name, since addresses are not known yet."""
    domain = name_domain(job)
    named = has_names(job)
    placements: list[Placement] = []
    for each in job.spec.tasks:
        host = number_text(partial(name_host, job, each.name), each.num_nodes)
        address = (
            number_text(partial(_find_address, job, each.name, domain), each.num_nodes) if named else (lambda _: "")
        )
        gpu_numbers = tuple(range(gpus)) if each is task else ()
        placements += [
            Placement(each.name, index, host(index), address(index), gpu_numbers) for index in range(each.num_nodes)
        ]
    return replace(job, placements=tuple(placements), spec=replace(job.spec, name=domain))


def _find_address(job: Job, task: str, domain: str, index: int) -> str:
    return member_host(task, index + job.spec.first_index, domain)


def build_values(owner: Owner, placed: Job, task: TaskSpec, attempt: int, index: int) -> dict[str, str]:
    """The variables of one node that have a value now; `placed` is as place_members gives it."""
    carried = {name: value for name, value in select_carried(owner.environment).items() if not is_secret(name)}
    values = build_environment(placed, NodeRunContext(task.name, index, attempt, 0, RUN_DIR, owner.cluster, carried))
    # The members' domain has the job's id where the job is no group; its name for Slurm's eyes stays.
    values["SLURM_JOB_NAME"] = owner.job.spec.name
    for number in range(len(owner.job.spec.tasks) if len(owner.job.spec.tasks) > 1 else 0):
        values[f"SLURM_JOB_NAME_HET_GROUP_{number}"] = owner.job.spec.name
    if owner.job.spec.group:
        values["OVERSPAN_GROUP"] = values["SKYPILOT_JOBGROUP_NAME"] = owner.job.spec.name
    if "OVERSPAN_MEMBERS_FILE" in values:
        values["OVERSPAN_MEMBERS_FILE"] = f"{POD_DIR}/{MEMBERS_FILE}"
    return values


def _list_addresses(job: Job) -> list[str]:
    """Variables that hold the pod's own address; without names it is all that SkyPilot's list of addresses has."""
    return ["OVERSPAN_ADDR"] if has_names(job) else ["OVERSPAN_ADDR", "SKYPILOT_NODE_IPS"]


def _list_dropped(job: Job, task: TaskSpec) -> set[str]:
    dropped = {name for name in _IMAGE_HAS if name not in task.env}
    dropped.update(f"OVERSPAN_{env_name(each.name)}_ADDRS" for each in job.spec.tasks)
    return dropped | set(_list_addresses(job))


def _render(token: str, task: TaskSpec, variable: tuple[str, str], texts: dict[str, str]) -> Document:
    """An env entry; a long value goes to the anchor's texts. Equal ones of several tasks have one key."""
    name, value = variable
    if len(value) < LONG:
        return {"name": name, "value": escape(value)}
    key = f"env.{task.name}.{name}"
    texts[key] = value
    return _refer(name, "configMapKeyRef", {"name": name_anchor(token), "key": key})


def _refer(name: str, kind: str, reference: Document) -> Document:
    return {"name": name, "valueFrom": {kind: reference}}

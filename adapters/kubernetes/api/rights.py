"""The rights that jobs need in a namespace, those that only some things need, and how they are granted. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from overspan.adapters.abilities import Finding
from overspan.adapters.kubernetes.api.discovery import Right
from overspan.adapters.kubernetes.launches.gang import GANG_SCHEDULERS, KUEUE_GROUP, GangBackend


def _rights(verbs: str, resource: str, group: str = "", part: str = "", everywhere: bool = False) -> tuple[Right, ...]:
    return tuple(Right(verb, resource, group, part, everywhere) for verb in verbs.split())


NEEDED = (
    *_rights("create get list watch patch delete", "pods"),
    *_rights("get", "pods", part="log"),
    *_rights("create get list patch delete", "configmaps"),
    *_rights("create get list delete", "services"),
    *_rights("create get delete", "secrets"),
)
"""Without one of these jobs do not run."""

FOLLOWING = _rights("get list watch patch delete", "pods")
"""Without one of these pods are made all the same, and then left alone."""


class OptionalRights(NamedTuple):
    """Rights that one thing needs, and what happens without them."""

    what: str
    rights: tuple[Right, ...]
    without: str


EXTRAS = (
    OptionalRights(
        # A websocket is opened by GET; newer servers ask for `create` beside it (KEP-5633).
        "signals",
        _rights("create get", "pods", part="exec"),
        "scancel --signal, --signal of jobs and `span shell` fail",
    ),
    OptionalRights(
        "names of members elsewhere",
        _rights("create patch", "endpointslices", "discovery.k8s.io"),
        "groups over several clusters do not start",
    ),
    OptionalRights(
        "volumes",
        _rights("create get list patch delete", "persistentvolumeclaims"),
        "`span volume` makes and lists none, and a job with a claim that is not there is not refused",
    ),
    OptionalRights(
        "renewed credentials",
        _rights("patch", "secrets"),
        "temporary credentials of stores are not renewed under running pods",
    ),
    OptionalRights("events", _rights("list", "events"), "why a volume cannot be mounted is not told"),
    OptionalRights("quotas", _rights("list", "resourcequotas"), "what is left of the namespace's quota is not told"),
    OptionalRights(
        "node list", _rights("list", "nodes", everywhere=True), "sinfo shows the namespace's quota in place of nodes"
    ),
    OptionalRights(
        "storage classes",
        _rights("get list", "storageclasses", "storage.k8s.io", everywhere=True),
        "`span volume` cannot tell which classes there are",
    ),
    OptionalRights(
        "use of nodes", _rights("list", "pods", everywhere=True), "sinfo counts the pods of this namespace alone as use"
    ),
)


QUEUED = OptionalRights(
    "queued groups",
    _rights("delete", "workloads", KUEUE_GROUP),
    "Kueue keeps the pods of a group that is cancelled or held before its admission",
)


def list_extras(backend: GangBackend) -> tuple[OptionalRights, ...]:
    """What some things need where groups start so."""
    return EXTRAS + ((QUEUED,) if backend is GangBackend.KUEUE else ())


def list_rights(backend: GangBackend) -> tuple[Right, ...]:
    """The rights that jobs need where groups start so."""
    served = GANG_SCHEDULERS[backend].served
    return NEEDED if served is None else NEEDED + _rights("create get delete", served.resource, served.group)


def judge_rights(held: Mapping[Right, bool], backend: GangBackend, namespace: str, user: str) -> list[Finding]:
    """One finding for all that is needed, one for the extras that are there, and one for each that is not."""
    needed = list_rights(backend)
    missing = [right for right in needed if not held[right]]
    findings = [Finding("rights", True, f"all {len(needed)} that jobs need in {namespace}")]
    if missing:
        seen = f"missing in {namespace}: {name_rights(missing)}"
        findings = [Finding("rights", False, seen, write_grants(missing, namespace, user))]
    extras = list_extras(backend)
    granted = [extra.what for extra in extras if all(held[right] for right in extra.rights)]
    if granted:
        findings.append(Finding("other rights", True, ", ".join(granted)))
    for extra in extras:
        lacks = [right for right in extra.rights if not held[right]]
        if lacks:
            # The rest goes on without most of these, so they are no fault; a signal that is lost is one.
            works = extra.what != "signals"
            seen = f"may not {name_rights(lacks)}: {extra.without}"
            findings.append(Finding(extra.what, works, seen, "" if works else write_grants(lacks, namespace, user)))
    return findings


def name_rights(rights: Iterable[Right]) -> str:
    """`create, delete pods; get pods/log`."""
    verbs: dict[str, list[str]] = {}
    for right in rights:
        verbs.setdefault(right.name + (f".{right.group}" if right.group else ""), []).append(right.verb)
    return "; ".join(f"{', '.join(given)} {name}" for name, given in verbs.items())


def write_grants(rights: Sequence[Right], namespace: str, user: str) -> str:
    """What an administrator runs to grant rights in a namespace."""
    verbs: dict[str, list[str]] = {}
    for right in rights:
        verbs.setdefault(right.name + (f".{right.group}" if right.group else ""), []).append(right.verb)
    who = _name_subject(user)
    lines = ["an administrator grants them by docs/kubernetes-rbac.yaml, or by:"]
    for name, given in verbs.items():
        role = "overspan-" + name.replace("/", "-").replace(".", "-")
        scope = f"kubectl --namespace {namespace} create"
        lines.append(f"{scope} role {role} --verb={','.join(given)} --resource={name}")
        lines.append(f"{scope} rolebinding {role} --role={role} {who}")
    return "\n".join(lines)


def _name_subject(user: str) -> str:
    parts = user.split(":")
    if user.startswith("system:serviceaccount:") and len(parts) == 4:
        return f"--serviceaccount={parts[2]}:{parts[3]}"
    return f"--user={shlex.quote(user or 'USER')}"

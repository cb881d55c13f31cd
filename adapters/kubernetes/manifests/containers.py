"""The containers of a task's pods: the task's own, and the one that unpacks its files. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from overspan.adapters.kubernetes.files import TaskFiles
from overspan.adapters.kubernetes.logs.outputs import choose_outputs
from overspan.adapters.kubernetes.manifests.commands import mount_commands, start_body
from overspan.adapters.kubernetes.manifests.hooks import render_hook
from overspan.adapters.kubernetes.manifests.host_network import render_port_check
from overspan.adapters.kubernetes.manifests.launch_plans import LaunchPlan
from overspan.adapters.kubernetes.manifests.names import has_names, name_anchor, name_domain
from overspan.adapters.kubernetes.manifests.resources import Needs, is_mounted
from overspan.adapters.kubernetes.manifests.scripts import (
    HOLD_PODS,
    MAX_TEXT,
    OPENED,
    POD_DIR,
    RUN_DIR,
    SCRIPTS_DIR,
    ScriptContext,
    Work,
    make_work_command,
)
from overspan.adapters.kubernetes.manifests.storage import enter_mounts, link_storage, mount_storage, render_movers
from overspan.adapters.kubernetes.manifests.volumes import VOLUME_PREFIX, Mounts, merge_mounts, render_volumes
from overspan.adapters.kubernetes.observation.launch_summaries import has_start_gate
from overspan.adapters.kubernetes.observation.records import GO, MAIN, MEMBERS, NOTICE
from overspan.adapters.kubernetes.settings import Settings
from overspan.bridge.model.allocations import is_allocation
from overspan.bridge.model.errors import InvalidRequest
from overspan.bridge.model.job import Job
from overspan.bridge.model.spec import Form, Ready, ReadyKind, TaskSpec
from overspan.bridge.runtime.core.environment import MEMBERS_FILE

Document = dict[str, Any]

_RUN_VOLUME, _POD_VOLUME = f"{VOLUME_PREFIX}run", f"{VOLUME_PREFIX}pod"
_SCRIPT_VOLUME = f"{VOLUME_PREFIX}script"
_PROBE_SECONDS = 5
_GIVEN = ("image", "imagePullPolicy", "securityContext")
"""What the containers before the task's have of it."""
_PATHS = (".sif", ".sqsh")
_BEGUN = f"[ -s {POD_DIR}/go ] || [ -s {OPENED} ] || exit 1\n"


class Parts(NamedTuple):
    """What the containers of a task's pods are made of."""

    token: str
    job: Job
    task: TaskSpec
    settings: Settings
    needs: Needs
    files: TaskFiles
    plan: LaunchPlan
    shares: bool = False
    """Whether the pods take what they have in common from a ConfigMap."""


def render_main(parts: Parts) -> tuple[Document, Document | None]:
    """The task's own container without its variables, and the readiness probe of its first node."""
    task = parts.task
    container: Document = {
        "name": MAIN,
        "image": choose_image(task, parts.settings),
        **make_work_command(make_work(parts), shares=parts.shares),
    }
    if is_mounted(task, parts.settings):
        container.update(enter_mounts(task, parts.files.workdir or "/", container))
    asked = {"requests": parts.needs.requests, "limits": parts.needs.limits}
    resources = {kind: dict(found) for kind, found in asked.items() if found}
    if resources:
        container["resources"] = resources
    if parts.task.form is Form.BATCH:
        # A runtime makes a folder that is missing; the script's first shell says so (scripts.py).
        container["workingDir"] = RUN_DIR
    elif parts.files.workdir:
        container["workingDir"] = parts.files.workdir
    hook = render_hook(task)
    if hook:
        container["lifecycle"] = hook
    container["volumeMounts"] = list(_own_mounts(parts).mounts)
    return container, None if task.ready is None else render_probe(task.ready, waits=has_start_gate(parts.job, task))


def render_volumes_of(parts: Parts) -> list[Document]:
    """The volumes of the pod."""
    return list(_own_mounts(parts).volumes)


def choose_image(task: TaskSpec, settings: Settings) -> str:
    """The image of a task. InvalidRequest where there is none, or one that no node can pull."""
    image = task.image or settings.image
    if not image:
        raise InvalidRequest(
            f"{task.name}: a pod needs an image, and neither the task nor the cluster's settings name one",
            remedy="write `resources: {image_id: docker:IMAGE}`, or set `image` of the cluster",
        )
    if image.startswith(("/", ".", "~")) or image.endswith(_PATHS):
        raise InvalidRequest(
            f"{task.name}: the image {image} is a file, and nodes pull images from a registry",
            remedy="write docker:IMAGE",
        )
    return image


def needs_script(task: TaskSpec) -> bool:
    """Whether the task's text has to be a file: a batch script, one with its own interpreter, a very long one."""
    return task.form is Form.BATCH or task.run.startswith("#!") or len(task.run.encode()) > MAX_TEXT


def name_script(task: TaskSpec) -> str:
    """The entry of the anchor that has the text."""
    return f"script.{task.name}"


def choose_script(task: TaskSpec) -> str:
    """The text of that entry."""
    return HOLD_PODS if is_allocation(task) else task.run


def make_work(parts: Parts) -> Work:
    """What runs in the task's container. InvalidRequest for a set-up that is too long."""
    task = parts.task
    if len(task.setup.encode()) > MAX_TEXT:
        raise InvalidRequest(
            f"{task.name}: `setup` is longer than {MAX_TEXT // 1024} KiB", remedy="put it into a file of `workdir`"
        )
    setup = task.setup if task.setup.strip() else ""
    waits = has_start_gate(parts.job, task)
    domain = name_domain(parts.job) if waits and has_names(parts.job) else ""
    links = (*parts.files.links, *link_storage(task))
    if not needs_script(task):
        return Work(setup, task.run, task.name, task.args, links, waits, domain)
    path = f"{SCRIPTS_DIR}/{_file_name(task)}"
    words = (path, *task.args) if task.run else ()
    if words and not task.run.startswith("#!"):
        words = ("/bin/sh", *words)
    started = start_body(parts.job, words)
    return Work(setup, "", task.name, started, links, waits, domain, _locate_script(parts))


def _locate_script(parts: Parts) -> ScriptContext:
    """Where a batch script works and what files it has; nothing of the kind for others."""
    if parts.task.form is not Form.BATCH:
        return ScriptContext()
    files = choose_outputs(parts.job, parts.task, parts.settings).script_context()
    return files._replace(folder=parts.files.workdir, umask=f"{parts.job.spec.origin.umask:03o}")


def _file_name(task: TaskSpec) -> str:
    """Slurm's name for a batch script, which scripts look for in $0."""
    return "slurm_script" if task.form is Form.BATCH else "run"


def _own_mounts(parts: Parts) -> Mounts:
    """The run directory, the pod's marks, the script, files and volumes."""
    found = [
        Mounts(({"name": _RUN_VOLUME, "emptyDir": {}},), ({"name": _RUN_VOLUME, "mountPath": RUN_DIR},)),
        _pod_mounts(parts.job),
    ]
    if needs_script(parts.task):
        items = [{"key": name_script(parts.task), "path": _file_name(parts.task), "mode": 0o555}]
        source = {"name": name_anchor(parts.token), "items": items}
        mount = {"name": _SCRIPT_VOLUME, "mountPath": SCRIPTS_DIR, "readOnly": True}
        found.append(Mounts(({"name": _SCRIPT_VOLUME, "configMap": source},), (mount,)))
    found.append(render_volumes(parts.task, parts.settings, parts.files.workdir or "/"))
    found.append(parts.files.mounts)
    found.append(mount_storage(parts.job, parts.task, parts.files.workdir or "/", parts.settings))
    found.append(mount_commands(parts.plan, parts.task, parts.settings))
    merged = merge_mounts(found)
    _check_paths(parts.task, merged)
    return merged


def _pod_mounts(job: Job) -> Mounts:
    """Marks of the pod as files; the kubelet writes them anew when they change (downward API)."""
    marks = [("go", GO), ("notice", NOTICE)]
    if job.spec.changes_size:
        marks.append((MEMBERS_FILE, MEMBERS))
    items = [{"path": path, "fieldRef": {"fieldPath": f"metadata.annotations['{mark}']"}} for path, mark in marks]
    mount = {"name": _POD_VOLUME, "mountPath": POD_DIR, "readOnly": True}
    return Mounts(({"name": _POD_VOLUME, "downwardAPI": {"items": items}},), (mount,))


def _check_paths(task: TaskSpec, mounts: Mounts) -> None:
    paths = [mount["mountPath"] for mount in mounts.mounts]
    twice = next((path for path in paths if paths.count(path) > 1), None)
    if twice:
        raise InvalidRequest(f"{task.name}: {twice} is mounted twice", remedy="write another path")


def render_starters(parts: Parts, main: Mapping[str, Any], *, host_network: bool) -> list[Document]:
    """The containers before the task's: what looks at its node's ports, unpacks its files, and moves its data.

    The first two are in its own image and with its rights. They ask for what the task asks for, which costs nothing,
    since a pod needs the most that one of them does; a quota wants all containers to ask.
    """
    own = [
        *(render_port_check(parts.task) if host_network else ()),
        *([parts.files.unpacker] if parts.files.unpacker is not None else ()),
    ]
    movers = render_movers(parts.plan, parts.task, parts.settings, main)
    if not own:
        return movers
    given = {key: main[key] for key in _GIVEN if key in main}
    resources = _plain_resources(main.get("resources") or {})
    if resources:
        given["resources"] = resources
    return [*({**container, **given} for container in own), *movers]


def _plain_resources(resources: Mapping[str, Any]) -> Document:
    """CPUs and memory only: devices are not asked for twice."""
    plain = {
        kind: {name: amount for name, amount in found.items() if name in ("cpu", "memory")}
        for kind, found in resources.items()
        if kind in ("requests", "limits")
    }
    return {kind: found for kind, found in plain.items() if found}


def render_probe(ready: Ready, *, waits: bool) -> Document:
    """How the kubelet finds out that a task is ready; it looks once a second at most.

    Commands fail as long as the task waits at its start gate.
    """
    begun = _BEGUN if waits else ""
    probe: Document = {
        "periodSeconds": max(1, round(ready.period)),
        "timeoutSeconds": _PROBE_SECONDS,
        "failureThreshold": 1,
    }
    port, _, path = ready.target.partition("/")
    if ready.kind is ReadyKind.TCP:
        probe["tcpSocket"] = {"port": int(port)}
    elif ready.kind is ReadyKind.HTTP:
        probe["httpGet"] = {"port": int(port), "path": f"/{path}"}
    elif ready.kind is ReadyKind.FILE:
        probe["exec"] = {"command": ["/bin/sh", "-c", f'{begun}[ -e "$1" ]', "ready", ready.target]}
    else:
        probe["exec"] = {"command": ["/bin/sh", "-c", begun + ready.target]}
    return probe

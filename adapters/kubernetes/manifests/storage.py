"""Folders of object stores in a pod: the volume that has them, and the containers that move what is in it. Pure.

    fetch   brings the data before the task's container starts, and ends
    data    where the task writes: sends what is written beside the task's container, and the rest after its end

`data` is an init container that is restarted always, which Kubernetes ends last (sidecar containers, since 1.29). The
pod's grace is the program's and the flush's; the first process of the task's container keeps to its own part of it.
"""

from __future__ import annotations

import base64
import json
import posixpath
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from overspan.adapters.contract import Launch
from overspan.adapters.kubernetes.manifests.launch_plans import LaunchPlan
from overspan.adapters.kubernetes.manifests.names import label_launch, name_anchor
from overspan.adapters.kubernetes.manifests.programs import build_program
from overspan.adapters.kubernetes.manifests.resources import is_mounted
from overspan.adapters.kubernetes.manifests.scripts import BASE, make_command
from overspan.adapters.kubernetes.manifests.volumes import VOLUME_PREFIX, Mounts, check_targets, resolve_target
from overspan.adapters.kubernetes.observation.evidence import SETUP_FAILED
from overspan.adapters.kubernetes.observation.records import ATTEMPT, FETCHER, INDEX, MOVER
from overspan.adapters.kubernetes.settings import Settings
from overspan.adapters.settings import to_bytes
from overspan.adapters.store_files import list_stores, render_stores
from overspan.bridge.model.documents import encode
from overspan.bridge.model.job import Job
from overspan.bridge.model.spec import JobSpec, TaskSpec
from overspan.bridge.model.storage import MountMode, StorageMount, StoreAccess
from overspan.bridge.runtime.data.mounts import place_mount
from overspan.bridge.runtime.data.pod_mounts import FOLDER, NOTE, SERVED
from overspan.bridge.runtime.data.requests import ABANDON_FILE, END_FILE, PLACE_VARIABLES

Document = dict[str, Any]

_ROOT = f"{BASE}/data"
_PROGRAM_DIR = f"{BASE}/data-program"
_HOME_DIR = f"{BASE}/data-home"
_CACHE_DIR = f"{BASE}/data-cache"
_MOUNTS_DIR = f"{BASE}/mounts"
_VOLUME, _PROGRAM_VOLUME, _STORES_VOLUME, _CACHE_VOLUME = (
    f"{VOLUME_PREFIX}{end}" for end in ("data", "data-program", "stores", "data-cache")
)
_PROGRAM = "data.pyz"
_MODULE = "overspan.bridge.runtime.data.pod_mover"
_MAIN = f"""\
import sys

if sys.version_info < (3, 9):
    sys.exit("the python3 of this image is older than 3.9, which moving data needs")
from {_MODULE} import main

sys.exit(main(sys.argv[1:]))
"""
_RUN = (
    "# TERM becomes a file: what comes before a program has a handler is lost to the first process of a container.\n"
    f"trap ': >{_ROOT}/{END_FILE}' TERM\n"
    "command -v python3 >/dev/null 2>&1 || {\n"
    "  echo 'the image has no python3, which moving data needs' >/dev/termination-log; exit 1\n"
    "}\n"
    f'python3 -I -S {_PROGRAM_DIR}/{_PROGRAM} "$@" &\n'
    "child=$!; wait $child; code=$?\n"
    "# A signal ends a wait too.\n"
    "while kill -0 $child 2>/dev/null; do wait $child; code=$?; done\n"
    "exit $code\n"
)
_ENTER = (
    "# Mounts what is read through its store, or says why it was brought, and becomes the task's shell.\n"
    f'while read -r _line; do echo "span: $_line" >&2; done <{_MOUNTS_DIR}/{NOTE}\n'
    "_targets=$1; shift\n"
    f'[ -e {_MOUNTS_DIR}/{SERVED} ] || exec "$@"\n'
    "command -v python3 >/dev/null 2>&1 || {\n"
    "  echo 'span: error: the image has no python3, which MOUNT needs; MOUNT_CACHED needs none' >&2\n"
    f"  echo '{SETUP_FAILED}' >/dev/termination-log; exit 1\n"
    "}\n"
    f'exec python3 -I -S {_PROGRAM_DIR}/{_PROGRAM} enter {_MOUNTS_DIR} "$_targets" \'{SETUP_FAILED}\' "$@"\n'
)
ABANDON_WORDS = ("/bin/sh", "-c", f": >{_ROOT}/{ABANDON_FILE}")
"""What has `data` give up what it has not sent, and end with its pod."""
RENEW_WORDS = ("python3", "-I", "-S", f"{_PROGRAM_DIR}/{_PROGRAM}", "renew", _ROOT)
"""What has `data` take newer credentials from its input."""
_RESOURCES = {"requests": {"cpu": "50m", "memory": "64Mi"}, "limits": {"cpu": "2", "memory": "512Mi"}}
_OF_TASK = ("image", "imagePullPolicy", "securityContext")
"""What the containers have of the task's, so that both may read and write the same files."""


def find_mount_obstacle(spec: JobSpec) -> str:
    """Why a job with this specification can have no object stores in pods; empty where it can.

    The movers of a task's pods agree about markers (runtime/data/peers.py); those of several tasks do not.
    """
    written = [mount.url for task in spec.tasks for mount in task.storage if mount.mode is MountMode.MOUNT_CACHED]
    if any(task.flushes and task.elastic is not None for task in spec.tasks):
        return "what is written is sent from tasks there whose nodes do not come and go"
    if len(set(written)) < len(written):
        return "one task alone can write to a folder of a store there"
    return ""


# --- the task's own container ----------------------------------------------------------------------------------------


def mount_storage(job: Job, task: TaskSpec, workdir: str, settings: Settings) -> Mounts:
    """What the task's container mounts. Raises InvalidRequest for targets that cannot be."""
    if not task.storage:
        return Mounts()
    mounts = [_mount(job, mount, _locate(number, task, mount, workdir)) for number, mount in enumerate(task.storage)]
    check_targets(task, [mount["mountPath"] for mount in mounts])
    kept = settings.data_volume if is_kept(task, settings) else None
    source = {"emptyDir": {}} if kept is None else kept.source
    if is_mounted(task, settings):
        mounts.append({"name": _VOLUME, "mountPath": _MOUNTS_DIR, "subPath": FOLDER})
        mounts.append({"name": _PROGRAM_VOLUME, "mountPath": _PROGRAM_DIR, "readOnly": True})
    return Mounts(({"name": _VOLUME, **source},), tuple(mounts))


def enter_mounts(task: TaskSpec, workdir: str, work: Mapping[str, Any]) -> Document:
    """`command` and `args` of a task's container that mounts first and becomes `work` then, a container's fields."""
    targets = [_locate(*each, workdir) for each in _list_mounted(task)]
    words = make_command(_ENTER, [json.dumps(targets)])
    return {**words, "args": [*words["args"], *work["command"], *work.get("args", ())]}


def _list_mounted(task: TaskSpec) -> list[tuple[int, TaskSpec, StorageMount]]:
    return [(number, task, mount) for number, mount in enumerate(task.storage) if mount.read_through]


def is_kept(task: TaskSpec, settings: Settings) -> bool:
    """Whether data that a task writes stays on a volume when its pod goes."""
    return task.flushes and settings.data_volume is not None


def place_data(spec: Document, settings: Settings, token: str, pod: str) -> Document:
    """The spec of a pod with the folder on that volume that is its own."""
    volume = settings.data_volume
    if volume is None:
        return spec
    parts = (name_job_folder(volume.sub_path, token), token.rpartition("-")[2], pod)

    def place(mount: Document) -> Document:
        if mount["name"] != _VOLUME:
            return mount
        return {**mount, "subPath": posixpath.join(*parts, mount.get("subPath", "")).rstrip("/")}

    def place_all(containers: Iterable[Document]) -> list[Document]:
        return [
            {**item, "volumeMounts": [place(mount) for mount in item["volumeMounts"]]}
            if "volumeMounts" in item
            else item
            for item in containers
        ]

    kinds = ("containers", "initContainers")
    return {**spec, **{kind: place_all(spec[kind]) for kind in kinds if kind in spec}}


def name_job_folder(sub_path: str, token: str) -> str:
    """The folder of a job on that volume, for its launches: `sub_path` is the volume's part that is ours."""
    return posixpath.join(sub_path, token.rpartition("-")[0])


def link_storage(task: TaskSpec) -> tuple[tuple[str, str], ...]:
    """What has to appear below the home, which only the container knows: the path that is mounted, and the link's."""
    found = ((number, mount.target) for number, mount in enumerate(task.storage))
    return tuple((_name_home(number), target[2:]) for number, target in found if target.startswith("~/"))


def _locate(number: int, task: TaskSpec, mount: StorageMount, workdir: str) -> str:
    if mount.target.startswith("~/"):
        return _name_home(number)
    return resolve_target(task, mount.target, workdir)


def _name_home(number: int) -> str:
    return f"{_HOME_DIR}/{number}"


def _mount(job: Job, mount: StorageMount, path: str) -> Document:
    found: Document = {"name": _VOLUME, "mountPath": path, "subPath": place_mount("", job.id, mount).files}
    if mount.mode is MountMode.COPY:
        found["readOnly"] = True
    return found


# --- the containers beside it ----------------------------------------------------------------------------------------


def render_movers(plan: LaunchPlan, task: TaskSpec, settings: Settings, main: Mapping[str, Any]) -> list[Document]:
    """The init containers that move a task's data; `main` is the task's own container."""
    if not task.storage:
        return []
    facts: Document = {
        "job": plan.job.id,
        "task": task.name,
        "mounts": [_encode_mount(mount) for mount in task.storage],
    }
    cached = _has_cache(task, settings)
    if cached:
        facts["cache"] = {"path": _CACHE_DIR, "limit": to_bytes(settings.data_cache_size)}
    if is_kept(task, settings):
        facts["kept"] = True
    if is_mounted(task, settings):
        facts["fuse"] = True
    text = json.dumps(facts, separators=(",", ":"))
    own = {key: main[key] for key in _OF_TASK if key in main}
    if settings.data_image:
        own["image"] = settings.data_image
    mounts = [
        {"name": _VOLUME, "mountPath": _ROOT},
        {"name": _PROGRAM_VOLUME, "mountPath": _PROGRAM_DIR, "readOnly": True},
        {"name": _STORES_VOLUME, "mountPath": f"{_ROOT}/stores", "readOnly": True},
    ]

    place = _render_place(plan, task)

    def render(name: str, verb: str) -> Document:
        words = make_command(_RUN, [verb, _ROOT, text])
        return {"name": name, **own, **words, **place, "resources": _RESOURCES, "volumeMounts": mounts}

    movers = [render(FETCHER, "fetch")]
    if cached:
        movers[0]["volumeMounts"] = [*mounts, _mount_cache(settings)]
    if task.flushes:
        movers.append({**render(MOVER, "send"), "restartPolicy": "Always"})
    return movers


def _has_cache(task: TaskSpec, settings: Settings) -> bool:
    """Whether contents for a task are kept for others."""
    return settings.data_cache is not None and any(mount.mode is MountMode.COPY for mount in task.storage)


def _mount_cache(settings: Settings) -> Document:
    found: Document = {"name": _CACHE_VOLUME, "mountPath": _CACHE_DIR}
    if settings.data_cache is not None and settings.data_cache.sub_path:
        found["subPath"] = settings.data_cache.sub_path
    return found


def _encode_mount(mount: StorageMount) -> Any:
    """A mount as its movers read it: without the origin of its files, which they do not need."""
    return encode(replace(mount, sources=(), named=False, persistent=True))


def _render_place(plan: LaunchPlan, task: TaskSpec) -> Document:
    """The variables by which movers of several pods find each other."""
    if task.num_nodes == 1 or not task.flushes:
        return {}
    session, attempt, number, count = PLACE_VARIABLES
    known = {session: plan.token, count: str(task.num_nodes)}
    marks = {attempt: ATTEMPT, number: INDEX}
    read = [
        {"name": name, "valueFrom": {"fieldRef": {"fieldPath": f"metadata.annotations['{mark}']"}}}
        for name, mark in marks.items()
    ]
    return {"env": [*({"name": name, "value": value} for name, value in known.items()), *read]}


def render_mover_volumes(plan: LaunchPlan, task: TaskSpec, settings: Settings) -> tuple[Document, ...]:
    """The volumes of these containers alone."""
    if not task.storage:
        return ()
    name = name_data(plan.token)
    cache = settings.data_cache if _has_cache(task, settings) else None
    return (
        {"name": _PROGRAM_VOLUME, "configMap": {"name": name}},
        {"name": _STORES_VOLUME, "secret": {"secretName": name}},
        *(() if cache is None else ({"name": _CACHE_VOLUME, **cache.source},)),
    )


# --- objects ---------------------------------------------------------------------------------------------------------


def name_data(token: str) -> str:
    """The name of the ConfigMap with the program, and of the Secret with the stores."""
    return f"{name_anchor(token)}-data"


def render_mover_program(plan: LaunchPlan) -> tuple[Document, ...]:
    """The ConfigMap of the program; none where no task has storage."""
    if not any(task.storage for task in plan.job.spec.tasks):
        return ()
    program = build_program(_MAIN, _MODULE)
    return (
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": name_data(plan.token), "labels": label_launch(plan.token)},
            "immutable": True,
            "binaryData": {_PROGRAM: base64.b64encode(program).decode("ascii")},
        },
    )


def render_store_secrets(launch: Launch, stores: Mapping[str, StoreAccess]) -> tuple[Document, ...]:
    """The Secret with how the stores are reached, with the credentials as they are now; none without storage.

    Raises Denied where they cannot be read, or a store is not known any more.
    """
    if not any(task.storage for task in launch.job.spec.tasks):
        return ()
    return (
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "type": "Opaque",
            "metadata": {"name": name_data(launch.token), "labels": label_launch(launch.token)},
            "data": render_store_data(list_stores(launch.job), stores),
        },
    )


def render_store_data(names: Iterable[str], stores: Mapping[str, StoreAccess]) -> dict[str, str]:
    """The data of that Secret, for these stores. Raises Denied as above."""
    files = render_stores(names, stores, "")
    return {path.rpartition("/")[2]: base64.b64encode(data).decode() for path, data in files.items()}

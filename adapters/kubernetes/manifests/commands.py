"""Slurm's commands in pods: srun and scontrol as files that a launch mounts. Pure, except that it reads its own source.

A task gets them where its text names one of them, or where it brings files, whose programs may. In an image without
Python they say so. What asks the daemon cannot work in a pod, and says that and where it does.
"""

from __future__ import annotations

import base64
import json
import re
import secrets
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from overspan.adapters.contract import Launch
from overspan.adapters.kubernetes.manifests.environment import Owner, build_values, place_members
from overspan.adapters.kubernetes.manifests.launch_plans import LaunchPlan
from overspan.adapters.kubernetes.manifests.names import label_launch, name_anchor
from overspan.adapters.kubernetes.manifests.programs import build_program
from overspan.adapters.kubernetes.manifests.resources import render_needs
from overspan.adapters.kubernetes.manifests.scripts import BASE, COMMANDS_DIR, RUN_DIR
from overspan.adapters.kubernetes.manifests.services import MAX_DATA
from overspan.adapters.kubernetes.manifests.volumes import VOLUME_PREFIX, Mounts
from overspan.adapters.kubernetes.settings import ALWAYS, Settings
from overspan.bridge.model.allocations import is_allocation
from overspan.bridge.model.errors import InvalidRequest
from overspan.bridge.model.job import Job
from overspan.bridge.model.spec import Form, TaskSpec
from overspan.bridge.runtime.core.allocation import KEY_SIZE
from overspan.bridge.runtime.core.allocation_document import describe_allocation
from overspan.bridge.runtime.core.environment import name_members
from overspan.bridge.runtime.srun.pod_commands import ELSEWHERE, NO_DAEMON, Mounted

Document = dict[str, Any]

KEY_ENTRY = "steps.key"
"""The entry of the launch's Secret that has the key of its steps."""
HERE = ("srun", "scontrol")
ASKING = (
    *("sbatch", "salloc", "sattach", "squeue", "scancel", "sacct", "sacctmgr"),
    *("sinfo", "sprio", "sshare", "sstat", "sdiag"),
)
"""Commands that ask the daemon."""
ACCESS_ENTRY = "job.access"
"""The entry of the Secret by which commands reach the daemon; it has the job's token."""
SPAN = "span"
_KEY_DIR = f"{BASE}/key"
DOCUMENT = "allocation.json"
"""The entry that says what srun is to know of the job."""
_PROGRAM, _SCRIPT, _BODY = "commands.pyz", "command", "body"
_ACCESS = "access"
_MODULE = "overspan.bridge.runtime.srun.pod_commands"
_VOLUME, _KEY_VOLUME = f"{VOLUME_PREFIX}commands", f"{VOLUME_PREFIX}key"
_NAMED = re.compile(rf"(?<![\w.-])(?:{'|'.join((*HERE, *ASKING, SPAN))})(?![\w.-])")
_READABLE, _EXECUTABLE = 0o444, 0o555
MOUNTED = Mounted(RUN_DIR, f"{COMMANDS_DIR}/{DOCUMENT}", _KEY_DIR, f"{_KEY_DIR}/{_ACCESS}")
"""Where a pod has what its commands need."""

_MAIN = """\
import sys

if sys.version_info < (3, 9):
    sys.exit("%s: error: the python3 of this image is older than 3.9, which %s needs" % (sys.argv[1], sys.argv[1]))
from overspan.bridge.runtime.srun.pod_commands import Mounted, main

sys.exit(main(sys.argv[1:], Mounted(*FOLDERS)))
"""
_START = f"exec python3 -I -S {COMMANDS_DIR}/{_PROGRAM}"

COMMAND = f"""\
#!/bin/sh
verb=${{0##*/}}
if [ "$verb" = {SPAN} ]; then verb=${{1:---help}}; [ $# = 0 ] || shift; fi
here=
case $verb in {"|".join(HERE)}) here=1 ;; esac
[ ! -r {_KEY_DIR}/{_ACCESS} ] || here=1
[ -z "$here" ] || {{ command -v python3 >/dev/null 2>&1 && {_START} "$verb" "$@"; }}
[ ! -r {_KEY_DIR}/{_ACCESS} ] || {{
  echo "$verb: error: this image has no python3, which $verb needs in a pod" >&2
  exit 127
}}
case "$verb $1 $2" in
  "srun "* | "scontrol show host"*)
    echo "$verb: error: this image has no python3, which $verb needs in a pod" >&2
    exit 127 ;;
esac
echo "$verb: error: {NO_DAEMON}, {ELSEWHERE}" >&2
exit 1
"""
"""The file behind every command; its name tells which one is meant."""

BODY = f"""\
#!/bin/sh
# The script runs in the first pod, and its steps in all of them.
if [ $# -gt 0 ] && [ "$OVERSPAN_NODE_INDEX" = 0 ]; then exec "$@"; fi
python3 -c 'import sys; sys.exit(sys.version_info < (3, 9))' 2>/dev/null && {_START} stepd
echo 'span: no step runs here: this image has no python3 of 3.9 or newer' >&2
trap '' HUP INT QUIT USR1 USR2 ALRM
exec sleep 2147483647
"""
"""What the pods of a batch script of several nodes run; the arguments are the script's words, none in a component
that has no script."""


def has_commands(task: TaskSpec, settings: Settings) -> bool:
    """Whether the pods of a task get the commands."""
    if settings.commands == ALWAYS or task.workdir or task.file_mounts or is_allocation(task):
        return True
    return any(map(_NAMED.search, (task.run, task.setup, *task.args)))


def list_access(launch: Launch, plan: LaunchPlan, settings: Settings) -> dict[str, bytes]:
    """The entry of the Secret with the way to the daemon; none where no pod has commands that would use it."""
    if not launch.access or not _needs_commands(plan, settings):
        return {}
    return {ACCESS_ENTRY: launch.access.encode()}


def _needs_commands(plan: LaunchPlan, settings: Settings) -> bool:
    return spans_pods(plan.job) or any(has_commands(task, settings) for task in plan.job.spec.tasks)


def spans_pods(job: Job) -> bool:
    """Whether the steps of a job reach other pods: those of a batch script with several nodes or components."""
    return job.spec.tasks[0].form is Form.BATCH and sum(task.num_nodes for task in job.spec.tasks) > 1


def draw_key(job: Job) -> dict[str, bytes]:
    """A new entry of the Secret with the key of the job's steps; none where they stay in their pod."""
    return {KEY_ENTRY: secrets.token_hex(KEY_SIZE).encode()} if spans_pods(job) else {}


def start_body(job: Job, words: Sequence[str]) -> tuple[str, ...]:
    """The words that start a batch script on the first pod and wait for steps on the others."""
    return ("/bin/sh", f"{COMMANDS_DIR}/{_BODY}", *words) if spans_pods(job) else tuple(words)


def pack_program(mounted: Mounted) -> bytes:
    """The zip application behind the commands."""
    return build_program(_MAIN.replace("FOLDERS", repr(tuple(mounted))), _MODULE)


# --- objects ---------------------------------------------------------------------------------------------------------


def name_commands(token: str) -> str:
    """The name of the ConfigMap that carries the commands."""
    return f"{name_anchor(token)}-commands"


def render_commands(plan: LaunchPlan, settings: Settings) -> tuple[Document, ...]:
    """The ConfigMap of the commands, for a launch that has them. Raises InvalidRequest for too many nodes."""
    job = plan.job
    if not _needs_commands(plan, settings):
        return ()
    data = {_SCRIPT: COMMAND, DOCUMENT: json.dumps(describe_pods(plan, settings), separators=(",", ":"))}
    if spans_pods(job):
        data[_BODY] = BODY
    program = pack_program(MOUNTED)
    if sum(map(len, data.values())) + len(program) > MAX_DATA:
        raise InvalidRequest(
            "the list of its nodes is larger than an object of Kubernetes, which takes 1 MiB",
            remedy="ask for fewer nodes, or write a job file with `num_nodes`",
        )
    return (
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": name_commands(plan.token), "labels": label_launch(plan.token)},
            "immutable": True,
            "data": data,
            "binaryData": {_PROGRAM: base64.b64encode(program).decode("ascii")},
        },
    )


def describe_pods(plan: LaunchPlan, settings: Settings) -> dict[str, Any]:
    """The document that describes the allocation to srun: the pods of a batch script; empty for a job file."""
    job = plan.job
    own = {"program": [], "name": job.spec.name, "pods": True, "port": settings.step_port}
    first = job.spec.tasks[0]
    if first.form is not Form.BATCH:
        return {**describe_allocation(job, {}, {}), "components": [], **own}
    gpus = {task.name: tuple(range(render_needs(task, settings).gpus)) for task in job.spec.tasks}
    placed = place_members(job, first, len(gpus[first.name]))
    placed = replace(placed, placements=tuple(replace(item, gpus=gpus[item.task]) for item in placed.placements))
    owner = Owner(plan.token, job, plan.environment, settings.name)
    values = build_values(owner, placed, first, len(job.task(first.name).attempts), 0)
    document = describe_allocation(placed, values, name_members(placed))
    for component in document["components"]:
        for node in component["nodes"]:
            node["port"] = settings.step_port if node["served"] else 0
    return {**document, **own}


def mount_commands(plan: LaunchPlan, task: TaskSpec, settings: Settings) -> Mounts:
    """What the task's own container mounts; nothing for a task without commands.

    Optional, so that a pod starts all the same that a launch of an older version makes later.
    """
    token, spans = plan.token, spans_pods(plan.job)
    if not spans and not has_commands(task, settings):
        return Mounts()
    items = [_item(_PROGRAM, _PROGRAM, _READABLE), _item(DOCUMENT, DOCUMENT, _READABLE)]
    items += [_item(_BODY, _BODY, _READABLE)] if spans else []
    items += [_item(_SCRIPT, verb, _EXECUTABLE) for verb in (*HERE, *ASKING, *((SPAN,) if plan.reaches else ()))]
    volumes: list[Document] = [
        {"name": _VOLUME, "configMap": {"name": name_commands(token), "optional": True, "items": items}}
    ]
    mounts: list[Document] = [{"name": _VOLUME, "mountPath": COMMANDS_DIR, "readOnly": True}]
    if spans or plan.reaches:
        keys = [_item(KEY_ENTRY, "key", _READABLE)] if spans else []
        keys += [_item(ACCESS_ENTRY, _ACCESS, _READABLE)] if plan.reaches else []
        # Readable for any user of the image: the container has no other users.
        source = {"secretName": name_anchor(token), "optional": True, "items": keys}
        volumes.append({"name": _KEY_VOLUME, "secret": source})
        mounts.append({"name": _KEY_VOLUME, "mountPath": _KEY_DIR, "readOnly": True})
    return Mounts(tuple(volumes), tuple(mounts))


def _item(key: str, path: str, mode: int) -> Document:
    return {"key": key, "path": path, "mode": mode}

"""The files of a group's launch in its run directory on the cluster. Pure.

plan.R.json       the job and its daemon's environment, with its secrets (0600)
placement.R.json  which member runs where in the allocation, and the options of its srun
orders.R.jsonl    orders for the supervisor, a numbered line each
"""

from __future__ import annotations

import json
from typing import Any

from overspan.adapters.contract import FORMAT, Launch
from overspan.adapters.slurm.groups.plans import PlacementPlan
from overspan.adapters.slurm.groups.script import step_options
from overspan.bridge.model.deciders import Decider
from overspan.bridge.model.documents import encode
from overspan.bridge.model.events import Event, event_to_document
from overspan.bridge.model.job import Job

NO_FOLDER, CLOSED, LOCKED = 44, 46, 75
"""Exit codes of the program that adds an order."""

APPEND_ORDER = f"""\
f=$1 t=$2
[ -d "${{f%/*}}" ] || exit {NO_FOLDER}
umask 077
if command -v flock >/dev/null 2>&1; then exec 9>>"$f.lock" && flock -w 10 9 || exit {LOCKED}; fi
if [ -s "$f" ]; then
  grep -qF -- "$t" "$f" && exit 0
  [ -z "$(tail -c 1 "$f")" ] || echo >>"$f" || exit 1
  n=$(wc -l <"$f")
fi
[ -z "$4" ] || [ ! -e "$4" ] || exit {CLOSED}
printf '{{"seq":%d,"event":%s,%s\\n' "$((${{n:-0}} + 1))" "$3" "$t" >>"$f" || exit 1
sync "$f" 2>/dev/null
:
"""
"""Appends an order once (the token is its idempotency key). Arguments: the file, the line's end with the token, the
event, and optionally a marker file whose existence means that no more orders are taken.

The token is at the end of the line, so that a line torn by a full disk does not count as written; it gets a line break,
and readers skip it.
"""


def append_words(path: str, token: str, event: Event, closed: str = "") -> tuple[str, ...]:
    """The command that appends an order to a group's file, once for its token."""
    document = json.dumps(event_to_document(event), separators=(",", ":"))
    return ("/bin/sh", "-c", APPEND_ORDER, "sh", path, f'"token":{json.dumps(token)}}}', document, closed)


def render_plan_file(launch: Launch, job: Job, cluster: str, shared: bool, decider: Decider) -> bytes:
    """The plan; `job` has the paths of the cluster. The daemon's address is left out unless nodes can reach it."""
    return _dump(
        {
            "format": FORMAT,
            "token": launch.token,
            "cluster": cluster,
            "decider": decider.value,
            "job": encode(job),
            "environment": dict(launch.environment) if shared else {},
            **({"access": launch.access} if launch.access else {}),
        }
    )


def render_placement_file(token: str, plan: PlacementPlan, version: tuple[int, ...] = ()) -> bytes:
    """The placement; nodes are numbered within their component, in the order of its expanded node list."""
    return _dump(
        {
            "format": FORMAT,
            "token": token,
            "components": [{"nodes": len(component.bins)} for component in plan.components],
            "steps": [
                {
                    "task": step.task,
                    "component": step.component,
                    "members": list(step.members),
                    "nodes": list(step.nodes),
                    "options": list(step_options(step, version)),
                    **({"image": list(step.image)} if step.image else {}),
                }
                for step in plan.steps
            ],
        }
    )


def _dump(document: dict[str, Any]) -> bytes:
    return json.dumps(document, separators=(",", ":")).encode()

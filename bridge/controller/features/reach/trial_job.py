"""The job file of a trial: two tasks on two clusters, each of which listens and connects to the other. Pure."""

from __future__ import annotations

import json
import secrets
import shlex
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from overspan.bridge.runtime.reach import trial

TASKS = ("reach-a", "reach-b")
DEFAULT_PORTS = (29500,)
"""Tried where none is named: where PyTorch's processes meet (torch.distributed, MASTER_PORT)."""
LISTEN_SECONDS = 15
"""How long each side tries; both begin within seconds of each other."""
TASK_SECONDS = 120
SLACK_SECONDS = 300
"""By which the job's own deadline comes after the waiting command's.

On Slurm the job's time limit has some minutes more than its task's, and Slurm ends at once what cannot keep a deadline.
"""
_ASKED = {"cpus": 1, "memory": "100M"}
_ASKED_OF_PODS = {"cpus": 0.1, "memory": "100M"}


class TrialRequest(NamedTuple):
    """What a trial is to find out: the ports between two clusters.

    `image`, with python3, is that of pods (empty: their cluster's own). `seconds` is how long the job may wait.
    """

    clusters: tuple[str, ...]
    ports: tuple[int, ...] = DEFAULT_PORTS
    image: str = ""
    host_network: bool = False
    seconds: int = 300


def write_trial(request: TrialRequest, pod_clusters: Collection[str]) -> str:
    """The text of the job file. JSON is YAML. `pod_clusters` are those with a host network for their tasks."""
    word = secrets.token_hex(8)
    header = {
        "name": "reach-{id}",
        "execution": "parallel",
        # The command that waits for it cancels it first, unless it was killed.
        "deadline": f"now+{request.seconds + TASK_SECONDS + SLACK_SECONDS}seconds",
    }
    tasks = []
    for name, peer, cluster in zip(TASKS, reversed(TASKS), request.clusters, strict=True):
        tasks.append(_write_task(request, (name, peer, word), cluster, in_pods=cluster in pod_clusters))
    return "\n---\n".join(json.dumps(document) for document in (header, *tasks)) + "\n"


def _write_task(
    request: TrialRequest, names: tuple[str, str, str], cluster: str, *, in_pods: bool
) -> Mapping[str, Any]:
    name, peer, word = names
    # The domain has the job's id, which the task alone knows.
    peer_name = f'"{peer}-0.reach-$OVERSPAN_JOB_ID"'
    words = shlex.join([word, str(LISTEN_SECONDS), *map(str, request.ports)])
    task: dict[str, Any] = {
        "name": name,
        "cluster": cluster,
        "time": f"{TASK_SECONDS}s",
        "grace_period": 1,
        "resources": dict(_ASKED_OF_PODS if in_pods else _ASKED),
        "ports": [str(port) for port in request.ports],
        "run": f"exec python3 - {peer_name} {words} <<'END'\n{_read_program()}END\n",
    }
    if in_pods and request.image:
        task["resources"]["image_id"] = f"docker:{request.image.removeprefix('docker:')}"
    if in_pods and request.host_network:
        task["kubernetes"] = {"host_network": True}
    return task


def _read_program() -> str:
    return Path(trial.__file__).read_text()

"""Where a tunnel for jobs ends in a cluster: a small pod with python3, and a Service by whose name jobs find it.

Both are named after the host of the cluster's `daemon_address`, so a later daemon finds them. The pod does nothing by
itself and lives a week at most: kubectl's exec runs the tunnel's end in it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from typing import Any

from overspan.adapters.kubernetes.api.answers import is_there, to_error
from overspan.adapters.kubernetes.api.calls import Calls
from overspan.adapters.kubernetes.manifests.names import MANAGED_BY, MANAGER
from overspan.adapters.kubernetes.manifests.small_pods import SmallPod, render_small_pod
from overspan.adapters.kubernetes.observation.evidence import explain_waiting
from overspan.adapters.kubernetes.observation.records import DOMAIN, PodRecord, read_pod
from overspan.adapters.kubernetes.settings import Settings
from overspan.adapters.kubernetes.shells import exec_words
from overspan.bridge.model.errors import Unreachable

TUNNEL = DOMAIN + "tunnel"
"""The label of both; its value is their name."""
LIFE_SECONDS = 7 * 86400
START_SECONDS = 120.0
_PAUSE = 0.5
_WORDS = ("/bin/sh", "-c", "trap 'exit 0' TERM; while :; do sleep 3600 & wait $!; done")


async def prepare_python(words: Sequence[str], address: str, calls: Calls, settings: Settings) -> Sequence[str]:
    """kubectl's words that run python3 in the pod of an address, which is made if need be.

    Raises Unreachable where it does not start in START_SECONDS, and OverspanError where it cannot be made.
    """
    host, _, port = address.rpartition(":")
    name = host.partition(".")[0].lower()
    service, pod = render_tunnel(name, int(port), settings)
    await _ensure_service(service, calls)
    record = await _await_pod(pod, calls)
    return exec_words(record, settings, ("python3", *words), terminal=False)


def render_tunnel(name: str, port: int, settings: Settings) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """The Service and the pod. The Service has no address of its own: its name leads to the pod."""
    selector = {TUNNEL: name}
    spec = {"clusterIP": "None", "selector": selector, "ports": [{"name": "jobs", "port": port, "protocol": "TCP"}]}
    metadata = {"name": name, "labels": {MANAGED_BY: MANAGER, **selector}}
    service = {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec}
    pod = SmallPod(_WORDS, LIFE_SECONDS, selector, image=settings.checkpoint_image or settings.image)
    return service, render_small_pod(name, settings, pod)


async def _ensure_service(service: Mapping[str, Any], calls: Calls) -> None:
    name = service["metadata"]["name"]
    found = await calls.get("Service", name)
    if found is None:
        answer = await calls.create(service)
        if not is_there(answer):
            raise to_error(answer, f"create the Service {name}, by which jobs find the daemon's tunnel")
    elif (found["metadata"].get("labels") or {}).get(TUNNEL) != name:
        raise Unreachable(
            f"the Service {name} of the namespace {calls.namespace} is not a tunnel's",
            remedy="choose another host in `daemon_address`: its first word is the Service's name",
        )


async def _await_pod(document: Mapping[str, Any], calls: Calls) -> PodRecord:
    """The running pod. Raises Unreachable."""
    name = document["metadata"]["name"]
    deadline = time.monotonic() + START_SECONDS
    while True:
        found = await calls.get("Pod", name)
        if found is None:
            answer = await calls.create(document)
            if not is_there(answer):
                raise to_error(answer, f"create the pod {name}, in which the daemon's tunnel ends")
            why = "it is not known yet"
        else:
            pod = read_pod(found)
            if pod.ended or pod.deleting_at is not None:
                # Its week is over, or it was deleted from outside.
                await calls.discard(found, document)
                why = "the one before it is being removed"
            elif pod.started_at is not None:
                return pod
            else:
                reason, detail = explain_waiting(pod)
                why = detail or reason
        if time.monotonic() > deadline:
            raise Unreachable(f"the pod {name}, in which the daemon's tunnel ends, does not run: {why}")
        await asyncio.sleep(_PAUSE)

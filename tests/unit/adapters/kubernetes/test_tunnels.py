"""The pod in which a tunnel for jobs ends, and its Service, on a fake API server."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from tests.fakes.kubernetes_api import KubernetesApi
from tests.fakes.kubernetes_objects import Document, Key, Refused

from overspan.adapters.kubernetes import tunnels
from overspan.adapters.kubernetes.api.calls import Calls
from overspan.adapters.kubernetes.api.connection import Connection
from overspan.adapters.kubernetes.settings import Settings
from overspan.adapters.kubernetes.tunnels import prepare_python
from overspan.bridge.model.errors import Unreachable

POD, SERVICE = Key("", "pods", "default", "way-home"), Key("", "services", "default", "way-home")


@pytest.fixture
def calls(connection: Connection) -> Calls:
    return Calls(connection, "default")


def find_uid(api: KubernetesApi) -> str:
    """The pod's uid; empty where there is none."""
    try:
        return str(api.objects.get(POD)["metadata"]["uid"])
    except Refused:
        return ""


def set_phase(api: KubernetesApi, phase: str) -> None:
    """What the node does with the pod."""
    running = {"running": {"startedAt": "2026-11-27T00:00:00Z"}}
    ended = {"terminated": {"exitCode": 0, "finishedAt": "2026-11-28T00:00:00Z", "reason": "Completed"}}
    state = running if phase == "Running" else ended
    status = {"phase": phase, "containerStatuses": [{"name": "main", "state": state}]}

    def change(now: Document) -> Document:
        return {**now, "status": {**now.get("status", {}), **status}}

    api.objects.replace(POD, change)


async def prepare(api: KubernetesApi, calls: Calls, settings: Settings) -> Sequence[str]:
    """Ask for it, with a node that starts the pod as soon as it is there."""
    asking = asyncio.ensure_future(prepare_python(("-c", "pass"), "Way-Home.site:7433", calls, settings))
    while not find_uid(api) and not asking.done():
        await asyncio.sleep(0.01)
    if not asking.done():
        set_phase(api, "Running")
    return await asking


def test_pod_and_service_are_made_once(api: KubernetesApi, calls: Calls, settings: Settings) -> None:
    settings = settings.model_copy(update={"image": "work:1", "checkpoint_image": "python:3"})
    words = asyncio.run(prepare(api, calls, settings))
    assert words[-6:] == ("way-home", "-c", "main", "--", "python3", "-c", "pass")[-6:]
    pod, service = api.objects.get(POD), api.objects.get(SERVICE)
    assert pod["spec"]["containers"][0]["image"] == "python:3"
    assert pod["spec"]["activeDeadlineSeconds"] == tunnels.LIFE_SECONDS
    assert service["spec"]["selector"].items() <= pod["metadata"]["labels"].items()
    assert [port["port"] for port in service["spec"]["ports"]] == [7433]
    assert asyncio.run(prepare(api, calls, settings)) == words
    assert api.objects.get(POD)["metadata"]["uid"] == pod["metadata"]["uid"]


def test_a_pod_whose_time_is_over_is_made_again(api: KubernetesApi, calls: Calls, settings: Settings) -> None:
    async def story() -> None:
        await prepare(api, calls, settings)
        before = find_uid(api)
        set_phase(api, "Succeeded")
        asking = asyncio.ensure_future(prepare_python((), "way-home:7433", calls, settings))
        while find_uid(api) in ("", before):
            await asyncio.sleep(0.01)
        set_phase(api, "Running")
        await asking

    asyncio.run(story())


def test_a_pod_that_does_not_start_and_a_name_of_somebody_else_are_said(
    api: KubernetesApi, calls: Calls, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tunnels, "START_SECONDS", 0.0)
    with pytest.raises(Unreachable, match="way-home, in which the daemon's tunnel ends, does not run"):
        asyncio.run(prepare_python((), "way-home:7433", calls, settings))
    api.objects.replace(SERVICE, lambda now: {**now, "metadata": {**now["metadata"], "labels": {}}})
    with pytest.raises(Unreachable, match="is not a tunnel's"):
        asyncio.run(prepare_python((), "way-home:7433", calls, settings))

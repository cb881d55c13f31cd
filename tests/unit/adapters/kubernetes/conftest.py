"""A fake API server, and connections to it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.fakes.kubernetes_api import KubernetesApi
from tests.leaks import nothing_is_dropped
from tests.unit.adapters.kubernetes.bench import Bench
from tests.waiting import wait_until

from overspan.adapters.kubernetes.api.connection import Connection, open_connection
from overspan.adapters.kubernetes.launches import ordering, start_gates
from overspan.adapters.kubernetes.settings import Settings

__all__ = ["nothing_is_dropped"]


@pytest.fixture(autouse=True)
def nobody_follows() -> None:
    """An adapter that is closed does not wait for long for threads that follow logs: those of others end first."""
    wait_until(lambda: not list_followers(), 30, "the followers of an earlier test to end")


def list_followers() -> list[str]:
    """The threads that follow logs, by their names."""
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("log of")]


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """The fake server answers each command, and each end is seen: how long that takes is no matter here."""
    monkeypatch.setattr(start_gates, "_SECONDS", 60.0)
    for name in ("_EXEC_SECONDS", "_ANNOUNCE_SECONDS", "_PLACE_SECONDS"):
        monkeypatch.setattr(ordering, name, 60.0)


@pytest.fixture
def api() -> Iterator[KubernetesApi]:
    with KubernetesApi() as server:
        yield server


@pytest.fixture
def settings(api: KubernetesApi, tmp_path: Path) -> Settings:
    return Settings(kubeconfig=api.write_kubeconfig(tmp_path / "kubeconfig"), request_timeout=20)


@pytest.fixture
def connection(settings: Settings) -> Iterator[Connection]:
    opened = open_connection(settings)
    yield opened
    opened.close()


@pytest.fixture
def bench(api: KubernetesApi, tmp_path: Path, patient: None) -> Bench:
    return Bench(api, tmp_path)

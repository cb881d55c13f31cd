"""A fake API server, and connections to it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.fakes.kubernetes_api import KubernetesApi
from tests.unit.adapters.kubernetes.bench import Bench

from overspan.adapters.kubernetes.connection import Connection, open_connection
from overspan.adapters.kubernetes.settings import Settings


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
def bench(api: KubernetesApi, tmp_path: Path) -> Bench:
    return Bench(api, tmp_path)

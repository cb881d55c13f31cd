"""One object store for all tests of a module."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.stores import TestStore, run_store


@pytest.fixture(scope="module", name="store")
def share_store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestStore]:
    """moto's server."""
    folder: Path = tmp_path_factory.mktemp("store")
    with run_store(folder) as store:
        yield store


@pytest.fixture
def whole(store: TestStore) -> Iterator[TestStore]:
    """The store, whose proxy is mended after the test."""
    yield store
    store.proxy.mend()
    store.proxy.delay = 0.0
    store.proxy.refused_key = ""

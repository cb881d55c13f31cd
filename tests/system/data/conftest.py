"""A daemon whose local cluster reaches an object store."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from tests.stores import TestStore, configure_store, lend_bucket, run_store
from tests.system.conftest import LOCAL, Span


@pytest.fixture(scope="module", name="shared_store")
def share_store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestStore]:
    """moto's server."""
    folder: Path = tmp_path_factory.mktemp("store")
    with run_store(folder) as store:
        yield store


@pytest.fixture
def store(shared_store: TestStore) -> Iterator[TestStore]:
    """The store with an empty bucket `lab`."""
    with lend_bucket(shared_store) as store:
        yield store


@pytest.fixture
def lab(span: Span, store: TestStore) -> Span:
    """A daemon that knows the store."""
    span.config.write_text(LOCAL + yaml.safe_dump({"stores": configure_store(store, span.folder)}))
    return span

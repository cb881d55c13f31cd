"""A daemon whose local cluster reaches an object store."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.stores import TestStore, run_store
from tests.system.conftest import LOCAL, Span

STORES = """stores:
  s3: {{endpoint: {endpoint}, credentials: {{file: {credentials}}}}}
"""
CREDENTIALS = "[default]\naws_access_key_id = testing\naws_secret_access_key = testing-secret\n"


@pytest.fixture(scope="module", name="shared_store")
def share_store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestStore]:
    """moto's server."""
    folder: Path = tmp_path_factory.mktemp("store")
    with run_store(folder) as store:
        yield store


@pytest.fixture
def store(shared_store: TestStore) -> Iterator[TestStore]:
    """The store with an empty bucket `lab`, whole before and after each test."""
    shared_store.proxy.mend()
    bucket = shared_store.make_bucket("lab")
    for stored in list(bucket.list_objects("")):
        bucket.delete(stored.key)
    yield shared_store
    shared_store.proxy.mend()
    shared_store.proxy.delay = 0.0


@pytest.fixture
def lab(span: Span, store: TestStore) -> Span:
    """A daemon that knows the store."""
    credentials = span.folder / "credentials"
    credentials.write_text(CREDENTIALS)
    credentials.chmod(0o600)
    span.config.write_text(LOCAL + STORES.format(endpoint=store.endpoint, credentials=credentials))
    return span

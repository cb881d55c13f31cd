"""The same requests and stories against MinIO, which checks signatures, conditions and the sizes of parts."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import pytest
from tests.minio import run_minio
from tests.stores import TestStore
from tests.system.conftest import Span
from tests.system.data import test_storage
from tests.system.data.storage_jobs import CACHED, left_on_node
from tests.unit.runtime.data import test_s3

from overspan.bridge.runtime.data.object_store import ObjectStoreError, StoreTrouble

reach = test_s3.reach


@pytest.fixture(scope="module", name="shared_store")
def share_store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestStore]:
    """MinIO's server."""
    with run_minio(tmp_path_factory.mktemp("minio")) as store:
        yield store


class TestObjects(test_s3.TestObjects):
    """All that is asked of one bucket."""


class TestOrder(test_storage.TestOrder):
    """Checkpoints come whole and in their order."""


def test_a_signature_that_is_wrong_is_refused(store: TestStore, reach: test_s3.Reach) -> None:
    for fields in ({"secret_key": "another"}, {"access_key": "nobody"}):
        with pytest.raises(ObjectStoreError) as caught:
            reach(store.access(**fields), "lab").put("a", b"1")
        assert caught.value.trouble is StoreTrouble.DENIED
    assert store.texts("lab") == {}


def test_a_job_s_data_is_there_at_its_end(lab: Span, store: TestStore) -> None:
    store.open("lab").put("data/ü a+b", b"hello")
    mounts = "{./in: s3://lab/data, ./out: {source: s3://lab/run, mode: MOUNT_CACHED}}"
    run = "cp in/* out/; mkdir out/x; head -c 40M /dev/urandom > out/x/b; sha256sum < out/x/b"
    job = lab.submit(f"file_mounts: {mounts}\nrun: {run}\n")
    lab.until(job, "COMPLETED", timeout=60)
    texts = store.texts("lab", "run/")
    assert set(texts) == {"run/ü a+b", "run/x/b"} and texts["run/ü a+b"] == b"hello"
    assert hashlib.sha256(texts["run/x/b"]).hexdigest() in lab.log(job)


def test_what_a_job_could_not_send_is_sent_later(lab: Span, store: TestStore) -> None:
    run = "while [ ! -e go ]; do sleep 0.1; done; head -c 20M /dev/urandom > out/a; sha256sum < out/a"
    job = lab.submit(f"{CACHED}flush: {{timeout: 2}}\nrun: {run}\n")
    lab.until(job, "RUNNING")
    store.proxy.cut()
    (lab.folder / "go").touch()
    lab.until(job, "FAILED")
    store.proxy.mend()
    assert lab.run("data", "rescue", str(job)).stderr == "span: 1 file, 20.0 MiB sent\n"
    assert hashlib.sha256(store.texts("lab")["run/a"]).hexdigest() in lab.log(job)
    assert left_on_node(lab, job) == {}

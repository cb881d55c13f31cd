"""The disk where jobs' data lies is full: what is there is sent, and what does not fit is not begun."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

import pytest
from tests.stores import TestStore
from tests.system.conftest import Span
from tests.system.data.storage_jobs import CACHED
from tests.waiting import WaitUntil

SIZE = 96 << 20
"""Of which 64 MiB are always left free by what fetches."""


@pytest.fixture
def small_disk(lab: Span) -> Iterator[Span]:
    """The daemon, whose local cluster has its data on a file system of 96 MiB."""
    folder = lab.state / "clusters/local/data"
    folder.mkdir(parents=True, mode=0o700)
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs", folder], capture_output=True)
    if done.returncode:
        pytest.skip(f"no file system can be mounted here: {done.stderr.decode().strip()}")
    yield lab
    subprocess.run(["umount", "--lazy", folder], check=True)


def test_what_fits_is_sent_and_the_job_ends(small_disk: Span, store: TestStore, wait_until: WaitUntil) -> None:
    run = "head -c 64M /dev/zero > out/a; while [ ! -e go ]; do sleep 0.1; done; head -c 64M /dev/zero > out/b || true"
    job = small_disk.submit(f"{CACHED}run: {run}\n")
    wait_until(lambda: "run/a" in store.texts("lab"), 60, "the first file to be sent")
    (small_disk.folder / "go").touch()
    small_disk.until(job, "COMPLETED", timeout=40)
    sizes = {key: len(data) for key, data in store.texts("lab").items()}
    assert sizes["run/a"] == 64 << 20 and 0 < sizes["run/b"] <= 32 << 20
    assert "No space left on device" in small_disk.log(job)


def test_what_does_not_fit_is_not_fetched(small_disk: Span, store: TestStore) -> None:
    store.open("lab").put("data/large", b"x" * (40 << 20))
    job = small_disk.submit("file_mounts: {./in: s3://lab/data}\nrun: ls in\n")
    small_disk.until(job, "FAILED", timeout=40)
    shown = small_disk.look("show", str(job))
    assert "40.0 MiB do not fit on the disk of" in shown and "which has 32.0 MiB for them" in shown, shown

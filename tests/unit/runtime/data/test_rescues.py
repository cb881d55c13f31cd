"""The rescue of what a job has left: by one process at a time."""

from __future__ import annotations

import fcntl
import json
import os
from pathlib import Path
from typing import Any

import pytest

from overspan.bridge.model.storage import StoreAccess
from overspan.bridge.runtime.data import rescue
from overspan.bridge.runtime.data.rescue import RescuedData, rescue_job

STORES = {"s3": StoreAccess("s3", "http://127.0.0.1:9")}


@pytest.fixture
def left(tmp_path: Path) -> Path:
    """The folder of a job that has left data."""
    folder = tmp_path / "data/7/0123"
    (folder / "files").mkdir(parents=True)
    facts = {"url": "s3://lab/run", "mode": "MOUNT_CACHED", "store": "s3", "markers": []}
    (folder / "mount.json").write_text(json.dumps(facts))
    return folder.parent


def test_what_another_process_sends_is_refused_until_that_has_ended(
    left: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[str] = []

    def send(folder: Any, store: object) -> RescuedData:
        sent.append(folder.url.key)
        with pytest.raises(OSError, match=f"the data of job 7 is being sent by another rescue.*{os.getpid()} on "):
            rescue_job(str(tmp_path), 7, STORES)
        folder.remove()
        return RescuedData(1, 2)

    monkeypatch.setattr(rescue, "rescue_folder", send)
    assert rescue_job(str(tmp_path), 7, STORES) == RescuedData(1, 2)
    assert sent == ["run"] and not left.exists()
    assert rescue_job(str(tmp_path), 7, STORES) is None


def test_one_that_was_killed_keeps_nobody(left: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (left / "rescue.lock").write_text("process 4 on gone\n")
    monkeypatch.setattr(rescue, "rescue_folder", lambda folder, store: folder.remove() or RescuedData(1, 2))
    assert rescue_job(str(tmp_path), 7, STORES) == RescuedData(1, 2)
    assert not left.exists()


def test_one_that_ends_between_two_steps_of_the_next_is_said(
    left: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = fcntl.flock

    def lock(fd: int, kind: int) -> None:
        (left / "rescue.lock").unlink()
        real(fd, kind)

    monkeypatch.setattr(fcntl, "flock", lock)
    with pytest.raises(OSError, match="give the command again"):
        rescue_job(str(tmp_path), 7, STORES)

"""What becomes of the futures of calls that are cancelled, with a client that is played."""

from __future__ import annotations

import concurrent.futures
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.waiting import wait_until

from overspan.bridge.client import executor as module
from overspan.bridge.client.executor import JobExecutor
from overspan.bridge.listings.rows import JobRow
from overspan.bridge.model.errors import OverspanError


class Played:
    """A client whose jobs are in the state that the test gives them."""

    def __init__(self) -> None:
        self.state = "PENDING"
        self.looks = 0
        self.cancelled: list[str] = []

    def submit(self, job: object, **options: object) -> Any:
        """A job."""
        return SimpleNamespace(id=1)

    def history(self, wanted: object) -> Any:
        """Its row."""
        self.looks += 1
        return SimpleNamespace(rows=[JobRow(id=1, state=self.state)])

    def cancel(self, order: Any) -> None:
        """Note it."""
        self.cancelled += order.refs

    def close(self) -> None:
        """Nothing."""


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> Iterator[Played]:
    client = Played()
    monkeypatch.setattr(module, "Client", lambda **_: client)
    yield client
    client.state = "CANCELLED"
    wait_until(lambda: not [each for each in threading.enumerate() if each.name == "span-executor"], 20, "its thread")


@pytest.mark.parametrize("state", ["PENDING", "RUNNING"])
def test_a_future_that_is_cancelled_takes_its_job_along(played: Played, tmp_path: Path, state: str) -> None:
    runner = JobExecutor(folder=str(tmp_path))
    future = runner.submit(len, "abc")
    assert future.cancel()
    played.state = state
    # Who waits is told, and is told once: a future bears no more.
    assert concurrent.futures.wait([future], 120).done == {future}
    wait_until(lambda: played.looks > 5, 20, "more looks")
    assert played.cancelled == ["1"]
    played.state = "CANCELLED"
    runner.shutdown()
    assert future.cancelled()


def test_a_call_that_runs_is_no_more_cancelled(played: Played, tmp_path: Path) -> None:
    runner = JobExecutor(folder=str(tmp_path))
    future = runner.submit(len, "abc")
    played.state = "RUNNING"
    wait_until(future.running, 20, "its start")
    assert not future.cancel()
    played.state = "COMPLETED"
    assert isinstance(future.exception(120), OverspanError)
    assert played.cancelled == []
    runner.shutdown()

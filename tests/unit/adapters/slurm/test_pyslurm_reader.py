"""The queue by pyslurm, with a stand-in of its documented API: pyslurm.Jobs.load(), pyslurm.Job's attributes."""

from __future__ import annotations

import asyncio
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from overspan.adapters.contract import ClusterConfig
from overspan.adapters.slurm.cluster import open_queries
from overspan.adapters.slurm.commands.listings import ExitStatus, TimeLimit
from overspan.adapters.slurm.commands.pyslurm_reader import LibraryQueries, open_library, read_job
from overspan.adapters.slurm.commands.queries import Queries, Site
from overspan.adapters.slurm.commands.squeue import QueueRecord
from overspan.adapters.slurm.commands.states import read_state
from overspan.adapters.slurm.settings import read_settings
from overspan.adapters.slurm.transports.local import LocalTransport
from overspan.bridge.model.errors import InvalidRequest

FIELDS: dict[str, Any] = {
    "id": 42,
    "array_id": None,
    "array_task_id": None,
    "array_tasks_waiting": None,
    "heterogeneous_id": None,
    "heterogeneous_offset": None,
    "state": "RUNNING",
    "state_reason": "None",
    "exit_code": None,
    "exit_code_signal": None,
    "requeue_count": 1,
    "user_name": "ada",
    "partition": "gpu",
    "allocated_nodes": "n[1-2]",
    "batch_host": "n1",
    "num_nodes": 2,
    "submit_time": 100,
    "start_time": 105,
    "end_time": None,
    "time_limit": 60,
    "run_time": 5,
    "priority": 7,
    "name": "train",
    "comment": None,
}


def job(**changes: Any) -> SimpleNamespace:
    return SimpleNamespace(**{**FIELDS, **changes})


def library(*jobs: SimpleNamespace, version: str = "23.2.0") -> Any:
    return SimpleNamespace(
        __version__=version, Jobs=SimpleNamespace(load=lambda: {item.id: item for item in jobs}), loads=0
    )


class Asked(LibraryQueries):
    """Knows the site; the commands have no jobs."""

    def __init__(self) -> None:
        super().__init__(LocalTransport(), 5)
        self.squeues = 0

    async def site(self) -> Site:
        return Site((23, 2, 1), {}, "ada", "/home/ada")

    async def _ask_queue(self, words: Any) -> tuple[QueueRecord, ...]:
        self.squeues += 1
        return ()


class TestRecords:
    def test_a_running_job(self) -> None:
        record = read_job(job())
        assert (record.raw, record.shown, record.nodes, record.restarts) == (42, "42", ("n1", "n2"), 1)
        assert (record.state, record.limit, record.exit) == (read_state("RUNNING"), TimeLimit(3600), None)
        assert (record.submit, record.start, record.end, record.comment) == (100.0, 105.0, None, "")

    def test_ends_and_limits(self) -> None:
        record = read_job(job(state="FAILED", exit_code=3, exit_code_signal=0, time_limit="UNLIMITED", end_time=110))
        assert (record.exit, record.limit, record.end) == (ExitStatus(3, 0), TimeLimit(None), 110.0)
        assert read_job(job(exit_code=None, exit_code_signal=9)).exit == ExitStatus(0, 9)
        assert not read_job(job(time_limit=None)).limit.known

    def test_elements_and_components(self) -> None:
        element = read_job(job(array_id=40, array_task_id=0))
        assert (element.shown, element.array_job, element.array_index) == ("40_0", 40, 0)
        rest = read_job(job(id=40, array_id=40, array_tasks_waiting="3-5", allocated_nodes=None, state="PENDING"))
        assert rest.waiting is not None and (rest.array_job, rest.nodes) == (40, ())
        component = read_job(job(heterogeneous_id=42, heterogeneous_offset=1))
        assert (component.het_job, component.het_offset, component.array_job) == (42, 1, None)


class TestQuestions:
    def ask(self, monkeypatch: pytest.MonkeyPatch, stand_in: Any) -> tuple[dict[int, QueueRecord], Asked]:
        monkeypatch.setitem(sys.modules, "pyslurm", stand_in)
        asked = Asked()
        return asyncio.run(asked.queue([42, 50])), asked

    def test_wanted_jobs_are_read_without_a_command(self, monkeypatch: pytest.MonkeyPatch) -> None:
        element = job(id=51, array_id=50, array_task_id=1)
        found, asked = self.ask(monkeypatch, library(job(), job(id=43), element))
        assert set(found) == {42, 51} and asked.squeues == 0

    @pytest.mark.parametrize("version", ["22.5.0", "", "x"])
    def test_another_version_is_not_used(self, monkeypatch: pytest.MonkeyPatch, version: str) -> None:
        found, asked = self.ask(monkeypatch, library(job(), version=version))
        assert found == {} and asked.squeues == 1

    def test_without_the_library_the_commands_answer(self, monkeypatch: pytest.MonkeyPatch) -> None:
        found, asked = self.ask(monkeypatch, None)
        assert found == {} and asked.squeues == 1
        assert open_library((23, 2)) is None

    def test_a_library_that_fails_is_not_asked_again(self, monkeypatch: pytest.MonkeyPatch) -> None:
        calls = []

        def load() -> Any:
            calls.append(1)
            raise RuntimeError("RPCError: Zero Bytes were transmitted")

        stand_in = SimpleNamespace(__version__="23.2.0", Jobs=SimpleNamespace(load=load))
        _, asked = self.ask(monkeypatch, stand_in)
        asyncio.run(asked.queue([42]))
        assert (len(calls), asked.squeues) == (1, 2)


class TestSetting:
    def test_the_reader_is_chosen_and_works_here_only(self) -> None:
        settings = read_settings(ClusterConfig("c", "slurm", {"reader": "pyslurm"}))
        assert isinstance(open_queries(LocalTransport(), settings), LibraryQueries)
        plain = open_queries(LocalTransport(), read_settings(ClusterConfig("c", "slurm")))
        assert type(plain) is Queries
        with pytest.raises(InvalidRequest, match="pyslurm"):
            read_settings(ClusterConfig("c", "slurm", {"reader": "pyslurm", "host": "login"}))
        with pytest.raises(InvalidRequest, match="none of commands, pyslurm"):
            read_settings(ClusterConfig("c", "slurm", {"reader": "x"}))

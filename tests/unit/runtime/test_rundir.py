"""The run directory's documents."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from overspan.bridge.model.documents import encode
from overspan.bridge.model.events import Granted
from overspan.bridge.model.job import new_job
from overspan.bridge.model.spec import JobSpec, TaskSpec
from overspan.bridge.runtime.core.run_directory import Grant, RunDirectory

JOB = new_job(7, JobSpec("rl", (TaskSpec("a", secrets={"TOKEN": "x"}), TaskSpec("b", num_nodes=2))), 1.0)


def test_names_of_files(tmp_path: Path) -> None:
    directory = RunDirectory(f"{tmp_path}//", 3)
    assert directory.path == str(tmp_path)
    assert directory.file("journal.jsonl") == str(tmp_path / "journal.3.jsonl")
    folder = Path(directory.folder("nodes"))
    assert folder.stat().st_mode & 0o777 == 0o700 and directory.folder("nodes") == str(folder)


def test_plan(tmp_path: Path) -> None:
    document = {"format": 1, "token": "t", "job": encode(JOB), "environment": {"A": "1"}, "cluster": "box"}
    (tmp_path / "plan.0.json").write_text(json.dumps(document))
    plan = RunDirectory(str(tmp_path), 0).read_plan()
    assert (plan.token, plan.job, plan.environment, plan.cluster) == ("t", JOB, {"A": "1"}, "box")


def test_plan_of_a_later_version_has_more(tmp_path: Path) -> None:
    document = {"format": 1, "token": "t", "job": {**encode(JOB), "mood": "good"}, "more": 1}
    (tmp_path / "plan.0.json").write_text(json.dumps(document))
    plan = RunDirectory(str(tmp_path), 0).read_plan()
    assert (plan.job, plan.environment, plan.cluster) == (JOB, {}, "local")


def test_grant(tmp_path: Path) -> None:
    document = {"format": 1, "at": 2.5, "members": [["a", 0, "box", "127.0.0.2", [1, 2]]]}
    (tmp_path / "grant.0.json").write_text(json.dumps(document))
    grant = RunDirectory(str(tmp_path), 0).read_grant()
    assert grant == Grant(2.5, (("a", 0, "box", "127.0.0.2", (1, 2)),), "env")
    assert grant.event() == Granted(2.5, grant.members)


@pytest.mark.parametrize("text", ['{"format": 2}', "{}", "nonsense", '{"format": 1, "token": "t", "job": {"id": 1}}'])
def test_plan_that_cannot_be_read(tmp_path: Path, text: str) -> None:
    (tmp_path / "plan.0.json").write_text(text)
    with pytest.raises(ValueError):
        RunDirectory(str(tmp_path), 0).read_plan()


def test_missing_plan(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        RunDirectory(str(tmp_path), 0).read_plan()

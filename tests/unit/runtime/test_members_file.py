"""The members file of a launch whose group changes its size."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from overspan.bridge.lifecycle.reduction import reduce
from overspan.bridge.model import events
from overspan.bridge.model.elastic import Elastic, MemberOf, Peer
from overspan.bridge.model.job import Job, new_job
from overspan.bridge.model.spec import JobSpec, TaskSpec
from overspan.bridge.runtime.core.environment import NodeRunContext, build_environment, list_members
from overspan.bridge.runtime.core.members_file import describe_members, render_members, write_members

PEERS = (Peer("trainer", 0, "n1", "10.0.0.1", "RUNNING"), Peer("rollout", 0, "n1", "10.0.0.2", "RUNNING"))


def make_member() -> Job:
    """A further member of a group, with its place."""
    spec = JobSpec("rollout-3", (TaskSpec("rollout"),), parent=7, member=MemberOf(7, "RL", 0, "rollout", 3, PEERS))
    return reduce(new_job(9, spec, 1.0), events.Granted(2.0, (("rollout", 0, "n2", "10.0.0.9", ()),)))


def test_a_member_knows_its_group_before_it_is_told_more() -> None:
    document = json.loads(describe_members(make_member()))
    assert document["generation"] == 0
    assert [(each["name"], each["address"], each["state"]) for each in document["members"]] == [
        ("rollout-3.rl", "10.0.0.9", "CONFIGURING"),
        ("trainer-0.rl", "10.0.0.1", "RUNNING"),
        ("rollout-0.rl", "10.0.0.2", "RUNNING"),
    ]


def test_names_and_variables_are_those_of_the_group() -> None:
    job = make_member()
    assert ("10.0.0.9", ["rollout-3.rl", "rollout-3"]) in list_members(job)
    assert ("10.0.0.1", ["trainer-0.rl", "trainer-0"]) in list_members(job)
    found = build_environment(job, NodeRunContext("rollout", 0, 0, 0, "/run/9", "local", {}))
    assert {name: found[name] for name in ("OVERSPAN_GROUP", "OVERSPAN_HOST", "OVERSPAN_NODE_INDEX")} == {
        "OVERSPAN_GROUP": "RL",
        "OVERSPAN_HOST": "rollout-3.rl",
        "OVERSPAN_NODE_INDEX": "3",
    }
    assert found["OVERSPAN_TRAINER_HOSTS"] == "trainer-0.rl"
    assert found["OVERSPAN_ROLLOUT_HOSTS"] == "rollout-0.rl,rollout-3.rl"
    assert (found["SKYPILOT_NODE_RANK"], found["SKYPILOT_NUM_NODES"]) == ("3", "2")
    assert found["OVERSPAN_MEMBERS_FILE"] == "/run/9/members.json"
    # Slurm's variables are the allocation's own.
    assert (found["SLURM_JOB_NUM_NODES"], found["SLURM_JOB_NODELIST"]) == ("1", "rollout-3")


def test_what_was_told_counts_from_then_on() -> None:
    rows = (("trainer", 0, "n1", "10.0.0.1", "RUNNING"), ("rollout", 3, "n2", "10.0.0.9", "RUNNING"))
    job = reduce(make_member(), events.SetPeers(3.0, 4, rows))
    document = json.loads(describe_members(job))
    assert document["generation"] == 4 and len(document["members"]) == 2
    assert all("rollout-0.rl" not in names for _, names in list_members(job))


def test_other_groups_have_no_members_file() -> None:
    tasks = (TaskSpec("trainer"), TaskSpec("rollout", primary=False))
    plain = new_job(1, JobSpec("g", tasks, group=True), 1.0)
    context = NodeRunContext("trainer", 0, 0, 0, "/run/1", "local", {})
    assert "OVERSPAN_MEMBERS_FILE" not in build_environment(plain, context)
    elastic = replace(plain, spec=replace(plain.spec, tasks=(tasks[0], replace(tasks[1], elastic=Elastic(1, 2, 1)))))
    assert "OVERSPAN_MEMBERS_FILE" in build_environment(elastic, context)


def test_a_later_list_is_never_replaced_by_an_earlier_one(tmp_path: Path) -> None:
    for generation in (1, 3, 2):
        write_members(str(tmp_path), render_members(PEERS, generation, "rl"))
    path = tmp_path / "members.json"
    assert json.loads(path.read_text())["generation"] == 3
    assert path.stat().st_mode & 0o777 == 0o600
    path.write_text("{torn")
    write_members(str(tmp_path), render_members(PEERS, 1, "rl"))
    assert json.loads(path.read_text())["generation"] == 1
    assert [each.name for each in tmp_path.iterdir()] == ["members.json"]


def test_a_file_that_cannot_be_written_leaves_the_one_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_members(str(tmp_path), render_members(PEERS, 1, "rl"))

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.replace", fail)
    with pytest.raises(OSError, match="No space"):
        write_members(str(tmp_path), render_members(PEERS, 2, "rl"))
    assert json.loads((tmp_path / "members.json").read_text())["generation"] == 1
    assert [each.name for each in tmp_path.iterdir()] == ["members.json"]

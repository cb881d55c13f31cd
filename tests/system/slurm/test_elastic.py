"""Elastic tasks on a real Slurm: each further member is one native job, named in its group's domain. Row JG41."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.system.conftest import Span
from tests.system.elastic_members import list_members
from tests.system.slurm.conftest import Site
from tests.system.slurm.groups import connect, start
from tests.waiting import WaitUntil

GROUP = """\
name: rl
execution: parallel
primary_tasks: [trainer]
termination_delay: {default: 0, rollout: 1s}
---
name: trainer
restart: RESTART
resources: {cpus: 1, memory: 50M}
run: |
  echo begun
  while :; do
    now="$(cat $OVERSPAN_MEMBERS_FILE) $(getent hosts rollout-0.rl rollout-1.rl rollout-2.rl | tr -s ' \\n' ' ')"
    [ "$now" = "$before" ] || echo "knows $now"
    before=$now
    sleep 0.2
  done
---
name: rollout
elastic: {min: 1, max: 3, scale_up_after: never}
resources: {cpus: 1, memory: 50M}
run: |
  getent hosts trainer-0.rl > /dev/null && echo "$OVERSPAN_HOST reaches $OVERSPAN_TRAINER_HOSTS"
  trap 'cat $OVERSPAN_RUN_DIR/notice; exit 0' TERM
  while :; do sleep 0.1; done
"""


@pytest.fixture
def remote(site: Site, tmp_path: Path, wait_until: WaitUntil) -> Iterator[Span]:
    span = connect(site, tmp_path, wait_until)
    yield span
    span.close()


def read_known(span: Span, group: int) -> tuple[int, set[str]]:
    """What the trainer read last: the generation, and the workers that run and whose names lead to their addresses."""
    lines = [line for line in span.log(group, "trainer").splitlines() if line.startswith("knows {")]
    if not lines:
        return -1, set()
    document, end = json.JSONDecoder().raw_decode(lines[-1].removeprefix("knows "))
    hosts = lines[-1].removeprefix("knows ")[end:].split()
    found = {
        member["name"]
        for member in document["members"]
        if member["task"] == "rollout" and member["state"] == "RUNNING" and member["name"] in hosts
        if hosts[hosts.index(member["name"]) - 1] == member["address"]
    }
    return document["generation"], found


def play(span: Span, text: str) -> None:
    """Grow, shrink and end a group, with a daemon that dies in between."""
    group = start(span, text)

    def knows(count: int) -> bool:
        return read_known(span, group)[1] == {f"rollout-{index}.rl" for index in range(count)}

    span.wait_until(lambda: knows(1), 60, "the trainer to know its first worker")
    span.run("scale", "rl", "rollout=3")
    span.kill_daemon()
    states = ["RUNNING", "RUNNING"]
    span.wait_until(
        lambda: [job["state"] for job in list_members(span, group).values()] == states, 60, "two more workers"
    )
    members = list_members(span, group)
    assert len({job["native_id"] for job in members.values()} | {span.job(group)["native_id"]}) == 3
    span.wait_until(lambda: knows(3), 10, "the trainer to know three workers")
    grown = read_known(span, group)[0]
    assert "rollout-2.rl reaches trainer-0.rl" in span.log(members["rollout-2"]["id"])

    span.run("scale", "rl", "rollout=2")
    left = span.until(members["rollout-2"]["id"], "COMPLETED", timeout=30)
    assert left["reason"] == "ScaledDown" and '"scaled_down"' in span.log(left["id"])
    # Between its two looks, at the list and at the names, both may change.
    span.wait_until(lambda: knows(2) and read_known(span, group)[0] > grown, 10, "the trainer to know two workers")
    assert span.task(group, "trainer")["restarts"] == 0
    assert span.log(group, "trainer").count("begun") == 1
    span.run("scancel", str(group))
    span.until(group, "CANCELLED", timeout=40)
    span.until(members["rollout-1"]["id"], "CANCELLED", timeout=40)


@pytest.mark.parametrize("restart", ["group", "task"], ids=["an allocation", "a set"])
def test_native_jobs_come_and_go_while_the_trainer_runs(remote: Span, restart: str) -> None:
    """JG41: an allocation cannot grow, and need not: what comes is a native job of its own."""
    play(remote, GROUP.replace("RESTART", restart))


def test_members_know_of_each_other_where_nodes_share_no_folder(unshared: Span) -> None:
    """JG41: lists and names travel over the channels."""
    play(unshared, GROUP.replace("RESTART", "group"))

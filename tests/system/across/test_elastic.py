"""Elastic tasks of one group over a real Slurm and a real Kubernetes: each side learns of members of the other."""

from __future__ import annotations

import json
import re

import pytest
from tests.system.across.conftest import Lab
from tests.system.elastic_members import list_members
from tests.system.slurm.gates import Gate

WATCH = """\
import json, os, socket, time
def resolve(name):
    try:
        return socket.gethostbyname(name)
    except OSError:
        return ""
known = ""
while not os.path.exists("GATE"):
    with open(os.environ["OVERSPAN_MEMBERS_FILE"]) as file:
        members = json.load(file)["members"]
    now = json.dumps({
        member["name"].partition(".")[0]: member["state"]
        for member in members if resolve(member["name"]) == member["address"] != ""
    })
    if now != known:
        print("knows", now, flush=True)
    known = now
    time.sleep(0.3)
"""
GROUP = """\
name: rl
execution: parallel
primary_tasks: [trainer]
termination_delay: {default: 0, rollout: 1s, actor: 1s}
---
name: trainer
cluster: leo
resources: {cpus: 1, memory: 50M}
run: |
  echo begun
  exec python3 -u -c '
  WATCH
  '
---
name: server
cluster: kube
resources: {cpus: 0.1, image_id: "docker:rig/python:1"}
run: |
  echo begun
  exec python3 -u -c '
  WATCH
  '
---
name: rollout
cluster: kube
elastic: {min: 1, max: 3, scale_up_after: never}
grace_period: 5
resources: {cpus: 0.1, image_id: "docker:rig/python:1"}
run: |
  echo "reaches $(python3 -c 'import socket; print(socket.gethostbyname("trainer-0.rl") != "")')"
  trap 'cat $OVERSPAN_RUN_DIR/notice; exit 0' TERM
  sleep 600 & wait
---
name: actor
cluster: leo
elastic: {min: 1, max: 3, scale_up_after: never}
num_nodes: 2
resources: {cpus: 1, memory: 50M}
run: |
  echo "reaches $(getent hosts server-0.rl | wc -l)"
  trap 'cat $OVERSPAN_RUN_DIR/notice; exit 0' TERM
  while :; do sleep 0.1; done
""".replace("WATCH", WATCH.replace("\n", "\n  "))


def read_known(lab: Lab, group: int, task: str) -> set[str]:
    """The members that run and whose names lead to their addresses, as a task saw it last."""
    lines = re.findall(r"^knows (\{.*)$", lab.log(group, task), re.MULTILINE)
    return {name for name, state in json.loads(lines[-1]).items() if state == "RUNNING"} if lines else set()


@pytest.mark.usefixtures("joined")
def test_members_come_and_go_on_both_clusters_while_the_trainer_runs(lab: Lab) -> None:
    """JG41, MX02: each further member is on its task's cluster, and both sides find it by its name within 10 s."""
    gate = Gate(lab.site)
    group = lab.submit(GROUP.replace("GATE", str(gate.path)))

    def knows(rollouts: int, actors: int) -> bool:
        names = {"trainer-0", "server-0", *(f"rollout-{index}" for index in range(rollouts))}
        wanted = names | {f"actor-{index}" for index in range(actors)}
        return all(read_known(lab, group, task) == wanted for task in ("trainer", "server"))

    lab.wait_until(lambda: knows(1, 2), 90, "both sides to know the members of the start")
    lab.run("scale", "rl", "rollout=3")
    lab.kill_daemon()
    lab.wait_until(
        lambda: [job["state"] for job in list_members(lab, group).values()] == ["RUNNING"] * 3, 60, "two more pods"
    )
    lab.wait_until(lambda: knows(3, 2), 10, "both sides to know three workers")
    members = list_members(lab, group)
    places = {name: job["cluster"] for name, job in members.items()}
    assert places == {"actor-1": "leo", "rollout-1": "kube", "rollout-2": "kube"}
    assert "reaches True" in lab.log(members["rollout-2"]["id"])
    assert "reaches 1" in lab.log(members["actor-1"]["id"])

    lab.run("scale", "rl", "rollout=2")
    lab.run("scale", "rl", "actor=1")
    for name in ("rollout-2", "actor-1"):
        left = lab.until(members[name]["id"], "COMPLETED", timeout=30)
        assert left["reason"] == "ScaledDown" and '"scaled_down"' in lab.log(left["id"])
    lab.wait_until(lambda: knows(2, 1), 10, "both sides to know who has left")
    lab.run("scale", "rl", "actor=2")
    lab.wait_until(lambda: knows(2, 2), 60, "both sides to know the one that came again")
    gate.open()
    lab.until(group, "COMPLETED", timeout=60)
    for task in ("trainer", "server"):
        assert lab.log(group, task).count("begun") == 1
        assert lab.task(group, task)["attempt"] == 0
    lab.wait_until(lambda: not list_members(lab, group), 60, "all members to end")
    lab.until_empty()

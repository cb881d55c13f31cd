"""Elastic tasks in pods: further members have names in their group's domain, and all know of each other. Row JG41."""

from __future__ import annotations

import json
from pathlib import Path

from tests.rigs.kube import KubeRig
from tests.system.elastic_members import list_members
from tests.system.kubernetes.conftest import KubeSpan

PYTHON = "rig/python:1"
WATCH = """\
import json, os, socket, time
def resolve(name):
    try:
        return socket.gethostbyname(name)
    except OSError:
        return ""
while not os.path.exists("/shared/done"):
    with open(os.environ["OVERSPAN_MEMBERS_FILE"]) as file:
        members = json.load(file)
    for member in members["members"]:
        member["resolved"] = resolve(member["name"])
    with open("/shared/members.new", "w") as file:
        json.dump(members, file)
    os.replace("/shared/members.new", "/shared/members")
    time.sleep(0.3)
"""
GROUP = """\
name: rl
execution: parallel
primary_tasks: [trainer]
termination_delay: {default: 0, rollout: 2s}
---
name: trainer
resources: {cpus: 0.1}
volumes: {/shared: scratch}
run: |
  echo begun >> /shared/trainer
  cat > /tmp/watch.py <<'END'
  %s
  END
  exec python3 /tmp/watch.py
---
name: rollout
elastic: {min: 1, max: 3, scale_up_after: never}
resources: {cpus: 0.1}
grace_period: 5
volumes: {/shared: scratch}
run: |
  echo "$OVERSPAN_HOST reaches $(python3 -c 'import socket; print(socket.gethostbyname("trainer-0.rl") != "")')"
  trap 'cp $OVERSPAN_RUN_DIR/notice /shared/$OVERSPAN_NODE_INDEX.left; exit 0' TERM
  sleep 600 & wait
""".replace("%s", WATCH.replace("\n", "\n  "))


def test_pods_come_and_go_while_the_trainer_runs(
    kube: KubeSpan, kube_rig: KubeRig, kube_namespace: str, tmp_path: Path
) -> None:
    """JG41: `span scale`, DNS names, the members file within 10 s, a daemon that dies, and the ends."""
    volume = tmp_path / "volume"
    volume.mkdir()
    volume.chmod(0o777)
    kube.connect(kube_rig, kube_namespace, image=PYTHON, volumes={"scratch": {"hostPath": {"path": str(volume)}}})
    group = kube.submit(GROUP)

    def knows(*names: str) -> bool:
        if not (volume / "members").exists():
            return False
        members = json.loads((volume / "members").read_text())["members"]
        running = [member for member in members if member["state"] == "RUNNING"]
        reached = all(member["resolved"] == member["address"] != "" for member in running)
        return {member["name"] for member in running} == {"trainer-0.rl", *names} and reached

    kube.wait_until(lambda: knows("rollout-0.rl"), 60, "the trainer to know its first worker")
    kube.run("scale", "rl", "rollout=3")
    kube.kill_daemon()
    kube.wait_until(
        lambda: [job["state"] for job in list_members(kube, group).values()] == ["RUNNING"] * 2, 60, "two more workers"
    )
    kube.wait_until(lambda: knows(*(f"rollout-{index}.rl" for index in range(3))), 10, "the trainer to know three")
    members = list_members(kube, group)
    assert "rollout-2.rl reaches True" in kube.log(members["rollout-2"]["id"])

    kube.run("scale", "rl", "rollout=2")
    kube.until(members["rollout-2"]["id"], "COMPLETED", timeout=30)
    assert json.loads((volume / "2.left").read_text())["kind"] == "scaled_down"
    kube.wait_until(lambda: knows("rollout-0.rl", "rollout-1.rl"), 10, "the trainer to know two")
    (volume / "done").touch()
    kube.until(group, "COMPLETED", timeout=60)
    kube.until(members["rollout-1"]["id"], "COMPLETED", timeout=30)
    assert (volume / "trainer").read_text() == "begun\n"
    kube.until_empty(60)

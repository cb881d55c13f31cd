"""JG41: elastic tasks on this machine: members come and go, all know of each other, and the trainer never notices."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from tests.system.elastic_members import await_members, list_members
from tests.system.scaling_trainers import scale_from_inside

Span = Any

GROUP = """
name: rl
execution: parallel
primary_tasks: [trainer]
termination_delay: {{default: 0, rollout: 1s}}
---
name: trainer
resources: {{cpus: 1}}
run: |
  echo $$ >> {folder}/trainer
  until [ -e {folder}/done ]; do
    cp $OVERSPAN_MEMBERS_FILE {folder}/members.new && mv {folder}/members.new {folder}/members
    getent hosts rollout-{{1,2,3}}.rl > {folder}/names.new; mv {folder}/names.new {folder}/names
    sleep 0.2
  done
---
name: rollout
elastic: {{min: 1, max: 4, scale_up_after: {room}}}
{size}resources: {{cpus: 1}}
run: |
  getent hosts trainer-0.rl rollout-0.rl > {folder}/$OVERSPAN_NODE_INDEX.peers
  echo "index $OVERSPAN_NODE_INDEX of $OVERSPAN_GROUP at $OVERSPAN_HOST for $OVERSPAN_TRAINER_HOSTS"
  trap 'cat $OVERSPAN_RUN_DIR/notice >> {folder}/$OVERSPAN_NODE_INDEX.left; exit 0' TERM
  sleep 600 & wait
"""


def submit(span: Span, folder: Path, room: str = "never", size: str = "") -> int:
    """Start the group, and wait until its trainer runs."""
    group: int = span.submit(GROUP.format(folder=folder, room=room, size=size))
    span.until(group, "RUNNING", task="rollout")
    span.wait_until((folder / "members").exists, 20, "the trainer's members file")
    return group


def list_printed(span: Span, group: int) -> list[str]:
    """Whose lines `span logs` of a group has, sorted."""
    return sorted(line.split()[0] for line in span.log(group).splitlines() if "index" in line)


def read_members(folder: Path) -> tuple[int, dict[str, str]]:
    """What the trainer reads: the generation, and the state of each member."""
    document = json.loads((folder / "members").read_text())
    return document["generation"], {member["name"]: member["state"] for member in document["members"]}


def await_known(span: Span, folder: Path, *names: str) -> int:
    """Wait until the trainer knows just these rollout members as running, and their names resolve; the generation."""

    def look() -> bool:
        running = {name for name, state in read_members(folder)[1].items() if state == "RUNNING"}
        resolved = (folder / "names").read_text().split()
        return running == {"trainer-0.rl", *names} and all(name in resolved for name in names if name != "rollout-0.rl")

    span.wait_until(look, 10, "the trainer to know its rollout workers")
    return read_members(folder)[0]


def test_members_come_and_go_while_the_trainer_runs(span: Span, tmp_path: Path) -> None:
    """JG41: `span scale`, names and the members file, the notice before an end, indices that are given again."""
    group = submit(span, tmp_path)
    said = span.run("scale", "rl", "rollout=3").stderr
    assert "rollout is to have 3 members" in said
    before = await_members(span, group, "rollout-1", "rollout-2")
    first = await_known(span, tmp_path, "rollout-0.rl", "rollout-1.rl", "rollout-2.rl")
    assert span.log(before["rollout-2"]["id"]).startswith("index 2 of rl at rollout-2.rl for trainer-0.rl")
    assert list_printed(span, group) == ["rollout-0", "rollout-1", "rollout-2"]
    assert span.log(group, "rollout", "--node", "2").startswith("index 2 of rl")
    assert (tmp_path / "2.peers").read_text().split()[1::3] == ["trainer-0.rl", "rollout-0.rl"]

    span.run("scale", str(group), "rollout=2")
    await_members(span, group, "rollout-1")
    assert await_known(span, tmp_path, "rollout-0.rl", "rollout-1.rl") > first
    notice = json.loads((tmp_path / "2.left").read_text())
    left = span.job(before["rollout-2"]["id"])
    assert notice["kind"] == "scaled_down" and 0 < notice["deadline"] - notice["at"] <= 1
    assert (left["state"], left["reason"]) == ("COMPLETED", "ScaledDown")

    # Somebody ends one by hand: it stays away until somebody asks for it, and its number is given again.
    span.run("scancel", str(before["rollout-1"]["id"]))
    await_members(span, group)
    span.run("scale", "rl", "rollout=3")
    after = await_members(span, group, "rollout-1", "rollout-2")
    assert after["rollout-1"]["id"] > before["rollout-2"]["id"]

    (tmp_path / "done").touch()
    assert span.until(group, "COMPLETED")
    for member in after.values():
        ended = span.until(member["id"], "COMPLETED")
        assert ended["reason"] == "PrimariesDone"
    assert json.loads((tmp_path / "1.left").read_text())["kind"] == "primaries_done"
    assert len((tmp_path / "trainer").read_text().split()) == 1
    # What was written is read after the end too, of each that was there.
    assert list_printed(span, group) == ["rollout-0", "rollout-1", "rollout-1", "rollout-2", "rollout-2"]


def test_a_killed_daemon_neither_doubles_nor_loses_members(span: Span, tmp_path: Path) -> None:
    """JG41: what was wanted is wanted by the next daemon, and what ended by itself stays away."""
    group = submit(span, tmp_path)
    span.run("scale", "rl", "rollout=3")
    span.kill_daemon()
    members = await_members(span, group, "rollout-1", "rollout-2")
    span.run("scancel", str(members["rollout-1"]["id"]))
    await_members(span, group, "rollout-2")
    span.kill_daemon()
    span.run("scale", "rl", "rollout=4")
    found = await_members(span, group, "rollout-1", "rollout-2", "rollout-3")
    assert found["rollout-2"]["id"] == members["rollout-2"]["id"]
    await_known(span, tmp_path, *(f"rollout-{index}.rl" for index in range(4)))
    span.run("scancel", str(group))
    for member in found.values():
        span.until(member["id"], "CANCELLED")
    assert len((tmp_path / "trainer").read_text().split()) == 1


def test_a_group_starts_with_what_it_needs_and_grows_with_the_room(span: Span, tmp_path: Path) -> None:
    """JG41: `min` is needed, `num_nodes` wanted, more comes with room, and goes back to jobs that wait."""
    span.config.write_text("clusters:\n  local: {kind: local, cpus: 4, memory: 8G}\n")
    other = span.wrap("sleep 600", "-c", "2")
    span.until(other, "RUNNING")
    group = submit(span, tmp_path, room="1s", size="num_nodes: 2\n")

    # There is room for the trainer and one worker. The second one that is wanted waits its turn.
    def list_reasons() -> list[str]:
        return [job["reason"] for job in list_members(span, group).values()]

    span.wait_until(lambda: list_reasons() == ["Resources"], 10, "the second worker to wait for its CPU")
    span.run("scancel", str(other))
    await_members(span, group, "rollout-1", "rollout-2", timeout=30)

    # The third was not asked for: it goes when somebody else needs its CPU; the others stay.
    other = span.wrap("sleep 600", "-c", "1")
    span.until(other, "RUNNING", timeout=40)
    await_members(span, group, "rollout-1")
    time.sleep(1)
    assert len(list_members(span, group)) == 1
    assert len((tmp_path / "trainer").read_text().split()) == 1


def test_what_cannot_be_scaled_is_told(span: Span, tmp_path: Path) -> None:
    """JG41: wrong sizes and tasks are refused with what is possible."""
    group = submit(span, tmp_path)
    wrong = {
        "rollout=9": "rollout has 1 to 4 members, and 9 is asked for",
        "trainer=2": "trainer is not elastic",
        "server=2": "has no task 'server'",
        "rollout": "is no TASK=N",
    }
    for word, text in wrong.items():
        refused = span.run("scale", "rl", word, check=False)
        assert refused.returncode != 0 and text in refused.stderr, (word, refused.stderr)
    span.run("scancel", str(group))
    span.until(group, "CANCELLED")
    refused = span.run("scale", str(group), "rollout=2", check=False)
    assert refused.returncode != 0 and "CANCELLED" in refused.stderr


def test_a_trainer_has_its_own_group_grow(span: Span) -> None:
    """JG41: `span scale` inside a task, by the user's socket."""
    scale_from_inside(span, confined=False)

"""Elastic tasks on a real Slurm follow the room there is, without an order, and give it back on demand. Row JG41."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from tests.system.elastic_members import await_members, list_members
from tests.system.slurm.conftest import Site
from tests.system.slurm.fillers import fill
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
  while :; do sleep 0.2; done
---
name: rollout
elastic: {min: 1, max: 3, scale_up_after: 2s}
resources: {cpus: 1, memory: 50M}
run: |
  trap 'cat $OVERSPAN_RUN_DIR/notice; exit 0' TERM
  while :; do sleep 0.1; done
"""
OTHER = "name: other\nresources: {cpus: 1, memory: 50M}\nrun: sleep 600\n"


@pytest.mark.parametrize("restart", ["group", "task"], ids=["an allocation", "a set"])
def test_members_come_with_room_and_go_when_a_job_waits(
    site: Site, tmp_path: Path, wait_until: WaitUntil, restart: str
) -> None:
    """JG41: none without room; up to `max` with it; the last one makes way for a job that waits, and comes again."""
    span = connect(site, tmp_path, wait_until)
    try:
        with fill(site, wait_until, "-w", "node[2-3]", "-N2", "--exclusive"):
            with fill(site, wait_until, "-w", "node1", "-c2", "--mem=50"):
                group = start(span, GROUP.replace("RESTART", restart))
                span.until(group, "RUNNING", task="rollout", timeout=60)
                # Several looks at the nodes find none for a member.
                time.sleep(12)
                assert list_members(span, group) == {}
            await_members(span, group, "rollout-1", "rollout-2", timeout=60)
            span.kill_daemon()

            # Nothing is free, and both members came without an order: the last one makes way for a job that waits.
            ids = {name: job["id"] for name, job in list_members(span, group).items()}
            other = start(span, OTHER)
            span.until(other, "RUNNING", timeout=60)
            left = span.until(ids["rollout-2"], "COMPLETED", timeout=30)
            assert left["reason"] == "ScaledDown" and '"scaled_down"' in span.log(left["id"])
            await_members(span, group, "rollout-1", timeout=60)
            assert list_members(span, group)["rollout-1"]["id"] == ids["rollout-1"]

            span.run("scancel", str(other))
            await_members(span, group, "rollout-1", "rollout-2", timeout=60)
        assert span.task(group, "trainer")["restarts"] == 0
        assert span.log(group, "trainer").count("begun") == 1
        span.run("scancel", str(group))
        span.until(group, "CANCELLED", timeout=40)
        span.wait_until(lambda: not list_members(span, group), 40, "the members to end")
    finally:
        span.close()

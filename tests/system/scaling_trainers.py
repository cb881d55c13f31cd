"""A trainer that asks for more rollout workers itself, wherever it runs."""

from __future__ import annotations

import re

from tests.system.conftest import Span

_GROUP = """\
name: {name}
execution: parallel
primary_tasks: [trainer]
---
name: trainer
resources: {{cpus: 0.1, memory: 0.05}}
run: |
  exec 2>&1
  {run}
---
name: rollout
elastic: {{min: 1, max: 3, scale_up_after: never}}
grace_period: 5
resources: {{cpus: 0.1, memory: 0.05}}
run: |
  trap 'exit 0' TERM
  sleep 600 & wait
"""
_ASK = """\
until span scale {name} rollout=2; do sleep 0.5; done
  until [ "$(grep -o '"rollout"[^}}]*RUNNING' $OVERSPAN_MEMBERS_FILE | wc -l)" = 2 ]; do sleep 0.2; done
  echo grown
  span scale "$OVERSPAN_JOB_ID" rollout=9; echo code $?
  span scale {other} rollout=2; echo code $?"""


def scale_from_inside(span: Span, *, confined: bool = True) -> None:
    """A trainer has its own group grow, within its bounds; `confined` where it may do so to no other group."""
    other = span.submit(_GROUP.format(name="others", run="sleep 600"))
    span.until(other, "RUNNING", timeout=60)
    job = span.submit(_GROUP.format(name="grows", run=_ASK.format(name="grows", other=other)))
    span.until(job, "COMPLETED", "FAILED", timeout=120)
    _, grown, told = span.log(job, "trainer").partition("grown\n")
    assert grown, span.log(job, "trainer")
    beyond, other_group = re.findall(r"(.*?)code (\d+)\n", told, re.DOTALL)
    assert "rollout has 1 to 3 members, and 9 is asked for" in beyond[0] and beyond[1] == "2", told
    assert ("denied" in other_group[0], other_group[1] != "0") == (confined, confined), told
    sizes = {each: len(span.job(each)["joined"]) for each in (job, other)}
    assert sizes == {job: 1, other: 0 if confined else 1}
    assert span.task(job, "trainer")["restarts"] == 0
    span.run("scancel", str(other))
    span.until(other, "CANCELLED", timeout=40)

"""A group over two clusters whose daemon is killed anywhere: nothing runs twice, is lost or stays behind."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.examples import count_examples
from tests.unit.controller.across_stories import AcrossStory
from tests.unit.controller.decisions import SPECS

from overspan.bridge.model.spec import Backoff, JobSpec, Need, NeedKind, OnFailure, RestartScope, RetryPolicy, TaskSpec

GROUPS = SPECS.filter(lambda spec: len(spec.tasks) > 1)


@settings(max_examples=count_examples(40), deadline=None)
@given(GROUPS, st.integers(0, 2**32))
def test_a_group_across_lives_through_anything(spec: JobSpec, seed: int) -> None:
    AcrossStory(spec, seed).run()


NEVER = RetryPolicy(0, (), 0, 0, Backoff(first=0.0))
PART_LOST = JobSpec(
    "g",
    (
        TaskSpec("a", run="true", primary=False, termination_delay=0, on_failure=OnFailure.IGNORE, retry=NEVER),
        TaskSpec(
            "b",
            run="true",
            termination_delay=0,
            grace_period=0,
            on_failure=OnFailure.IGNORE,
            retry=NEVER,
            needs=(Need("a", NeedKind.STARTED),),
        ),
        TaskSpec(
            "c",
            run="true",
            primary=False,
            termination_delay=0,
            grace_period=0,
            time=20,
            on_failure=OnFailure.IGNORE,
            retry=replace(NEVER, max_recoveries=1, max_restarts=1),
        ),
    ),
    group=True,
    restart=RestartScope.GROUP,
)
"""With the seed below: somebody takes the part of one cluster away while the other's is being ended."""


@settings(max_examples=count_examples(20), deadline=None)
@given(GROUPS, st.integers(0, 2**32))
@example(PART_LOST, 1144266)
def test_a_cancel_ends_both_sides(spec: JobSpec, seed: int) -> None:
    AcrossStory(spec, seed, cancelled=True).run()

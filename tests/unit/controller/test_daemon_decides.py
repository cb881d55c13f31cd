"""Where the daemon decides: pods that go on without it, daemons that are killed anywhere, and people."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import count_examples
from tests.unit.controller.decisions import SPECS, Story

from overspan.bridge.model.spec import (
    JobSpec,
)


@settings(max_examples=count_examples(50), deadline=None)
@given(SPECS, st.integers(0, 2**32))
def test_a_job_lives_through_anything(spec: JobSpec, seed: int) -> None:
    Story(spec, seed).run()


@settings(max_examples=count_examples(20), deadline=None)
@given(SPECS, st.integers(0, 2**32))
def test_a_cancel_ends_a_job_on_a_cluster_that_starts_nothing_more(spec: JobSpec, seed: int) -> None:
    Story(spec, seed, cancelled=True).run()

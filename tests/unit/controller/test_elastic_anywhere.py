"""A group across with a part on this machine and an elastic task, whose daemon is killed anywhere.

Nothing runs twice, is lost or stays behind: neither a task of the group nor a further member.
"""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import count_examples
from tests.unit.controller.member_stories import ELASTIC_GROUPS, MemberStory

from overspan.bridge.model.spec import JobSpec


@settings(max_examples=count_examples(10), deadline=None)
@given(ELASTIC_GROUPS, st.integers(0, 2**32))
def test_members_of_a_group_live_through_anything(spec: JobSpec, seed: int) -> None:
    MemberStory(spec, seed).run()


@settings(max_examples=count_examples(5), deadline=None)
@given(ELASTIC_GROUPS, st.integers(0, 2**32))
def test_a_cancel_ends_a_group_with_all_its_members(spec: JobSpec, seed: int) -> None:
    MemberStory(spec, seed, cancelled=True).run()

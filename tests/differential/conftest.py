"""Both sides of the comparison, each played once for all tests."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from tests.differential.suite import ONE_NODE, Answers, all_cases, play_slurm, play_span
from tests.rigs.plugin import rig_or_skip
from tests.system.conftest import Span

if TYPE_CHECKING:
    from tests.waiting import WaitUntil


@pytest.fixture(scope="session")
def span_answers(tmp_path_factory: pytest.TempPathFactory, wait_until: WaitUntil) -> Iterator[Answers]:
    """What Overspan's local cluster answers to the corpus."""
    span = Span(tmp_path_factory.mktemp("differential"), wait_until)
    try:
        yield play_span(span, all_cases())
    finally:
        span.close()


@pytest.fixture(scope="session")
def slurm_answers() -> Iterator[Answers]:
    """What a real Slurm answers to the corpus."""
    with rig_or_skip(ONE_NODE) as rig:
        yield play_slurm(rig, all_cases())

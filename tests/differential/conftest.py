"""Both sides of the comparison, each played once for all tests."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.differential.case import Case
from tests.differential.comparison import compare, read_entries, read_rules, unexplained
from tests.differential.suite import ONE_NODE, Answers, all_cases, play_slurm, play_span, read_golden
from tests.rigs.plugin import rig_or_skip
from tests.system.conftest import Span

if TYPE_CHECKING:
    from tests.waiting import WaitUntil


_AGAIN = 3


@pytest.fixture(scope="module")
def span_answers(wait_until: WaitUntil) -> Iterator[Answers]:
    """What Overspan's local cluster answers to the corpus."""
    # A short path, as the corpus has columns of some width that show it.
    with tempfile.TemporaryDirectory(prefix="span-") as folder:
        span = Span(Path(folder), wait_until)
        try:
            yield _settle(_unexplained, lambda cases: play_span(span, cases))
        finally:
            span.close()


@pytest.fixture(scope="module")
def slurm_answers() -> Iterator[Answers]:
    """What a real Slurm answers to the corpus."""
    with rig_or_skip(ONE_NODE) as rig:
        yield _settle(_drifted, lambda cases: play_slurm(rig, cases, 1))


def _settle(find: Callable[[Answers], set[str]], play: Callable[[Iterable[Case]], Answers]) -> Answers:
    """Play all cases, and those again, by themselves, that had another answer than expected.

    Cases run side by side; what one sees of another's jobs, of a scheduler that is at work, or of accounts that are
    still being written, is no difference.
    """
    answers = play(all_cases())
    for _ in range(_AGAIN):
        names = find(answers)
        if not names:
            break
        answers = {**answers, **play([case for case in all_cases() if case.name in names])}
    return answers


def _drifted(answers: Answers) -> set[str]:
    return {name for name, document in read_golden().items() if compare(document, answers[name])}


def _unexplained(answers: Answers) -> set[str]:
    accepted, pending = read_entries()
    rules = read_rules()
    differences = [
        found for name, document in read_golden().items() for found in compare(document, answers[name], rules)
    ]
    return {found.case for found in unexplained(differences, [*accepted, *pending])}

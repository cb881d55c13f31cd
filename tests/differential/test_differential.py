"""The same commands on real Slurm and on Overspan's local cluster: every difference is known and has a reason."""

from __future__ import annotations

import json
from typing import Any, ClassVar

import pytest
from tests.differential.comparison import (
    Entry,
    compare,
    normalise,
    read_entries,
    read_rules,
    render,
    stale,
    unexplained,
)
from tests.differential.suite import Answers, all_cases, read_golden

# The whole corpus is played for the first test that asks for it.
pytestmark = pytest.mark.timeout(3600)
VERBS = sorted({case.verb for case in all_cases()})


def test_every_case_is_recorded_as_it_is_written() -> None:
    """Else: `python -m tests.differential.record`."""
    golden = read_golden()
    written = {case.name: case.to_document() for case in all_cases()}
    assert sorted(golden) == sorted(written)
    for name, document in written.items():
        assert json.loads(json.dumps(document["steps"])) == golden[name]["steps"], name
        assert document["files"] == golden[name]["files"], name
        assert document["unordered"] == golden[name]["unordered"], name


@pytest.mark.parametrize("verb", VERBS)
def test_overspan_answers_as_slurm(verb: str, span_answers: Answers) -> None:
    golden = read_golden()
    cases = [case.name for case in all_cases() if case.verb == verb]
    rules = read_rules()
    differences = [found for name in cases for found in compare(golden[name], span_answers[name], rules)]
    accepted, pending = read_entries()
    mine = [entry for entry in (*accepted, *pending) if entry.case.partition("/")[0] == verb]
    new, old = unexplained(differences, mine), stale(differences, mine)
    assert not new, f"{len(new)} differences that are not in accepted.yaml:\n{render(new)}"
    assert not old, "these do not differ any more, take them out of accepted.yaml:\n" + "\n".join(old)


def test_slurm_still_answers_as_recorded(slurm_answers: Answers) -> None:
    golden = read_golden()
    differences = [found for name in golden for found in compare(golden[name], slurm_answers[name])]
    assert not differences, f"{len(differences)} answers of Slurm are not as recorded:\n{render(differences)}"


def test_every_accepted_line_occurs(span_answers: Answers) -> None:
    texts = [step["stderr"] for steps in span_answers.values() for step in steps]
    unused = [rule.line for rule in read_rules() if all(rule.strip(text) == text for text in texts)]
    assert not unused, f"Overspan does not write such lines any more: {unused}"


def test_every_entry_has_a_case_and_a_reason() -> None:
    accepted, pending = read_entries()
    names = [case.name for case in all_cases()]
    for entry in (*accepted, *pending):
        known = entry.case in names or (
            entry.case.endswith("*") and any(name.startswith(entry.case[:-1]) for name in names)
        )
        assert known, f"accepted.yaml speaks of {entry.case}, which is no case"
    reasons = [entry.why for entry in accepted] + [rule.why for rule in read_rules()]
    assert all(len(reason) > 10 for reason in reasons)


class TestComparison:
    DOCUMENT: ClassVar[dict[str, Any]] = {
        "name": "squeue/x",
        "unordered": False,
        "steps": [{"argv": ["squeue"]}],
        "answers": [{"rc": 1, "stdout": "", "stderr": "a\n"}],
    }

    def test_the_same_is_no_difference(self) -> None:
        assert compare(self.DOCUMENT, [{"rc": 1, "stdout": "", "stderr": "a\n"}]) == []

    def test_a_code_and_a_text_differ(self) -> None:
        found = compare(self.DOCUMENT, [{"rc": 0, "stdout": "", "stderr": "b\n"}])
        assert [one.field for one in found] == ["rc", "stderr"]

    def test_entries_cover_their_fields_only(self) -> None:
        found = compare(self.DOCUMENT, [{"rc": 0, "stdout": "", "stderr": "b\n"}])
        entry = Entry("squeue/*", ("stderr",), "")
        assert [one.field for one in unexplained(found, [entry])] == ["rc"]
        assert stale(found, [entry, Entry("squeue/x", ("stdout",), "")]) == ["squeue/x (stdout)"]

    def test_times_are_taken_out_but_for_those_of_the_corpus(self) -> None:
        assert normalise("2026-01-02T03:04:05 2031-05-06T07:08:09") == "TIME 2031-05-06T07:08:09"

"""Which atoms may be written at once, and what a job's documents leave out."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

from overspan.bridge.model.job import Job
from overspan.bridge.store.records import Change, NewJob, OutboxRow
from overspan.bridge.store.rows import RowBatch, alteration, clean, insertion, merge, outbox_values

MakeJob = Callable[..., Job]

CALL = outbox_values(OutboxRow("1.0", 1, "local", "submit", {}, 1.0))
DONE = {"key": "1.0"}


def test_merging_keeps_order_within_a_table() -> None:
    other = {"key": "2.0"}
    whole = merge(
        [RowBatch(timeline=[{"seq": 1}], outbox_add=[CALL]), RowBatch(timeline=[{"seq": 2}], outbox_done=[other])]
    )
    assert whole == RowBatch(timeline=[{"seq": 1}, {"seq": 2}], outbox_add=[CALL], outbox_done=[other])


def test_atoms_whose_order_matters_are_not_merged() -> None:
    assert merge([RowBatch(outbox_add=[CALL]), RowBatch(outbox_done=[DONE])]) is None


def test_atoms_of_other_tokens_are_merged() -> None:
    assert merge([RowBatch(outbox_add=[CALL]), RowBatch(outbox_done=[{"key": "2.0"}])]) is not None


def test_spec_is_written_once_and_apart(make_job: MakeJob, start_of: Callable[[Job], NewJob]) -> None:
    job = make_job(1)
    atom = insertion([start_of(job)])
    assert "python train.py" in atom.specs[0]["document"]
    facts = json.loads(atom.jobs[0]["facts"])
    assert not {"spec", "id", "version"} & facts.keys()
    changed = alteration(Change(replace(job, version=1), 0))
    assert "python train.py" not in json.dumps(changed.updates)
    assert changed.specs == []


def test_clean_replaces_what_utf8_cannot_hold() -> None:
    assert clean("plain ä \udcff") == "plain ä ?"

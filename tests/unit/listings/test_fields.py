"""All fields: one name for each thing in each listing, and no field that needs more than it says."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from tests.unit.cli.recorded_jobs import JOBS, LATE

from overspan.bridge.cli.tables.sacct_lines import AccountLine
from overspan.bridge.listings.constant_fields import ACCOUNT_DOCUMENT, DOCUMENT
from overspan.bridge.listings.field import Field
from overspan.bridge.listings.fields import SORTED, account_documents, all_fields, job_documents
from overspan.bridge.listings.rows import COLUMNS, EXTENTS, JobRow

ALL = all_fields()
ROWS = (
    *JOBS,
    JobRow(id=44, task_offset=1, raw_id=45, state="SUSPENDED", tasks=2, started_at=LATE - 9, paused_at=LATE - 2),
    JobRow(id=9, raw_id=9, array_id=9, array_waiting="3-9%2", reason="Dependency", begin=LATE + 9),
    JobRow(id=13, raw_id=13, reason="JobHeldUser", expected_start=LATE + 3, node_list="n[1-2]", time_limit=60),
)


class _SpiedRow:
    """A row that notes which of its columns are read."""

    ref = vars(JobRow)["ref"]

    def __init__(self, row: JobRow) -> None:
        self.row = row
        self.read: set[str] = set()

    def __getattr__(self, name: str) -> Any:
        assert name in COLUMNS
        self.read.add(name)
        return getattr(self.row, name)


def _needs(look: Callable[[Any, float], Any]) -> set[str]:
    """The columns that a function reads of some row."""
    found: set[str] = set()
    for row in ROWS:
        spied = _SpiedRow(row)
        look(spied, LATE + 60)
        found |= spied.read
    return found


def _twice(names: Iterable[str]) -> list[str]:
    return [name for name, count in Counter(names).items() if count > 1]


def test_each_name_is_that_of_one_field() -> None:
    assert not _twice(field.name for field in ALL)
    assert not _twice(field.letter for field in ALL if field.letter)
    assert not _twice(name.lower() for field in ALL for name in field.long_names)
    assert not _twice(field.sacct.lower() for field in ALL if field.sacct)
    assert not _twice([field.json for field in ALL if field.json] + list(DOCUMENT))
    assert not _twice([field.sacct_json for field in ALL if field.sacct_json] + list(ACCOUNT_DOCUMENT))


@pytest.mark.parametrize("field", ALL, ids=lambda field: field.name)
def test_a_field_reads_no_more_of_a_row_than_its_extent(field: Field) -> None:
    columns = set(EXTENTS[field.extent])
    assert _needs(field.text) <= columns
    if field.letter in SORTED and field.sort is not None:
        assert _needs(field.sort) <= columns


@pytest.mark.parametrize(
    "field", [field for field in ALL if field.json or field.sacct_json], ids=lambda field: field.name
)
def test_what_a_document_names_has_a_value(field: Field) -> None:
    assert field.value is not None or (not field.json and field.sacct_value is not None)


def test_documents_have_every_name() -> None:
    (job,) = job_documents([ROWS[0]], LATE)
    assert set(job) == {field.json for field in ALL if field.json} | set(DOCUMENT)
    (account,) = account_documents([AccountLine(ROWS[0])], LATE)
    assert set(account) == {field.sacct_json for field in ALL if field.sacct_json} | set(ACCOUNT_DOCUMENT)

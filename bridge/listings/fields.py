"""All fields: what listings show of a job, and by which names squeue, sacct and Slurm's JSON find it.

A new column is a value of `JobRow`, which the daemon fills (`controller/core/rows.py`), and a `Field` here.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from overspan.bridge.listings.field import Field, LineText, LineValue
from overspan.bridge.listings.job_fields import IDS, STANDING
from overspan.bridge.listings.layout import Column
from overspan.bridge.listings.resource_fields import AMOUNTS, CONSTANTS, FILES, PLACES
from overspan.bridge.listings.rows import JobRow
from overspan.bridge.listings.time_fields import TIMES
from overspan.bridge.listings.values import Document

DEFAULT_FORMAT = "%.18i %.9P %.8j %.8u %.2t %.10M %.6D %R"
LONG_FORMAT = "%.18i %.9P %.8j %.8u %.8T %.10M %.9l %.6D %R"
START_FORMAT = "%.18i %.9P %.8j %.8u %.2t %.19S %.6D %20Y %R"

FIELDS: dict[str, Field] = {
    field.name: field for field in (*IDS, *STANDING, *TIMES, *AMOUNTS, *PLACES, *FILES, *CONSTANTS)
}
"""The fields by name: those that differ from job to job, and those with a letter."""


def all_fields() -> list[Field]:
    """These, and what never differs here."""
    from overspan.bridge.listings.constant_fields import NAMED, UNNAMED

    return [*FIELDS.values(), *NAMED, *UNNAMED]


def _by_letter(field: Field) -> tuple[str, bool]:
    """As squeue's %all has them: a, A, b, B."""
    return field.letter.lower(), field.letter.isupper()


def queue_column(field: Field) -> Column:
    """The field in a table of squeue."""
    return Column(field.header, field.width, field.text, field.cut, field.cut_header, field.extent)


def account_column(field: Field) -> Column:
    """The field in a table of sacct; its rows are the lines of jobs and steps."""
    return Column(field.sacct, field.sacct_width, field.sacct_text or _of_job(field))


def _of_job(field: Field) -> LineText:
    text = field.text
    return lambda line, now: "" if line.step else text(line.row, now)


LETTERS: dict[str, Column] = {
    field.letter: queue_column(field) for field in sorted(FIELDS.values(), key=_by_letter) if field.letter
}
"""The columns of squeue -o."""
SORTED: dict[str, Field] = {field.letter: field for field in FIELDS.values() if field.letter and field.sort}
"""What squeue -S sorts by."""


def long_names() -> dict[str, Column]:
    """The columns of squeue -O."""
    return {name: queue_column(field) for field in all_fields() for name in field.long_names}


def account_columns() -> dict[str, Column]:
    """The columns of sacct, as its --helpformat sorts them."""
    named = sorted((field for field in all_fields() if field.sacct), key=_by_account)
    return {field.sacct: account_column(field) for field in named}


def _by_account(field: Field) -> str:
    """By name, except for a field that Slurm lists elsewhere."""
    return "comments" if field.sacct == "Constraints" else field.sacct.lower()


def job_documents(rows: Iterable[JobRow], now: float) -> list[Document]:
    """Jobs, elements, tasks of groups, or the pending rest of an array, as squeue and scontrol have them."""
    from overspan.bridge.listings.constant_fields import DOCUMENT

    named = [(field.json, field.value) for field in all_fields() if field.json and field.value]
    found = ({**DOCUMENT, **{name: value(row, now) for name, value in named}} for row in rows)
    return [dict(sorted(document.items())) for document in found]


def account_documents(lines: Iterable[Any], now: float) -> list[Document]:
    """The same as sacct has them, of lines (`AccountLine`) without their steps."""
    from overspan.bridge.listings.constant_fields import ACCOUNT_DOCUMENT

    named = [(field.sacct_json, _line_value(field)) for field in all_fields() if field.sacct_json]
    found = ({**ACCOUNT_DOCUMENT, **{name: value(line, now) for name, value in named}} for line in lines)
    return [dict(sorted(document.items())) for document in found]


def _line_value(field: Field) -> LineValue:
    value = field.value
    if field.sacct_value is not None or value is None:
        return field.sacct_value or (lambda line, now: None)
    return lambda line, now: value(line.row, now)

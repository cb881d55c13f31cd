"""The registry of fields: all that listings show of a job, and where squeue, sacct and Slurm's JSON find it.

A new column is a value of `JobRow`, which the daemon fills (`controller/views/rows.py`), and a `Field` here.
"""

from __future__ import annotations

from typing import Any

from overspan.bridge.listings.constant_fields import ACCOUNT_DOCUMENT, DOCUMENT, NAMED, UNNAMED
from overspan.bridge.listings.field import Field, LineText
from overspan.bridge.listings.job_fields import IDS, STANDING
from overspan.bridge.listings.layout import Column
from overspan.bridge.listings.resource_fields import AMOUNTS, FILES, PLACES
from overspan.bridge.listings.rows import JobRow
from overspan.bridge.listings.time_fields import TIMES
from overspan.bridge.listings.values import Document

DEFAULT_FORMAT = "%.18i %.9P %.8j %.8u %.2t %.10M %.6D %R"
LONG_FORMAT = "%.18i %.9P %.8j %.8u %.8T %.10M %.9l %.6D %R"
START_FORMAT = "%.18i %.9P %.8j %.8u %.2t %.19S %.6D %20Y %R"

FIELDS: dict[str, Field] = {
    field.name: field for field in (*IDS, *STANDING, *TIMES, *AMOUNTS, *PLACES, *FILES, *NAMED, *UNNAMED)
}
"""All fields by name."""


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
    return {name: queue_column(field) for field in FIELDS.values() for name in field.long_names}


def account_columns() -> dict[str, Column]:
    """The columns of sacct, as its --helpformat sorts them."""
    named = sorted((field for field in FIELDS.values() if field.sacct), key=_by_account)
    return {field.sacct: account_column(field) for field in named}


def _by_account(field: Field) -> str:
    """By name, except for a field that Slurm lists elsewhere."""
    return "comments" if field.sacct == "Constraints" else field.sacct.lower()


def job_document(row: JobRow, now: float) -> Document:
    """One job, element, task of a group, or the pending rest of an array, as squeue and scontrol have it."""
    found: Document = dict(DOCUMENT)
    for field in FIELDS.values():
        if field.json and field.value:
            found[field.json] = field.value(row, now)
    return dict(sorted(found.items()))


def account_document(line: Any, now: float) -> Document:
    """The same as sacct has it, of a line (`AccountLine`) without its steps."""
    found: Document = dict(ACCOUNT_DOCUMENT)
    for field in FIELDS.values():
        if field.sacct_json and field.sacct_value:
            found[field.sacct_json] = field.sacct_value(line, now)
        elif field.sacct_json and field.value:
            found[field.sacct_json] = field.value(line.row, now)
    return dict(sorted(found.items()))

"""Which variables of the submitter a job gets."""

from __future__ import annotations

import pytest

from overspan.bridge.readers.sbatch.export import select_environment

SUBMITTED = {"PATH": "/bin", "SLURM_CONF": "/c", "A": "1", "HOME": "/h", "SHELL": ""}
FRESH = {"SLURM_CONF": "/c", "SLURM_GET_USER_ENV": "1", "HOME": "/h"}


@pytest.mark.parametrize(
    ("export", "expected"),
    [
        (None, SUBMITTED),
        ("ALL", SUBMITTED),
        ("all", SUBMITTED),
        ("", SUBMITTED),
        ("NONE", {**FRESH, "SLURM_EXPORT_ENV": "NONE"}),
        ("NIL", {**FRESH, "SLURM_EXPORT_ENV": "NIL"}),
        ("A,B=2,C", {**FRESH, "A": "1", "B": "2", "SLURM_EXPORT_ENV": "A,B=2,C"}),
        ("ALL,B=a=b", {**SUBMITTED, "B": "a=b", "SLURM_GET_USER_ENV": "1", "SLURM_EXPORT_ENV": "ALL,B=a=b"}),
        ("B='x,y'", {**FRESH, "B": "'x,y'", "SLURM_EXPORT_ENV": "B='x,y'"}),
    ],
)
def test_export(export: str | None, expected: dict[str, str]) -> None:
    assert select_environment(export, SUBMITTED) == expected

"""An encoded row is kept in two parts, of which equal jobs share the longer one."""

from __future__ import annotations

import json
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from overspan.bridge.controller.core import rows
from overspan.bridge.controller.core.packed_rows import encode_row, pack_row, unpack_row
from overspan.bridge.controller.core.registry import JobEntry
from overspan.bridge.listings.rows import COLUMNS, CORE, EXTENTS, USUAL, WHOLE, JobRow
from overspan.bridge.model.job import new_job
from overspan.bridge.model.spec import Form, JobSpec, Origin, TaskSpec

texts = st.text(st.characters(codec="utf-8"), max_size=20)


@given(texts, texts, texts, texts)
def test_a_row_is_what_its_parts_say(name: str, command: str, output: str, line: str) -> None:
    row = JobRow(7, name=name, command=command, stdout=output, stderr="\0\n", submit_line=line, options={"a": [1]})
    whole = json.dumps(row, ensure_ascii=False, separators=(",", ":")).encode()
    encoded = unpack_row(*pack_row(row))
    assert encoded == encode_row(row) and b"[" + encoded.replace(b"\n,", b",") + b"]" == whole
    for extent, columns in EXTENTS.items():
        (sent,) = rows.send_rows([encoded], extent)
        assert json.loads(sent) == list(row[: len(columns)])
    assert COLUMNS[: len(CORE)] == CORE and COLUMNS[: len(USUAL)] == USUAL and list(EXTENTS)[-1] == WHOLE


def test_jobs_of_one_script_share_what_their_rows_have_in_common() -> None:
    task = TaskSpec("batch", Form.BATCH, run="true")
    spec = JobSpec("a" * 20, (task,), origin=Origin(user="me", directory="/work", command=("sbatch", "x" * 500)))
    entries = [JobEntry(new_job(number, spec, float(number)), "pool", "me") for number in (1, 2)]
    entries.append(JobEntry(new_job(3, replace(spec, comment="another"), 3.0), "pool", "me"))
    for entry in entries:
        assert json.loads(b"[" + rows.job_row(entry) + b"]")[0] == entry.job.id
    first, second, other = entries
    assert first.row_rest is second.row_rest and first.row_rest != other.row_rest
    assert len(first.row or b"") < 200 < len(first.row_rest)

"""Our tables against those that Slurm 22.05 printed for the same jobs, byte for byte."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator

import pytest
from tests.differential.transcripts import Transcript, read_transcripts
from tests.unit.cli.recorded_jobs import FORMATS, JOBS, LATE, OMITTED, STEPS

from overspan.bridge.cli.slurm import scontrol_records
from overspan.bridge.cli.slurm.sacct import OPTIONS, choose_lines
from overspan.bridge.cli.tables import sacct_fields, sinfo_fields
from overspan.bridge.cli.tables.sacct_lines import as_lines, render_accounts, render_parsable
from overspan.bridge.listings import fields as job_fields
from overspan.bridge.listings.layout import Layout, parse_letters, parse_names, render, render_delimited
from overspan.bridge.listings.sorting import sort_rows
from overspan.bridge.listings.texts import eligible_at
from overspan.bridge.model.options.getopt import parse

NAMES = job_fields.long_names()
# Facts that nobody records here, or that follow another rule.
_OTHER_NAMES = {
    "AllocSID",
    "LastSchedEval",
    "CPUFreq",
    "AccrueTime",
    "exit_code",
    "GroupID",
    "GroupName",
    "ExcNodes",
    "MinMemory",
    "STDOUT",
    "STDERR",
    "DerivedEC",
}
_OTHER_LETTERS = "gGm"
_OTHER_FIELDS = {
    *("AveCPU", "CPUTime", "DBIndex", "Flags", "Group", "GID", "MaxRSS", "SubmitLine", "SystemCPU"),
    *("TotalCPU", "UserCPU", "ReqMem", "Start", "End", "Submit", "Eligible", "Reserved", "Comment", "Reason"),
}


@pytest.fixture(autouse=True)
def utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setitem(os.environ, "TZ", "UTC")
    monkeypatch.delenv("SLURM_BITSTR_LEN", raising=False)
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def _recorded(group: str, *beginning: str) -> list[Transcript]:
    found = read_transcripts(FORMATS / f"{group}.txt")
    return [one for one in found if one.argv[: len(beginning)] == beginning]


def _second(recorded: Transcript) -> str:
    """The name, or letter, that a recorded command is about."""
    text = recorded.argv[-1]
    return text[4] if text.startswith("%") else text.split(",")[1]


LETTERS = [one for one in _recorded("squeue-letters") if _second(one) not in _OTHER_LETTERS]
KNOWN = [one for one in _recorded("squeue-names") if _second(one) in NAMES and _second(one) not in _OTHER_NAMES]
ACCOUNTS = [one for one in _recorded("sacct-fields", "sacct", "-P") if _second(one) not in _OTHER_FIELDS]


def _lines(text: str) -> list[str]:
    """The lines, without those of the jobs that are no rows here."""
    # The rig does not account for GPUs.
    text = text.replace(",gres/gpu=2", "")
    return [line for line in text.splitlines() if line.split("|")[0].split(" ")[0].split(".")[0] not in OMITTED]


def _agrees(recorded: Transcript, write: Callable[[float], str]) -> bool:
    """Whether our text is the recorded one at some second of the recording: running times differ by the second."""
    wanted = _lines(recorded.stdout)
    return any(_lines(write(LATE + seconds)) == wanted for seconds in range(80, 200))


def _squeue(layout: Layout) -> Callable[[float], str]:
    return lambda now: render(layout, sort_rows(JOBS, "i", now), now)


@pytest.mark.parametrize("recorded", LETTERS, ids=_second)
def test_letters(recorded: Transcript) -> None:
    layout = parse_letters(recorded.argv[-1], job_fields.LETTERS)
    assert _agrees(recorded, _squeue(layout)), _squeue(layout)(LATE + 100)


@pytest.mark.parametrize("recorded", KNOWN, ids=_second)
def test_names(recorded: Transcript) -> None:
    layout = parse_names(recorded.argv[-1], NAMES)
    assert _agrees(recorded, _squeue(layout)), _squeue(layout)(LATE + 100)


@pytest.mark.parametrize("recorded", ACCOUNTS, ids=_second)
def test_fields(recorded: Transcript) -> None:
    fields = sacct_fields.parse_fields(recorded.argv[-1])

    def write(now: float) -> str:
        rows = [row for row in sort_rows(JOBS, "i", now) if eligible_at(row) is not None]
        lines = as_lines(rows, STEPS)
        texts = render_delimited((field.column for field in fields), lines, now, delimiter="|")
        return render_parsable(texts, "|", trailing=False, header=True)

    def same(now: float) -> bool:
        # Slurm's order is that of its database; job 14 begins in 2031 and is in no window.
        ours = [line for line in _lines(write(now)) if not line.startswith("14|")]
        return sorted(ours) == sorted(_lines(recorded.stdout))

    assert any(same(LATE + seconds) for seconds in range(100, 220)), write(LATE + 130)


def test_records_of_jobs() -> None:
    # AllocNode's session, the evaluation by the scheduler and the group are the rig's own.
    rows = {str(row.raw_id): row for row in JOBS}
    for recorded in _recorded("scontrol", "scontrol", "show", "job"):
        row = rows.get(recorded.argv[-1])
        if row is None or recorded.rc or row.array_waiting or row.task_offset is not None or row.nodes == 3:
            continue
        ours = scontrol_records.write_records([scontrol_records.job_record(row, LATE + 150)], False).splitlines()
        theirs = recorded.stdout.splitlines()
        assert len(ours) == len(theirs), (ours, theirs)
        ours = [line.replace(",gres/gpu=2", "") for line in ours]
        own = ("AccrueTime", "SuspendTime", "Partition=", "UserId", "RunTime", "EligibleTime")
        for mine, other in zip(ours, theirs, strict=True):
            if not any(word in other for word in own) and "MinMemoryNode=0" not in other:
                assert mine == other


def test_arrays_as_users_see_them() -> None:
    recorded = _recorded("squeue", "squeue", "-r", "-j", "15")[0]
    from overspan.bridge.cli.tables.array_elements import split_elements

    rows = [row for row in JOBS if row.array_id == 15]
    layout = parse_letters(job_fields.DEFAULT_FORMAT, job_fields.LETTERS)
    texts = [render(layout, split_elements(rows), LATE + seconds).splitlines() for seconds in range(80, 200)]
    assert any(sorted(text) == sorted(recorded.stdout.splitlines()) for text in texts)


def test_default_table_and_accounts() -> None:
    recorded = _recorded("squeue", "squeue", "-l", "-t", "all")[0]
    layout = parse_letters(job_fields.LONG_FORMAT, job_fields.LETTERS)
    theirs = [line for line in recorded.stdout.splitlines()[1:] if line.split()[0] not in OMITTED]

    def ours(now: float) -> list[str]:
        return render(layout, sort_rows(JOBS, "P,t,-p", now), now).splitlines()

    assert any(sorted(ours(LATE + seconds)) == sorted(theirs) for seconds in range(80, 200)), ours(LATE + 90)
    (accounts,) = [one for one in _recorded("sacct", "sacct") if one.argv == ("sacct", "-j", "15")]
    fields = sacct_fields.parse_fields(sacct_fields.DEFAULT_FIELDS)
    lines = as_lines([row for row in sort_rows(JOBS, "i", LATE) if row.array_id == 15], {})
    assert render_accounts([(field.column, field.width) for field in fields], lines, LATE + 100) == accounts.stdout


@pytest.mark.parametrize("words", ["-j 8", "-j 8.0", "-j 8.batch"])
def test_steps_of_srun(words: str) -> None:
    (recorded,) = [one for one in _recorded("sacct", "sacct") if one.argv == ("sacct", *words.split())]
    fields = sacct_fields.parse_fields(sacct_fields.DEFAULT_FIELDS)
    lines = as_lines([row for row in JOBS if row.raw_id == 8], STEPS)
    chosen = choose_lines(lines, parse(words.split(), OPTIONS))
    assert render_accounts([(field.column, field.width) for field in fields], chosen, LATE) == recorded.stdout


def _nodes() -> list[dict[str, object]]:
    used = {"node1": 3, "node2": 3, "node3": 2}
    return [
        {"name": name, "cluster": "", "partition": part, "default": part == "main", "state": "mixed", "cpus": 4,
         "cpus_used": used[name], "memory": 4000, "memory_used": 0, "gpus": 2, "time_limit": limit}
        for part, names, limit in (("main", ("node1", "node2", "node3"), 86400), ("short", ("node1", "node2"), 600))
        for name in names
    ]  # fmt: skip


@pytest.mark.parametrize("letter", "aABcCdDEfFgGhHIlLmMnNopPrRsStTuUwXYzZ")
def test_sinfo_letters(letter: str) -> None:
    for words in (("sinfo", "-o", f"%{letter}|%.12{letter}|"), ("sinfo", "-N", "-o", f"%N|%{letter}|%.12{letter}|")):
        (recorded,) = [one for one in _recorded("sinfo", "sinfo") if one.argv == words]
        layout = parse_letters(words[-1], sinfo_fields.LETTERS)
        rows = sinfo_fields.gather(_nodes(), [field.column for field in layout.fields], "-N" in words)
        assert render(layout, rows, 0) == recorded.stdout

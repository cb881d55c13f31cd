"""squeue's, sacct's and sinfo's tables, byte for byte."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

import pytest

from overspan.bridge.cli.slurm.scontrol_records import job_record
from overspan.bridge.cli.tables import sacct_fields, sinfo_fields
from overspan.bridge.cli.tables.sacct_lines import AccountLine, as_lines, render_accounts, render_parsable
from overspan.bridge.client import JobRow
from overspan.bridge.listings import fields as job_fields
from overspan.bridge.listings.layout import parse_letters, parse_names, render, render_delimited
from overspan.bridge.listings.sorting import DEFAULT_SORT, sort_rows
from overspan.bridge.listings.texts import format_time, seconds_used, start_time
from overspan.bridge.model.errors import InvalidRequest

NAMES = job_fields.long_names()
NOW = 1_700_000_000.0
RUNNING = JobRow(
    id=42,
    raw_id=42,
    name="train-llama-70b",
    user="researcher",
    state="RUNNING",
    partition="debug",
    cluster="local",
    nodes=2,
    cpus=8,
    node_list="node[1-2]",
    submitted_at=NOW - 5000,
    started_at=NOW - 3723,
    time_limit=7200,
    priority=1000,
    memory=4096,
    gpus=4,
    command="/home/r/train.sh",
    work_dir="/home/r",
    stdout="/home/r/slurm-42.out",
    uid=1000,
)
PENDING = JobRow(id=43, raw_id=43, name="eval", user="ann", reason="Resources", partition="debug", submitted_at=NOW)
TASK = JobRow(id=44, task_offset=1, raw_id=45, name="rollout", group="rlhf", user="ann", state="RUNNING", tasks=2)
FAILED = PENDING._replace(
    id=50, raw_id=50, state="FAILED", reason="NonZeroExitCode", exit_code=3, started_at=NOW - 10, ended_at=NOW - 5
)


@pytest.fixture(autouse=True)
def utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setitem(os.environ, "TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def _table(text: str, *rows: JobRow, header: bool = True) -> str:
    return render(parse_letters(text, job_fields.LETTERS), rows, NOW, header)


def test_default_format() -> None:
    assert _table(job_fields.DEFAULT_FORMAT, RUNNING, PENDING, TASK, FAILED) == (
        "             JOBID PARTITION     NAME     USER ST       TIME  NODES NODELIST(REASON)\n"
        "                42     debug train-ll research  R    1:02:03      2 node[1-2]\n"
        "                43     debug     eval      ann PD       0:00      1 (Resources)\n"
        "              44+1            rollout      ann  R       0:00      1 \n"
        "                50     debug     eval      ann  F       0:05      1 (NonZeroExitCode)\n"
    )


@pytest.mark.parametrize(
    "words", ["0 of 1 have a place: 0/2 nodes are available: 2 Insufficient cpu.", "no image " * 99]
)
def test_columns_have_slurm_s_word_without_the_cluster_s_text(words: str) -> None:
    row = PENDING._replace(reason=f"JobLaunchFailure: {words}")
    assert _table("%r|%R", row, header=False) == "JobLaunchFailure|(JobLaunchFailure)\n"
    assert render(parse_names("Reason:400", NAMES), [row], NOW, header=False).split() == ["JobLaunchFailure"]


def test_long_format() -> None:
    assert _table(job_fields.LONG_FORMAT, RUNNING) == (
        "             JOBID PARTITION     NAME     USER    STATE       TIME TIME_LIMI  NODES NODELIST(REASON)\n"
        "                42     debug train-ll research  RUNNING    1:02:03   2:00:00      2 node[1-2]\n"
    )


def test_widths_literals_and_no_header() -> None:
    assert _table("%i %t", RUNNING, header=False) == "42 R\n"
    assert _table("<%.5i|%5i|%3j> ", RUNNING, header=False) == "<   42|42   |tra> \n"
    assert _table("%A;%F;%i", TASK, header=False) == "45;45;44+1\n"
    # A right-justified node list is never cut, a name is.
    assert _table("%.4N|%4N|%.4j", RUNNING, header=False) == "node[1-2]|node|trai\n"


@pytest.mark.parametrize("letter", job_fields.LETTERS)
def test_every_letter_prints_something_for_every_row(letter: str) -> None:
    for row in (RUNNING, PENDING, TASK, FAILED):
        lines = _table(f"%{letter}", row).splitlines()
        assert len(lines) == 2
        assert lines[0] == job_fields.LETTERS[letter].header


def test_letters_values() -> None:
    expected = {
        "a": "(null)",
        "b": "gres:gpu:2",
        "B": "node1",
        "c": "4",
        "C": "8",
        "e": "2023-11-14T23:11:17",
        "l": "2:00:00",
        "L": "57:57",
        "m": "4G",
        "p": "0.00000023283064",
        "Q": "1000",
        "r": "None",
        "S": "2023-11-14T21:11:17",
        "T": "RUNNING",
        "U": "1000",
        "V": "2023-11-14T20:50:00",
        "Z": "/home/r",
    }
    assert {letter: job_fields.LETTERS[letter].text(RUNNING, NOW) for letter in expected} == expected
    unlimited = RUNNING._replace(time_limit=None)
    assert [job_fields.LETTERS[letter].text(unlimited, NOW) for letter in "lLe"] == [
        "UNLIMITED",
        "UNLIMITED",
        "NONE",
    ]
    assert [job_fields.LETTERS[letter].text(PENDING, NOW) for letter in "SeBN"] == ["N/A", "N/A", "n/a", ""]


def test_named_columns_are_twenty_wide_and_run_together() -> None:
    layout = parse_names("JobArrayID,StateCompact:.4,reason:12:", NAMES)
    assert render(layout, [PENDING._replace(reason="job requeued in held state")], NOW) == (
        "JOBID                 STREASON      :\n43                    PDjobrequeuedi:\n"
    )


@pytest.mark.parametrize(
    ("text", "line", "faults"),
    [("%", "", ()), ("%.i%", "42", ()), ("%i|%.8?|", "42|%.8?|", ("?",)), ("%5", "%5", ("",)), ("x", "x", ())],
)
def test_what_is_no_field_stands_as_it_is(text: str, line: str, faults: tuple[str, ...]) -> None:
    layout = parse_letters(text, job_fields.LETTERS)
    assert layout.faults == faults
    assert render(layout, [RUNNING], NOW, header=False) == f"{line}\n"


def test_unknown_names_leave_their_suffix() -> None:
    layout = parse_names("JobID:###,Partitoin:5|,Name:.3", NAMES)
    assert layout.faults == ("Partitoin",)
    assert render(layout, [RUNNING], NOW) == "JOBID###|NAM\n42###|tra\n"


def test_default_order_is_partition_state_priority_id() -> None:
    rows = [
        JobRow(id=1, partition="b"),
        JobRow(id=2, partition="a", state="RUNNING", priority=9),
        JobRow(id=3, partition="a", priority=1),
        JobRow(id=5, partition="a", priority=7),
        JobRow(id=4, partition="a", priority=7, task_offset=1),
        JobRow(id=4, partition="a", priority=7, task_offset=0),
    ]
    ordered = [row.ref for row in sort_rows(rows, DEFAULT_SORT, NOW)]
    assert ordered == ["4+0", "4+1", "5", "3", "2", "1"]
    assert [row.id for row in sort_rows(rows[:4], "-i", NOW)] == [5, 3, 2, 1]
    with pytest.raises(InvalidRequest):
        sort_rows(rows, "?", NOW)


def test_of_equals_the_newest_is_first_but_for_elements_of_one_array() -> None:
    held = [JobRow(id=number, raw_id=number, reason="JobHeldUser") for number in (1, 2)]
    assert [row.id for row in sort_rows(held, DEFAULT_SORT, NOW)] == [2, 1]
    elements = [JobRow(id=9, array_id=3, array_index=index, reason="JobHeldUser") for index in (4, 2)]
    assert [row.ref for row in sort_rows([*held, *elements], "P", NOW)] == ["3_2", "3_4", "2", "1"]


def test_suspended_time_does_not_count() -> None:
    row = RUNNING._replace(paused=60.0)
    assert seconds_used(row, NOW) == seconds_used(RUNNING, NOW) - 60
    stopped = row._replace(state="SUSPENDED", paused_at=NOW - 30)
    assert seconds_used(stopped, NOW) == seconds_used(row, NOW) - 30
    assert AccountLine(stopped).suspended(NOW) == 90


def test_an_expected_start_is_shown_for_what_waits() -> None:
    waiting = PENDING._replace(expected_start=NOW + 60, begin=NOW + 30)
    assert start_time(waiting, NOW) == format_time(NOW + 60)
    assert start_time(waiting._replace(reason="JobHeldUser"), NOW) == format_time(NOW + 30)
    assert start_time(RUNNING._replace(expected_start=NOW + 60), NOW) == format_time(RUNNING.started_at)
    assert f"StartTime={format_time(NOW + 60)} " in " ".join(job_record(waiting, NOW))


def test_accounts_fixed_widths() -> None:
    fields = sacct_fields.parse_fields(sacct_fields.DEFAULT_FIELDS)
    cancelled = RUNNING._replace(state="CANCELLED", ended_by_uid=0, ended_at=NOW, signal=15)
    assert render_accounts(fields, as_lines([cancelled, TASK], {}, jobs_only=True), NOW) == (
        "JobID           JobName  Partition    Account  AllocCPUS      State ExitCode \n"
        "------------ ---------- ---------- ---------- ---------- ---------- -------- \n"
        "42           train-lla+      debug                     8 CANCELLED+      0:0 \n"
        "44+1            rollout                                1    RUNNING      0:0 \n"
    )


def test_accounts_parsable_and_widths() -> None:
    fields = sacct_fields.parse_fields("jobid,jobidraw%5,state%-12,Elapsed,Timelimit,End")
    lines = render_delimited(
        (field.column for field in fields), as_lines([FAILED], {}, jobs_only=True), NOW, delimiter="|"
    )
    assert render_parsable(lines, "|", trailing=False, header=True) == (
        "JobID|JobIDRaw|State|Elapsed|Timelimit|End\n50|50|FAILED|00:00:05|UNLIMITED|2023-11-14T22:13:15\n"
    )
    assert render_parsable(lines, "|", trailing=True, header=False).endswith("22:13:15|\n")
    assert (
        render_accounts(fields[1:3], as_lines([FAILED], {}, jobs_only=True), NOW, header=False)
        == "   50 FAILED       \n"
    )
    with pytest.raises(InvalidRequest, match='Invalid field requested: "nope"'):
        sacct_fields.parse_fields("JobID,nope")


@pytest.mark.parametrize("name", sacct_fields.FIELDS)
def test_every_account_field(name: str) -> None:
    for row in (RUNNING, PENDING, TASK, FAILED):
        for line in as_lines([row], {}):
            assert "\n" not in sacct_fields.FIELDS[name].text(line, NOW)


def _node(name: str, state: str, used: int = 0) -> dict[str, object]:
    facts = {"name": name, "cluster": "local", "partition": "debug", "default": True, "state": state}
    return {**facts, "cpus": 4, "cpus_used": used, "memory": 1000, "memory_used": 0, "gpus": 2, "gpu_kind": "a100"}


def test_nodes_are_gathered_by_state() -> None:
    nodes = [_node("n1", "idle"), _node("n2", "mixed", 2), _node("n3", "idle"), _node("n4", "down*")]
    letters = sinfo_fields.LETTERS
    text = sinfo_fields.DEFAULT_FORMAT.replace("%#P", "%9P")
    rows = sinfo_fields.gather(nodes, map(letters.__getitem__, "PalDtN"), by_node=False)
    assert render(parse_letters(text, letters), rows, NOW) == (
        "PARTITION AVAIL  TIMELIMIT  NODES  STATE NODELIST\n"
        "debug*       up   infinite      2   idle n[1,3]\n"
        "debug*       up   infinite      1    mix n2\n"
        "debug*       up   infinite      1  down* n4\n"
    )
    (row,) = sinfo_fields.gather(nodes, map(letters.__getitem__, "PF"), by_node=False)
    assert [letters[letter].text(row, NOW) for letter in "AFCGcm"] == [
        "1/2",
        "1/2/1/4",
        "2/10/4/16",
        "gpu:a100:2",
        "4",
        "1000",
    ]
    assert len(sinfo_fields.gather(nodes, [letters["N"]], by_node=True)) == 4

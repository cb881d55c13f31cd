"""Recorded answers of Slurm 22.05 (golden/*.txt), hand-made ones of other versions, and any text at all."""

from __future__ import annotations

import time

import hypothesis.strategies as st
import pytest
from hypothesis import given
from tests.unit.adapters.slurm.samples import GOLDEN

from overspan.adapters.slurm.commands import listings, nodes, sacct, squeue
from overspan.adapters.slurm.commands.listings import FIELD_END, RECORD_END, ExitStatus, TimeLimit
from overspan.adapters.slurm.commands.states import BASES, FLAGS, NativeState, read_reason, read_state
from overspan.bridge.model.ids import ArraySpec, IndexRange
from overspan.bridge.model.resources import Gpus


def read_golden(name: str) -> str:
    return (GOLDEN / name).read_text()


EARLY = {record.shown: record for record in squeue.read_queue(read_golden("squeue-early.txt")).records}
LATE = {record.shown: record for record in squeue.read_queue(read_golden("squeue-late.txt")).records}


def test_a_waiting_array_is_one_record() -> None:
    rest = EARLY["3_[0-9%2]"]
    assert rest.waiting == ArraySpec((IndexRange(0, 9),), 2)
    assert (rest.raw, rest.array_job, rest.array_index, rest.reason) == (3, 3, None, "JobHeldUser")
    assert rest.nodes == () and rest.batch_host == ""


def test_elements_have_their_own_numbers_and_the_last_keeps_the_arrays() -> None:
    first, last = EARLY["4_0"], EARLY["4_9"]
    assert (first.raw, first.array_job, first.array_index) == (9, 4, 0)
    assert (last.raw, last.array_job, last.array_index) == (4, 4, 9)


def test_components_of_a_hetjob() -> None:
    leader, other = EARLY["1+0"], EARLY["1+1"]
    assert (leader.raw, leader.het_job, leader.het_offset, leader.limit) == (1, 1, 0, TimeLimit(720))
    assert (other.raw, other.het_job, other.het_offset, other.partition) == (2, 1, 1, "short")
    assert leader.array_job is None and leader.state == NativeState("RUNNING")
    assert leader.start == 1795275650.0 and leader.used == 4 and leader.comment == "overspan=t43.0"


def test_a_requeued_job_waits_with_its_count() -> None:
    record = LATE["18"]
    assert (record.state.base, record.reason, record.restarts) == ("PENDING", "BeginTime", 1)


def test_what_an_answer_has_in_common_with_the_last_one_is_not_read_again() -> None:
    before = squeue.read_queue(read_golden("squeue-early.txt"))
    after = squeue.read_queue(read_golden("squeue-early.txt").replace("JobHeldUser", "Priority"), before.by_fields)
    same = [one is other for one, other in zip(before.records, after.records, strict=True)]
    assert same == [record.reason != "JobHeldUser" for record in before.records]
    assert {record.reason for record, kept in zip(after.records, same, strict=True) if not kept} == {"Priority"}


def test_user_text_with_separators_and_line_breaks_hides_no_job() -> None:
    queue = squeue.read_queue(read_golden("squeue-late.txt"))
    assert queue.unreadable == 0
    record = LATE["7"]
    assert record.name == "a|b" and record.comment.endswith("two\nlines|x overspan=t23.0")
    assert record.exit == ExitStatus(3, 0)


def test_a_cut_answer_is_told() -> None:
    text = read_golden("squeue-late.txt")
    queue = squeue.read_queue(text[: len(text) // 2])
    assert queue.records and queue.unreadable == 1 and queue.torn
    text = read_golden("sacct.txt")
    assert sacct.read_accounts(text[: len(text) // 2], (22, 5, 8)).torn


def test_what_a_login_says_at_its_end_is_no_record() -> None:
    queue = squeue.read_queue(read_golden("squeue-late.txt") + "bye\n")
    assert len(queue.records) == len(LATE) and not queue.torn


def test_the_question_keeps_arrays_whole_and_survives_one_unknown_id() -> None:
    words = squeue.ask_queue(ids=(7,))
    assert words[0] == "env" and "SLURM_TIME_FORMAT=%s" in words
    assert "--jobs=7,7" in words and "--array" not in words and "--states=all" in words
    assert f"--jobs={','.join(map(str, range(2)))}" in squeue.ask_queue(ids=(0, 1))
    many = squeue.ask_queue(ids=range(1000), user="ada")
    assert "--user=ada" in many and not any(word.startswith("--jobs") for word in many)
    assert words[-1].startswith(f"--Format=JobArrayID:{FIELD_END},JobID:") and words[-1].endswith(
        f"Comment:{RECORD_END}"
    )


def test_accounting_with_every_run_and_step() -> None:
    accounts = sacct.read_accounts(read_golden("sacct.txt"), (22, 5, 8))
    assert accounts.unreadable == 0
    records = accounts.records
    runs = [record for record in records if record.raw == 18 and not record.step]
    assert [run.state for run in runs] == [NativeState("", frozenset({"REQUEUED"})), NativeState("PENDING")]
    cancelled, failed = (
        next(record for record in reversed(records) if record.raw == raw and not record.step) for raw in (8, 7)
    )
    assert cancelled.state == NativeState("CANCELLED", by=1000)
    assert failed.exit == ExitStatus(3, 0) and failed.elapsed == 0
    assert "overspan=t23.0" in failed.submit_line
    rest = next(record for record in records if record.shown == "3_[0-9%2]")
    assert (rest.rest, rest.array_job, rest.start, rest.nodes, rest.limit) == ("0-9%2", 3, None, (), TimeLimit(300))
    component = next(record for record in records if record.shown == "1+1")
    assert (component.raw, component.het_job, component.het_offset) == (2, 1, 1)
    assert {record.step for record in records if record.raw == 9} == {"", "batch"}


def test_accounting_of_a_version_without_submit_lines() -> None:
    accounts = sacct.read_accounts(read_golden("sacct-20.11.txt"), (20, 11))
    assert accounts.unreadable == 0 and accounts.records[-1].limit == TimeLimit(None, False)
    assert all(record.submit_line == "" for record in accounts.records)
    assert "SubmitLine" not in " ".join(sacct.ask_accounts([1], (20, 11)))
    assert sacct.ask_accounts([1, 2], (21, 8))[-1].endswith(",SubmitLine")
    assert "--starttime=uts1000" in sacct.ask_since("ada", 1000.9)


def test_nodes_of_each_partition() -> None:
    found = nodes.read_nodes(read_golden("sinfo.txt"))
    assert [(node.name, node.partition) for node in found].count(("node1", "main")) == 1
    main = next(node for node in found if (node.name, node.partition) == ("node1", "main"))
    assert (main.default, main.cpus, main.memory, main.gpus, main.time_limit) == (True, 4, 4000, 2, 86400)
    assert (main.state, main.reason) == ("idle", "")
    assert not next(node for node in found if node.partition == "short").default


def test_a_busy_node_with_typed_gpus_and_a_suffix() -> None:
    front = ("n7", "gpu", "drained*", "32/16/16/64", "512000", "1000", "gpu:a100:4(S:0-1),shard:8")
    fields = (*front, "gpu:a100:3(IDX:0-2),shard:0", "infinite", "disk broken")
    (node,) = nodes.read_nodes(FIELD_END.join(fields) + RECORD_END + "\n")
    assert (node.state, node.cpus_used, node.gpus, node.gpus_used, node.gpu_kind) == ("drained", 32, 4, 3, "a100")
    assert (node.time_limit, node.reason) == (None, "disk broken")


@pytest.mark.parametrize(
    ("text", "gpus"),
    [
        ("(null)", ()),
        ("gpu", (Gpus(1),)),
        ("gpu:2", (Gpus(2),)),
        ("gpu:0", ()),
        ("gpu:h100:8(S:0-1)", (Gpus(8, "h100"),)),
        ("gpu:(null):2(IDX:0-1)", (Gpus(2),)),
        ("nic:1,gpu:a:1,gpu:b:2", (Gpus(1, "a"), Gpus(2, "b"))),
    ],
)
def test_gpus_of_a_node(text: str, gpus: tuple[Gpus, ...]) -> None:
    assert nodes.read_gpus(text) == gpus


def test_addresses_of_nodes() -> None:
    assert nodes.read_addresses(read_golden("nodes.txt")) == {"node1": "node1", "node2": "node2", "node3": "node3"}
    assert nodes.read_addresses("NodeName=a NodeAddr=10.0.0.1 OS=Linux 5 x=y \nNodeName=b\n") == {
        "a": "10.0.0.1",
        "b": "b",
    }


@pytest.mark.parametrize("name", [*BASES, *FLAGS])
def test_every_state_is_read_by_name_and_code(name: str) -> None:
    code = {**BASES, **FLAGS}[name]
    expected = NativeState(name) if name in BASES else NativeState("", frozenset({name}))
    assert read_state(name) == read_state(name.lower()) == read_state(code) == expected


@pytest.mark.parametrize(
    ("text", "state"),
    [
        ("CANCELLED by 1000", NativeState("CANCELLED", by=1000)),
        ("CANCELLED+", NativeState("CANCELLED")),
        ("RUNNING+COMPLETING", NativeState("RUNNING", frozenset({"COMPLETING"}))),
        ("PENDING,REQUEUE_HOLD", NativeState("PENDING", frozenset({"REQUEUE_HOLD"}))),
        ("HIBERNATING", NativeState(unknown="HIBERNATING")),
        ("", NativeState()),
    ],
)
def test_states_in_other_spellings(text: str, state: NativeState) -> None:
    assert read_state(text) == state


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("Resources", "Resources"),
        ("(Priority)", "Priority"),
        ("None", "None"),
        ("", "None"),
        ("(null)", "None"),
        ("ReqNodeNotAvail, UnavailableNodes:n[1-3]", "ReqNodeNotAvail, UnavailableNodes:n[1-3]"),
        ("ReqNodeNotAvail,_UnavailableNodes:n1", "ReqNodeNotAvail, UnavailableNodes:n1"),
        ("job requeued in held state", "JobHeldUser"),
        ("launch failed requeued held", "JobHeldUser"),
        ("job_requeued_in_held_state", "JobHeldUser"),
        ("launch_failed_requeued_held", "JobHeldUser"),
        ("some new\x1b words", "some new words"),
    ],
)
def test_reasons_are_told_as_slurm_tells_them(text: str, reason: str) -> None:
    assert read_reason(text) == reason


@given(st.text())
def test_any_reason_is_one_line(text: str) -> None:
    reason = read_reason(text)
    assert reason and reason.isprintable() and "  " not in reason


@pytest.mark.parametrize(
    ("text", "status"),
    [
        ("3:0", ExitStatus(3, 0)),
        ("0:53", ExitStatus(0, 53)),
        ("768", ExitStatus(3, 0)),
        ("9", ExitStatus(0, 9)),
        ("4021", ExitStatus(0, 53)),
        ("0", ExitStatus()),
        ("", None),
        ("N/A", None),
    ],
)
def test_exit_codes(text: str, status: ExitStatus | None) -> None:
    assert listings.read_exit(text) == status


@pytest.mark.parametrize(
    ("text", "limit"),
    [
        ("UNLIMITED", TimeLimit(None)),
        ("infinite", TimeLimit(None)),
        ("5:00", TimeLimit(300)),
        ("1-00:00:00", TimeLimit(86400)),
        ("12:00:00", TimeLimit(43200)),
        ("N/A", TimeLimit(None, False)),
        ("INVALID", TimeLimit(None, False)),
        ("Partition_Limit", TimeLimit(None, False)),
        ("Unknown", TimeLimit(None, False)),
    ],
)
def test_time_limits(text: str, limit: TimeLimit) -> None:
    assert listings.read_limit(text) == limit


def test_times_in_seconds_and_in_words() -> None:
    assert listings.read_time("1795275650") == 1795275650.0
    for word in ("N/A", "Unknown", "None", "0", "", "2026-13-41T99:00:00"):
        assert listings.read_time(word) is None
    at = listings.read_time("2026-11-21T14:52:50")
    assert at is not None and time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(at)) == "2026-11-21T14:52:50"
    assert [listings.read_elapsed(text) for text in ("1:29", "1:02:03", "1-02:03:04", "INVALID")] == [
        89,
        3723,
        93784,
        None,
    ]


@given(st.text(st.characters() | st.sampled_from([FIELD_END, RECORD_END, "\n"])))
def test_no_answer_breaks_a_reader(text: str) -> None:
    squeue.read_queue(text)
    sacct.read_accounts(text, (22, 5))
    nodes.read_nodes(text)
    nodes.read_addresses(text)


@given(st.lists(st.lists(st.text(max_size=5), min_size=4, max_size=4), max_size=4))
def test_records_are_split_where_they_were_joined(rows: list[list[str]]) -> None:
    clean = [[text.replace(FIELD_END, "").replace(RECORD_END, "") for text in row] for row in rows]
    text = "".join(f"{FIELD_END.join(row)}{RECORD_END}\n" for row in clean)
    assert listings.split_records(text, 4) == listings.ParsedListing(tuple(tuple(row) for row in clean))

"""What is told of a group: its journal, what Slurm says before there is one, and Slurm's end of an open one."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.adapters.slurm.journal_lines import AFTER, START, page
from tests.unit.adapters.slurm.samples import NOW, check_golden, read_file
from tests.unit.adapters.slurm.views import view

from overspan.adapters.contract import Decider
from overspan.adapters.slurm.groups.handles import (
    GroupCursor,
    GroupHandle,
    GroupPart,
    PartCursor,
    make_group_handle,
    parse_group_cursor,
)
from overspan.adapters.slurm.groups.projection import MARGIN, GroupView, PartView, project_group
from overspan.adapters.slurm.handles import is_handle, parse_any
from overspan.adapters.slurm.observation.projection import Ordered
from overspan.bridge.lifecycle.reduction import reduce
from overspan.bridge.model.errors import NotFound
from overspan.bridge.model.events import (
    Cancel,
    Event,
    Expire,
    Granted,
    Hold,
    LaunchLost,
    NodeEnded,
    Release,
    Requeue,
    Resume,
    SetTime,
    Suspend,
    event_to_document,
)
from overspan.bridge.model.job import Job
from overspan.bridge.model.states import State

GROUP = read_file(
    "name: g\nexecution: parallel\nprimary_tasks: [a]\n---\nname: a\ngrace_period: 40s\nrun: x\n---\nname: b\nrun: y\n"
)
HANDLE = make_group_handle(GROUP, "/r/runs/inst-7", [GroupPart(1234)])


def follow(
    observed_members: Sequence[PartView], orders: Sequence[Ordered] = ()
) -> tuple[Job, list[Event], GroupCursor]:
    job, events, cursor = GROUP, [], HANDLE.begin()
    for observed in observed_members:
        told = project_group(HANDLE, GroupView({"": observed}, orders), parse_group_cursor(HANDLE, str(cursor)))
        cursor = told.cursor
        for event in told.events:
            events.append(event)
            job = reduce(job, event)
    return job, events, cursor


class TestHandles:
    @given(st.integers(0, 10**9), st.integers(0, 10**6), st.text("a/.|% é\n:", min_size=1), st.sampled_from(Decider))
    def test_a_handle_is_read_as_it_was_written(self, native: int, grace: int, folder: str, decider: Decider) -> None:
        parts = (GroupPart(native), GroupPart(native + 1, "b=|.", 3))
        handle = GroupHandle(7, 2, grace, folder, parts, decider, native > 7, folder)
        assert parse_any(str(handle)) == handle

    def test_the_longest_grace_counts(self) -> None:
        assert HANDLE.grace == 40
        job = HANDLE.list_jobs()[0]
        assert (job.journal, job.orders) == ("/r/runs/inst-7/journal.0.jsonl", HANDLE.orders)
        assert HANDLE.orders == "/r/runs/inst-7/orders.0.jsonl"

    @pytest.mark.parametrize(
        "text", ["g", "g.", "g.1.2.3", "g.1.2.3.x.y", "h.1.2.3.4./r", "{", "{}", '{"format":3,"parts":[]}']
    )
    def test_what_is_no_handle_names_nothing(self, text: str) -> None:
        assert not is_handle(text)
        with pytest.raises(NotFound):
            parse_any(text)

    @pytest.mark.parametrize(
        ("text", "handle"),
        [
            ("g.42.7.2.30.%2Fr/a%20b.c", GroupHandle(7, 2, 30, "/r/a b.c", (GroupPart(42),))),
            (
                "m.7|2|30|1|i-7-2|/r/a%7Cb|a=2=101|b=1=102",
                GroupHandle(
                    7, 2, 30, "/r/a|b", (GroupPart(101, "a", 2), GroupPart(102, "b", 1)), Decider.DAEMON, True, "i-7-2"
                ),
            ),
        ],
    )
    def test_handles_of_the_version_before_are_read(self, text: str, handle: GroupHandle) -> None:
        assert parse_any(text) == handle

    @given(
        st.builds(
            GroupCursor,
            st.tuples(st.builds(PartCursor, st.integers(), st.just(""), *[st.integers(0, 10**18)] * 3)),
            *[st.booleans()] * 4,
            st.integers(0, 10**18),
            st.integers(0, 10**10),
        )
    )
    def test_a_cursor_is_read_as_it_was_written(self, cursor: GroupCursor) -> None:
        assert parse_group_cursor(HANDLE, str(cursor)) == cursor

    def test_cursors_of_the_version_before_are_read(self) -> None:
        found = parse_group_cursor(HANDLE, "g:512:3:9:hso:77")
        assert found == GroupCursor((PartCursor(1234, offset=512, order=3),), True, True, True, True, 9, 77)
        parts = (GroupPart(101, "a", 2), GroupPart(102, "b", 1))
        text = '["g",9,[["a",3,200,512,4,3,[[0,0],[1,2]],false],["b",0,102,0,0,-1,[],true]]]'
        places = (PartCursor(200, "a", 3, 512, 4, 3, ((0, 0), (1, 2))), PartCursor(102, "b", over=True))
        handle = GroupHandle(7, 0, 30, "/r", parts, Decider.DAEMON)
        assert parse_group_cursor(handle, text) == GroupCursor(places, granted=True, orders=9)

    @pytest.mark.parametrize("text", ["1:0::0", "g:1", "{}", '{"parts":[{"native":1,"task":"x"}]}', "[]", "7"])
    def test_an_unknown_cursor_is_the_beginning(self, text: str) -> None:
        assert parse_group_cursor(HANDLE, text) == HANDLE.begin()

    @pytest.mark.parametrize("number", [1, 3, '"x"', "null"])
    def test_a_cursor_of_another_format_is_refused(self, number: object) -> None:
        with pytest.raises(
            NotFound, match=r"the cursor of job \d+ has format .*; this version reads 2 and those before"
        ):
            parse_group_cursor(HANDLE, f'{{"format":{number},"parts":[{{"native":1234}}]}}')


class TestJournal:
    def test_the_journal_is_told_once(self) -> None:
        observed = PartView(view("RUNNING"), page(START))
        job, events, cursor = follow([observed, observed])
        assert tuple(events) == START
        assert (job.state, job.late, cursor.parts[0].offset) == (State.RUNNING, 0, 500)

    def test_slurm_adds_nothing_to_a_journal_that_has_ended(self) -> None:
        rest = (*START, NodeEnded(NOW + 60, "a", 0, 0), NodeEnded(NOW + 61, "b", 0, 0))
        observed = PartView(view("FAILED", "NonZeroExitCode", (1, 0)), page(rest, True, AFTER))
        assert tuple(follow([observed, observed])[1]) == rest

    def test_golden_story(self) -> None:
        cancel = Cancel(NOW + 99, by="ada")
        observed_members = [
            PartView(view("PENDING", "JobHeldUser"), page()),
            PartView(view("PENDING", "Resources"), page()),
            PartView(view("RUNNING"), page(START)),
            PartView(view("SUSPENDED"), page(START)),
            PartView(view("RUNNING"), page((*START, Suspend(NOW + 20), Resume(NOW + 25)))),
            PartView(
                view("NODE_FAIL", "NodeDown"), page((*START, Suspend(NOW + 20), Resume(NOW + 25)), asked=NOW + 99)
            ),
            PartView(
                view("NODE_FAIL", "NodeDown"),
                page((*START, Suspend(NOW + 20), Resume(NOW + 25)), asked=AFTER),
                ((1, Suspend(NOW + 20)), (2, cancel)),
            ),
        ]
        job, events, cursor = follow(observed_members)
        lines = [str(event_to_document(event)) for event in events]
        check_golden("story-group.txt", "\n".join([*lines, str(cursor), job.state.value, ""]))


class TestEnd:
    @pytest.mark.parametrize(
        ("native", "reason", "state"),
        [
            ("CANCELLED by 1000", "None", State.CANCELLED),
            ("TIMEOUT", "TimeLimit", State.TIMEOUT),
            ("NODE_FAIL", "NodeDown", State.PENDING),
            ("PREEMPTED", "Preempted", State.PENDING),
            ("BOOT_FAIL", "BootFail", State.PENDING),
            ("FAILED", "NonZeroExitCode", State.FAILED),
            ("COMPLETED", "None", State.FAILED),
            ("OUT_OF_MEMORY", "OutOfMemory", State.OUT_OF_MEMORY),
        ],
    )
    def test_slurms_end_closes_an_open_journal(self, native: str, reason: str, state: State) -> None:
        end = view(native, reason, (1, 0))
        job, events, cursor = follow([PartView(end, page(START, asked=AFTER))])
        assert isinstance(events[-1], LaunchLost)
        assert (job.state, job.late, cursor.over) == (state, 0, True)
        assert job.launch == (1 if state is State.PENDING else 0)

    def test_a_supervisor_that_was_killed_is_a_recovery_and_no_failure_of_the_work(self) -> None:
        end = view("FAILED", "RaisedSignal", (0, 9), end=NOW + 10)
        job, events, _ = follow([PartView(end, page(START, asked=AFTER))])
        assert "signal 9" in str(events[-1])
        assert (job.state, job.launch, job.task("a").recoveries) == (State.PENDING, 1, 1)
        first = job.task("a").attempts[0]
        # Slurm tells whole seconds: the end is not before the start.
        assert (first.state, first.started_at, first.ended_at) == (State.NODE_FAIL, NOW + 11, NOW + 11)

    def test_the_journal_is_read_once_more_behind_the_end(self) -> None:
        end = view("CANCELLED")
        assert not [event for event in follow([PartView(end, page(START))])[1] if isinstance(event, LaunchLost)]
        late = (*START, NodeEnded(NOW + 60, "a", 0, 0), NodeEnded(NOW + 61, "b", 0, 0))
        job, _, _ = follow([PartView(end, page(START)), PartView(end, page(late, True, AFTER))])
        assert (job.state, job.late) == (State.COMPLETED, 0)

    def test_an_end_before_the_start(self) -> None:
        cancel = Cancel(NOW + 50, by="ada")
        end = view("CANCELLED", nodes=(), start=None, end=NOW + 51)
        job, events, _ = follow([PartView(view("PENDING"), page()), PartView(end, page(asked=AFTER), ((1, cancel),))])
        assert events == [cancel]
        assert (job.state, job.started_at, job.late) == (State.CANCELLED, None, 0)

    def test_a_cancel_that_the_supervisor_did_not_read_outlives_the_node(self) -> None:
        cancel = Cancel(NOW + 69)
        end = view("NODE_FAIL", "NodeDown")
        job, _, _ = follow([PartView(end, page(START, asked=AFTER), ((1, cancel),))])
        assert job.state is State.CANCELLED
        # One that it did read is in the journal, and not told again.
        known = page((*START, cancel), asked=AFTER, orders={5: 1})
        assert follow([PartView(end, known, ((1, cancel),))])[1].count(cancel) == 1

    def test_a_requeue_that_was_not_read_requeues(self) -> None:
        observed = PartView(
            view("NODE_FAIL", "NodeDown"), page(START, asked=AFTER), ((1, Requeue(NOW + 60, hold=True)),)
        )
        job, _, _ = follow([observed])
        assert (job.state, job.launch, job.held) == (State.PENDING, 1, True)

    def test_a_cancel_behind_the_end_changes_nothing(self) -> None:
        observed = PartView(view("TIMEOUT", "TimeLimit"), page(START, asked=AFTER), ((1, Cancel(NOW + 90)),))
        assert follow([observed])[0].state is State.TIMEOUT

    def test_a_deadline_that_passed_in_the_queue(self) -> None:
        expire = Ordered(5, Expire(NOW + 50, "deadline"), NOW + 50)
        end = view("CANCELLED", nodes=(), start=None, end=NOW + 51)
        job, events, _ = follow([PartView(end, page(asked=AFTER))], [expire])
        assert events[0] == expire.event
        assert job.state is State.DEADLINE

    def test_what_was_taken_back_is_told_when_it_is_surely_gone(self) -> None:
        expire = Ordered(5, Expire(NOW + 50, "failover", "local"), NOW + 50)
        end = view("CANCELLED", nodes=(), start=None, end=NOW + 51)
        early = [PartView(view("PENDING"), page()), PartView(end, page()), PartView(end, None)]
        _, events, cursor = follow(early, [expire])
        assert (events, cursor.orders, cursor.over) == ([], 0, False)
        _, events, cursor = follow([*early, PartView(end, page(asked=AFTER))], [expire])
        assert events == [expire.event] and cursor.over
        # One that started after all tells its own story.
        job, events, _ = follow([PartView(view("PENDING"), page()), PartView(view("RUNNING"), page(START))], [expire])
        assert job.granted_at is not None and expire.event not in events

    def test_what_nobody_knows_any_more(self) -> None:
        journal = (*START, NodeEnded(NOW + 60, "a", 0, 0), NodeEnded(NOW + 61, "b", 0, 0))
        done, _, _ = follow([PartView(None, page(journal, True, AFTER), gone="no trace")])
        assert done.state is State.COMPLETED
        lost, events, cursor = follow([PartView(None, page(START, asked=AFTER), gone="no trace")])
        assert (lost.state, cursor.over) == (State.FAILED, True)
        assert events[-1] == LaunchLost(AFTER, 0, "launch", "no trace")

    def test_a_supervisor_that_could_not_start_is_said(self) -> None:
        _, events, _ = follow([PartView(view("FAILED", "NonZeroExitCode", (127, 0)), page(asked=AFTER))])
        assert "exit code 127" in str(events[-1]) and "/r/runs/inst-7/supervisor.0.log" in str(events[-1])


class TestOrders:
    def test_holds_of_slurms_own(self) -> None:
        job, events, cursor = follow([PartView(view("PENDING", "JobHeldAdmin"), page())])
        assert (job.held, job.reason, cursor.held) == (True, "JobHeldAdmin", True)
        assert [type(event) for event in events] == [Hold]

    def test_what_was_ordered_of_a_waiting_group_is_told_before_its_start(self) -> None:
        orders = [Ordered(1, Hold(NOW + 1), NOW + 1), Ordered(2, Release(NOW + 2), NOW + 2)]
        job, events, _ = follow([PartView(view("PENDING"), page()), PartView(view("RUNNING"), page(START))], orders)
        assert [type(event) for event in events[:3]] == [Hold, Release, Granted]
        assert job.late == 0

    def test_the_supervisors_orders_are_told_early_where_it_has_surely_not_started(self) -> None:
        change = Ordered(3, SetTime(NOW + 50, 60, "b"), NOW + 50)
        cancel = Ordered(4, Cancel(NOW + 51, "b"), NOW + 51)
        waiting = PartView(view("PENDING"), page())
        assert follow([waiting], [change, cancel])[1] == [change.event, cancel.event]
        # It may have started since the question.
        late = [order._replace(done_at=NOW + 200) for order in (change, cancel)]
        assert follow([waiting], late)[1] == []
        journal = page((*START, change.event, cancel.event))
        _, events, cursor = follow([waiting, PartView(view("RUNNING"), journal)], late)
        assert tuple(events) == (*START, change.event, cancel.event)
        assert cursor.orders == 4

    def test_a_cancelled_group_has_a_last_moment(self) -> None:
        cancel = Cancel(NOW + 50)
        _, events, cursor = follow([PartView(view("RUNNING"), page(START))], [Ordered(9, cancel, NOW + 50)])
        assert (events, cursor.kill_at) == (list(START), int(NOW) + 50 + 40 + MARGIN)
        journal = page((*START, Cancel(NOW + 60, grace=1)))
        assert follow([PartView(view("RUNNING"), journal)])[2].kill_at == int(NOW) + 61 + MARGIN
        assert follow([PartView(view("RUNNING"), page((*START, Cancel(NOW, "b"))))])[2].kill_at == 0

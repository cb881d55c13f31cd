"""What is told of a set: the grant when all stand, reports, and the ends that a native job has left open."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.adapters.slurm.journal_lines import AFTER, page
from tests.unit.adapters.slurm.samples import NOW
from tests.unit.adapters.slurm.set_facts import STANDS
from tests.unit.adapters.slurm.views import view

from overspan.adapters.contract import Decider
from overspan.adapters.slurm.groups.handles import (
    GroupCursor,
    GroupHandle,
    GroupPart,
    PartCursor,
    is_group_handle,
    parse_group,
    parse_group_cursor,
)
from overspan.adapters.slurm.groups.projection import GroupView, PartView, project_group
from overspan.adapters.slurm.handles import is_handle
from overspan.adapters.slurm.observation.projection import Ordered
from overspan.bridge.model.causes import Cause
from overspan.bridge.model.errors import NotFound
from overspan.bridge.model.events import (
    Event,
    Expire,
    Granted,
    Launch,
    LaunchLost,
    NodeEnded,
    NodeRelaunch,
    NodeStarted,
    Probed,
    TaskReady,
    Terminate,
)

PARTS = (GroupPart(101, "a", 2), GroupPart(102, "b", 1))
HANDLE = GroupHandle(7, 0, 30, "/r/runs/inst 7", PARTS, Decider.DAEMON, True, "inst-7-0")
START = GroupCursor((PartCursor(101, "a", 0), PartCursor(102, "b", 0)))
RUNS = replace(START, granted=True)


def observed(
    *happened: Event, state: str = "RUNNING", closed: bool = False, given_orders: Sequence[Event] = ()
) -> PartView:
    """A journal that was read after Slurm was asked."""
    orders = tuple((number, event) for number, event in enumerate(given_orders, 1))
    numbers = {place: place + 1 for place, event in enumerate(happened) if isinstance(event, (Launch, Terminate))}
    return PartView(view(state), page(happened, closed, AFTER, numbers), orders)


def tell(
    cursor: GroupCursor = START, orders: Sequence[Ordered] = (), **members: PartView
) -> tuple[list[Event], GroupCursor]:
    told = project_group(HANDLE, GroupView(members, orders), cursor)
    return list(told.events), told.cursor


def test_what_a_probe_met_is_told_until_the_task_is_ready() -> None:
    met = (Probed(NOW + 5, "a", 0, 8, "connection refused"), TaskReady(NOW + 9, "a", 0))
    seen = observed(STANDS["a"], Launch(NOW + 4, "a", 0), NodeStarted(NOW + 4, "a", 0, 0), *met)
    events, _ = tell(RUNS, a=seen, b=observed(STANDS["b"]))
    assert [event for event in events if isinstance(event, (Probed, TaskReady))] == list(met)


class TestGrant:
    def test_nothing_is_granted_before_all_stand(self) -> None:
        events, cursor = tell(a=observed(STANDS["a"]), b=observed(state="PENDING"))
        assert events == [] and cursor == START

    def test_all_standing_is_the_grant_of_all_members(self) -> None:
        events, cursor = tell(a=observed(STANDS["a"]), b=observed(STANDS["b"]))
        assert events == [Granted(NOW + 3, (*STANDS["a"].members, *STANDS["b"].members))]
        assert cursor.granted
        assert tell(cursor, a=observed(STANDS["a"]), b=observed(STANDS["b"])) == ([], cursor)

    def test_alone_is_enough_where_tasks_start_by_themselves(self) -> None:
        handle = replace(HANDLE, together=False)
        seen = GroupView({"a": observed(state="PENDING"), "b": observed(STANDS["b"])})
        told = project_group(handle, seen, START)
        assert told.events == (Granted(NOW + 3, STANDS["b"].members),)
        # The other tells where it is when it comes.
        later = project_group(handle, GroupView({"a": observed(STANDS["a"]), "b": observed(STANDS["b"])}), told.cursor)
        assert later.events == (STANDS["a"],)

    def test_who_gives_back_loses_the_launch(self) -> None:
        events, cursor = tell(a=observed(STANDS["a"], closed=True), b=observed(state="PENDING"))
        assert [(type(event), event.cause) for event in events if isinstance(event, LaunchLost)] == [
            (LaunchLost, Cause.NEVER_STARTED.value)
        ]
        assert cursor.over
        assert tell(cursor, a=observed(STANDS["a"]), b=observed(STANDS["b"])) == ([], cursor)

    @pytest.mark.parametrize(
        ("state", "cause"), [("NODE_FAIL", Cause.NODE), ("CANCELLED", Cause.CANCEL), ("PREEMPTED", Cause.PREEMPTION)]
    )
    def test_a_job_that_ends_early_loses_the_launch(self, state: str, cause: Cause) -> None:
        events, _ = tell(a=observed(STANDS["a"], state=state), b=observed(state="PENDING"))
        assert [event.cause for event in events if isinstance(event, LaunchLost)] == [cause.value]

    def test_a_job_that_is_gone_or_requeued_early_has_the_set_submitted_again(self) -> None:
        requeued = PartView(view("REQUEUED"), page([STANDS["a"]], asked=AFTER))
        gone = PartView(None, page(asked=AFTER), gone="no trace")
        for early in (requeued, gone):
            events, cursor = tell(a=early, b=observed(state="PENDING"))
            assert [event.cause for event in events if isinstance(event, LaunchLost)] == [Cause.NODE.value]
            assert cursor.over

    def test_the_journal_is_read_again_before_an_end_is_judged(self) -> None:
        early = PartView(view("FAILED", "NonZeroExitCode", (75, 0)), page([STANDS["a"]], asked=NOW))
        assert tell(a=early, b=observed(state="PENDING")) == ([], START)

    def test_an_order_that_slurm_carried_out_is_told_once(self) -> None:
        order = Ordered(5, Expire(NOW, "failover"), NOW)
        events, cursor = tell(orders=[order], a=observed(state="PENDING"))
        assert events == [order.event]
        assert tell(cursor, orders=[order], a=observed(state="PENDING")) == ([], cursor)


class TestRunning:
    def test_reports_are_told_and_decisions_are_not(self) -> None:
        happened = (
            STANDS["b"],
            Launch(NOW + 4, "b", 0),
            NodeStarted(NOW + 5, "b", 0, 0),
            Terminate(NOW + 6, "b", 0, "primaries_done", NOW + 9),
            NodeEnded(NOW + 7, "b", 0, 0),
        )
        begun = RUNS.put(replace(RUNS.part("b"), offset=100))
        events, cursor = tell(begun, b=observed(*happened, closed=True))
        assert events == [happened[2], happened[4]]
        assert cursor.part("b").over and not cursor.part("b").open

    def test_a_lost_job_ends_its_open_node_runs_alone(self) -> None:
        happened = (STANDS["a"], Launch(NOW, "a", 0), NodeStarted(NOW, "a", 0, 0), NodeEnded(NOW, "a", 0, 1))
        events, cursor = tell(RUNS, a=observed(*happened, state="NODE_FAIL"), b=observed(STANDS["b"]))
        ends = [event for event in events if isinstance(event, NodeEnded)]
        assert [(end.node, end.cause) for end in ends] == [(1, ""), (0, Cause.NODE.value)]
        assert cursor.part("a").over and not cursor.part("b").over

    def test_a_job_that_somebody_cancelled_is_a_lost_one(self) -> None:
        events, _ = tell(RUNS, b=observed(STANDS["b"], Launch(NOW, "b", 0), state="CANCELLED"))
        assert [event.cause for event in events if isinstance(event, NodeEnded)] == [Cause.NODE.value]

    def test_its_own_limit_is_final(self) -> None:
        events, _ = tell(RUNS, b=observed(STANDS["b"], Launch(NOW, "b", 0), state="TIMEOUT"))
        assert [event.cause for event in events if isinstance(event, NodeEnded)] == [Cause.TIME.value]

    def test_an_attempt_that_was_ordered_and_never_begun_is_ended_too(self) -> None:
        lost = observed(
            STANDS["a"], state="NODE_FAIL", given_orders=[Launch(NOW, "a", 0), NodeRelaunch(NOW, "a", 0, 1, 1)]
        )
        events, _ = tell(RUNS, a=lost)
        ends = [(end.node, end.run) for end in events if isinstance(end, NodeEnded)]
        assert ends == [(0, 0), (1, 0), (1, 1)]

    def test_an_end_is_not_told_before_the_journal_was_read_again(self) -> None:
        early = PartView(view("NODE_FAIL"), page([STANDS["b"], Launch(NOW, "b", 0)], asked=NOW))
        assert tell(RUNS, b=early)[0] == [STANDS["b"]]

    def test_a_job_that_lost_a_node_takes_no_further_attempt(self) -> None:
        happened = (STANDS["b"], Launch(NOW, "b", 0), NodeEnded(NOW, "b", 0, 0, cause="node"))
        assert tell(RUNS, b=observed(*happened))[1].part("b").over
        error = (STANDS["b"], Launch(NOW, "b", 0), NodeEnded(NOW, "b", 0, 0, exit_code=3))
        assert not tell(RUNS, b=observed(*error))[1].part("b").over

    def test_a_replacement_tells_where_it_is(self) -> None:
        cursor = RUNS.put(PartCursor(150, "b", 2))
        moved = Granted(NOW + 50, (("b", 0, "n9", "10.0.0.9", ()),))
        events, cursor = tell(cursor, b=observed(moved, Launch(NOW, "b", 2), NodeStarted(NOW + 51, "b", 2, 0)))
        assert events == [moved, NodeStarted(NOW + 51, "b", 2, 0)]
        assert cursor.part("b").attempt == 2


@given(cuts=st.lists(st.integers(0, 5), max_size=4), close=st.booleans())
def test_a_story_in_pieces_is_the_same(cuts: list[int], close: bool) -> None:
    happened = (
        STANDS["b"],
        Launch(NOW, "b", 0),
        NodeStarted(NOW, "b", 0, 0),
        NodeEnded(NOW, "b", 0, 0, exit_code=3),
        Launch(NOW, "b", 1),
        NodeStarted(NOW, "b", 1, 0),
    )
    ended = observed(*happened, state="COMPLETED", closed=close)
    whole, last = tell(RUNS, b=ended)
    events, cursor = [], RUNS
    for cut in sorted(cuts):
        told, cursor = tell(parse_group_cursor(HANDLE, str(cursor)), b=observed(*happened[:cut]))
        events += told
    told, cursor = tell(parse_group_cursor(HANDLE, str(cursor)), b=ended)
    assert [*events, *told] == whole and cursor == last


class TestTexts:
    def test_a_handle_is_read_back(self) -> None:
        assert parse_group(str(HANDLE)) == HANDLE
        assert is_group_handle(str(HANDLE)) and is_handle(str(HANDLE))

    @pytest.mark.parametrize("text", ["", "m.", "m.1|2|3", "s.1.0.1.0.0.1.30.main", "m.1|0|3|1|t|/r|a=b"])
    def test_other_texts_name_no_set(self, text: str) -> None:
        with pytest.raises(NotFound):
            parse_group(text)

    def test_a_cursor_is_read_back(self) -> None:
        cursor = replace(RUNS, orders=9).put(PartCursor(200, "a", 3, 512, 4, 3, ((0, 0), (1, 2)), False))
        assert parse_group_cursor(HANDLE, str(cursor)) == cursor

    @pytest.mark.parametrize("text", ["", "g:1:2:3::0", "[]", '["g",0,[["x",0,1,0,0,-1,[],false]]]'])
    def test_other_texts_are_the_beginning(self, text: str) -> None:
        assert parse_group_cursor(HANDLE, text) == START


DEFERRED = replace(HANDLE, parts=(*PARTS, GroupPart(0, "c", 1)), patience=600)


def test_the_grant_needs_no_native_job_of_a_deferred_task() -> None:
    seen = {task: observed(STANDS[task]) for task in ("a", "b")}
    told = project_group(DEFERRED, GroupView(seen), DEFERRED.begin())
    assert [type(event) for event in told.events] == [Granted] and told.cursor.granted
    assert not told.cursor.part("c").submitted
    assert DEFERRED.list_jobs() == [HANDLE.native_job(part) for part in START.parts]


@pytest.mark.parametrize(("waited", "lost"), [(599.0, False), (600.0, True)])
def test_a_deferred_task_waits_for_nodes_as_long_as_the_others_have_time(waited: float, lost: bool) -> None:
    seen = view("PENDING")
    cursor = replace(RUNS, parts=(*RUNS.parts, PartCursor(103, "c", since=seen.asked - waited)))
    others = {task: PartView(view("RUNNING"), page((), False, AFTER)) for task in ("a", "b")}
    told = project_group(DEFERRED, GroupView({**others, "c": PartView(seen, page((), False, AFTER))}), cursor)
    assert told.cursor.over is lost
    assert [(type(event), getattr(event, "cause", "")) for event in told.events] == [
        (LaunchLost, Cause.NEVER_STARTED.value)
    ] * lost


def test_a_native_job_that_has_started_is_not_impatient() -> None:
    stands = PartView(view("PENDING"), page((Granted(NOW, (("c", 0, "n1", "10.0.0.3", ()),)),), False, AFTER))
    cursor = replace(RUNS, parts=(*RUNS.parts, PartCursor(103, "c", since=1.0)))
    assert not project_group(DEFERRED, GroupView({"c": stands}), cursor).cursor.over

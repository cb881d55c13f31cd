"""What is shown of the queue by what was chosen; pure."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from tests.unit.tui.fake_source import NOW, job
from tests.unit.tui.queue_lab import make_array, make_lab

from overspan.bridge.client.records import JobFilter
from overspan.tui.options import TopOptions
from overspan.tui.queue.filters import read_filter
from overspan.tui.queue.scope import Owners
from overspan.tui.queue.shown import Folding, count_shown, find_next_end, make_choice, show_queue, shows_ended
from overspan.tui.queue.tree import LineKey, QueueTree

TREE = QueueTree()
TREE.apply(make_lab(), whole=True)
KEYS = [LineKey(number, "job") for number in range(4)]


def clock() -> float:
    return NOW


def test_a_summary_counts_families_and_what_a_filter_leaves_out() -> None:
    choice = make_choice(TopOptions(filter="  state:pd   ", sort="-name"))
    shown = show_queue(TREE, choice, Folding(), clock)
    assert (shown.summary.matches, shown.summary.total) == (4, 7)
    assert shown.summary.filter == "state:pd"
    assert [line.node.ref for line in shown.lines] == ["4900", "4815", "4822", "4821"]


def test_members_are_those_that_match_and_the_name_of_the_whole_matches_all() -> None:
    choice = make_choice(TopOptions(filter="state:r"))
    shown = show_queue(TREE, choice, Folding(unfolded=True), clock)
    refs = [line.node.ref for line in shown.lines]
    assert refs == ["4900", "4900_0", "4900_1", "4900_2", "4820", "4815", "4815+0", "4815+1", "4845"]
    assert [line.last for line in shown.lines] == [False, False, False, True, False, False, False, False, True]
    named = show_queue(TREE, choice._replace(filter=read_filter("name:rl-math")), Folding(unfolded=True), clock)
    assert [line.node.ref for line in named.lines] == ["4815", "4815+0", "4815+1", "4845", "4846", "4815+2"]


def test_owners_limit_what_is_shown() -> None:
    choice = make_choice(TopOptions())
    scope = choice.scope._replace(owners=Owners.MINE, users=("bob",))
    shown = show_queue(TREE, choice._replace(scope=scope), Folding(), clock)
    assert {line.node.row.user for line in shown.lines} == {"bob"}
    assert (shown.summary.matches, shown.summary.total) == (2, 2)


def test_equal_choices_are_told_and_others_differ() -> None:
    choice = make_choice(TopOptions(filter="a"))
    view = choice.make_view(Folding(), clock)
    assert view.choice == choice.make_view(Folding(True), lambda: NOW + 5).choice
    others = [
        choice._replace(filter=read_filter("b")),
        choice._replace(scope=choice.scope._replace(owners=Owners.MINE, users=("a",))),
        make_choice(TopOptions(filter="a", sort="name")),
    ]
    assert all(other.make_view(Folding(), clock).choice != view.choice for other in others)
    # Times that grow change their order.
    growing = make_choice(TopOptions(sort="time_used"))
    assert growing.make_view(Folding(), clock).choice != growing.make_view(Folding(), lambda: NOW + 60).choice


def test_ended_jobs_leave_one_after_another() -> None:
    lines = show_queue(TREE, make_choice(TopOptions()), Folding(), clock).lines
    assert find_next_end(lines) == NOW - 10 + 60
    assert find_next_end([]) == float("inf")
    # An element of an array that lives does not count.
    tree = QueueTree()
    tree.apply(make_array(44), whole=True)
    assert find_next_end(show_queue(tree, make_choice(TopOptions()), Folding(), clock).lines) == float("inf")


def test_the_time_of_an_array_that_lives_goes_on() -> None:
    tree = QueueTree()
    ended = job(45, state="COMPLETED", array_id=44, array_index=0, ended_at=NOW - 50)
    tree.apply([ended, job(46, array_id=44, array_index=1)], whole=True)
    head = tree.find(LineKey(44, "job"))
    assert head is not None and head.row.ended_at is None
    tree.apply([job(46, state="FAILED", array_id=44, array_index=1, ended_at=NOW - 5)], [46])
    head = tree.find(LineKey(44, "job"))
    assert head is not None and head.row.ended_at == NOW - 5 and head.over


def test_counts_are_those_of_what_can_be_shown() -> None:
    assert count_shown(TREE, False, NOW) == {
        "RUNNING": 7,
        "PENDING": 1000,
        "SUSPENDED": 1,
        "FAILED": 1,
        "CANCELLED": 1,
        "COMPLETED": 0,
    }
    assert count_shown(TREE, True, NOW)["COMPLETED"] == 1
    # The failed element counts as long as its array lives.
    assert count_shown(TREE, False, NOW + 3600)["FAILED"] == 1
    assert count_shown(TREE, False, NOW + 3600)["CANCELLED"] == 0


def test_states_in_which_jobs_end_show_those_that_ended() -> None:
    assert not shows_ended(())
    assert not shows_ended(("PENDING", "RUNNING"))
    assert shows_ended(("RUNNING", "FAILED"))
    assert shows_ended(("all",))
    assert make_choice(TopOptions(wanted=JobFilter(states=("FAILED",)))).scope.ended


@given(st.lists(st.one_of(st.none(), st.tuples(st.sampled_from(KEYS), st.booleans()))), st.booleans())
def test_folding_is_what_was_done_last(steps: list[tuple[LineKey, bool] | None], unfolded: bool) -> None:
    folding, model = Folding(unfolded), dict.fromkeys(KEYS, unfolded)
    for step in steps:
        if step is None:
            folding.turn()
            later = LineKey(99, "job") in folding
            assert all((key in folding) == later for key in KEYS)
            model = dict.fromkeys(KEYS, later)
        else:
            folding.set(*step)
            model[step[0]] = step[1]
        assert {key: key in folding for key in KEYS} == model

"""Orders: the table, what each sends, what is refused, left out and told; against a source in memory."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from typing import Any

import pytest
from tests.unit.tui.fake_source import NOW, FakeSource, job
from tests.unit.tui.frames import read_frame
from tests.unit.tui.order_stories import answer, begin, make_targets, make_tree, read_notes
from tests.unit.tui.queue_lab import make_array, make_group
from tests.unit.tui.stories import play, settle
from textual.pilot import Pilot
from textual.widgets import Static

from overspan.bridge.client.messages import Cancelled, CancelOrder, FailedOrder
from overspan.bridge.client.terminal_texts import UNSAFE
from overspan.bridge.listings.rows import JobRow
from overspan.bridge.model.errors import Conflict
from overspan.tui.actions.giving import start_order
from overspan.tui.actions.order_log import KEPT, OrderEntry, OrderLog, sum_up_answers
from overspan.tui.actions.order_log_screen import OrderLogScreen, write_entry
from overspan.tui.actions.orders import (
    ORDERS,
    check_again,
    choose_targets,
    find_order,
    read_integer,
    read_whole,
    word_states,
)
from overspan.tui.actions.target import make_target
from overspan.tui.app import TopApp, TopOptions
from overspan.tui.dialogs.order_dialog import OrderDialog
from overspan.tui.head import Head
from overspan.tui.keyboard.keys import KEYS, find_keys

HOSTILE = "x\x1b]0;t\x07\x9b2J\u202e[bold]b[/bold]"


# --- the table --------------------------------------------------------------------------------------------------------


def test_every_order_has_a_verb_a_key_and_help() -> None:
    keys = {key.id: key for key in find_keys("job")}
    for order in ORDERS:
        assert order.verb and order.states
        assert keys[order.key].action == f"order('{order.name}')"
        assert keys[order.key].title and keys[order.key].help
    ordering = {key.action for key in keys.values() if key.action.startswith("order(")}
    assert ordering == {f"order('{order.name}')" for order in ORDERS}


@pytest.mark.parametrize("place", ["queue", "history"])
def test_no_key_of_jobs_is_another_key_there(place: str) -> None:
    scopes = ("app", "list", place, "job")
    keys = [one for key in KEYS if key.scope in scopes for one in key.keys.split(",")]
    assert len(keys) == len(set(keys))


@pytest.mark.parametrize("scope", ["dialog", "orders"])
def test_no_key_twice(scope: str) -> None:
    keys = [one for key in find_keys(scope) for one in key.keys.split(",")]
    assert len(keys) == len(set(keys))


def test_whole_numbers_are_read_strictly() -> None:
    assert (read_whole("12"), read_integer("-5"), read_integer("+5")) == (12, -5, 5)
    for text in ("", "-1", "1_0", "1.5", "٣", "1" * 11):
        with pytest.raises(ValueError, match="whole number"):
            read_whole(text)


# --- decisions --------------------------------------------------------------------------------------------------------


def test_an_order_is_for_what_it_makes_sense_for() -> None:
    targets = make_targets(job(1), job(2, state="PENDING"), job(3, state="COMPLETED", ended_at=NOW))
    choice = choose_targets(find_order("hold"), targets)
    assert [target.ref for target in choice.chosen] == ["2"]
    assert choice.left_out == ("leo:1 fit is RUNNING", "leo:3 fit is COMPLETED")
    # A group has members in several states.
    [group] = make_targets(*make_group(42))
    assert choose_targets(find_order("hold"), [group]).chosen == (group,)
    assert word_states(group.states) == "2 PENDING, 3 RUNNING"
    assert choose_targets(find_order("throttle"), [group]).left_out == ("slurm-a:42 rl-math (group): not possible",)


def test_a_member_of_a_target_is_no_target_of_its_own() -> None:
    [group] = make_tree(*make_group(42))
    targets = [make_target(node) for node in (group.children[0], group, group.children[1])]
    assert [target.ref for target in choose_targets(find_order("cancel"), targets).chosen] == ["42"]
    assert [target.ref for target in choose_targets(find_order("cancel"), targets[:1]).chosen] == ["42+0"]


def test_a_further_member_of_an_elastic_task_is_a_target_beside_its_group() -> None:
    """It is a job of its own: what its group is told does not reach it."""
    [group] = make_tree(*make_group(42))
    targets = [make_target(node) for node in (group, *group.children)]
    assert [target.ref for target in choose_targets(find_order("hold"), targets).chosen] == ["42", "73"]
    assert choose_targets(find_order("scale"), targets).left_out[0].endswith("rollout-4 (member): not possible")


def test_what_ended_or_went_meanwhile_is_left_out() -> None:
    targets = make_targets(job(1), job(2), job(3))
    known = {target.key for target in targets}
    jobs = make_tree(job(1), job(2, state="FAILED", ended_at=NOW))
    choice = check_again(find_order("cancel"), targets, jobs, known)
    assert [target.ref for target in choice.chosen] == ["1"]
    assert choice.left_out == ("leo:2 fit is FAILED now", "leo:3 fit is not in the queue any more")
    # The history has jobs that the queue never had; a job that ended can be submitted again wherever it is.
    assert len(check_again(find_order("cancel"), targets, make_tree(), set()).chosen) == 3
    assert len(check_again(find_order("resubmit"), targets, make_tree(), known).chosen) == 3


def test_the_log_keeps_the_newest_and_equal_answers_are_told_together() -> None:
    log = OrderLog()
    for number in range(KEPT + 5):
        log.add(OrderEntry(NOW, "Hold", str(number), "held"))
    assert len(log) == KEPT and next(iter(log)).target == str(KEPT + 4)
    entries = [OrderEntry(NOW, "Hold", f"leo:{number} fit", "held") for number in range(3)]
    entries.append(OrderEntry(NOW, "Hold", "leo:9 fit", "no", True))
    assert sum_up_answers(entries) == "leo:9 fit: no\n3 jobs: held"
    many = [OrderEntry(NOW, "Hold", str(number), f"no {number}", True) for number in range(6)]
    assert sum_up_answers(many).endswith("3: no 3\nand 2 more answers in the order log")
    assert write_entry(entries[3])[8:] == " ! Hold  leo:9 fit: no"


# --- every order ------------------------------------------------------------------------------------------------------

ELEMENTS = tuple(make_array(44))
TASKS = tuple(job(7, name, group="fit", task_offset=k, raw_id=7 + k) for k, name in enumerate(("trainer", "rollout")))
SENT: tuple[tuple[str, Sequence[JobRow], Sequence[str], tuple[str, Any]], ...] = (
    ("cancel", [job(7)], ["y"], ("cancel", CancelOrder(refs=("7",)))),
    ("signal", [job(7)], ["down", "down", "enter"], ("cancel", CancelOrder(refs=("7",), signal="INT", full=True))),
    ("hold", [job(7, state="PENDING")], [], ("hold", ("7",))),
    ("release", [job(7, state="PENDING", reason="JobHeldUser")], [], ("release", ("7",))),
    ("suspend", [job(7)], [], ("suspend", ("7",))),
    ("resume", [job(7, state="SUSPENDED")], [], ("resume", ("7",))),
    ("requeue", [job(7)], ["y"], ("requeue", ("7",))),
    ("restart", [job(7)], ["y"], ("restart", ("7",))),
    ("resubmit", [job(7)], ["ctrl+s"], ("resubmit", ("7", False, {}))),
    ("resubmit_failed", ELEMENTS, ["ctrl+s"], ("resubmit", ("44", True, {}))),
    ("edit", [job(7)], [*["backspace"] * 2, "1", "5", "ctrl+s"], ("update", ("7", {"time_limit": 315}))),
    ("time_limit", [job(7)], [*"2-12", "enter"], ("update", ("7", {"time_limit": 60 * 3600}))),
    ("priority", [job(7, state="PENDING")], [*"12", "enter"], ("update", ("7", {"priority": 12}))),
    ("nice", [job(7, state="PENDING")], ["minus", "5", "enter"], ("update", ("7", {"nice": -5}))),
    ("throttle", ELEMENTS, ["8", "enter"], ("update", ("44", {"throttle": 8}))),
    ("scale", TASKS, [*"rollout=6", "enter"], ("scale", ("7", "rollout", 6))),
    ("top", [job(7, state="PENDING")], [], ("top", ("7",))),
)


def test_every_order_is_sent_once() -> None:
    assert [name for name, *_ in SENT] == [order.name for order in ORDERS]


@pytest.mark.parametrize(("name", "rows", "keys", "sent"), SENT, ids=[name for name, *_ in SENT])
def test_an_order_is_sent_by_its_key(
    name: str, rows: Sequence[JobRow], keys: Sequence[str], sent: tuple[str, Any]
) -> None:
    source = FakeSource(rows)
    source.details = {"7": {"name": "fit", "tasks": [{"time_limit": 300}]}}
    key = next(key.keys for key in find_keys("job") if key.id == f"job.{name}")

    async def story(app: TopApp, pilot: Pilot[int]) -> None:
        await begin(app, pilot)
        await pilot.press(key)
        if keys:
            assert source.orders == []
            await answer(pilot, *keys)
        await settle(pilot, lambda: len(app.order_log) == 1)
        assert source.orders == [sent]
        await settle(pilot, lambda: len(app.screen_stack) == 1)
        [entry] = app.order_log
        assert entry.target.startswith(("leo:7 fit", "k8s:44 sweep-lr")) and not entry.failed
        await settle(pilot, lambda: f"{entry.target}: {entry.answer}" in read_notes(app))

    play(source, story)


def test_a_task_is_scaled_on_its_line_and_a_group_by_the_name_of_one() -> None:
    source = FakeSource(TASKS)

    async def story(app: TopApp, pilot: Pilot[int]) -> None:
        await begin(app, pilot)
        await pilot.press("equals_sign")
        await answer(pilot, *"6", "enter")
        await settle(pilot, lambda: "7 has several tasks; write TASK=N, or choose the line" in read_notes(app))
        assert source.orders == []
        await pilot.press("right", "down", "down", "equals_sign")
        await answer(pilot, *"6 x", "enter")
        await settle(pilot, lambda: "whole number" in str(app.screen.query_one("#order-trouble", Static).render()))
        await pilot.press(*["backspace"] * 9, *"auto", "enter")
        await settle(pilot, lambda: source.orders == [("scale", ("7+1", "", None))])
        await settle(pilot, lambda: "2 of 3 members are there or come" in read_notes(app))

    play(source, story)


# --- refusals ---------------------------------------------------------------------------------------------------------


def test_a_refusal_is_told_with_its_remedy_and_stays_in_the_log() -> None:
    source = FakeSource([job(7, state="PENDING")])
    source.refusal = Conflict("it starts just now", remedy="cancel it")

    async def story(app: TopApp, pilot: Pilot[int]) -> None:
        await begin(app, pilot)
        await pilot.press("H")
        await settle(pilot, lambda: "Hold leo:7 fit: it starts just now; cancel it" in read_notes(app))
        await pilot.press("L")
        assert isinstance(app.screen, OrderLogScreen)
        await settle(pilot, lambda: "! Hold  leo:7 fit: it starts just now; cancel it" in read_frame(app.screen))
        await pilot.press("L")
        assert not isinstance(app.screen, OrderLogScreen)

    play(source, story)


class RefusingSource(FakeSource):
    """Cancels all but job 1."""

    def cancel(self, order: CancelOrder) -> Cancelled:
        """As the client."""
        super().cancel(order)
        done = tuple(ref for ref in order.refs if ref != "1")
        return Cancelled(done, (FailedOrder("1", "denied", "it is eve's", "ask eve"),), "what was asked waits: ssh")


def test_an_order_without_an_answer_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    source, gate = FakeSource([job(7)]), threading.Event()
    held = source.cancel

    def cancel(order: CancelOrder) -> Cancelled:
        assert gate.wait(60)
        return held(order)

    monkeypatch.setattr(source, "cancel", cancel)
    monkeypatch.setattr("overspan.tui.actions.order_log.SLOW_SECONDS", 0.0)

    async def story(app: TopApp, pilot: Pilot[int]) -> None:
        await begin(app, pilot)
        await pilot.press("c")
        await settle(pilot, lambda: isinstance(app.screen, OrderDialog) and app.screen._seen)
        await pilot.press("y")
        await settle(pilot, lambda: "1 unanswered" in app.query_one(Head).text)
        await pilot.press("L")
        await settle(pilot, lambda: "Cancel  leo:7 fit: sent, no answer yet" in read_frame(app.screen))
        await pilot.press("escape")
        gate.set()
        await settle(pilot, lambda: len(app.order_log) == 1 and not app.order_log.under_way)
        await settle(pilot, lambda: "unanswered" not in app.query_one(Head).text)

    play(source, story)


def test_of_several_each_that_failed_is_told() -> None:
    source = RefusingSource([job(1), job(2), job(3)])

    async def story(app: TopApp, pilot: Pilot[int]) -> None:
        await begin(app, pilot)
        await pilot.press("ctrl+a", "c")
        await answer(pilot, "y")
        await settle(pilot, lambda: len(app.order_log) == 3)
        [(name, order)] = source.orders
        assert name == "cancel" and set(order.refs) == {"1", "2", "3"}
        assert "leo:1 fit: it is eve's; ask eve" in read_notes(app)
        assert "2 jobs: cancelled; what was asked waits: ssh" in read_notes(app)
        assert len(app._notifications) == 1

    play(source, story)


def test_orders_about_several_are_all_sent_and_told_once() -> None:
    source = FakeSource([job(number, state="PENDING") for number in (1, 2, 3)])

    async def story(app: TopApp, pilot: Pilot[int]) -> None:
        await begin(app, pilot)
        await pilot.press("ctrl+a", "H")
        assert source.orders == []
        await answer(pilot, "y")
        await settle(pilot, lambda: "3 jobs: held" in read_notes(app))
        assert sorted(source.orders) == [("hold", ("1",)), ("hold", ("2",)), ("hold", ("3",))]

    play(source, story)


def test_an_order_that_makes_no_sense_is_not_sent() -> None:
    source = FakeSource([job(7)])

    async def story(app: TopApp, pilot: Pilot[int]) -> None:
        await begin(app, pilot)
        await pilot.press("H")
        await settle(pilot, lambda: "Hold: not possible leo:7 fit is RUNNING" in read_notes(app))
        assert source.orders == []

    play(source, story)


def test_read_only_has_no_keys_and_refuses_the_palette() -> None:
    source = FakeSource([job(7, state="PENDING")])

    async def run() -> None:
        app = TopApp(source, TopOptions(read_only=True))
        async with app.run_test() as pilot:
            await begin(app, pilot)
            keys = [key.keys for key in find_keys("job") if key.action.startswith("order(")]
            await pilot.press(*keys)
            assert len(app.screen_stack) == 1 and not app._notifications
            active = {each.binding.action for each in app.screen.active_bindings.values() if each.enabled}
            assert not [action for action in active if action.startswith("order(")]
            assert "logs" in active
            start_order(app, "hold", app.queue.list_targets())
            await settle(pilot, lambda: "read-only: no orders are given" in read_notes(app))

    asyncio.run(run())
    assert source.orders == []


def test_a_hostile_name_reaches_neither_dialog_note_nor_log() -> None:
    source = FakeSource([job(7, HOSTILE)])

    async def story(app: TopApp, pilot: Pilot[int]) -> None:
        await begin(app, pilot)
        await pilot.press("c")
        await settle(pilot, lambda: "[bold]b[/bold]" in read_frame(app.screen))
        assert not UNSAFE.search(read_frame(app.screen).replace("\n", ""))
        source.refusal = Conflict(HOSTILE, remedy=HOSTILE)
        await answer(pilot, "y")
        await settle(pilot, lambda: bool(app._notifications))
        assert not UNSAFE.search(read_notes(app).replace("\n", "")) and "[bold]" in read_notes(app)
        await pilot.press("L")
        await settle(pilot, lambda: "[bold]b[/bold]: x" in read_frame(app.screen))
        assert not UNSAFE.search(read_frame(app.screen).replace("\n", ""))

    play(source, story)


def test_the_id_is_copied() -> None:
    async def story(app: TopApp, pilot: Pilot[int]) -> None:
        await begin(app, pilot)
        await pilot.press("y")
        assert app.clipboard == "7"
        assert "sent to the terminal's clipboard 7" in read_notes(app)
        source.put(job(8))
        await settle(pilot, lambda: len(app.queue.table.lines) == 2)
        await pilot.press("ctrl+a", "y")
        assert app.clipboard == "7 8"

    source = FakeSource([job(7)])
    play(source, story)

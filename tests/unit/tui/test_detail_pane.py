"""The detail pane: sections made of the daemon's documents, their layout, and the pane against a source in memory."""

from __future__ import annotations

import threading
from typing import Any, ClassVar

import pytest
from rich.cells import cell_len
from tests.unit.tui.detail_lines import document, write
from tests.unit.tui.fake_source import NOW, FakeSource, job
from tests.unit.tui.stories import play, settle
from textual.pilot import Pilot

from overspan.bridge.client.messages import Transition, Variable
from overspan.bridge.listings.explanations import explain_exit, explain_reason, name_fault
from overspan.bridge.listings.rows import JobRow
from overspan.tui.app import TopApp
from overspan.tui.detail.answers import JobAnswers, narrow_job
from overspan.tui.detail.layout import DetailBlock, DetailText, LabelledValues, StateSpan, TextGrid, lay_out
from overspan.tui.detail.sections import make_spans


def fail(code: int = 1, **more: Any) -> dict[str, Any]:
    failed = document(state="FAILED", exit_code=code, **more)
    failed["tasks"][0] |= {"ended_at": NOW, "exit_code": code}
    failed["tasks"][0]["attempts"][0] |= {"cause": "exit", "ended_at": NOW, "exit_code": code}
    return failed


def test_a_failure_is_told_with_its_cause_fault_and_exit_code() -> None:
    lines = write(JobAnswers(fail(127), script="#!/bin/sh\n\tfit [a-c]\n"))
    assert "Ended      its program failed (the job's own); exit code 127 (the shell did not find the program)" in [
        *lines,
        *write(JobAnswers(fail(127)), 200),
    ]
    assert "        fit [a-c]" in lines


def test_a_task_that_waits_for_readiness_says_for_whom_and_what_the_probe_met() -> None:
    told = "t waits for s: tcp s-0:9999, 8 tries, connection refused"
    shown = document()
    shown["tasks"].insert(0, {"name": "t", "state": "PENDING", "reason": "Dependency", "nodes": 1, "waits": told})
    assert ["Waits", told] in [line.split(maxsplit=1) for line in write(JobAnswers(shown), 100)]


def test_words_of_reasons_and_ends() -> None:
    assert explain_reason("Resources: 0 of 2") == "what it asks for is not free: 0 of 2"
    assert explain_exit(0, 9) == "killed by SIGKILL" and explain_exit(137, 0).endswith("SIGKILL)")
    assert (name_fault("node"), name_fault("", "TIMEOUT"), name_fault("cancel")) == (
        "the cluster's",
        "the job's own",
        "by order",
    )


def test_spans_cover_the_time_until_now() -> None:
    rows = [Transition(1, 1, "", 10.0, "PENDING", "RUNNING"), Transition(2, 1, "", 30.0, "RUNNING", "COMPLETING")]
    assert make_spans(rows, 0.0, 40.0) == (
        StateSpan(0.0, 10.0, "PENDING"),
        StateSpan(10.0, 30.0, "RUNNING"),
        StateSpan(30.0, 40.0, "COMPLETING"),
    )


def test_nothing_is_wider_than_the_pane_and_nothing_reaches_the_terminal_raw() -> None:
    hostile = "\x1b]0;title\x07[red]\u202e" + "漢字" * 30
    blocks: list[DetailBlock] = [
        LabelledValues((("Name", (DetailText(hostile),)),)),
        TextGrid(("A", "B"), ((DetailText(hostile), DetailText(hostile)),)),
    ]
    for block in blocks:
        for width in (38, 80):
            texts = ["".join(piece.text for piece in line) for line in lay_out(block, width)]
            assert all(cell_len(text) <= width for text in texts)
            assert not any(letter in text for text in texts for letter in "\x1b\x07\u202e")
    assert "[red]" in "".join(piece.text for line in lay_out(blocks[0], 80) for piece in line)


def test_the_pane_follows_the_cursor_and_says_when_a_job_is_gone() -> None:
    source = FakeSource([job(1), job(2)])
    source.details = {"2": document(2, comment="two")}

    async def story(app: TopApp, pilot: Pilot[int]) -> None:
        await settle(pilot, lambda: len(app.queue.table.lines) == 2)
        await pilot.press("d")
        await settle(pilot, lambda: "two" in app.queue.pane.text())
        await pilot.press("down")
        await settle(pilot, lambda: "nothing is known of 1" in app.queue.pane.text())
        await pilot.press("z")
        assert app.queue.pane.is_maximized
        await pilot.press("escape")
        assert app.queue.pane.display and not app.queue.pane.is_maximized
        await pilot.press("escape")
        assert not app.queue.pane.display and app.queue.table.has_focus

    play(source, story)


def test_a_slow_answer_for_another_job_is_dropped() -> None:
    class SlowSource(FakeSource):
        """Answers about each job when it may; the newest job is the first line."""

        may_answer: ClassVar = {"1": threading.Event(), "2": threading.Event()}
        asked: ClassVar = {"1": threading.Event(), "2": threading.Event()}

        def show(self, ref: str) -> dict[str, Any]:
            self.asked[ref].set()
            self.may_answer[ref].wait(60)
            return super().show(ref)

    source = SlowSource([job(1), job(2)])
    source.details = {"1": document(1, comment="one"), "2": document(2, comment="two")}

    async def story(app: TopApp, pilot: Pilot[int]) -> None:
        await settle(pilot, lambda: len(app.queue.table.lines) == 2)
        await pilot.press("d")
        await settle(pilot, source.asked["2"].is_set)
        await pilot.press("down")
        source.may_answer["2"].set()
        # The thread asks the next question when it has handed over the answer to the one before.
        await settle(pilot, source.asked["1"].is_set)
        await pilot.pause()
        assert "two" not in app.queue.pane.text()
        source.may_answer["1"].set()
        await settle(pilot, lambda: "one" in app.queue.pane.text())

    play(source, story, (140, 40))


@pytest.mark.parametrize("keys", [("d",), ("d", "z"), ("d", "tab")], ids="-".join)
def test_q_closes_the_details_before_it_ends_the_application(keys: tuple[str, ...]) -> None:
    source = FakeSource([job(1)])
    source.details = {"1": document(1)}

    async def story(app: TopApp, pilot: Pilot[int]) -> None:
        await settle(pilot, lambda: bool(app.queue.table.lines))
        await pilot.press(*keys)
        zoomed = app.queue.pane.is_maximized
        await pilot.press("q")
        if zoomed:
            assert app.queue.pane.display and not app.queue.pane.is_maximized
            await pilot.press("q")
        assert not app.queue.pane.display and app.is_running and app.queue.table.has_focus
        await pilot.press("q")
        assert not app.is_running

    play(source, story)


def test_a_job_is_asked_again_when_its_line_changes_and_keeps_its_place() -> None:
    source = FakeSource([job(1, "fit", "PENDING")])
    source.details = {"1": document(1, "PENDING", comment="waits")}

    async def story(app: TopApp, pilot: Pilot[int]) -> None:
        await settle(pilot, lambda: bool(app.queue.table.lines))
        await pilot.press("d")
        pane = app.queue.pane
        await settle(pilot, lambda: "waits" in pane.text())
        await pilot.press("J", "J")
        source.details = {"1": document(1, comment="it runs now")}
        source.put(job(1))
        await settle(pilot, lambda: "it runs now" in pane.text())
        assert pane.scroll_offset.y == 2

    play(source, story, (100, 16))


def test_a_change_of_a_member_is_a_change_of_its_group() -> None:
    def rows(state: str) -> list[JobRow]:
        return [
            job(1, name, state if offset else "RUNNING", group="rlhf", task_offset=offset, raw_id=1 + offset)
            for offset, name in enumerate(("trainer", "rollout"))
        ]

    source = FakeSource(rows("PENDING"))
    source.details = {"1": document(1, comment="one waits")}

    async def story(app: TopApp, pilot: Pilot[int]) -> None:
        await settle(pilot, lambda: bool(app.queue.table.lines))
        await pilot.press("d")
        await settle(pilot, lambda: "one waits" in app.queue.pane.text())
        source.details = {"1": document(1, comment="both run")}
        source.put(*rows("RUNNING"))
        await settle(pilot, lambda: "both run" in app.queue.pane.text())

    play(source, story)


def group_document() -> dict[str, Any]:
    """Two tasks, one of which has failed."""
    told = document(1, "RUNNING", name="rlhf", group=True)
    (first,) = told["tasks"]
    bad = {
        **first,
        "name": "rollout",
        "offset": 1,
        "state": "FAILED",
        "exit_code": 3,
        "ended_at": NOW,
        "node_list": "n9",
    }
    bad["attempts"] = [{**first["attempts"][0], "state": "FAILED", "cause": "exit", "exit_code": 3, "ended_at": NOW}]
    return {**told, "tasks": [{**first, "name": "trainer", "offset": 0}, bad]}


def test_a_task_tells_its_own_facts_alone() -> None:
    lines = write(
        JobAnswers(narrow_job(group_document(), "1+1"), variables=(Variable("trainer", "X", "1", "task"),)), 100
    )
    text = "\n".join(lines)
    assert "Task       rollout of 1 rlhf" in lines and "State      FAILED" in text
    assert "exit code 3" in text and "n9" in text and "trainer" not in text
    whole = "\n".join(write(JobAnswers(narrow_job(group_document(), "1")), 100))
    assert "trainer" in whole and "State       RUNNING" in whole.replace("State      RUNNING", "State       RUNNING")


def test_the_job_s_own_variables_are_told_and_how_many_more_there_are() -> None:
    told = (
        Variable("", "EPOCHS", "3", "task"),
        Variable("", "HF_TOKEN", "***", "secret", True),
        Variable("", "HOME", "/home/ana", "submission"),
    )
    lines = write(JobAnswers(document(), variables=told))
    assert "EPOCHS    3" in lines and "HF_TOKEN  ***" in lines and "1 more: `b` shows all" in lines
    assert "Access/permission denied" in write(
        JobAnswers(document(), troubles={"variables": "Access/permission denied"})
    )


@pytest.mark.parametrize(
    ("nodes", "cpus", "gpus", "words"),
    [(1, 1, 1, "1 node, 1 CPU, 1 GPU"), (2, 8, 0.5, "2 nodes, 8 CPUs, 0.5 GPUs")],
)
def test_one_node_is_no_nodes(nodes: int, cpus: int, gpus: float, words: str) -> None:
    told = document()
    told["tasks"][0] |= {"nodes": nodes, "cpus": cpus, "gpus": gpus}
    assert any(line.startswith(f"Asks for   {words}") for line in write(JobAnswers(told)))


def test_nothing_stands_below_the_scroll_bar_that_comes_with_the_last_lines() -> None:
    source = FakeSource([job(1)])
    source.details = {"1": document(1, state="COMPLETED")}
    source.scripts["1"] = "\n".join(f"{number:02} " + "x" * 200 for number in range(30))

    async def story(app: TopApp, pilot: Pilot[int]) -> None:
        await settle(pilot, lambda: len(app.queue.table.lines) == 1)
        await pilot.press("d")
        pane = app.queue.pane
        await settle(pilot, lambda: "29 xx" in pane.text())
        await settle(pilot, lambda: pane.show_vertical_scrollbar)
        widths = [cell_len("".join(piece.text for piece in line)) for line in pane._lines]
        assert max(widths) == pane.scrollable_content_region.width - 1 == pane.region.width - 2

    play(source, story)

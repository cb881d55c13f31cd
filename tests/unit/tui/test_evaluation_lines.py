"""Lines of evaluations: their order, their filter, why one waits or failed, and what is due."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.tui.fake_source import NOW, evaluation, sum_up, watch
from tests.unit.tui.labs import HOSTILE, make_watches

from overspan.bridge.client.records import QueueChanges
from overspan.bridge.client.terminal_texts import UNSAFE
from overspan.bridge.model.errors import NotFound
from overspan.tui.evaluations.answers import (
    KnownWatch,
    WatchKey,
    is_news,
    list_due,
    note_documents,
    note_news,
    note_watches,
    read_documents,
)
from overspan.tui.evaluations.lines import (
    FIELDS,
    EvaluationView,
    count_live,
    describe,
    make_columns,
    make_lines,
    word_counts,
    word_note,
)
from overspan.tui.filter_language import Filter, fields_of_texts, read_words

GSM8K = WatchKey(1, "gsm8k")


def know(*documents: dict[str, Any]) -> dict[WatchKey, KnownWatch]:
    """The watches as the screen knows them, with their evaluations."""
    known = note_watches({}, [sum_up(each) for each in documents])
    told: dict[int, list[dict[str, Any]]] = {}
    for each in documents:
        told.setdefault(each["job"], []).append(each)
    return note_documents(known, known, told)


def show(*documents: dict[str, Any], words: str = "", **view: Any) -> list[str]:
    """The names of the lines, the filter and the order applied."""
    chosen: Filter[Any] = read_words(words, fields_of_texts(FIELDS))
    lines = make_lines(know(*documents).values(), EvaluationView(chosen, **view))
    return [line.name for line in lines]


def read_cells(line: Any, width: int = 140, ascii_only: bool = False) -> dict[str, str]:
    """The cells of a line by column."""
    return {column.name: column.cell(line, NOW).text for column in make_columns(width, ascii_only)}


class TestLines:
    def test_the_latest_step_comes_first_below_what_is_not_complete(self) -> None:
        names = show(make_watches()[0])
        assert names[:4] == ["rl-math: gsm8k", "step_1200", "step_1100", "step_1000"] and names[-1] == "step_100"

    def test_the_best_score_comes_first_whichever_way_is_better(self) -> None:
        assert show(make_watches()[0], sort="score")[1:6] == [
            "step_500",
            "step_300",
            "step_400",
            "step_200",
            "step_100",
        ]
        assert show(make_watches()[1], sort="score")[1:] == ["step_230", "step_220", "step_210"]
        assert show(make_watches()[1], sort="score", reverse=True)[1:] == ["step_210", "step_220", "step_230"]

    def test_a_folded_watch_has_no_lines_below_it(self) -> None:
        assert show(*make_watches(), folded={GSM8K})[:2] == ["rl-math: gsm8k", "rl-math: held-out"]

    @pytest.mark.parametrize(
        ("words", "names"),
        [
            ("state:failed", ["rl-math: gsm8k", "step_600"]),
            ("Resources", ["rl-math: gsm8k", "step_1000"]),
            ("job:^123$", ["rl-math: held-out", "step_230"]),
            ("evaluation:held step_2[12]0", ["rl-math: held-out", "step_220", "step_210"]),
            ("nothing-like-it", []),
        ],
    )
    def test_a_filter_unfolds_what_matches_below_a_watch(self, words: str, names: list[str]) -> None:
        assert show(*make_watches(), words=words, folded={GSM8K, WatchKey(1, "held-out")}) == names

    def test_a_watch_that_matches_shows_all_its_checkpoints(self) -> None:
        assert len(show(*make_watches(), words="job:^1$")) == 17
        assert len(show(*make_watches(), words="name:rl-math", folded={GSM8K})) == 5

    def test_what_becomes_complete_keeps_its_line(self) -> None:
        before = watch(1, "q", incomplete=[{"checkpoint": "step_7", "why": "x"}])
        after = watch(1, "q", evaluation(1, 7, "WAITING"))
        keys = [
            [line.key for line in make_lines(know(each).values(), EvaluationView(Filter()))] for each in (before, after)
        ]
        assert keys[0] == keys[1]

    def test_runs_by_hand_have_lines_of_their_own(self) -> None:
        once, again = evaluation(1, 10, score=1.0), evaluation(2, 10, "RUNNING", run=1)
        lines = make_lines(know(watch(1, "q", once, again)).values(), EvaluationView(Filter()))
        assert [line.name for line in lines[1:]] == ["step_10 (run 1)", "step_10"]
        assert len({line.key for line in lines}) == 3


class TestWords:
    @pytest.mark.parametrize(
        ("step", "note", "code", "job"),
        [
            (1200, "not complete: its marker DONE is not there", "-", "-"),
            (1100, "waits for its turn: 2 at once", "WT", "-"),
            (1000, "Resources", "PD", "110"),
            (900, "", "R", "109"),
            (800, "Requested node configuration is not available", "RF", "-"),
            (700, "it left no file result.json", "CD", "107"),
            (600, "NonZeroExitCode", "F", "106"),
            (500, "loss 1.92", "CD", "105"),
        ],
    )
    def test_why_one_waits_or_failed(self, step: int, note: str, code: str, job: str) -> None:
        lines = make_lines(know(make_watches()[0]).values(), EvaluationView(Filter()))
        line = next(line for line in lines if line.key.checkpoint == f"step_{step}")
        cells = read_cells(line)
        assert word_note(line) == note
        assert (cells["note"], cells["state"], cells["job"]) == (note, code, job)

    def test_a_watch_counts_its_evaluations_and_has_the_best_score(self) -> None:
        head = make_lines(know(make_watches()[0]).values(), EvaluationView(Filter()))[0]
        cells = read_cells(head)
        assert cells["note"] == "6 done, 1 run, 1 pending, 1 wait, 1 FAILED, 1 REFUSED, 1 incomplete"
        assert cells["score"] == "0.58★" and read_cells(head, ascii_only=True)["score"] == "0.58*"
        assert (cells["job"], cells["state"]) == ("1", "R")

    def test_what_hinders_a_watch_comes_before_its_counts(self) -> None:
        head = make_lines(
            know(watch(1, "q", note="the folder /c is not there yet")).values(), EvaluationView(Filter())
        )[0]
        assert read_cells(head)["note"] == "the folder /c is not there yet"
        assert (
            word_counts({}) == ""
            and read_cells(make_lines(know(watch(1)).values(), EvaluationView(Filter()))[0])["note"]
            == "no checkpoint yet"
        )

    def test_all_of_a_line_is_told_below_the_table(self) -> None:
        lines = make_lines(know(make_watches()[0]).values(), EvaluationView(Filter()))
        assert describe(lines[0]) == (
            "gsm8k of job 1: /scratch/ana/run/ckpt/step_{step:int}; 3 left out by the selection"
        )
        best = next(line for line in lines if line.key.checkpoint == "step_500")
        assert describe(best).startswith(
            "gsm8k of step_500 is COMPLETED: score 0.58, the best one, loss 1.92, job 105 on leo, ended "
        )

    def test_live_ones_are_counted_over_all_watches(self) -> None:
        assert count_live(list(know(*make_watches()).values())) == (1, 2)

    def test_no_text_is_shown_as_it_came(self) -> None:
        names = {"checkpoint": HOSTILE, "trouble": HOSTILE, "reason": HOSTILE, "values": {HOSTILE: HOSTILE}}
        document = watch(1, HOSTILE, evaluation(1, 10, "FAILED", **names), job_name=HOSTILE, note=HOSTILE)
        for line in make_lines(know(document).values(), EvaluationView(Filter())):
            assert not UNSAFE.search("".join(read_cells(line).values()) + line.label)


class TestAnswers:
    def test_evaluations_are_asked_for_where_the_list_tells_of_a_change(self) -> None:
        known = note_watches({}, [sum_up(each) for each in make_watches()])
        assert list_due(known, known) == [1] and list_due(known, []) == []
        told = note_documents(known, known, {1: make_watches()})
        assert list_due(told, told) == []
        (changed, other) = make_watches()
        changed["evaluations"][8] = evaluation(9, 900, score=0.6)
        assert list_due(note_watches(told, [sum_up(changed), sum_up(other)]), told) == [1]

    def test_what_changed_while_it_was_asked_for_is_asked_again(self) -> None:
        first = note_watches({}, [sum_up(watch(1, "q"))])
        second = note_watches(first, [sum_up(watch(1, "q", evaluation(1, 10)))])
        assert list_due(note_documents(second, first, {1: [watch(1, "q")]}), second) == [1]

    def test_watches_that_are_gone_are_forgotten_and_others_keep_their_evaluations(self) -> None:
        told = know(*make_watches())
        kept = note_watches(told, [sum_up(make_watches()[1])])
        assert list(kept) == [WatchKey(1, "held-out")] and len(kept[WatchKey(1, "held-out")].evaluations) == 3

    @pytest.mark.parametrize(
        ("changed", "whole", "news"),
        [((1,), False, True), ((110,), False, True), ((105,), False, False), ((300,), False, True), ((), True, True)],
        ids=["watched", "live", "ended", "new", "whole"],
    )
    def test_changes_of_the_queue_that_concern_evaluations(
        self, changed: tuple[int, ...], whole: bool, news: bool
    ) -> None:
        known = know(make_watches()[0])
        assert is_news(known, QueueChanges(NOW, "1", whole, changed, []), newest=200) is news

    def test_the_reason_of_a_live_one_may_be_another_though_all_counts_are_the_same(self) -> None:
        known = note_news(know(*make_watches()), {110})
        assert list_due(known, known) == [1]

    def test_a_job_that_was_forgotten_has_no_evaluations(self) -> None:
        class Source:
            def evals(self, ref: str) -> list[dict[str, Any]]:
                if ref == "2":
                    raise NotFound("no job 2")
                return [watch(1)]

        assert read_documents(Source(), [1, 2]) == {1: [watch(1)], 2: []}  # type: ignore[arg-type]

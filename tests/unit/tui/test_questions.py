"""Questions in the background: the newest answer counts, orders are all given, and no thread dies of an error."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import cast

from overspan.bridge.model.errors import NotFound, OverspanError
from overspan.tui.daemon.questions import Questions
from overspan.tui.daemon.source import Source

PATIENCE = 20.0


class Asking:
    """Questions whose answers the test takes when it wants to."""

    def __init__(self, ready: threading.Event | None = None) -> None:
        self.calls: queue.Queue[Callable[[], None]] = queue.Queue()
        self.closed = 0
        self.autostart = True
        self.timeout = 0.0
        self.questions = Questions(lambda: cast(Source, self), self.calls.put, ready)
        self.taken: list[object] = []
        self.failed: list[OverspanError] = []

    def close(self) -> None:
        """As the source."""
        self.closed += 1

    def ask(self, kind: str, ask: Callable[[Source], object]) -> None:
        self.questions.ask(kind, ask, self.taken.append, self.failed.append)

    def deliver(self) -> None:
        """Run what was delivered next, as the application does."""
        self.calls.get(timeout=PATIENCE)()


def test_an_answer_that_comes_after_a_newer_question_is_dropped() -> None:
    asking, gate = Asking(), threading.Event()
    asking.ask("detail", lambda source: gate.wait(PATIENCE) and "old")
    asking.ask("detail", lambda source: "new")
    gate.set()
    while not asking.taken:
        asking.deliver()
    assert asking.taken == ["new"]
    asking.questions.close()


def test_of_questions_that_wait_only_the_newest_is_asked() -> None:
    asking, gate, begun = Asking(), threading.Event(), threading.Event()
    asked: list[int] = []

    def hold(source: Source) -> str:
        begun.set()
        gate.wait(PATIENCE)
        return "first"

    asking.ask("detail", hold)
    assert begun.wait(PATIENCE)

    def note(number: int) -> Callable[[Source], int]:
        def ask(source: Source) -> int:
            asked.append(number)
            return number

        return ask

    for number in range(5):
        asking.ask("detail", note(number))
    gate.set()
    asking.deliver()
    asking.deliver()
    assert asked == [4] and asking.taken == [4]
    asking.questions.close()


def test_a_slow_kind_delays_no_other() -> None:
    asking, gate = Asking(), threading.Event()
    asking.ask("nodes", lambda source: gate.wait(PATIENCE))
    asking.ask("detail", lambda source: "there")
    asking.deliver()
    assert asking.taken == ["there"]
    gate.set()
    asking.questions.close()


def test_orders_are_all_given_and_answered_in_their_order_even_at_the_end() -> None:
    asking, gate = Asking(), threading.Event()
    given: list[int] = []
    done = threading.Event()

    def order(number: int) -> Callable[[Source], object]:
        def give(source: Source) -> object:
            gate.wait(PATIENCE)
            given.append(number)
            if number == 3:
                done.set()
            return number

        return give

    for number in range(4):
        asking.ask("orders", order(number))
    asking.questions.close()
    gate.set()
    assert done.wait(PATIENCE) and given == [0, 1, 2, 3]


def test_errors_are_told_and_the_thread_goes_on() -> None:
    asking = Asking()

    def fail(error: BaseException) -> Callable[[Source], object]:
        def ask(source: Source) -> object:
            raise error

        return ask

    asking.ask("detail", fail(NotFound("no job 7")))
    asking.deliver()
    asking.ask("detail", fail(KeyError("job")))
    asking.deliver()
    asking.ask("detail", lambda source: "there")
    asking.deliver()
    assert [error.message for error in asking.failed] == [
        "no job 7",
        "the daemon's answer cannot be read: KeyError('job')",
    ]
    assert asking.taken == ["there"]
    asking.questions.close()


def test_nothing_is_asked_before_the_first_contact_and_no_question_starts_a_daemon() -> None:
    ready = threading.Event()
    asking = Asking(ready)
    asking.ask("detail", lambda source: source.autostart)
    assert asking.calls.empty() and asking.autostart
    ready.set()
    asking.deliver()
    assert asking.taken == [False]
    asking.questions.close()


def test_after_the_end_nothing_is_delivered() -> None:
    asking, gate, begun = Asking(), threading.Event(), threading.Event()

    def hold(source: Source) -> str:
        begun.set()
        gate.wait(PATIENCE)
        return "late"

    asking.ask("detail", hold)
    assert begun.wait(PATIENCE)
    asking.questions.close()
    gate.set()
    asking.deliver()
    assert asking.taken == []

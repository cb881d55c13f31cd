"""The feed: a lost daemon, who may start one, the pace of answers, and the pause."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from typing import Any, cast

import pytest

from overspan.bridge.client.records import JobFilter, QueueChanges
from overspan.bridge.client.transport import Silent
from overspan.bridge.model.errors import Conflict, OverspanError, Unreachable
from overspan.tui.daemon import feed as module
from overspan.tui.daemon.feed import QUICKEST, RETRY_SECONDS, SLOWEST, Lost, QueueFeed, choose_pace, choose_retry
from overspan.tui.daemon.source import Source

PATIENCE = 20.0
GONE = Unreachable("the daemon is not running", remedy="`r` starts it")


def answer(version: str, whole: bool = False) -> QueueChanges:
    return QueueChanges(0.0, version, whole, (), ())


class Script:
    """A source that answers what the test puts, question by question, and notes how it was asked."""

    def __init__(self) -> None:
        self.autostart = True
        self.timeout = 0.0
        self.asked: queue.Queue[tuple[str, float, bool]] = queue.Queue()
        """The version, the wait, and whether a daemon might be started, of each question."""
        self.timeouts: list[float] = []
        """How long the answer to each question might take."""
        self.answers: queue.Queue[object] = queue.Queue()
        self.closed = threading.Event()

    def queue_changes(self, version: str = "", wanted: JobFilter | None = None, wait: float = 0) -> QueueChanges:
        self.timeouts.append(self.timeout)
        self.asked.put((version, wait, self.autostart))
        found = self.answers.get(timeout=PATIENCE)
        if isinstance(found, BaseException):
            raise found
        assert isinstance(found, QueueChanges)
        return found

    def close(self) -> None:
        self.closed.set()

    def tell(self, found: object) -> tuple[str, float, bool]:
        """Answer the next question; gives how it was asked."""
        self.answers.put(found)
        return self.asked.get(timeout=PATIENCE)


class Follower:
    """A feed with what it told, in the order of the telling."""

    def __init__(self) -> None:
        self.script = Script()
        self.told: queue.Queue[QueueChanges | Lost] = queue.Queue()
        self.delivered: Callable[[Callable[[], None]], object] = lambda call: call()
        self.feed = QueueFeed(
            lambda: cast(Source, self.script),
            lambda call: self.delivered(call),
            JobFilter(),
            self.told.put,
            self.told.put,
        )

    def hear(self) -> Any:
        return self.told.get(timeout=PATIENCE)


@pytest.fixture
def follower(monkeypatch: pytest.MonkeyPatch) -> Iterator[Follower]:
    monkeypatch.setattr(module, "QUICKEST", 0.001)
    monkeypatch.setattr(module, "SLOWEST", 0.001)
    monkeypatch.setattr(module, "RETRY_SECONDS", (0.001,))
    made = Follower()
    made.feed.start()
    yield made
    made.feed.close()
    made.script.answers.put(answer("end"))
    assert made.script.closed.wait(PATIENCE)


def test_answers_are_told_and_the_next_question_waits_for_a_change(follower: Follower) -> None:
    assert follower.script.tell(answer("1", whole=True)) == ("", 0.0, True)
    assert follower.hear().version == "1"
    assert follower.script.tell(answer("1")) == ("1", module.WAIT_SECONDS, False)
    assert follower.script.tell(answer("2")) == ("1", module.WAIT_SECONDS, False)
    assert follower.hear().version == "2"
    assert follower.told.empty()


def test_a_daemon_that_ended_is_not_started_again_before_the_user_wants_it(follower: Follower) -> None:
    script = follower.script
    script.tell(answer("1", whole=True))
    follower.hear()
    asked = [script.tell(GONE) for _ in range(3)]
    assert asked == [("1", module.WAIT_SECONDS, False), ("1", 0.0, False), ("1", 0.0, False)]
    lost = follower.hear()
    assert (lost.why, lost.remedy) == (GONE.message, GONE.remedy) and follower.told.empty()
    follower.feed.retry()
    found = [script.tell(GONE), script.tell(GONE), script.tell(answer("x.1", whole=True))]
    assert True in [start for _, _, start in found]
    assert [start for _, _, start in found].count(True) == 1
    # It is said that one is starting, until there is an answer; here a failure comes first.
    begun, failed, found = follower.hear(), follower.hear(), follower.hear()
    assert begun == lost._replace(starting=True) and failed == lost._replace(unstarted=True)
    assert found.version == "x.1"
    assert script.tell(answer("x.1")) == ("x.1", module.WAIT_SECONDS, False)


def test_one_that_is_there_and_silent_is_not_said_to_start(follower: Follower) -> None:
    follower.script.tell(Silent("it does not answer"))
    assert follower.hear().present
    follower.feed.retry()
    for _ in range(3):
        follower.script.tell(Silent("it does not answer"))
    follower.script.tell(answer("1"))
    # The second loss is of the try that might have started one.
    assert not any(told.starting for told in iter(follower.hear, answer("1")))


def test_a_retry_of_a_daemon_that_answers_starts_none_later(follower: Follower) -> None:
    follower.script.tell(answer("1", whole=True))
    follower.hear()
    follower.feed.retry()
    follower.script.tell(answer("2"))
    assert follower.hear().version == "2"
    assert follower.script.tell(GONE)[2] is False
    assert follower.script.tell(GONE)[2] is False


def test_why_a_daemon_cannot_be_started_is_not_covered_by_later_tries(follower: Follower) -> None:
    wrong = Unreachable("the daemon cannot start: config.yaml:3: no such kind")
    assert follower.script.tell(wrong) == ("", 0.0, True)
    assert follower.hear().why == wrong.message
    for _ in range(3):
        assert follower.script.tell(GONE)[2] is False
    assert follower.told.empty()
    follower.script.tell(Conflict("the daemon is of another version than this command", remedy="end it"))
    other = follower.hear()
    assert other.why.startswith("the daemon is of another version") and other.remedy == "end it"


def test_the_time_of_the_loss_stays_while_reasons_change(follower: Follower) -> None:
    follower.script.tell(answer("1"))
    follower.hear()
    follower.script.tell(Unreachable("it went away"))
    follower.script.tell(GONE)
    first, second = follower.hear(), follower.hear()
    assert first.since == second.since and first.why != second.why


def test_the_same_version_after_a_loss_is_told_because_the_loss_is_over(follower: Follower) -> None:
    follower.script.tell(answer("1"))
    follower.hear()
    follower.script.tell(GONE)
    assert isinstance(follower.hear(), Lost)
    follower.script.tell(answer("1"))
    assert follower.hear().version == "1"


def test_an_answer_that_cannot_be_read_is_a_loss_and_no_end_of_the_feed(follower: Follower) -> None:
    follower.script.tell(KeyError("rows"))
    assert "cannot be read: KeyError('rows')" in follower.hear().why
    follower.script.tell(answer("1"))
    assert follower.hear().version == "1"


def test_an_answer_that_comes_in_a_pause_is_asked_for_again_afterwards() -> None:
    """Question by question, in this thread: when a pause begins in the middle of one is what counts."""
    follower = Follower()
    script, feed = follower.script, follower.feed
    source = cast(Source, script)
    script.answers.put(answer("1"))
    feed._ask(source)
    assert follower.hear().version == "1"
    script.answers.put(answer("2"))
    feed.pause(True)
    assert feed._ask(source) is None and follower.told.empty()
    feed.pause(False)
    script.answers.put(answer("3"))
    feed._ask(source)
    assert follower.hear().version == "3"
    assert [version for version, _, _ in (script.asked.get() for _ in range(3))] == ["", "1", "1"]


def test_nothing_is_asked_in_a_pause() -> None:
    follower = Follower()
    follower.feed.pause(True)
    follower.feed.start()
    assert follower.script.asked.empty()
    follower.feed.pause(False)
    follower.script.tell(answer("1"))
    assert follower.hear().version == "1"
    follower.feed.close()
    follower.script.answers.put(answer("end"))


def test_the_next_question_waits_until_the_last_answer_was_taken(follower: Follower) -> None:
    calls: queue.Queue[Callable[[], None]] = queue.Queue()
    follower.delivered = calls.put
    follower.script.tell(answer("1"))
    take = calls.get(timeout=PATIENCE)
    follower.script.answers.put(answer("2"))
    assert follower.script.asked.empty()
    take()
    assert follower.hear().version == "1"
    assert follower.script.asked.get(timeout=PATIENCE)[0] == "1"
    calls.get(timeout=PATIENCE)()


def test_an_application_that_has_ended_ends_the_feed(follower: Follower) -> None:
    def refuse(call: Callable[[], None]) -> object:
        raise RuntimeError("Event loop is closed")

    follower.delivered = refuse
    follower.script.tell(answer("1"))
    assert follower.script.closed.wait(PATIENCE)


def test_whoever_waits_for_the_first_try_is_let_go_by_a_failure_too(follower: Follower) -> None:
    assert not follower.feed.tried.is_set()
    follower.script.tell(OverspanError("no"))
    assert follower.feed.tried.wait(PATIENCE)


def test_changes_that_come_fast_are_told_together() -> None:
    pace, paces = QUICKEST, []
    for waited in (5.0, 0.01, 0.01, 0.01, 0.01, 0.01, 5.0):
        pace = choose_pace(pace, waited)
        paces.append(pace)
    assert paces == pytest.approx([QUICKEST, 0.2, 0.4, 0.8, SLOWEST, SLOWEST, QUICKEST])


def test_a_lost_daemon_is_looked_for_less_and_less_often() -> None:
    assert [choose_retry(failures) for failures in (1, 2, 3, 4, 5, 500)] == [*RETRY_SECONDS, 4.0, 4.0]


def test_a_daemon_that_stands_still_is_told_of_soon_and_is_not_said_to_be_gone(follower: Follower) -> None:
    script = follower.script
    script.tell(answer("1"))
    follower.hear()
    # An answer that is due is not waited for as long as a whole queue is.
    assert script.tell(Silent("the daemon did not answer within 25 s"))[1] == module.WAIT_SECONDS
    assert script.timeouts[1] == module.SILENCE_SECONDS < module._PATIENCE
    lost = follower.hear()
    assert isinstance(lost, Lost) and lost.present
    script.tell(GONE)
    assert script.timeouts[2] == module._PATIENCE and not follower.hear().present

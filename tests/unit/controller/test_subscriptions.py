"""Reports for another reader: each is told until it is stored, and none twice."""

from __future__ import annotations

from overspan.adapters.contract import Report
from overspan.bridge.controller.core.subscriptions import Subscription
from overspan.bridge.model.events import Event, NodeStarted

ONE, TWO, THREE = (NodeStarted(float(number), "main", 0, number) for number in range(3))


def report(cursor: str, *events: Event) -> Report:
    return Report("h", events, cursor)


def news(subscription: Subscription) -> list[tuple[str, tuple[Event, ...]]]:
    return [(each.cursor, each.events) for each in subscription.list_news()]


def test_what_is_told_is_kept_until_the_stored_cursor_shows_it() -> None:
    subscription = Subscription()
    assert subscription.follow({"h": ""}) and not subscription.follow({"h": ""})
    subscription.take([report("1", ONE)], {"h": ""})
    subscription.take([report("2", TWO)], {"h": "1"})
    assert news(subscription) == [("2", (ONE, TWO))]
    # Not stored: it is told again.
    assert not subscription.follow({"h": ""})
    assert news(subscription) == [("2", (ONE, TWO))] and subscription.list_cursors() == {"h": "2"}
    subscription.follow({"h": "2"})
    assert news(subscription) == [] and subscription.list_cursors() == {"h": "2"}


def test_an_answer_to_an_older_question_is_not_taken_twice() -> None:
    subscription = Subscription()
    subscription.follow({"h": ""})
    subscription.take([report("1", ONE)], {"h": ""})
    subscription.take([report("2", ONE, TWO)], {"h": ""})
    assert news(subscription) == [("1", (ONE,))]


def test_who_goes_back_to_an_earlier_cursor_is_told_from_there() -> None:
    subscription = Subscription()
    subscription.follow({"h": "5"})
    subscription.take([report("6", ONE)], {"h": "5"})
    assert subscription.follow({"h": "3"})
    assert news(subscription) == [] and subscription.list_cursors() == {"h": "3"}


def test_launches_that_nobody_follows_any_more_are_forgotten() -> None:
    subscription = Subscription()
    subscription.follow({"h": "", "other": ""})
    assert subscription.follow({"other": ""})
    subscription.take([report("1", ONE)], {"h": ""})
    assert news(subscription) == [] and subscription.list_cursors() == {"other": ""}


def test_news_wakes_who_waits() -> None:
    subscription = Subscription()
    subscription.follow({"h": ""})
    before = subscription.fresh.count
    subscription.take([Report("stranger", (THREE,), "1")], {"stranger": ""})
    assert subscription.fresh.count == before
    subscription.take([report("1", ONE)], {"h": ""})
    assert subscription.fresh.count == before + 1


def test_a_cluster_is_not_asked_again_about_a_launch_that_it_no_longer_knows() -> None:
    subscription = Subscription()
    subscription.follow({"h": "1"})
    subscription.take([Report("h", (), "1", gone=True)], {"h": "1"})
    assert subscription.list_cursors() == {} and [each.gone for each in subscription.list_news()] == [True]

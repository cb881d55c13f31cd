"""Reports for another reader: asked for from what is stored, and again until they are."""

from __future__ import annotations

from overspan.adapters.contract import Report
from overspan.bridge.controller.core.subscriptions import Subscription
from overspan.bridge.model.events import NodeStarted

ONE = Report("h", (NodeStarted(1.0, "main", 0, 0),), "1")


def test_a_launch_with_news_is_not_asked_about_before_its_news_are_stored() -> None:
    subscription = Subscription()
    assert subscription.follow({"h": "", "other": ""}) and not subscription.follow({"h": "", "other": ""})
    subscription.take([ONE], {"h": "", "other": ""})
    assert subscription.list_news() == [ONE] and subscription.list_cursors() == {"other": ""}
    assert subscription.follow({"h": "1", "other": ""})
    assert subscription.list_news() == [] and subscription.list_cursors() == {"h": "1", "other": ""}


def test_news_that_could_not_be_stored_are_asked_for_again() -> None:
    subscription = Subscription()
    subscription.follow({"h": ""})
    subscription.take([ONE], {"h": ""})
    assert subscription.follow({"h": ""}) and subscription.list_cursors() == {"h": ""}


def test_an_answer_to_an_older_question_is_not_taken() -> None:
    subscription = Subscription()
    subscription.follow({"h": ""})
    subscription.follow({"h": "1"})
    subscription.take([ONE], {"h": ""})
    subscription.take([Report("stranger", (), "1")], {"stranger": ""})
    assert subscription.list_news() == [] and subscription.fresh.count == 0
    subscription.take([ONE], {"h": "1"})
    assert len(subscription.list_news()) == 1 and subscription.fresh.count == 1


def test_launches_that_nobody_follows_any_more_are_forgotten() -> None:
    subscription = Subscription()
    subscription.follow({"h": "", "other": ""})
    assert subscription.follow({"other": ""})
    subscription.take([ONE], {"h": ""})
    assert subscription.list_news() == [] and subscription.list_cursors() == {"other": ""}

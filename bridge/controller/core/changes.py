"""The bus: what is published about jobs and calls. `Controller` makes all subscriptions, in one place.

A subscriber is called at once, in the task of the publisher, so each one finds what those before it did. Nothing is
replayed to one that subscribes later.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, ParamSpec

from overspan.bridge.controller.core.outbox import QueueKey
from overspan.bridge.controller.core.registry import JobEntry
from overspan.bridge.controller.core.wakeups import JobWakeups, Wakeup
from overspan.bridge.model.job import Job

P = ParamSpec("P")


class Topic(Generic[P]):
    """Calls its subscribers one after another, in the order of their subscriptions."""

    def __init__(self) -> None:
        self._subscribers: list[Callable[P, None]] = []

    def subscribe(self, *subscribers: Callable[P, None]) -> None:
        """Call these, too, behind those that have subscribed already."""
        self._subscribers.extend(subscribers)

    def publish(self, *arguments: P.args, **named: P.kwargs) -> None:
        """Call every subscriber; what one raises is raised here, and the next ones are not called."""
        for subscriber in self._subscribers:
            subscriber(*arguments, **named)


class AwaitedTopic(Generic[P]):
    """The same for coroutines: the publisher waits for each."""

    def __init__(self) -> None:
        self._subscribers: list[Callable[P, Awaitable[None]]] = []

    def subscribe(self, *subscribers: Callable[P, Awaitable[None]]) -> None:
        """Await these, too, behind those that have subscribed already."""
        self._subscribers.extend(subscribers)

    async def publish(self, *arguments: P.args, **named: P.kwargs) -> None:
        """Await every subscriber, one after another; raises as `Topic` does."""
        for subscriber in self._subscribers:
            await subscriber(*arguments, **named)


class Changes:
    """The topics, and wake-ups for those that wait for a change instead of following all."""

    def __init__(self) -> None:
        self.committed: Topic[[Job | None, JobEntry]] = Topic()
        """A job was changed: its facts before (None for a job new in memory), and its entry."""
        self.withdrawn: Topic[[Job]] = Topic()
        """A refused job was deleted."""
        self.owed: Topic[[QueueKey]] = Topic()
        """A call is owed under a queue key, or one that waited is ready."""
        self.watched: Topic[[str]] = Topic()
        """A cluster has another launch or bid to watch."""
        self.before_send: AwaitedTopic[[str]] = AwaitedTopic()
        """Launches are about to be sent to a cluster."""
        self.after_send: Topic[[str, bool]] = Topic()
        """The answers to these launches are stored; True if some of the launches are no longer wanted."""
        self.unreached: Topic[[Sequence[int]]] = Topic()
        """The cluster of these jobs does not answer, and certainly has not received them."""
        self.jobs = JobWakeups()
        self.timeline = Wakeup()

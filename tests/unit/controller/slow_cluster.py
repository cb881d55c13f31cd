"""A cluster that answers for some jobs late."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from tests.unit.controller.fakes import FakeCluster

from overspan.adapters.contract import Accepted, Launch, Order, Refusal, SomeUnanswered

A = TypeVar("A")


class SlowCluster(FakeCluster):
    """A cluster that does not answer for some jobs, and takes their launches all the same."""

    def __init__(self) -> None:
        super().__init__()
        self.slow: set[int] = set()
        self.calls: list[list[str]] = []

    async def submit(self, launches: Sequence[Launch]) -> list[Accepted | Refusal]:
        answers = await super().submit(launches)
        self.calls.append([launch.token for launch in launches])
        slow = {launch.token for launch in launches if launch.job.id in self.slow}
        return self._answer({answer.token: answer for answer in answers}, slow)

    async def order(self, orders: Sequence[Order]) -> list[Refusal | None]:
        await super().order(orders)
        self.calls.append([order.token for order in orders])
        slow = {order.token for order in orders if int(order.handle.partition(".")[0]) in self.slow}
        return self._answer(dict.fromkeys(order.token for order in orders), slow)

    def _answer(self, answers: dict[str, A], slow: set[str]) -> list[A]:
        if slow:
            raise SomeUnanswered({token: answer for token, answer in answers.items() if token not in slow})
        return list(answers.values())

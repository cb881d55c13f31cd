"""What Slurm says when a waiting job is taken back, and what that means."""

from __future__ import annotations

import asyncio

import pytest
from tests.unit.adapters.slurm.links import Link
from tests.unit.adapters.slurm.samples import NOW, read_script
from tests.unit.adapters.slurm.watch_bench import Asked, make_orderer

from overspan.adapters.contract import Order, Refusal
from overspan.adapters.slurm.handles import make_handle
from overspan.adapters.slurm.observation.watch import Watch
from overspan.adapters.slurm.orders.delivered import DeliveredOrders
from overspan.adapters.slurm.transports.transport import Done
from overspan.bridge.model import events
from overspan.bridge.model.events import Event

HANDLE = str(make_handle(read_script("#!/bin/sh\n"), 42))
EXPIRE = events.Expire(NOW, "failover", "local")


class Desk:
    """An orderer over commands of which every one ends like this."""

    def __init__(self, done: Done | None) -> None:
        self.link, self.orders = Link(), DeliveredOrders()
        self.link.answer = lambda words: done
        asked = Asked(self.link)
        self.orderer = make_orderer(asked, self.orders, Watch(asked, self.orders, 1.0))

    def give(self, event: Event) -> Refusal | None:
        (answer,) = asyncio.run(self.orderer.order([Order("t", HANDLE, event)]))
        return answer


def carry_out(done: Done | None, event: Event = EXPIRE) -> tuple[Refusal | None, bool]:
    """The answer to the order, and whether it is to be told."""
    desk = Desk(done)
    answer = desk.give(event)
    assert len(desk.link.commands) == 1
    return answer, bool(desk.orders.by_handle.get(HANDLE))


def test_what_is_gone_is_to_be_told() -> None:
    assert carry_out(Done(0, b"", b"")) == (None, True)


@pytest.mark.parametrize(
    "text",
    [
        b"Job is no longer pending execution for job 42\n",
        b"Job has already finished for job 42\n",
        b"slurm_update error: Invalid job id specified\n",
    ],
)
def test_what_has_started_or_ended_is_left_alone(text: bytes) -> None:
    assert carry_out(Done(1, b"", text)) == (None, False)


@pytest.mark.parametrize(
    ("done", "transient"),
    [
        (None, True),
        (Done(124, b"", b""), True),
        (Done(1, b"", b"Unable to contact slurm controller (connect failure)\n"), True),
        (Done(1, b"", b"Access/permission denied for job 42\n"), False),
    ],
)
def test_what_is_not_known_is_not_told(done: Done | None, transient: bool) -> None:
    answer, told = carry_out(done)
    assert answer is not None and (answer.transient, told) == (transient, False)


def test_a_priority_that_was_lowered_with_a_warning_is_told() -> None:
    warning = b"Changes to job priority are not persistent, change nice instead for job 42\n"
    assert carry_out(Done(1, b"", warning), events.SetPriority(NOW, 5)) == (None, True)
    denied = Done(1, b"", b"Access/permission denied for job 42\n")
    answer, told = carry_out(denied, events.SetPriority(NOW, 5))
    assert answer is not None and (answer.transient, told) == (False, False)


@pytest.mark.parametrize(("said", "there"), [(b"1795313291\n", 1795313291.0), (b"", None)])
def test_a_cancel_is_noted_with_the_time_on_the_cluster(said: bytes, there: float | None) -> None:
    desk = Desk(Done(0, said, b""))
    assert desk.give(events.Cancel(NOW)) is None
    assert desk.link.commands[0] == ("date", "+%s")
    assert [order.cluster_time for order in desk.orders.by_handle[HANDLE]] == [there]

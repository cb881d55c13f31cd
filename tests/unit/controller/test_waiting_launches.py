"""What a new daemon hands over to a cluster whose queue was in memory: the launches that no grant is stored of."""

from __future__ import annotations

from tests.unit.controller.fakes import Bench, give_order, play, start_job, turn, until

from overspan.adapters.contract import Launch
from overspan.bridge.model import events

ORDERS: tuple[tuple[str, type], ...] = (("1", events.Hold), ("2", events.Cancel))


def list_waiting(bench: Bench) -> list[Launch]:
    """As the adapter of the present daemon gets them."""
    return list(bench.controller.clusters.get("local").config.list_waiting())


def test_what_waits_is_handed_over_with_its_token_and_what_was_granted_is_not() -> None:
    async def scene(bench: Bench) -> None:
        await start_job(bench)
        waiting = await bench.submit("two")
        await until(lambda: f"{waiting}.0" in bench.cluster.journals and not bench.repository.rows)
        token = next(token for token, handle in bench.cluster.handles.items() if handle == f"{waiting}.0")
        await bench.kill()
        await bench.start()
        (launch,) = list_waiting(bench)
        assert (launch.token, launch.job.id, launch.job.held) == (token, waiting, False)

    play(scene)


def test_a_hold_or_a_cancel_that_is_owed_keeps_it_from_its_start() -> None:
    async def scene(bench: Bench) -> None:
        for _ in ORDERS:
            await bench.submit()
        await until(lambda: len(bench.cluster.journals) == 2 and not bench.repository.rows)
        for ref, make in ORDERS:
            await give_order(bench, ref, make)
        await until(lambda: len(bench.cluster.orders) == 2)
        # The cluster has heard it, and has told nothing of it yet.
        await turn()
        assert len(bench.repository.rows) == 2
        await bench.kill()
        await bench.start()
        assert [launch.job.held for launch in list_waiting(bench)] == [True, True]
        for ref, make in ORDERS:
            (event,) = {order.event for order in bench.cluster.orders if order.handle == f"{ref}.0"}
            assert isinstance(event, make)
            bench.cluster.tell(f"{ref}.0", event)
        await until(lambda: [launch.job.id for launch in list_waiting(bench)] == [1] and not bench.repository.rows)

    play(scene)

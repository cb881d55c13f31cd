"""Pools in the store: with classes of workers, and as earlier builds have written them."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace

from sqlalchemy import insert

from overspan.bridge.model.pools import PoolSize, WorkerClass
from overspan.bridge.store.pool_records import ClassFacts, PoolFacts, StoredPool
from overspan.bridge.store.store import Store
from overspan.bridge.store.tables import pool

SIZE = PoolSize(1, 5, idle=9.0, classes=(WorkerClass("a", 1, 2, 2.0), WorkerClass("b", 0, 4)))
FACTS = PoolFacts(SIZE, 7.0, 3, (41,), classes={"a": ClassFacts(2, 1, 1, "it failed"), "b": ClassFacts()})


def test_what_is_written_is_read(store: Store) -> None:
    async def scene() -> None:
        kept = StoredPool("p", 1, "ada", FACTS, {"text": "x"})
        assert await store.pools.keep(kept)
        assert await store.pools.load() == [kept]
        assert not await store.pools.keep(replace(kept, version=3)), "somebody else has changed it"
        assert (FACTS.message, FACTS.wanted) == ("a: it failed", 1)

    asyncio.run(scene())


def test_a_pool_of_a_build_without_classes_keeps_its_numbers(store: Store) -> None:
    facts = {"size": {"low": 0, "high": 4}, "created_at": 7.0, "generation": 3, "wanted": 2, "failures": 1}
    row = {"name": "p", "version": 4, "user": "ada", "facts": json.dumps({**facts, "message": "m"}), "request": "{}"}

    async def scene() -> None:
        await store._requests.call(lambda connection: connection.execute(insert(pool), row))
        (found,) = await store.pools.load()
        assert found.facts == PoolFacts(PoolSize(0, 4), 7.0, 3, classes={"": ClassFacts(3, 2, 1, "m")})

    asyncio.run(scene())

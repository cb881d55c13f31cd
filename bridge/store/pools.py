"""Pools in the store: rows, statements, and the port that the controller uses."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, delete, insert, select, update

from overspan.bridge.model.documents import decode, encode
from overspan.bridge.store.pool_records import PoolFacts, StoredPool
from overspan.bridge.store.records import Damage
from overspan.bridge.store.requests import StoreRequests
from overspan.bridge.store.rows import read_json
from overspan.bridge.store.sqlite_errors import unreadable
from overspan.bridge.store.tables import pool

# As in `rows`: escapes non-ASCII, so that undecodable bytes survive.
_write = json.JSONEncoder(separators=(",", ":"), check_circular=False).encode


def keep_pool(connection: Connection, kept: StoredPool) -> int:
    """Write a pool, new (version 1) or changed; 0 where the stored version is not the one before."""
    values = {
        "version": kept.version,
        "user": kept.user,
        "facts": _write(encode(kept.facts)),
        "request": _write(dict(kept.request)),
    }
    if kept.version == 1:
        connection.execute(insert(pool), {"name": kept.name, **values})
        return 1
    before = (pool.c.name == kept.name, pool.c.version == kept.version - 1)
    return connection.execute(update(pool).where(*before).values(**values)).rowcount


def remove_pool(connection: Connection, name: str) -> int:
    """Delete a pool; how many there were."""
    return connection.execute(delete(pool).where(pool.c.name == name)).rowcount


def read_pools(connection: Connection) -> tuple[list[StoredPool], list[Damage]]:
    """Every pool, by name, and the damages of rows that cannot be read."""
    found: list[StoredPool] = []
    damages: list[Damage] = []
    for row in connection.execute(select(pool).order_by(pool.c.name)):
        try:
            facts = decode(PoolFacts, _name_class(read_json(row.facts)))
            found.append(StoredPool(row.name, row.version, row.user, facts, read_json(row.request)))
        except (ValueError, TypeError, LookupError, RecursionError) as error:
            damages.append(Damage(unreadable(f"the pool {row.name}", error).message))
    return found, damages


def _name_class(facts: dict[str, Any]) -> dict[str, Any]:
    """The document of a pool's facts; what builds before this one wrote of all its workers is that of one class."""
    if "classes" in facts:
        return facts
    own = {key: facts[key] for key in ("wanted", "failures", "message") if key in facts}
    return {**facts, "classes": {"": {"since": facts.get("generation", 1), **own}}}


@dataclass(frozen=True)
class PoolStore:
    """The store's port for pools."""

    requests: StoreRequests

    async def load(self) -> list[StoredPool]:
        """Every pool that can be read, by name."""
        return await self.requests.read_intact(read_pools)

    async def keep(self, kept: StoredPool) -> bool:
        """Write a pool, new (version 1) or changed; False if the stored version is not the one before."""
        return bool(await self.requests.call(lambda connection: keep_pool(connection, kept)))

    async def remove(self, name: str) -> None:
        """Delete a pool."""
        await self.requests.call(lambda connection: remove_pool(connection, name))

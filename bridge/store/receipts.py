"""Receipts in the store: the job or schedule that a submission created, by the submission's idempotency key."""

from __future__ import annotations

from sqlalchemy import Connection, bindparam, insert, select

from overspan.bridge.store.records import Receipt
from overspan.bridge.store.tables import receipt

INSERT = insert(receipt)
# Made once: each submission asks, and building the expression took longer than the answer.
_FIND = select(receipt).where(receipt.c.token == bindparam("key"), receipt.c.user == bindparam("owner"))


def find(connection: Connection, token: str, user: str) -> Receipt | None:
    """The receipt of a user's submission; None if it was never accepted."""
    row = connection.execute(_FIND, {"key": token, "owner": user}).first()
    return None if row is None else Receipt(*row)

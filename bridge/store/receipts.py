"""Receipts in the store: which job or schedule was made of a submission."""

from __future__ import annotations

from sqlalchemy import Connection, insert, select

from overspan.bridge.store.records import Receipt
from overspan.bridge.store.tables import receipt

INSERT = insert(receipt)


def find(connection: Connection, token: str, user: str) -> Receipt | None:
    """What was made of a user's submission; None where nothing was."""
    row = connection.execute(select(receipt).where(receipt.c.token == token, receipt.c.user == user)).first()
    return None if row is None else Receipt(*row)

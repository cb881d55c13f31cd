"""Alembic's environment of the store. A new revision is added to `REVISIONS` and to `versions`."""

REVISIONS = ("0.1", "0.2", "0.3")
"""Every revision, oldest first; kept here so that an ordinary start need not import alembic."""
BEFORE = frozenset({"0001", "0002", "0003", "0004", "0005", "0006"})
"""Heads of the versions before the first release; the first revision takes in what they had made."""

"""Orders, as data: what each does, what it asks before, and what it needs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from overspan.tui.actions.target import Target

if TYPE_CHECKING:
    from overspan.tui.app import TopApp


def start_order(app: TopApp, name: str, targets: Sequence[Target]) -> None:
    """Begin an order about targets: a dialog first, where it loses work."""
    app.notify(f"{name}: {', '.join(target.label for target in targets)}", markup=False)

"""What the stories of orders have in common: targets, the dialog that is answered, the notes that are read."""

from __future__ import annotations

from tests.unit.tui.stories import settle
from textual.pilot import Pilot

from overspan.bridge.listings.rows import JobRow
from overspan.tui.actions.target import Target, make_target
from overspan.tui.app import TopApp
from overspan.tui.dialogs.edit_dialog import EditDialog
from overspan.tui.dialogs.order_dialog import OrderDialog
from overspan.tui.queue.tree import LineKey, QueueTree


def make_tree(*rows: JobRow) -> QueueTree:
    """A queue of these rows."""
    tree = QueueTree()
    tree.apply(rows, whole=True)
    return tree


def make_targets(*rows: JobRow) -> list[Target]:
    """The first lines of these rows' families."""
    return [make_target(node) for node in make_tree(*rows)]


def read_notes(app: TopApp) -> str:
    """All notifications."""
    return "\n".join(f"{note.title} {note.message}" for note in app._notifications)


def list_marked(app: TopApp) -> set[int]:
    """The jobs whose lines are marked in the queue."""
    return {key.job for key in app.queue.table.marks if isinstance(key, LineKey)}


async def begin(app: TopApp, pilot: Pilot[int]) -> None:
    """Wait until the queue has lines."""
    await settle(pilot, lambda: bool(app.queue.table.lines))


async def answer(pilot: Pilot[int], *keys: str) -> None:
    """Press keys in the dialog once it has been seen."""
    await settle(pilot, lambda: isinstance(pilot.app.screen, (OrderDialog, EditDialog)))
    dialog = pilot.app.screen
    assert isinstance(dialog, (OrderDialog, EditDialog))
    await settle(pilot, lambda: dialog._seen)
    await pilot.press(*keys)
    await pilot.pause()

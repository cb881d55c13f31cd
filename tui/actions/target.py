"""Target: what an order is about, as it was when the user chose it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from overspan.bridge.client.terminal_texts import clean_text
from overspan.bridge.listings.rows import JobRow
from overspan.tui.queue.tree import Kind, LineKey, TreeNode


class Target(NamedTuple):
    """A job, a group, a task, an array or elements of one; it does not change when the queue does."""

    cluster: str
    ref: str
    """What the daemon is asked for: `N`, `N+k`, `N_i`."""
    name: str
    kind: Kind
    state: str
    user: str
    row: JobRow
    key: LineKey = LineKey(0, "")
    """The line that it was chosen on."""
    tally: Mapping[str, int] = {}
    """How many of its members are in each state; empty where it has none."""
    version: int = 0
    """Another one after each change of the line, or of what is below it."""

    @property
    def label(self) -> str:
        """The cluster, the id and the name, fit for a terminal."""
        return clean_text(f"{self.cluster}:{self.ref} {self.name}")

    @property
    def states(self) -> Mapping[str, int]:
        """How many jobs, tasks or elements it stands for, by state."""
        return self.tally or {self.state: 1}


def make_target(node: TreeNode) -> Target:
    """The target that a line of the tree stands for."""
    row = node.row
    facts = (row.cluster, node.ref, row.name, node.kind, row.state, row.user, row)
    return Target(*facts, key=node.key, tally=node.tally, version=node.version)

"""What the command line and the configuration choose for `span top`. Nothing here imports Textual."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from overspan.bridge.client.records import JobFilter
from overspan.tui.terminal.terminal import TerminalTraits


class TopOptions(NamedTuple):
    """What is shown at the start, and how."""

    wanted: JobFilter = JobFilter()
    """Of which jobs the daemon tells."""
    filter: str = ""
    columns: tuple[str, ...] = ()
    """Fields; none are those of the queue itself."""
    sort: str = ""
    """Fields, the first counts most; `-` before one is falling."""
    unfolded: bool = False
    """Whether groups and arrays show their members."""
    read_only: bool = False
    ascii: bool = False
    mouse: bool = True
    theme: str = ""
    keymap: Mapping[str, str] = {}
    """Keys by the ids of actions, as Textual names keys."""
    traits: TerminalTraits = TerminalTraits()
    web: bool = False
    """In a browser: no shell, pager or editor."""
    web_actions: bool = False
    """In a browser: whether orders can be given."""
    troubles: tuple[str, ...] = ()
    """What of all this could not be read: told once the screen is there."""

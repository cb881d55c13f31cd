"""The options of `span top` about the web, as data."""

from __future__ import annotations

from collections.abc import Iterable

from overspan.bridge.model.options.getopt import FLAG, VALUE, Option, Words

WEB = "web"
ACTIONS = "web-actions"
VIEWER = "web-viewer"
LOOK, ORDER = "look", "order"
WEB_OPTIONS = (
    Option(WEB, "", VALUE, "show it in a browser, at a port of this machine", "[HOST:]PORT", own=True),
    Option(ACTIONS, help="orders may be given in the browser too", own=True),
    # For the processes that the server starts: what a viewer may do. It has no help.
    Option(VIEWER, "", VALUE, own=True),
)


def list_viewer_words(words: Words, table: Iterable[Option]) -> list[str]:
    """The same options for a viewer, with what it may do in place of the server's own."""
    kinds = {option.name: option.kind for option in table}
    kept = [(name, value) for name, value in words.options if name not in (WEB, ACTIONS, VIEWER)]
    found = [f"--{name}={value}" if kinds.get(name, FLAG) == VALUE or value else f"--{name}" for name, value in kept]
    return [*found, f"--{VIEWER}={ORDER if words.has(ACTIONS) else LOOK}"]

"""`span top`: the queue of all clusters, live, in the terminal."""

from __future__ import annotations

import gc

from overspan.bridge.cli.invocation import Invocation
from overspan.bridge.cli.usage import read_words
from overspan.bridge.model.getopt import Option

OPTIONS = (
    Option("help", help="this text"),
    Option("usage"),
    Option("version", "V"),
)
_USAGE = "usage: span top [OPTION...]"


def run(call: Invocation) -> int:
    """Show the queue until the user ends it."""
    read_words(call, OPTIONS, _USAGE)
    # Rows stay: looking for cycles among them whenever 700 are new takes as long as a big queue's first frame.
    gc.set_threshold(20_000, 20, 50)
    # Textual costs a quarter of a second of imports, which no other command needs.
    from overspan.tui.app import TopApp, TopOptions

    return TopApp(call.client, TopOptions()).run() or 0

"""`span top`: the queue of all clusters, live, in the terminal."""

from __future__ import annotations

import os

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
    from overspan.tui.options import TopOptions
    from overspan.tui.terminal import prepare_environment

    prepare_environment(os.environ)
    # Textual costs a quarter of a second of imports, which no other command needs.
    from overspan.tui.start import start

    return start(call.client, TopOptions(), call.environment)

"""`span top`: the queue of all clusters, live, in the terminal."""

from __future__ import annotations

from overspan.bridge.cli.invocation import Invocation
from overspan.bridge.cli.usage import read_words
from overspan.bridge.model.getopt import Option
from overspan.tui.web.options import ORDER, VIEWER, WEB, WEB_OPTIONS

OPTIONS = (
    Option("demo", help="show a simulated lab; no daemon is needed", own=True),
    *WEB_OPTIONS,
    Option("help", help="this text"),
    Option("usage"),
    Option("version", "V"),
)
_USAGE = "usage: span top [OPTION...]"


def run(call: Invocation) -> int:
    """Show the queue until the user ends it."""
    words = read_words(call, OPTIONS, _USAGE)
    if words.has(WEB):
        from overspan.tui.web.command import serve_web

        return serve_web(words, OPTIONS, call.environment)
    # Textual costs a quarter of a second of imports, which no other command needs.
    from overspan.tui.app import TopApp, TopOptions
    from overspan.tui.source import OpenSource

    open_source: OpenSource = call.client
    if words.has("demo"):
        from overspan.tui.demo.source import open_demo

        open_source = open_demo()
    options = TopOptions()
    if words.has(VIEWER):
        from overspan.tui.web.command import end_with_server

        end_with_server()
        orders = words.last(VIEWER) == ORDER
        options = options._replace(web=True, web_actions=orders, read_only=options.read_only or not orders)
    return TopApp(open_source, options).run() or 0

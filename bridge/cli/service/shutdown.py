"""`span shutdown`: end the daemon; jobs go on."""

from __future__ import annotations

from overspan.bridge.cli.arguments import make_parser
from overspan.bridge.cli.invocation import Invocation
from overspan.bridge.cli.output import say


def run(call: Invocation) -> int:
    """End the daemon; succeeds too where none runs."""
    make_parser(call, "End the daemon. Jobs go on; the next command starts it again.").parse_args(call.words)
    with call.client() as client:
        if not client.shutdown():
            say(call, "the daemon was not running")
    return 0

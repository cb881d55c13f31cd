"""`span daemon`: run the daemon in the foreground, in this very process."""

from __future__ import annotations

import os
import sys

from overspan.bridge.cli.arguments import make_parser
from overspan.bridge.cli.invocation import Invocation
from overspan.bridge.client.autostart import MODULE


def run(call: Invocation) -> int:
    """Become the daemon, which reads the same words."""
    about = "Run the daemon in the foreground. Commands start one by themselves; this is for service managers."
    parser = make_parser(call, about)
    parser.add_argument("--log-format", choices=("json", "text"), help="of the messages on stderr; daemon.log is JSON")
    parser.add_argument("--shared", action="store_true", help="serve all users of this machine; for root")
    parser.parse_args(call.words)
    sys.stdout.flush()
    os.execv(sys.executable, [sys.executable, "-m", MODULE, "--foreground", *call.words])

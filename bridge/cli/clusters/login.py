"""`span login`: connects to a cluster from this terminal, so that passwords and codes are typed once."""

from __future__ import annotations

import subprocess
import sys

from overspan.bridge.cli.arguments import make_parser
from overspan.bridge.cli.invocation import Invocation
from overspan.bridge.cli.output import say
from overspan.bridge.model.errors import ExitCode, Unreachable


def run(call: Invocation) -> int:
    """Run the command that the daemon names; 3 when the way is not open afterwards."""
    parser = make_parser(call, "Open the connection to a cluster, here on the terminal.", "  span login leo\n")
    parser.add_argument("cluster", metavar="CLUSTER", help="name of a cluster; `span clusters` lists them")
    chosen = parser.parse_args(call.words)
    with call.client() as client:
        invitation = client.login(chosen.cluster)
    words, check = list(invitation["words"]), list(invitation["check"])
    if not words:
        say(call, invitation["message"])
        return ExitCode.OK
    sys.stderr.flush()
    code = _run(words, dict(call.environment))
    if code != 0 or (check and _run(check, dict(call.environment), quiet=True) != 0):
        raise Unreachable(
            f"{chosen.cluster}: the connection is not open", remedy=f"try it by itself: {' '.join(words)}"
        )
    say(call, invitation["message"])
    return ExitCode.OK


def _run(words: list[str], environment: dict[str, str], quiet: bool = False) -> int:
    """Run a program on the terminal; its exit code."""
    silence = subprocess.DEVNULL if quiet else None
    try:
        return subprocess.run(
            words, env=environment, stdin=silence, stderr=silence, stdout=silence, check=False
        ).returncode
    except OSError as error:
        raise Unreachable(f"{words[0]} cannot be started: {error.strerror}", remedy="install it") from None

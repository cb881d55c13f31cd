"""`span config`: where configuration, state and socket are."""

from __future__ import annotations

import os

from overspan.bridge.cli.arguments import make_parser
from overspan.bridge.cli.invocation import Invocation
from overspan.bridge.cli.output import say, write, write_json
from overspan.bridge.config.paths import find_paths, find_server, list_missing


def run(call: Invocation) -> int:
    """Print the places and whether they exist; the daemon is not asked."""
    parser = make_parser(call, "Print where configuration, state and socket are.")
    parser.add_argument("--json", action="store_true", help="one JSON document")
    chosen = parser.parse_args(call.words)
    paths = find_paths(call.environment)
    server = find_server(call.environment, paths)
    places = {**paths._asdict(), "log": paths.log, **({"server": server} if server else {})}
    if chosen.json:
        write_json({"format": 1, **places})
        return 0
    for variable, path in list_missing(call.environment, paths):
        say(call, f"{variable} names {path}, which is not there: it says nothing")
    for name, path in places.items():
        write(f"{name:<12} {path}{'' if os.path.exists(path) else '  (none)'}\n")
    return 0

"""`span schema`: the JSON Schema of the job file, for editors."""

from __future__ import annotations

from overspan.bridge.cli.arguments import make_parser
from overspan.bridge.cli.invocation import Invocation
from overspan.bridge.cli.output import write_json


def run(call: Invocation) -> int:
    """Print the schema."""
    make_parser(call, "Print the JSON Schema of the job file.", "  span schema > job.schema.json\n").parse_args(
        call.words
    )
    with call.client() as client:
        write_json(client.schema())
    return 0

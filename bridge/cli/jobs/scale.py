"""`span scale`: how many members the elastic tasks of a group have."""

from __future__ import annotations

from typing import Optional

from overspan.bridge.cli.arguments import make_parser
from overspan.bridge.cli.invocation import Invocation
from overspan.bridge.cli.output import say
from overspan.bridge.cli.references import find_job
from overspan.bridge.model.errors import InvalidRequest

AUTO = "auto"
_EXAMPLES = """\
  span scale rlhf rollout=6        have six members
  span scale rlhf rollout=auto     as the file says, and more while there is room
"""


def run(call: Invocation) -> int:
    """Set the sizes that are named."""
    parser = make_parser(call, "Change how many members the elastic tasks of a group have.", _EXAMPLES)
    parser.add_argument("job", metavar="GROUP", help="id or name")
    parser.add_argument("sizes", metavar="TASK=N", nargs="+", help="an elastic task and its size, or auto")
    chosen = parser.parse_args(call.words)
    sizes = [parse_size(word) for word in chosen.sizes]
    with call.client() as client:
        ref = find_job(client, chosen.job)
        for task, size in sizes:
            done = client.scale(ref, task, size)
            say(call, word_size(done))
    return 0


def parse_size(word: str) -> tuple[str, Optional[int]]:
    """Read TASK=N or TASK=auto. Raises InvalidRequest."""
    task, equals, size = word.partition("=")
    if not task or not equals or not (size == AUTO or (size.isascii() and size.isdigit())):
        raise InvalidRequest(f"{word!r} is no TASK=N", remedy="write for example rollout=6, or rollout=auto")
    return task, None if size == AUTO else int(size)


def word_size(done: dict[str, object]) -> str:
    """What became of a task's size."""
    wanted, present = done["wanted"], done["present"]
    there = f"{present} are there or on their way" if present != wanted else "all are there or on their way"
    return f"{done['task']} is to have {wanted} members; {there}"

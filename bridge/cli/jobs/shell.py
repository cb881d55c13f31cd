"""`span shell`: a shell, or a command, beside a member of a running job, or of a failed one that keeps its nodes."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from typing import NoReturn

from overspan.bridge.cli.arguments import make_parser
from overspan.bridge.cli.invocation import Invocation
from overspan.bridge.cli.output import say
from overspan.bridge.cli.references import find_job, split_ref
from overspan.bridge.model.errors import Unreachable

_EXAMPLES = """\
  span shell 42                     a shell on the job's first node
  span shell 42+1 --node 2          at the third node of its second task
  span shell 42 -- nvidia-smi -L    one command; its exit code is the command's
"""


def run(call: Invocation) -> int:
    """Become the shell or the command."""
    words, command = split_command(call.words)
    parser = make_parser(call, "A shell, or a command, beside a member of a running job.", _EXAMPLES)
    parser.usage = "span shell [-h] [--node I] JOB [TASK] [-- COMMAND...]"
    parser.add_argument("job", metavar="JOB", help="id, N+k, N.TASK or name")
    parser.add_argument("task", metavar="TASK", nargs="?", default="", help="name of a task; default the first")
    parser.add_argument("--node", type=int, default=0, metavar="I", help="node of the task, from 0")
    chosen = parser.parse_args(words)
    if chosen.node < 0:
        parser.error("--node: give a number, 0 or more")
    terminal = sys.stdin.isatty() and sys.stdout.isatty()
    with call.client() as client:
        ref, task = split_ref(find_job(client, chosen.job))
        found = client.shell(ref, chosen.task or task, chosen.node, command, terminal=terminal)
    if terminal and not command:
        say(call, f"{found['place']}; `exit` leaves, and the job goes on")
    sys.stdout.flush()
    sys.stderr.flush()
    become(found["words"], {**call.environment, **found["environment"]})


def split_command(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """The command's own words, and those behind the first `--`."""
    place = list(words).index("--") if "--" in words else len(words)
    return list(words[:place]), list(words[place + 1 :])


def become(words: Sequence[str], environment: Mapping[str, str]) -> NoReturn:
    """Put a program in this one's place: signals and the terminal are its own. Raises Unreachable."""
    try:
        os.execvpe(words[0], list(words), dict(environment))
    except OSError as error:
        raise Unreachable(f"{words[0]} cannot be started: {error.strerror}", remedy="install it") from None

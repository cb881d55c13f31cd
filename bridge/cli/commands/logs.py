"""`span logs`: the output of a job, a task or a node; several are merged with a prefix for each line."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator

from overspan.bridge.cli.arguments import make_parser
from overspan.bridge.cli.call import Call
from overspan.bridge.cli.output import paint, use_colour, write_json
from overspan.bridge.cli.references import find_job, split_ref
from overspan.bridge.client import LogWish, Stream
from overspan.bridge.client.following import choose_streams

_EXAMPLES = """\
  span logs 42                 everything, prefixed where there is more than one
  span logs -f rlhf trainer    follow one task until the job is over
  span logs 42 rollout --node 1 --attempt 0 -e -n 20
"""
_PALETTE = ("cyan", "green", "magenta", "yellow", "blue")


def run(call: Call) -> int:
    """Print logs."""
    parser = make_parser(call, "Print the output of a job.", _EXAMPLES)
    parser.add_argument("job", metavar="JOB", help="id, N+k, N.TASK or name")
    parser.add_argument("task", metavar="TASK", nargs="?", default="", help="name of a task")
    parser.add_argument("--node", type=int, metavar="I", help="one node of the task, from 0")
    parser.add_argument("--attempt", type=int, metavar="A", help="an earlier attempt, from 0; default the newest")
    parser.add_argument("--stream", choices=("output", "error"), default="", help="one of the two; default both")
    parser.add_argument("-e", "--errors", action="store_true", help="the same as --stream error")
    parser.add_argument("-f", "--follow", action="store_true", help="go on until the job is over")
    parser.add_argument("-n", "--lines", type=int, metavar="N", help="only the last N lines")
    parser.add_argument("--list", action="store_true", help="list the logs: task, node, attempt, stream, size, path")
    parser.add_argument("--json", action="store_true", help="with --list: one JSON document")
    chosen = parser.parse_args(call.words)
    if chosen.lines is not None and chosen.lines < 0:
        parser.error("--lines: give a number of lines, 0 or more")
    wish = LogWish(
        task=chosen.task,
        node=chosen.node,
        attempt=chosen.attempt,
        stream="error" if chosen.errors else chosen.stream,
        tail=chosen.lines,
        follow=chosen.follow,
    )
    with call.client() as client:
        job, task = split_ref(find_job(client, chosen.job))
        tasks = client.show(job)["tasks"]
        job, wish = _resolve_task(tasks, job, wish._replace(task=wish.task or task))
        if chosen.list or chosen.json:
            _print_list([s for s in client.streams(job) if wish.task in ("", s.task)], chosen.json)
            return 0
        many = len({prefix(stream) for stream in choose_streams(client.streams(job), wish)}) > 1
        parts = client.logs(job, wish)
        # A job that is followed from before its start has no streams yet.
        single = bool(wish.task) or (len(tasks) == 1 and tasks[0].get("nodes", 1) == 1)
        if not many and (single or not wish.follow):
            for _, data in parts:
                sys.stdout.buffer.write(data)
                sys.stdout.buffer.flush()
            return 0
        width = max(len(prefix(stream)) for stream in client.streams(job)) if many else 0
        colour = use_colour(sys.stdout, call.environment)
        for stream, line in merge_lines(parts):
            sys.stdout.buffer.write(_painted(stream, width, colour).encode() + line + b"\n")
            sys.stdout.buffer.flush()
    return 0


def prefix(stream: Stream) -> str:
    """The member that a line is from: `trainer-0`."""
    return f"{stream.task}-{stream.node}"


def merge_lines(parts: Iterable[tuple[Stream, bytes]]) -> Iterator[tuple[Stream, bytes]]:
    """Give whole lines, without their ends, so that lines of two logs never mix; the rest of each comes last."""
    rests: dict[Stream, bytes] = {}
    for stream, data in parts:
        # The size changes as a log grows; it is no part of which log it is.
        key = stream._replace(size=0)
        *lines, rest = (rests.get(key, b"") + data).split(b"\n")
        for line in lines:
            yield key, line
        rests[key] = rest
    for key, rest in rests.items():
        if rest:
            yield key, rest


def _painted(stream: Stream, width: int, colour: bool) -> str:
    text = f"{prefix(stream):<{width}} | "
    return paint(text, _PALETTE[sum(stream.task.encode()) % len(_PALETTE)], colour)


def _resolve_task(tasks: list[dict[str, object]], job: str, wish: LogWish) -> tuple[str, LogWish]:
    """Turn `N+k` into the job and its task's name."""
    number, plus, offset = job.partition("+")
    if plus and not wish.task:
        name = next((str(task["name"]) for task in tasks if task.get("offset") == int(offset)), "")
        return number, wish._replace(task=name)
    return number, wish


def _print_list(streams: list[Stream], as_json: bool) -> None:
    if as_json:
        write_json({"format": 1, "streams": [stream._asdict() for stream in streams]})
        return
    for s in streams:
        sys.stdout.write(f"{s.task:<16} {s.node:>4} {s.attempt:>4} {s.stream:<6} {s.size:>10} {s.path}\n")

"""`span logs`: the output of a job, a task or a node; several are merged with a prefix for each line."""

from __future__ import annotations

import argparse
import re
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from overspan.bridge.cli.arguments import make_parser
from overspan.bridge.cli.invocation import Invocation
from overspan.bridge.cli.jobs.log_lines import LinePrinter, prefix
from overspan.bridge.cli.jobs.no_output import explain_silence
from overspan.bridge.cli.output import say, use_colour, write_json
from overspan.bridge.cli.references import find_job, split_ref
from overspan.bridge.client import Client, JobFilter, LogSelection, Stream
from overspan.bridge.client.array_logs import ArrayLogs
from overspan.bridge.client.log_reading import ALL, LogChunk, LogSource, choose_streams, read_parts
from overspan.bridge.model.durations import parse_delay, parse_when
from overspan.bridge.model.errors import NotFound

_EXAMPLES = """\
  span logs 42                 everything, prefixed where there is more than one
  span logs -f rlhf trainer    follow one task until the job is over
  span logs -f 50              all elements of an array, as they start
  span logs 42 rollout --node 1 --attempt 0 -e -n 20
  span logs -t --since 10m 42  what came in the last ten minutes, each line behind its time
"""

_LEFT_OUT = ("job", "marks", "trouble")
"""Keys of a listed log that are left out where they are empty."""


def run(call: Invocation) -> int:
    """Print logs."""
    parser = make_parser(call, "Print the output of a job.", _EXAMPLES)
    parser.add_argument("job", metavar="JOB", help="id, N+k, N.TASK or name")
    parser.add_argument("task", metavar="TASK", nargs="?", default="", help="name of a task, or its number from 0")
    parser.add_argument("--node", type=int, metavar="I", help="one node of the task, from 0")
    parser.add_argument(
        "--attempt", type=_read_attempt, metavar="A", help="one attempt, from 0, or all; default the newest"
    )
    parser.add_argument("--stream", choices=("output", "error"), default="", help="one of the two; default both")
    parser.add_argument("-e", "--errors", action="store_true", help="the same as --stream error")
    parser.add_argument("-f", "--follow", action="store_true", help="go on until the job is over")
    parser.add_argument("-t", "--timestamps", action="store_true", help="when each line came")
    parser.add_argument("--since", metavar="WHEN", help="only what came since: 10m, 1h30m, 14:05, 2026-05-04T14:05")
    parser.add_argument("-n", "--lines", type=int, metavar="N", help="only the last N lines")
    parser.add_argument("--list", action="store_true", help="list the logs: task, node, attempt, stream, size, path")
    parser.add_argument("--json", action="store_true", help="with --list: one JSON document")
    chosen = parser.parse_args(call.words)
    if chosen.lines is not None and chosen.lines < 0:
        parser.error("--lines: give a number of lines, 0 or more")
    try:
        since = None if chosen.since is None else read_since(chosen.since, time.time())
    except ValueError:
        parser.error(f"--since: {chosen.since!r} is no time; write how long ago (90s, 10m, 1h30m) or when (14:05)")
    wish = LogSelection(
        task=chosen.task,
        node=chosen.node,
        attempt=chosen.attempt,
        stream="error" if chosen.errors else chosen.stream,
        tail=chosen.lines,
        follow=chosen.follow,
        times=chosen.timestamps,
        since=since,
    )
    with call.client() as client:
        job, task = split_ref(find_job(client, chosen.job))
        shown = client.show(job)
        job, wish = _resolve_task(shown["tasks"], job, wish._replace(task=wish.task or task))
        names = [str(known["name"]) for known in shown["tasks"]]
        if wish.task and wish.task not in names:
            raise NotFound(f"job {job} has no task {wish.task!r}", remedy=f"its tasks: {', '.join(names)}")
        source = ArrayLogs(client) if shown.get("array") or "[" in job else client
        if chosen.list or chosen.json:
            _print_list([s for s in source.streams(job) if wish.task in ("", s.task)], chosen.json)
            return 0
        printed = Printed(call, source, job, wish, chosen.timestamps)
        if not printed.find():
            silence = _explain(client, job, shown, wish.task)
            if not wish.follow or shown.get("ended_at"):
                raise silence
            say(call, silence.message)
            printed.print(shown["tasks"])
            if not printed.find():
                raise _explain(client, job, client.show(job), wish.task)
        else:
            printed.print(shown["tasks"])
    return 0


def _explain(client: Client, job: str, shown: Mapping[str, Any], task: str) -> NotFound:
    if shown.get("array") and shown.get("ended_at"):
        # The array itself starts nothing: an element knows more.
        rows = client.history(JobFilter(ids=(job,))).rows
        job = next((row.ref for row in rows if row.array_index is not None), job)
        shown = client.show(job)
    return explain_silence(job, shown, task, client.clusters())


class Printed:
    """The logs that are printed."""

    def __init__(self, call: Invocation, source: LogSource, job: str, wish: LogSelection, timestamps: bool) -> None:
        self._call = call
        self._source = source
        self._job = job
        self._wish = wish
        self._timestamps = timestamps
        self._present: list[Stream] = []

    def find(self) -> bool:
        """Whether there are any logs. Reading them reports a node or attempt that does not exist."""
        self._present = self._source.streams(self._job, self._wish.times or self._wish.since is not None)
        return any(self._wish.task in ("", stream.task) for stream in self._present)

    def print(self, tasks: list[dict[str, Any]]) -> None:
        """Print them; of one node as they are, else line by line."""
        wish = self._wish
        chosen = choose_streams(self._present, wish)
        prefixes = {prefix(stream) for stream in chosen}
        # A job that is followed from before its start has no streams yet.
        single = bool(wish.task) or (len(tasks) == 1 and tasks[0].get("nodes", 1) == 1)
        alone = not isinstance(self._source, ArrayLogs) and len(prefixes) < 2 and (single or not wish.follow)
        self._tell_undated(chosen)
        self._tell_troubles()
        if alone and not self._timestamps:
            for part in _mark_attempts(self._call, read_parts(self._source, self._job, wish)):
                _write(part.data)
            return
        wish = wish._replace(times=True)
        width = max((len(prefix(stream)) for stream in self._present), default=0) if len(prefixes) > 1 else 0
        colour = use_colour(sys.stdout, self._call.environment)
        clock = time.time if self._timestamps else None
        printer = LinePrinter(_write, width, colour, named=not alone, clock=clock)
        for part in _mark_attempts(self._call, read_parts(self._source, self._job, wish, printer.pause)):
            printer.feed(part.stream, part.data, part.at)
        printer.close()

    def _tell_troubles(self) -> None:
        """Say which of the logs cannot be read now."""
        for stream in self._present:
            if stream.trouble and self._wish.task in ("", stream.task):
                say(self._call, f"{prefix(stream)}: its log cannot be read now: {stream.trouble}")

    def _tell_undated(self, chosen: Sequence[Stream]) -> None:
        """Where a time or timestamps were asked for, say which logs have no record of when they grew."""
        names = sorted({prefix(stream) for stream in chosen if stream.marks is None and stream.size})
        if names and (self._wish.since is not None or (self._timestamps and not self._wish.follow)):
            shown = " and is shown whole" if self._wish.since is not None else ""
            say(self._call, f"{', '.join(names)}: when this was written is not known{shown}")


def _mark_attempts(call: Invocation, parts: Iterator[LogChunk]) -> Iterator[LogChunk]:
    """Say where a node's next attempt begins."""
    newest: dict[tuple[str, str, int], int] = {}
    for part in parts:
        stream = part.stream
        place = (stream.job, stream.task, stream.node)
        if stream.attempt > newest.setdefault(place, stream.attempt):
            newest[place] = stream.attempt
            say(call, f"{prefix(stream)}: attempt {stream.attempt} begins")
        yield part


def read_since(text: str, now: float) -> float:
    """The time (epoch) of a text: how long ago, with units from s to w, or in Slurm's words. Raises ValueError."""
    if re.fullmatch(r"(?:[0-9]{1,9}[smhdw])+", text):
        return now - sum(parse_delay(part) for part in re.findall(r"[0-9]+[smhdw]", text))
    return parse_when(text, now, past=True)


def _read_attempt(text: str) -> int:
    if text != "all" and not text.isdecimal():
        raise argparse.ArgumentTypeError("give a number from 0, or all")
    return ALL if text == "all" else int(text)


def _write(data: bytes) -> None:
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def _resolve_task(tasks: list[dict[str, object]], job: str, wish: LogSelection) -> tuple[str, LogSelection]:
    """Turn `N+k` into the job and its task's name, and a TASK that is no name but a number into that task's name."""
    number, plus, offset = job.partition("+")
    names = [str(task["name"]) for task in tasks]
    if plus and not wish.task:
        name = next((name for name, task in zip(names, tasks) if task.get("offset") == int(offset)), "")
        return number, wish._replace(task=name)
    if wish.task.isdecimal() and wish.task not in names and int(wish.task) < len(names):
        # As SkyPilot's users type it.
        return number, wish._replace(task=names[int(wish.task)])
    return number, wish


def _print_list(streams: list[Stream], as_json: bool) -> None:
    if as_json:
        rows = [stream._asdict() for stream in streams]
        write_json(
            {"format": 1, "streams": [{k: v for k, v in row.items() if v or k not in _LEFT_OUT} for row in rows]}
        )
        return
    for s in streams:
        element = f"{s.job:<16} " if s.job else ""
        sys.stdout.write(
            f"{element}{s.task:<16} {s.node:>4} {s.attempt:>4} {s.stream:<6} {s.size:>10} {s.trouble or s.path}\n"
        )

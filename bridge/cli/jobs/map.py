"""`span map`: a command over the lines of a file, by the workers of a pool."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

from overspan.bridge.cli.arguments import make_parser
from overspan.bridge.cli.invocation import Invocation
from overspan.bridge.cli.output import say, write
from overspan.bridge.client.line_map import BATCH, EACH, SERVE, LineMap, MapOrder, MapProgress
from overspan.bridge.model.errors import InvalidRequest

_ABOUT = """\
Run a command once for each line of a file, by the workers of a pool.

`{}` in the command is the line, quoted; a command without it has the line on its standard input. What it prints is the
line's result. The results are in FILE.map/results.* in the order of the lines, and lines that failed in failed.jsonl
beside it. The same command given again goes on where it was.
"""
_EXAMPLES = """\
  span map -p cpu --over urls.txt 'curl -sf {} | wc -c'
  span map -p cpu --over rows.jsonl --batch 500 'python score.py'
  span map -p gpu --over prompts.jsonl --serve --gpus 1 'python generate.py'
"""
_BAR = 30
_DRAW_SECONDS = 0.1


def run(call: Invocation) -> int:
    """Run the map; the exit code is 1 where a line failed."""
    chosen = _read(call)
    with call.client() as client, LineMap(client, _make_order(chosen)) as work:
        bar = _Bar(sys.stderr.isatty() and not chosen.quiet)
        before = work.progress.done
        if before:
            say(call, f"{before} of {work.progress.lines} lines are done already")
        try:
            told = work.run(bar.draw)
        except KeyboardInterrupt:
            bar.clear()
            left = work.progress.lines - work.progress.done
            more = f"; {work.cancel()} jobs are cancelled" if chosen.cancel else "; jobs that are sent go on"
            say(call, f"{left} lines are not done{more}. The same command goes on with them")
            return 130
        bar.clear()
    write(f"{work.results}\n")
    if told.failed:
        say(call, f"{told.failed} of {told.lines} lines failed: see {work.failures}")
    return 1 if told.failed else 0


def _read(call: Invocation) -> argparse.Namespace:
    parser = make_parser(call, _ABOUT, _EXAMPLES)
    parser.add_argument("-p", "--pool", required=True, metavar="POOL", help="the pool whose workers run it")
    parser.add_argument("--over", required=True, metavar="FILE", help="the file of lines")
    parser.add_argument("--out", default="", metavar="DIR", help="where results go (FILE.map)")
    modes = parser.add_mutually_exclusive_group()
    modes.add_argument("--batch", type=int, metavar="N", help="give it N lines at once; it prints N lines")
    modes.add_argument("--serve", action="store_true", help="start it once a worker: a line in, a line out, flushed")
    parser.add_argument("--chunk", type=int, default=0, metavar="N", help="lines of one job of the pool")
    parser.add_argument("-c", "--cpus", type=float, default=1, metavar="N", help="CPUs for each command at work (1)")
    parser.add_argument("--gpus", type=float, default=0, metavar="N", help="GPUs for each command at work")
    parser.add_argument("-t", "--time", default="", metavar="TIME", help="time limit of one job of the pool")
    parser.add_argument("--retry-failed", action="store_true", help="try the lines again that have failed")
    parser.add_argument("--cancel", action="store_true", help="at Ctrl-C, cancel the jobs that are sent")
    parser.add_argument("-Q", "--quiet", action="store_true", help="no progress bar")
    parser.add_argument("command", metavar="COMMAND", help="the command, as a shell reads it")
    chosen = parser.parse_args(call.words)
    for name in ("batch", "chunk"):
        value = getattr(chosen, name)
        if value is not None and value < (1 if name == "batch" else 0):
            raise InvalidRequest(f"--{name} {value} is no number of lines", remedy="write 1 or more")
    return chosen


def _make_order(chosen: argparse.Namespace) -> MapOrder:
    over = Path(chosen.over)
    folder = Path(chosen.out) if chosen.out else over.with_name(f"{over.name}.map")
    mode = SERVE if chosen.serve else BATCH if chosen.batch else EACH
    resources: dict[str, Any] = {"cpus": chosen.cpus}
    if chosen.gpus:
        resources["gpus"] = chosen.gpus
    job: dict[str, Any] = {"resources": resources}
    if chosen.time:
        job["time"] = chosen.time
    return MapOrder(
        chosen.command, over, folder, chosen.pool, mode, chosen.batch or 1, chosen.chunk, job, chosen.retry_failed
    )


class _Bar:
    """A progress bar on the terminal, if there is one."""

    def __init__(self, shown: bool) -> None:
        self._shown = shown
        self._drawn_at = 0.0

    def draw(self, progress: MapProgress) -> None:
        """Draw it, some times a second."""
        if not self._shown or time.monotonic() - self._drawn_at < _DRAW_SECONDS:
            return
        self._drawn_at = time.monotonic()
        part = progress.done / progress.lines
        full = round(part * _BAR)
        failed = f", {progress.failed} failed" if progress.failed else ""
        bar = "#" * full + "-" * (_BAR - full)
        sys.stderr.write(f"\r[{bar}] {progress.done} of {progress.lines} ({part:.0%}){failed}\x1b[K")
        sys.stderr.flush()

    def clear(self) -> None:
        """Take it away."""
        if self._shown:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()

"""`span cron`: a crontab in the manner of scrontab(1), and the schedules of job files."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any

from overspan.bridge.cli.arguments import Parser, make_parser
from overspan.bridge.cli.invocation import Invocation
from overspan.bridge.cli.output import report, rfc3339, say, write, write_json
from overspan.bridge.client import Client
from overspan.bridge.client.submission import decode_text, read_text, user_name
from overspan.bridge.model.durations import format_timestamp
from overspan.bridge.model.errors import Denied, InvalidRequest, NotFound, OverspanError

_ABOUT = """\
Edit, install and look at recurring jobs.

  span cron [-e]          edit the crontab with $VISUAL, $EDITOR or vi
  span cron FILE          install a crontab; - is standard input
  span cron -l            print the crontab
  span cron -r            remove it; its jobs go on
  span cron list          schedules: times, runs, what went wrong (--json)
  span cron pause cK...   make no more runs     span cron resume cK...
  span cron run cK...     make a run now        span cron delete cK...

Lines of a crontab: five fields, or a word such as @daily, and a command.
`#SCRON OPTIONS` before an entry are options of sbatch for it. A backslash at
the end goes on in the next line. NAME=VALUE sets a variable of the entries
below; CRON_TZ=ZONE their time zone. Schedules of job files come from `cron:`.
"""
_EXAMPLES = "  span cron -l > mine; span cron mine\n  span cron list\n  span cron pause c3\n"
_ORDERS = ("pause", "resume", "run", "delete")
_COMMENT = """\
# Recurring jobs. A line is: minute hour day-of-month month day-of-week command
# Options of sbatch for the next entry stand in a line before it: #SCRON --time=10
# 0 5 * * * /my/script/to/run
"""
_COLUMNS = ("SCHEDULE", "NAME", "TIMES", "ZONE", "NEXT", "LAST", "JOB", "STATE", "RUNS", "MISSED", "SKIPPED", "REFUSED",
            "POLICY")  # fmt: skip
_BAD = "#BAD: "


def run(call: Invocation) -> int:
    """Do what the first word says."""
    if call.words[:1] == ("list",):
        return _list(call)
    if call.words and call.words[0] in _ORDERS:
        return _order(call)
    parser = make_parser(call, _ABOUT, _EXAMPLES)
    what = parser.add_mutually_exclusive_group()
    what.add_argument("-e", "--edit", action="store_true", help="edit the crontab")
    what.add_argument("-l", "--list", action="store_true", help="print the crontab")
    what.add_argument("-r", "--remove", action="store_true", help="remove the crontab")
    parser.add_argument("-u", "--user", default="", help="whose crontab; only your own")
    parser.add_argument("file", metavar="FILE", nargs="?", help="crontab to install; - is standard input")
    chosen = parser.parse_args(call.words)
    if chosen.user and chosen.user != user_name():
        raise Denied(f"the crontab of {chosen.user} is not yours")
    if chosen.file and (chosen.edit or chosen.list or chosen.remove):
        raise InvalidRequest("a file and -e, -l or -r exclude each other")
    with call.client() as client:
        if chosen.list:
            write(_crontab(client))
        elif chosen.remove:
            client.remove_crontab()
        elif chosen.file:
            text = decode_text(sys.stdin.buffer.read(), "stdin") if chosen.file == "-" else read_text(chosen.file)
            _tell(call, client.install_crontab(text, "stdin" if chosen.file == "-" else chosen.file))
        else:
            _edit(call, client)
    return 0


def _crontab(client: Client) -> str:
    text = client.crontab()
    return text if text.endswith("\n") or not text else text + "\n"


def _tell(call: Invocation, ids: Sequence[int]) -> None:
    say(call, f"the crontab has {len(ids)} entries: {', '.join(f'c{number}' for number in ids) or 'none'}")


def _edit(call: Invocation, client: Client) -> None:
    """Let the user edit, and install what comes back; after an error again, with the wrong line commented out."""
    try:
        text = _crontab(client)
    except NotFound:
        text = _COMMENT
    while True:
        changed = edit_text(text, call.environment)
        if changed == text:
            say(call, "no change")
            return
        try:
            _tell(call, client.install_crontab(changed))
            return
        except InvalidRequest as error:
            report(call, error)
            line = error.place.line if error.place is not None else 0
            if not _ask("Edit again, with the wrong line behind #BAD? (y/n) "):
                raise InvalidRequest("the crontab was not installed") from None
            text = mark_line(changed, line)


def edit_text(text: str, environment: Mapping[str, str]) -> str:
    """Run $VISUAL, $EDITOR or vi on the text in a private file; what it left. Raises InvalidRequest."""
    editor = environment.get("VISUAL") or environment.get("EDITOR") or "vi"
    # Private from the beginning: a crontab may hold secrets (mkstemp makes it 0600).
    handle, path = tempfile.mkstemp(prefix="span-cron-")
    try:
        with os.fdopen(handle, "w") as stream:
            stream.write(text)
        # Through the shell, as crontab(1) does: an editor may have options.
        code = subprocess.call(["/bin/sh", "-c", f'{editor} "$1"', "sh", path])
        if code:
            raise InvalidRequest(f"the editor {editor} ended with code {code}", remedy="nothing was changed")
        return read_text(path)
    finally:
        os.unlink(path)


def mark_line(text: str, number: int) -> str:
    """Comment one line out; 0 none."""
    lines = text.splitlines(keepends=True)
    if 0 < number <= len(lines):
        lines[number - 1] = _BAD + lines[number - 1]
    return "".join(lines)


def _ask(question: str) -> bool:
    print(question, end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower().startswith("y")


def _list(call: Invocation) -> int:
    parser = Parser(prog="span cron list", description="List schedules.")
    parser.add_argument("--json", action="store_true", help="one JSON document")
    parser.add_argument("schedules", metavar="SCHEDULE", nargs="*", help="cK; all where none is named")
    chosen = parser.parse_args(call.words[1:])
    wanted = [read_id(word) for word in chosen.schedules]
    with call.client() as client:
        rows = client.schedules()
    missing = set(wanted) - {int(row["id"]) for row in rows}
    if missing:
        raise NotFound(f"there is no schedule c{min(missing)}", remedy="`span cron list` lists them")
    rows = [row for row in rows if not wanted or row["id"] in wanted]
    if chosen.json:
        times = ("created_at", "next_due", "last_run_at", "message_at")
        write_json({"format": 1, "schedules": [{**row, **{key: rfc3339(row[key]) for key in times}} for row in rows]})
    else:
        write(render(rows))
    return 0


def render(rows: Sequence[Mapping[str, Any]]) -> str:
    """The table, as wide as its texts; a schedule's message on a line of its own below it."""
    cells = [_COLUMNS, *map(_cells, rows)]
    widths = [max(map(len, column)) for column in zip(*cells)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in cells]
    text = lines[0] + "\n"
    for line, row in zip(lines[1:], rows):
        note = f"    {format_timestamp(row['message_at'])}  {row['message']}\n" if row["message"] else ""
        text += line + "\n" + note
    return text


def _cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    owed = f" ({row['owed_runs']} owed)" if row["owed_runs"] else ""
    return (
        f"c{row['id']}",
        str(row["name"]),
        str(row["schedule"]),
        str(row["timezone"]),
        "paused" if row["paused"] else format_timestamp(row["next_due"]),
        format_timestamp(row["last_run_at"]),
        str(row["last_job"] or "-"),
        str(row["last_state"] or "-"),
        str(row["runs"]),
        f"{row['missed_runs']}{owed}",
        str(row["skipped_runs"]),
        str(row["refused_runs"]),
        f"missed={row['missed']},overlap={row['overlap']}",
    )


def _order(call: Invocation) -> int:
    verb = call.words[0]
    parser = Parser(prog=f"span cron {verb}", description=f"{verb.capitalize()} schedules.")
    parser.add_argument("schedules", metavar="SCHEDULE", nargs="+", help="cK, as `span cron list` shows it")
    chosen = parser.parse_args(call.words[1:])
    code = 0
    with call.client() as client:
        for number in [read_id(word) for word in chosen.schedules]:
            try:
                if verb == "run":
                    write(f"Submitted job {client.run_schedule(number)}\n")
                else:
                    getattr(client, f"{verb}_schedule")(number)
            except OverspanError as error:
                if error.transient:
                    raise
                report(call, error)
                code = int(error.exit_code)
    return code


def read_id(word: str) -> int:
    """Read cK, or K alone. Raises InvalidRequest."""
    digits = word[1:] if word[:1] == "c" else word
    if not digits.isascii() or not digits.isdigit() or len(digits) > 15 or int(digits) < 1:
        raise InvalidRequest(f"{word[:64]} is no schedule", remedy="write cK, as `span cron list` shows it")
    return int(digits)

"""Joins commands into one program for sh(1), and splits its output. Pure.

The program travels on standard input, so neither scripts nor variables show in the process list, and the user's text is
quoted exactly once, for any login shell. Marks around each command's output separate it from what login
profiles print, and show whether the command ended or the connection broke.
"""

from __future__ import annotations

import base64
import re
import shlex
from collections.abc import Mapping, Sequence

from overspan.adapters.slurm.transports.transport import Call, Done, FolderEntry

INTERPRETER = "/bin/sh"
NO_FILE, NO_RIGHT, NO_REGULAR = 44, 45, 46
"""Exit codes of the programs that read files."""
_MARK = "\036"
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def render_calls(calls: Sequence[Call], mark: str, path: str = "") -> bytes:
    """The program that runs the calls in order; `path` is a folder that comes first in PATH."""
    lines = [f"PATH={shlex.quote(path)}:$PATH; export PATH"] if path else []
    folders = [shlex.quote(call.folder) for call in calls if call.folder]
    if folders:
        # One mkdir for all folders; a call whose folder is missing tries again, and reports the error.
        lines.append(f"( umask 077; mkdir -p {' '.join(folders)} ) >/dev/null 2>&1")
    # Commands are looked up once, before the variables are set, because the user's PATH is meant for the job.
    names = {
        name: f"overspan_command_{number}" for number, name in enumerate(dict.fromkeys(call.argv[0] for call in calls))
    }
    for name, variable in names.items():
        lines.append(f"{variable}=$(command -v {shlex.quote(name)}) || {variable}={shlex.quote(name)}")
    for number, call in enumerate(calls):
        begin = f"printf '\\036%s\\036' '{mark} {number}'"
        lines += [
            f"{begin}; {begin} >&2",
            f"( {_render_call(call, names[call.argv[0]])} )",
            f"printf '\\036%s %s\\036' '{mark} {number}' \"$?\"",
        ]
    return "\n".join([*lines, ""]).encode("utf-8", "surrogateescape")


def _render_call(call: Call, variable: str) -> str:
    """One call; `variable` holds the command's path."""
    found = ""
    if call.folder:
        folder = shlex.quote(call.folder)
        found = f"umask 077; [ -d {folder} ] || mkdir -p {folder} || exit 1; "
    if call.umask is not None:
        found += f"umask {call.umask:04o}; "
    words = " ".join(map(shlex.quote, call.argv[1:]))
    exports, odd = split_variables(call.environment)
    if call.path:
        exports += f"PATH={shlex.quote(call.path)}:$PATH; export PATH; "
    prefix = f"env {odd} " if odd else ""
    run = f'{prefix}"${variable}" {words}'.rstrip()
    if call.stdin:
        text = shlex.quote(call.stdin.decode("utf-8", "surrogateescape"))
        return f"{found}{exports}printf %s {text} | {run}"
    return f"{found}{exports}exec {run} </dev/null"


def split_variables(environment: Mapping[str, str]) -> tuple[str, str]:
    """Variables as export commands, and those whose names sh does not allow (bash's functions) as words for env(1)."""
    exports, odd = [], []
    for name, value in environment.items():
        if "\0" in value or "\0" in name or not name or "=" in name:
            continue
        if _NAME.fullmatch(name):
            exports.append(f"export {name}={shlex.quote(value)}; ")
        else:
            odd.append(shlex.quote(f"{name}={value}"))
    return "".join(exports), " ".join(odd)


def read_answers(out: bytes, err: bytes, mark: str, count: int) -> list[Done | None]:
    """The ends of `count` commands; None for one whose end mark is missing."""
    answers: list[Done | None] = []
    for number in range(count):
        begin = f"{_MARK}{mark} {number}{_MARK}".encode()
        _, found, rest = out.partition(begin)
        end = re.search(f"{_MARK}{mark} {number} (\\d+){_MARK}".encode(), rest)
        if not found or end is None:
            answers.append(None)
            continue
        _, _, said = err.partition(begin)
        said, _, _ = said.partition(f"{_MARK}{mark} ".encode())
        answers.append(Done(int(end[1]), rest[: end.start()], said))
    return answers


def render_read(path: str, offset: int, limit: int) -> str:
    """A program that prints a regular file's size, a line break, and the bytes from an offset on."""
    return (
        f"f={shlex.quote(_absolute(path))}\n"
        f'[ -e "$f" ] || exit {NO_FILE}\n[ -f "$f" ] || exit {NO_REGULAR}\n[ -r "$f" ] || exit {NO_RIGHT}\n'
        f'wc -c <"$f" || exit 1\ntail -c +{offset + 1} "$f" | head -c {limit}\n'
    )


def render_write(path: str, data: bytes, mode: int) -> str:
    """A program that writes a file under a temporary name and renames it."""
    target = shlex.quote(_absolute(path))
    return (
        f't={target}\numask 077\nmkdir -p "${{t%/*}}" || exit 1\n'
        f"printf %s '{base64.b64encode(data).decode()}' | base64 -d >\"$t.$$\" &&"
        f' chmod {mode:o} "$t.$$" && mv -f "$t.$$" "$t" || {{ rm -f "$t.$$"; exit 1; }}\n'
    )


def render_list(path: str) -> str:
    """A program that prints type, size, time and name of everything in a folder, each ended by NUL."""
    return (
        f'd={shlex.quote(_absolute(path))}\n[ -d "$d" ] || exit {NO_FILE}\n'
        "find \"$d/\" -mindepth 1 -maxdepth 1 -printf '%y %s %T@ %f\\0'\n"
    )


def read_list(data: bytes) -> list[FolderEntry]:
    """Read what `render_list` prints."""
    items = []
    for record in data.split(b"\0"):
        kind, _, rest = record.decode("utf-8", "surrogateescape").partition(" ")
        size, _, rest = rest.partition(" ")
        changed, _, name = rest.partition(" ")
        if name:
            items.append(FolderEntry(name, int(size), float(changed), kind == "d"))
    return sorted(items)


def _absolute(path: str) -> str:
    if not path.startswith("/"):
        raise ValueError(f"{path!r} is not an absolute path")
    return path

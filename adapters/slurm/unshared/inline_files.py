"""Inline files: the submitter's files inside of the batch script, for nodes that share no folder. Pure.

The script contains an archive in base64, and needs a shell, tar, gzip and base64 on the node. Each run unpacks a copy
into a private folder, and removes it at its end. The folder of a killed run is removed by the next run on that node: a
live one is locked, if the node has flock(1).
"""

from __future__ import annotations

import base64
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass

from overspan.adapters.slurm.commands.options import Options
from overspan.bridge.model.errors import InvalidRequest, Rejected
from overspan.bridge.runtime.slurm.node_staging import FOLDER_PLACEHOLDER

SECRETS = "OVERSPAN_SECRETS"
"""The variable of sbatch in which a task's secrets travel if the node would not see a file with them."""
SCRIPT_LIMIT = 4 << 20
"""Slurm's default limit on a script's bytes (slurm.conf(5), max_script_size)."""
REMEDY = (
    "leave out what the job does not need by a .skyignore file, have `setup` fetch the rest, put it on the nodes and "
    "name it by its path there, or set `root` of the cluster to a folder that the compute nodes share"
)
END = "OVERSPAN_FILES"
"""The line behind the archive."""
_LIMIT = re.compile(r"\bmax_script_size=(\d+)", re.IGNORECASE)


@dataclass(frozen=True)
class InlineFiles:
    """A packed tar file, in which each source has a numbered folder; a preview has no `data`."""

    data: bytes = b""
    preview: bool = False


def name_place(number: int, name: str) -> str:
    """The path of a source's copy on the node, with FOLDER_PLACEHOLDER for the folder that the run makes."""
    return f"{FOLDER_PLACEHOLDER}/files/{number}/{name}"


EMPTY = f"{FOLDER_PLACEHOLDER}/work"
"""The working directory of a task with inline files but without a `workdir`."""


def is_brought(path: str) -> bool:
    """Whether a path is of a copy on the node."""
    return path.startswith(f"{FOLDER_PLACEHOLDER}/")


def quote_path(path: str) -> str:
    """Quote a path for the script, with variables for the home and for the folder on the node."""
    for begin, known in ((f"{FOLDER_PLACEHOLDER}/", '"$overspan_files"/'), ("~/", '"$HOME"/')):
        if path.startswith(begin):
            return known + shlex.quote(path[len(begin) :])
    return shlex.quote(path)


def find_limit(config: Mapping[str, str]) -> int:
    """The site's limit on a script's bytes, from `scontrol show config`."""
    found = _LIMIT.search(config.get("SchedulerParameters", ""))
    return int(found[1]) if found else SCRIPT_LIMIT


def check_size(script: bytes, config: Mapping[str, str]) -> None:
    """Refuse a script that exceeds the site's limit. Raises Rejected."""
    limit = find_limit(config)
    if len(script) >= limit:
        raise Rejected(
            f"the script with the files that travel has {_show(len(script))}, and the site takes {_show(limit)} of one "
            "(max_script_size): its nodes share no folder to which the files could be copied",
            remedy=REMEDY,
        )


def check_export(options: Options) -> None:
    """Refuse an --export that would keep the variable with the secrets from the job. Raises InvalidRequest."""
    value = options.get("export", "ALL")
    if value.split(",")[0].upper() != "ALL":
        raise InvalidRequest(
            f"with --export={value} no `secrets` reach the job: on this cluster they travel as variables of sbatch",
            remedy="leave it out, or begin it with ALL",
        )


def encode_inline(inline: InlineFiles) -> str:
    """The archive as lines for `base64 -d`."""
    return "<the files>\n" if inline.preview else base64.encodebytes(inline.data).decode("ascii")


def render_unpacking(inline: InlineFiles, workdir: str) -> list[str]:
    """The lines that unpack the files and enter the working directory. They come before the user's own variables."""
    return [
        _OPEN.rstrip("\n"),
        f"base64 -d <<'{END}' | tar -xzf - -C \"$overspan_files/files\" --no-same-owner",
        f"{encode_inline(inline)}{END}",
        '[ "${PIPESTATUS[*]}" = "0 0" ] || overspan_fail "the files of the job cannot be unpacked on $HOSTNAME"',
        f"cd -- {quote_path(workdir)} || exit 1",
        "overspan_start=$PWD",
    ]


def render_links(mounts: Mapping[str, str]) -> list[str]:
    """The lines that remove links of a killed run now, and this run's own links at its end."""
    brought = {quote_path(target): quote_path(source) for target, source in mounts.items() if is_brought(source)}
    if not brought:
        return []
    return [
        "overspan_unlink_all() {",
        '  cd -- "$overspan_start" || return 0',
        *(f"  overspan_unlink {source} {target}" for target, source in brought.items()),
        "}",
        *(f"overspan_clear {target}" for target in brought),
    ]


def render_run(program: str, signal: str) -> str:
    """The lines that run the program in place of `exec`, so that files can be removed, and then end as it did.

    `signal` is one that Slurm sends to the batch shell alone, which passes it on; empty for none.
    """
    passing = f"trap '{_BEGUN}; overspan_again=1; kill -s {signal} \"$!\"' {signal}\n" if signal else ""
    return _RUN.replace("<begun>", _BEGUN).replace("<passing>", passing).replace("<program>", program).rstrip("\n")


def _show(size: int) -> str:
    return f"{size / (1 << 20):.1f} MiB"


_OPEN = """\
overspan_path=$PATH
overspan_fail() { echo "span: error: $1" >&2; exit 1; }
for overspan_word in base64 gzip mktemp tar; do
  command -v "$overspan_word" >/dev/null || overspan_fail "$HOSTNAME has no $overspan_word to unpack the job's files"
done
overspan_open() {
  local place parent left
  for place in "${TMPDIR:-}" /tmp; do
    parent=$place/overspan-files-$UID
    [ -n "$place" ] && { mkdir -m 700 -- "$parent" || [ -d "$parent" ]; } 2>/dev/null || continue
    [ -O "$parent" ] && [ ! -L "$parent" ] || continue
    if command -v flock >/dev/null; then
      for left in "$parent"/*; do
        [ ! -d "$left" ] || flock -n "$left" rm -rf -- "$left" 2>/dev/null
      done
    fi
    overspan_files=$(umask 077; mktemp -d "$parent/XXXXXXXX" 2>/dev/null) || continue
    exec 9<"$overspan_files" || continue
    command -v flock >/dev/null && flock 9
    # Before it was locked, another job may have taken it for one that was left.
    mkdir -- "$overspan_files/files" "$overspan_files/work" 2>/dev/null && return
  done
  return 1
}
overspan_clear() { [ -e "$1" ] || case $(readlink -- "$1") in */overspan-files-$UID/*) rm -f -- "$1" ;; esac; }
overspan_unlink() { [ "$(readlink -- "$2")" != "$1" ] || rm -f -- "$2"; }
overspan_unlink_all() { :; }
overspan_close() {
  trap '' HUP INT QUIT TERM USR1 USR2 ALRM XCPU
  PATH=$overspan_path
  overspan_unlink_all
  cd / && rm -rf -- "$overspan_files" 2>/dev/null || { chmod -R u+rwX "$overspan_files"; rm -rf -- "$overspan_files"; }
  rmdir -- "${overspan_files%/*}" 2>/dev/null
}
trap 'exit 143' HUP INT QUIT TERM USR1 USR2 ALRM XCPU
overspan_open || overspan_open || overspan_open || overspan_fail "the job's files have no place in /tmp on $HOSTNAME"
trap overspan_close EXIT
"""

# A signal that comes before the program has started ends the script.
_BEGUN = '[ "$!" != "$overspan_before" ] || exit 143'
# Slurm signals every process of a job, so only signals to the batch shell alone are passed on. Without inline files the
# program replaces the shell and gets them itself.
_RUN = """\
overspan_before=$!
for overspan_word in HUP INT QUIT TERM USR1 USR2 ALRM XCPU; do
  trap '<begun>; overspan_again=1' "$overspan_word"
done
<passing>( trap - INT QUIT; exec <program> ) <&0 9<&- &
overspan_program=$! overspan_again=1
while [ -n "$overspan_again" ]; do
  overspan_again=
  wait "$overspan_program"
  overspan_code=$?
done
overspan_close
trap - EXIT
if [ "$overspan_code" -gt 128 ] && overspan_word=$(kill -l "$overspan_code" 2>/dev/null); then
  ulimit -c 0
  trap - "$overspan_word" 2>/dev/null
  kill -s "$overspan_word" $$
fi
exit "$overspan_code"
"""

"""The shell text that runs in pods: the barrier, the unpacking of files, and the task itself. POSIX sh, no tools.

The user's texts are arguments of these programs, so that nothing in them ends or changes one. bash runs the user's text
where the image has it, else sh.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from overspan.adapters.kubernetes.evidence import SETUP_FAILED

BASE = "/overspan"
RUN_DIR = f"{BASE}/run"
POD_DIR = f"{BASE}/pod"
"""Marks of the pod as files, which the kubelet keeps up to date: `go` and `notice`."""
FILES_DIR = f"{BASE}/files"
ARCHIVES_DIR = f"{BASE}/archives"
SCRIPTS_DIR = f"{BASE}/scripts"

MAX_TEXT = 100 * 1024
"""Bytes of one argument or variable: Linux's MAX_ARG_STRLEN is 128 KiB."""

_PAUSE = 'pause() { sleep "$1" 2>/dev/null || sleep 1 2>/dev/null; }\n'

GATE = (
    "# Waits until the daemon lets this attempt start; its mark is a file here.\n"
    "trap 'exit 143' TERM\n" + _PAUSE + f"tries=0 go=\n"
    f'until read -r go <{POD_DIR}/go; [ -n "$go" ]; do\n'
    "  tries=$((tries + 1))\n"
    "  if [ $tries -lt 300 ]; then pause 0.1; else pause 0.5; fi\n"
    "done 2>/dev/null\n"
    "# Its own name may take a moment to be known.\n"
    'if [ -n "$1" ] && command -v getent >/dev/null 2>&1; then\n'
    "  tries=0\n"
    '  until getent hosts "$HOSTNAME.$1" >/dev/null 2>&1 || [ $tries -ge 40 ]; do\n'
    "    tries=$((tries + 1)) && pause 0.25\n"
    "  done\n"
    "fi\n"
    "exit 0\n"
)
"""Its argument is the domain of the members' names, empty for none. Without a `sleep` it looks all the time."""

UNPACK = (
    "# Unpacks the submitter's files: arguments are pairs of an archive and its folder.\n"
    "trap 'exit 143' TERM\n"
    'fail() { echo "$1" >/dev/termination-log; echo "$1" >&2; exit 1; }\n'
    "command -v tar >/dev/null 2>&1 || fail 'the image has no tar to unpack workdir and file_mounts with'\n"
    "while [ $# -gt 1 ]; do\n"
    '  [ -d "$2" ] || mkdir -p "$2" || fail "cannot make $2"\n'
    '  tar -xzf "$1" -C "$2" || fail "cannot unpack $1"\n'
    "  shift 2\n"
    "done\n"
)

WORK = (
    "# Runs the set-up and the task, hands signals on to them, and ends as the task does.\n"
    "child= caught=\n"
    "hand_on() {\n"
    "  caught=$1\n"
    '  [ -n "$child" ] || return 0\n'
    "  # A container's end is told to its first process alone; every other one is to hear of it.\n"
    '  if [ "$1$$" = TERM1 ]; then kill -s TERM -- -1; else kill -s "$1" "$child"; fi 2>/dev/null\n'
    "}\n"
    'for name in HUP INT QUIT USR1 USR2 ALRM TERM; do trap "hand_on $name" $name; done\n'
    "shell=/bin/sh; [ -x /bin/bash ] && shell=/bin/bash\n"
    f"ln -sfn {POD_DIR}/notice {RUN_DIR}/notice 2>/dev/null || export OVERSPAN_RUN_DIR={POD_DIR}\n"
    "setup=$1 run=$2 task=$3 links=$4; shift 4\n"
    'while [ "$links" -gt 0 ]; do\n'
    '  if [ ! -e "$HOME/$2" ]; then\n'
    '    case $2 in */*) mkdir -p "$HOME/${2%/*}" ;; esac\n'
    '    ln -s "$1" "$HOME/$2" || exit 1\n'
    "  fi\n"
    "  shift 2; links=$((links - 1))\n"
    "done\n"
    '[ -n "$BASH_VERSION" ] && set -m\n'
    "(\n"
    '  if [ -n "$setup" ]; then\n'
    '    "$shell" -c "$setup" setup || { code=$?; '
    f"echo '{SETUP_FAILED}' >/dev/termination-log; exit $code; }}\n"
    "  fi\n"
    '  [ -n "$run" ] || exec "$@"\n'
    '  exec "$shell" -c "$run" "$task" "$@"\n'
    ") &\n"
    "child=$!\n"
    "# The shell has nothing to say of its own from here on.\n"
    '[ -n "$BASH_VERSION" ] && set +m\n'
    "exec 2>/dev/null\n"
    '[ -z "$caught" ] || hand_on "$caught"\n'
    'caught=; wait "$child"; code=$?\n'
    "# A signal ends a wait too.\n"
    'while [ -n "$caught" ]; do\n'
    '  caught=; wait "$child"; again=$?\n'
    '  [ $again != 127 ] || kill -0 "$child" || break\n'
    "  code=$again\n"
    "done\n"
    "exit $code\n"
)
"""Arguments: set-up, text to run (empty: the last words are a command), the task's name, how many links follow and
where each leads and is below the home, and the last words."""


class Work(NamedTuple):
    """What the main container runs. `links` are pairs of a path in the pod and one below the home."""

    setup: str
    run: str
    task: str
    words: tuple[str, ...] = ()
    links: tuple[tuple[str, str], ...] = ()

    def arguments(self) -> list[str]:
        """The arguments of WORK."""
        pairs = [path for link in self.links for path in link]
        return [self.setup, self.run, self.task, str(len(self.links)), *pairs, *self.words]


CHOOSE_SHELL = 's=/bin/sh; [ -x /bin/bash ] && s=/bin/bash; exec "$s" -c "$@"'
"""A shell without job control has what it starts ignore INT and QUIT (POSIX, 2.11); bash can do better."""


def make_command(program: str, arguments: Sequence[str], *, bash: bool = False) -> dict[str, list[str]]:
    """`command` and `args` of a container that runs one of these programs; by bash where the image has it, if asked."""
    command = ["/bin/sh", "-c", CHOOSE_SHELL if bash else program, "overspan"]
    words = [program, "overspan", *arguments] if bash else arguments
    found = {"command": [escape(text) for text in command]}
    if words:
        found["args"] = [escape(text) for text in words]
    return found


def escape(text: str) -> str:
    """A text that comes through Kubernetes' expansion of $(NAME) as it is: `$$` stands for `$` there.

    Source: Container.command, args and env.value of the pod's API (third_party/forked/golang/expansion).
    """
    return re.sub(r"\$\$+|\$(?=\()", lambda match: match[0] * 2, text)

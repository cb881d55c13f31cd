"""The shell text that runs in pods: unpacking of files, the start gate, and the task. POSIX sh, no tools.

The user's texts are arguments of these programs, so that nothing in them ends or changes one. bash runs the user's text
where the image has it, else sh.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from overspan.adapters.kubernetes.observation.evidence import NOT_BEGUN, NOT_STARTED, SETUP_FAILED
from overspan.bridge.model.allocations import GIVE_BACK, GIVE_BACK_AS_STEPS

BASE = "/overspan"
RUN_DIR = f"{BASE}/run"
POD_DIR = f"{BASE}/pod"
"""Marks of the pod as files, which the kubelet keeps up to date: `go` and `notice`."""
OPENED = f"{RUN_DIR}/.go"
"""The same as the mark `go`, where the adapter could write it sooner than the kubelet."""
WAKE_FIFO = f"{RUN_DIR}/.bell"
"""The FIFO that wakes a pod at its start gate. Writers open it for reading too, so that they never block."""
FILES_DIR = f"{BASE}/files"
ARCHIVES_DIR = f"{BASE}/archives"
SCRIPTS_DIR = f"{BASE}/scripts"
COMMANDS_DIR = f"{BASE}/commands"
"""Slurm's commands, where the pod has them (commands.py)."""

KILL_VARIABLE = "OVERSPAN_KILL_AFTER"
"""Seconds from TERM to KILL where the pod's own grace is longer; the task's program does not see the variable."""
END_VARIABLE = "OVERSPAN_END_MARK"
"""The end mark of the node run; the task's program does not see the variable."""
END_WORD = "overspan-end"
END_OCTAL = "036"
"""Before that word, as an octal escape: the character RS, which texts do not have."""

STEP_CODE = f"{RUN_DIR}/.step_code"
"""The highest exit code of the steps that were started from outside; no file where all ended with 0."""

MAX_TEXT = 100 * 1024
"""Bytes of one argument or variable: Linux's MAX_ARG_STRLEN is 128 KiB."""

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

CHECK_PORTS = (
    "# Looks for programs that listen on ports of the node. Arguments: 1F40=8000, a port in hexadecimal and decimal.\n"
    "for _file in /proc/net/tcp /proc/net/tcp6; do\n"
    '  [ -r "$_file" ] || continue\n'
    "  while read -r _number _local _remote _state _rest; do\n"
    '    [ "$_state" = 0A ] || continue\n'
    '    for _port in "$@"; do\n'
    '      [ "${_local##*:}" = "${_port%%=*}" ] || continue\n'
    '      echo "${_port#*=}" >/dev/termination-log; echo "port ${_port#*=} is taken" >&2; exit 1\n'
    "    done\n"
    '  done <"$_file"\n'
    "done\n"
)
"""Leaves the port that is taken in the termination log."""

_START_GATE = (
    "# Waits until the daemon lets this attempt start; its mark is a file here. An end before that is no task's,\n"
    "# which KILL leaves no time to say: so it is said first, and taken back.\n"
    'if [ -n "$1" ]; then\n'
    f"  {{ echo '{NOT_BEGUN}' >/dev/termination-log; }} 2>/dev/null\n"
    "  trap 'exit 143' TERM\n"
    "  # One read waits: for the daemon, which rings, and for the kubelet's file, which only time shows. bash has a\n"
    "  # pipe without mkfifo; only seconds are known to the shell of busybox, and no time at all to dash.\n"
    "  _tries=0 _go= _stop= _fast=0.1 _slow=1\n"
    '  nap() { sleep "$1" || sleep 1; }\n'
    f"  {{ mkfifo {WAKE_FIFO} && command exec 9<>{WAKE_FIFO}; }} 2>/dev/null ||\n"
    '    { [ -n "$BASH_VERSION" ] && command eval "command exec 9<> <(:)" 2>/dev/null; }\n'
    "  for _each in 0.2 1; do\n"
    "    if { echo >&9 && read -r -t $_each _nothing <&9; } 2>/dev/null; then\n"
    '      _fast=$_each _slow=$_each; nap() { read -r -t "$1" _nothing <&9; }; break\n'
    "    fi\n"
    "  done\n"
    f'  look() {{ read -r _go _stop <"$1"; [ -n "$_go" ]; }}\n'
    f"  until look {POD_DIR}/go || look {OPENED}; do\n"
    "    _tries=$((_tries + 1))\n"
    '    if [ $_tries -lt 50 ]; then nap "$_fast"; else nap "$_slow"; fi\n'
    "  done 2>/dev/null\n"
    '  [ -z "$_stop" ] || exit 143\n'
    "  # Its own name may take a moment to be known.\n"
    '  if [ -n "$2" ] && command -v getent >/dev/null 2>&1; then\n'
    "    _tries=0; [ $_fast != 1 ] || _tries=90\n"
    '    until getent hosts "$OVERSPAN_HOST" >/dev/null 2>&1 || [ $_tries -ge 100 ]; do\n'
    '      _tries=$((_tries + 1)); nap "$_fast"\n'
    "    done 2>/dev/null\n"
    "  fi\n"
    f"  exec 9>&-; [ ! -p {WAKE_FIFO} ] || rm -f {WAKE_FIFO}\n"
    "  { true >/dev/termination-log; } 2>/dev/null\n"
    "fi\n"
    "shift 2\n"
)
"""Without bash and `sleep` it looks all the time. A shell that reads with a time limit forks nothing while it waits."""

LOG = "-"
"""In the place of the path of an error file: the container's log."""

PREPARE_SCRIPT = (
    "# Where a batch script works, reads and writes. A folder or file that cannot be opened is said in words.\n"
    "refuse() {\n"
    f"  {{ echo '{NOT_STARTED}'\"$1\" >/dev/termination-log; }} 2>/dev/null\n"
    '  echo "span: error: $1" >&2; exit 1\n'
    "}\n"
    'who() { echo "the user of the image ($(id 2>/dev/null || echo unknown))"; }\n'
    'umask "$_umask"\n'
    'if ! cd "$_folder" 2>/dev/null; then\n'
    '  [ -d "$_folder" ] || refuse "cannot enter $_folder, its working directory: there is none in the pod"\n'
    '  refuse "cannot enter $_folder, its working directory: $(who) may not"\n'
    "fi\n"
    "# A script of several nodes runs on the first.\n"
    f'[ "$OVERSPAN_NODE_INDEX" = 0 ] || _in= _out= _err={LOG}\n'
    "make_file() {\n"
    f"  case $1 in ''|{LOG}|/dev/*) return 0 ;; esac\n"
    "  _folder=${1%/*} _tries=0\n"
    '  case $_mode in *await*) until [ -d "$_folder/" ] || [ $_tries -ge 50 ]; do\n'
    "    _tries=$((_tries + 1)); sleep 0.1 || sleep 1 || break\n"
    "  done ;; esac 2>/dev/null\n"
    '  case $_mode in append*) { true >>"$1"; } 2>/dev/null ;; *) { true >"$1"; } 2>/dev/null ;; esac && return\n'
    '  [ -d "$_folder/" ] || refuse "cannot open the output file $1: there is no folder $_folder in the pod"\n'
    '  refuse "cannot open the output file $1: $(who) may not write it"\n'
    "}\n"
    'make_file "$_out"; make_file "$_err"\n'
    'if [ -n "$_in" ]; then\n'
    '  { true <"$_in"; } 2>/dev/null || refuse "cannot open the input file $_in in the pod"\n'
    '  exec <"$_in"\n'
    "fi\n"
    "# Both add to the file, so that two of one file do not overwrite each other.\n"
    '[ -z "$_out" ] || exec >>"$_out"\n'
    f'case $_err in "") exec 2>&1 ;; {LOG}) ;; *) exec 2>>"$_err" ;; esac\n'
)
"""What the subshell of a batch script does first, with the fields of a Place as variables."""

WORK = (
    _START_GATE + "# Runs the set-up and the task, hands signals on to them, and ends as the task does.\n"
    f"_child= _caught= _ended= _mark=${END_VARIABLE}; unset {END_VARIABLE}\n"
    "hand_on() {\n"
    "  _caught=$1\n"
    '  [ "$1" != TERM ] || _ended=1\n'
    '  [ -n "$_child" ] || return 0\n'
    "  # A container's end is told to its first process alone; every other one is to hear of it.\n"
    '  if [ "$1$$" = TERM1 ]; then kill -s TERM -- -1; else kill -s "$1" "$_child"; fi 2>/dev/null\n'
    "}\n"
    'for _name in HUP INT QUIT USR1 USR2 ALRM TERM; do trap "hand_on $_name" $_name; done\n'
    f"_kill=${KILL_VARIABLE}; unset {KILL_VARIABLE}\n"
    "end_all() { if [ $$ = 1 ]; then kill -s KILL -- -1; else kill -s KILL $_child; fi; }\n"
    'limit() { hand_on TERM; { sleep "$_kill"; end_all; } >/dev/null 2>&1 & }\n'
    '[ -z "$_kill" ] || trap limit TERM\n'
    "_shell=/bin/sh; [ -x /bin/bash ] && _shell=/bin/bash\n"
    f'[ ! -d {COMMANDS_DIR} ] || export "PATH={COMMANDS_DIR}:$PATH"\n'
    f"ln -sfn {POD_DIR}/notice {RUN_DIR}/notice 2>/dev/null || export OVERSPAN_RUN_DIR={POD_DIR}\n"
    "_setup=$1 _run=$2 _task=$3 _place=$4; shift 4\n"
    '[ -z "$_place" ] || { _folder=$1 _umask=$2 _in=$3 _out=$4 _err=$5 _mode=$6; shift 6; }\n'
    "_links=$1; shift\n"
    'while [ "$_links" -gt 0 ]; do\n'
    '  if [ ! -e "$HOME/$2" ]; then\n'
    '    case $2 in */*) mkdir -p "$HOME/${2%/*}" ;; esac\n'
    '    ln -s "$1" "$HOME/$2" || exit 1\n'
    "  fi\n"
    "  shift 2; _links=$((_links - 1))\n"
    "done\n"
    '[ -n "$BASH_VERSION" ] && set -m\n'
    "# The shell has nothing to say of its own from here on, however soon the task ends.\n"
    "exec 3>&2 2>/dev/null\n"
    "(\n"
    '  [ -z "$_place" ] || eval "$_place"\n'
    '  if [ -n "$_setup" ]; then\n'
    '    "$_shell" -c "$_setup" setup || { _code=$?; '
    f"echo '{SETUP_FAILED}' >/dev/termination-log; exit $_code; }}\n"
    "  fi\n"
    '  [ -n "$_run" ] || exec "$@"\n'
    '  exec "$_shell" -c "$_run" "$_task" "$@"\n'
    ") 2>&3 3>&- &\n"
    "_child=$!\n"
    '[ -n "$BASH_VERSION" ] && set +m\n'
    '[ -z "$_caught" ] || hand_on "$_caught"\n'
    '_caught=; wait "$_child"; _code=$?\n'
    "# A signal ends a wait too.\n"
    'while [ -n "$_caught" ]; do\n'
    '  _caught=; wait "$_child"; _again=$?\n'
    '  [ $_again != 127 ] || kill -0 "$_child" || break\n'
    "  _code=$_again\n"
    "done\n"
    "# What a script's steps still do in their grace period is theirs to end.\n"
    "steps_run() {\n"
    '  for _each in /proc/[0-9]*/comm; do read -r _name <"$_each" && [ "$_name" = span-step ] && return 0; done\n'
    "  return 1\n"
    "}\n"
    f'[ -z "$_ended" ] || [ ! -d {COMMANDS_DIR} ] || while steps_run; do sleep 0.1 || sleep 1 || break; done\n'
    "# An end of the task's own is told at once; the kubelet looks once a second.\n"
    f'[ -z "$_mark" ] || [ -n "$_ended" ] || printf \'\\{END_OCTAL}{END_WORD} %s %s\\n\' "$_mark" "$_code" >&3\n'
    "exit $_code\n"
)
"""Arguments: `1` with a start gate, and the domain of the members' names (empty: none); set-up, text to run (empty: the
last words are a command), the task's name, PLACE and the fields of a Place (or
one that is empty), how many links follow and where each leads and is below
the home, and the last words."""


HOLD_PODS = (
    "#!/bin/sh\n"
    f"# Holds the pods of an allocation that has no script until it is given back: by {GIVE_BACK} with 0, by\n"
    f"# {GIVE_BACK_AS_STEPS} with the highest exit code of its steps.\n"
    f"trap 'exit 0' {GIVE_BACK}\n"
    f"trap '_code=0; [ ! -s {STEP_CODE} ] || read -r _code <{STEP_CODE}; exit $_code' {GIVE_BACK_AS_STEPS}\n"
    "while :; do sleep 3600 & wait $!; done\n"
)


class ScriptContext(NamedTuple):
    """Where a batch script works, reads and writes; without a `folder` nothing is changed.

    An empty `input` or `output` is the container's, an empty `error` goes with the output, and LOG is the container's.
    `mode` has the words `append`, and `await` where a folder may come a little later.
    """

    folder: str = ""
    umask: str = ""
    input: str = ""
    output: str = ""
    error: str = ""
    mode: str = ""


class Work(NamedTuple):
    """What the main container runs. `links` are pairs of a path in the pod and one below the home."""

    setup: str
    run: str
    task: str
    words: tuple[str, ...] = ()
    links: tuple[tuple[str, str], ...] = ()
    waits: bool = False
    """Whether it waits at a start gate first."""
    domain: str = ""
    """Of the members' names, which are there when it starts."""
    place: ScriptContext = ScriptContext()

    def arguments(self) -> list[str]:
        """The arguments of WORK."""
        pairs = [path for link in self.links for path in link]
        gate = ["1" if self.waits else "", self.domain]
        place = [PREPARE_SCRIPT, *self.place] if self.place.folder else [""]
        return [*gate, self.setup, self.run, self.task, *place, str(len(self.links)), *pairs, *self.words]


PROGRAM_VARIABLE = "OVERSPAN_PROGRAM"
"""Where tasks of many nodes have WORK from, so that it does not stand in each of their pods."""
_CHOOSE = "_s=/bin/sh; [ -x /bin/bash ] && _s=/bin/bash; "
"""A shell without job control has what it starts ignore INT and QUIT (POSIX, 2.11); bash can do better."""
CHOOSE_SHELL = f'{_CHOOSE}exec "$_s" -c "$@"'
RUN_PROGRAM = f'{_CHOOSE}_p=${PROGRAM_VARIABLE}; unset {PROGRAM_VARIABLE}; exec "$_s" -c "$_p" overspan "$@"'


def make_command(program: str, arguments: Sequence[str]) -> dict[str, list[str]]:
    """`command` and `args` of a container that runs one of these programs."""
    return _escape_all(["/bin/sh", "-c", program, "overspan"], arguments)


def make_work_command(work: Work, *, shares: bool = False) -> dict[str, list[str]]:
    """`command` and `args` of a task's container, whose program is in PROGRAM_VARIABLE where the pods share it."""
    if shares:
        return _escape_all(["/bin/sh", "-c", RUN_PROGRAM, "overspan"], work.arguments())
    return _escape_all(["/bin/sh", "-c", CHOOSE_SHELL, "overspan"], [WORK, "overspan", *work.arguments()])


def _escape_all(command: Sequence[str], words: Sequence[str]) -> dict[str, list[str]]:
    found = {"command": [escape(text) for text in command]}
    if words:
        found["args"] = [escape(text) for text in words]
    return found


def escape(text: str) -> str:
    """A text that comes through Kubernetes' expansion of $(NAME) as it is: `$$` stands for `$` there.

    Source: Container.command, args and env.value of the pod's API (third_party/forked/golang/expansion).
    """
    return re.sub(r"\$\$+|\$(?=\()", lambda match: match[0] * 2, text)

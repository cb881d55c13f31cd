"""Every option of srun(1) and salloc(1), and command lines read as getopt_long reads them. Standard library only.

Unique prefixes of long names, bundled letters, optional values after `=` only; the first other word begins the command.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Optional

from overspan.bridge.model.errors import InvalidRequest

FLAG, VALUE, OPTIONAL = ".", "=", "?"
SEPARATOR = ":"
"""A word of its own between the components of a heterogeneous step or allocation."""


class SrunOption(NamedTuple):
    """One option; `allocates` tells that a new allocation is asked for with it too."""

    name: str
    letter: str
    kind: str
    allocates: bool


class Part(NamedTuple):
    """One component of a command line: (long name, value) in order, and its command."""

    options: tuple[tuple[str, str], ...]
    command: tuple[str, ...]

    def last(self, name: str, default: str = "") -> str:
        """The value given last."""
        return next((value for key, value in reversed(self.options) if key == name), default)

    def has(self, name: str) -> bool:
        """Whether the option was given."""
        return any(key == name for key, _ in self.options)


# name, letter, value, + where it belongs to the allocation too. Source: srun(1) and salloc(1) of 22.05 to 26.05.
_ROWS = """
accel-bind . =
account A = +
acctg-freq . =
bb . = +
bbf . = +
bcast . ?
begin b = +
bell . .
cluster-constraint . = +
chdir D =
clusters M = +
comment . = +
compress . ?
constraint C = +
container . =
container-id . =
contiguous . . +
core-spec S = +
cores-per-socket . = +
cpu-bind . =
cpu-freq . =
cpus-per-gpu . = +
cpus-per-task c = +
deadline . = +
delay-boot . = +
dependency d = +
disable-status X .
distribution m =
epilog . =
error e =
exact . .
exclude x = +
exclusive . ? +
export . =
external-launcher . .
extra-node-info B = +
gid . =
gpu-bind . =
gpu-freq . = +
gpus G = +
gpus-per-node . = +
gpus-per-socket . = +
gpus-per-task . = +
gres . = +
gres-flags . = +
help h .
het-group . =
hint . = +
hold H . +
immediate I ?
input i =
interactive . .
job-name J = +
jobid . =
kill-command K ?
kill-on-bad-exit K ?
label l .
licenses L = +
mail-type . = +
mail-user . = +
mem . = +
mem-bind . =
mem-per-cpu . = +
mem-per-gpu . = +
mincpus . = +
mpi . =
msg-timeout . =
multi-prog . .
network . = +
nice . ? +
no-allocate Z .
no-bell . .
no-kill k ? +
no-shell . .
nodefile F = +
nodelist w = +
nodes N = +
ntasks n = +
ntasks-per-core . = +
ntasks-per-gpu . = +
ntasks-per-node . = +
ntasks-per-socket . = +
open-mode . =
output o =
overcommit O . +
overlap . .
oversubscribe s ? +
pack-group . =
partition p = +
power . = +
preserve-env E .
priority . = +
profile . = +
prolog . =
propagate . ?
pty . ?
qos q = +
quiet Q .
quit-on-interrupt . .
reboot . . +
relative r =
reservation . = +
resv-ports . ?
send-libs . ?
signal . = +
slurmd-debug . =
sockets-per-node . = +
spread-job . . +
switches . = +
task-epilog . =
task-prolog . =
tasks-per-node . = +
test-only . .
thread-spec . = +
threads . =
threads-per-core . = +
time t = +
time-min . = +
tmp . = +
treewidth . =
tres-bind . =
tres-per-task . = +
uid . =
unbuffered u .
usage . .
use-min-nodes . . +
verbose v .
version V .
wait W =
wait-all-nodes . =
wckey . = +
whole . .
x11 . ?
"""
_SRUN_ONLY = frozenset(
    {
        *("bcast", "cpu-bind", "disable-status", "distribution", "epilog", "error", "exact", "export"),
        *("external-launcher", "het-group", "input", "kill-on-bad-exit", "label", "mpi", "msg-timeout", "multi-prog"),
        *("open-mode", "output", "pack-group", "preserve-env", "prolog", "propagate", "pty", "quit-on-interrupt"),
        *("relative", "slurmd-debug", "task-epilog", "task-prolog", "test-only", "threads", "treewidth"),
        *("unbuffered", "whole"),
    }
)
_SALLOC_ONLY = frozenset({"bell", "no-bell", "no-shell", "kill-command", "wait-all-nodes"})
_SECOND_NAMES = {"tasks-per-node": "ntasks-per-node", "pack-group": "het-group"}


def _read_rows() -> tuple[SrunOption, ...]:
    options = []
    for row in _ROWS.strip().splitlines():
        name, letter, kind, *allocates = row.split()
        options.append(SrunOption(name, letter.strip("."), kind, bool(allocates)))
    return tuple(options)


OPTIONS = _read_rows()


def parse_words(verb: str, words: Sequence[str]) -> list[Part]:
    """The components of a command line of `srun` or `salloc`. Raises InvalidRequest in getopt's words."""
    left_out = _SALLOC_ONLY if verb == "srun" else _SRUN_ONLY
    table = [option for option in OPTIONS if option.name not in left_out]
    names = {option.name: option for option in table}
    letters = {option.letter: option for option in table if option.letter}
    parts: list[Part] = []
    rest: Optional[Sequence[str]] = words
    while rest is not None:
        part, rest = _parse_part(rest, names, letters)
        parts.append(part)
    return parts


def _parse_part(
    words: Sequence[str], names: dict[str, SrunOption], letters: dict[str, SrunOption]
) -> tuple[Part, Optional[Sequence[str]]]:
    """The first component, and the words of the others."""
    options: list[tuple[str, str]] = []
    queue = list(words)
    while queue:
        word = queue[0]
        if word == "--":
            del queue[0]
            break
        if word == SEPARATOR or not word.startswith("-") or word == "-":
            break
        del queue[0]
        if word.startswith("--"):
            options.append(_read_long(word, queue, names))
        else:
            options += _read_letters(word, queue, letters)
    if SEPARATOR not in queue:
        return Part(tuple(options), tuple(queue)), None
    end = queue.index(SEPARATOR)
    return Part(tuple(options), tuple(queue[:end])), queue[end + 1 :]


def _read_long(word: str, queue: list[str], names: dict[str, SrunOption]) -> tuple[str, str]:
    text, equals, value = word[2:].partition("=")
    option = names.get(text)
    if option is None:
        found = [name for name in names if name.startswith(text)]
        if not found:
            raise InvalidRequest(f"unrecognized option '--{text}'")
        if len(found) > 1:
            listed = " ".join(f"'--{name}'" for name in found)
            raise InvalidRequest(f"option '--{text}' is ambiguous; possibilities: {listed}")
        option = names[found[0]]
    if option.kind == FLAG and equals:
        raise InvalidRequest(f"option '--{option.name}' doesn't allow an argument")
    if option.kind == VALUE and not equals:
        if not queue:
            raise InvalidRequest(f"option '--{option.name}' requires an argument")
        value = queue.pop(0)
    return _SECOND_NAMES.get(option.name, option.name), value


def _read_letters(word: str, queue: list[str], letters: dict[str, SrunOption]) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    text = word[1:]
    while text:
        letter, text = text[0], text[1:]
        option = letters.get(letter)
        if option is None:
            raise InvalidRequest(f"invalid option -- '{letter}'")
        value = ""
        if option.kind != FLAG:
            # Bundled text is the value; an optional one never takes the next word.
            value, text = text, ""
            if not value and option.kind == VALUE:
                if not queue:
                    raise InvalidRequest(f"option requires an argument -- '{letter}'")
                value = queue.pop(0)
        found.append((option.name, value))
    return found


_ALLOCATING = {option.name: option for option in OPTIONS if option.allocates}


def allocation_words(parts: Sequence[Part]) -> tuple[str, ...]:
    """The options of sbatch that ask for the same allocation; components stand behind a `:` each."""
    words: list[str] = []
    for number, part in enumerate(parts):
        if number:
            words.append(SEPARATOR)
        for name, value in part.options:
            option = _ALLOCATING.get(name)
            if option is not None:
                words.append(f"--{name}={value}" if value or option.kind == VALUE else f"--{name}")
    return tuple(words)

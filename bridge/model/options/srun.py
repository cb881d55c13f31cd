"""Every option of srun(1) and salloc(1), and their command lines. Standard library only.

The first word that is no option begins the command.
"""

from __future__ import annotations

from collections.abc import Sequence

from overspan.bridge.model.options.getopt import FLAG, OPTIONAL, SEPARATOR, VALUE, Option, Words, parse
from overspan.bridge.model.records import NamedTuple


class Part(NamedTuple):
    """One component of a command line: (long name, value) in order, and its command."""

    options: tuple[tuple[str, str], ...]
    command: tuple[str, ...]

    def last(self, name: str, default: str = "") -> str:
        """The value given last."""
        return Words(self.options).last(name, default)

    def has(self, name: str) -> bool:
        """Whether the option was given."""
        return Words(self.options).has(name)


_KINDS = {".": FLAG, "=": VALUE, "?": OPTIONAL}
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


def _read_rows() -> tuple[tuple[Option, ...], dict[str, Option]]:
    """All options, and those that ask for an allocation too, by name."""
    options, allocating = [], {}
    for row in _ROWS.strip().splitlines():
        name, letter, kind, *allocates = row.split()
        option = Option(name, letter.strip("."), _KINDS[kind], stands_for=_SECOND_NAMES.get(name, ""))
        options.append(option)
        if allocates:
            allocating[name] = option
    return tuple(options), allocating


OPTIONS, _ALLOCATING = _read_rows()


def parse_words(verb: str, words: Sequence[str]) -> list[Part]:
    """The components of a command line of `srun` or `salloc`. Raises InvalidRequest in getopt's words."""
    left_out = _SALLOC_ONLY if verb == "srun" else _SRUN_ONLY
    table = [option for option in OPTIONS if option.name not in left_out]
    parts: list[Part] = []
    rest = tuple(words)
    while True:
        options, rest = parse(rest, table, permute=False)
        if SEPARATOR not in rest:
            return [*parts, Part(options, rest)]
        end = rest.index(SEPARATOR)
        parts.append(Part(options, rest[:end]))
        rest = rest[end + 1 :]


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

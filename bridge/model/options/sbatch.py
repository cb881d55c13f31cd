"""Every option of sbatch(1): its names, its environment variables, and what becomes of it.

Standard library only. The table is data, so that support widens by changing an option's treatment.
"""

from __future__ import annotations

from enum import Enum

from overspan.bridge.model.options import getopt
from overspan.bridge.model.records import NamedTuple


class Argument(Enum):
    """Whether an option takes a value; an optional one is attached: --nice=5."""

    NONE = "none"
    REQUIRED = "required"
    OPTIONAL = "optional"


class Treatment(Enum):
    """What becomes of an option."""

    MAPPED = "mapped"
    """It sets a field of the job."""
    CLIENT = "client"
    """It concerns the submitting command alone."""
    NOTED = "noted"
    """A Slurm cluster gets it; elsewhere it is accepted with a note."""
    REFUSED = "refused"
    """Ignoring it would change what the user gets."""


class SbatchOption(NamedTuple):
    """One option. `heir` tells that a later hetjob component takes the value from the one before."""

    name: str
    letter: str
    argument: Argument
    environment: tuple[str, ...]
    treatment: Treatment
    heir: bool


_ARGUMENTS = {"": Argument.NONE, "=": Argument.REQUIRED, "?": Argument.OPTIONAL}
_TREATMENTS = {"m": Treatment.MAPPED, "c": Treatment.CLIENT, "n": Treatment.NOTED, "r": Treatment.REFUSED}

# name, letter, value, treatment, + where hetjob components inherit it, environment variables (first wins).
# Sources: sbatch(1) of 22.05 to 26.05; inheritance from its HETEROGENEOUS JOBS rules.
_ROWS = """
account                 A = m + SBATCH_ACCOUNT
acctg-freq              . = n + SBATCH_ACCTG_FREQ
array                   a = m . SBATCH_ARRAY_INX
batch                   . = n .
bb                      . = n . SBATCH_BURST_BUFFER
bbf                     . = n .
begin                   b = m +
chdir                   D = m +
cluster-constraint      . = n +
clusters                M = m + SBATCH_CLUSTERS,SLURM_CLUSTERS
comment                 . = m +
consolidate-segments    . . n .
constraint              C = n . SBATCH_CONSTRAINT
container               . = r . SBATCH_CONTAINER
container-id            . = r . SBATCH_CONTAINER_ID
contiguous              . . n .
context                 . = n .
core-spec               S = n . SBATCH_CORE_SPEC
cores-per-socket        . = n .
cpu-freq                . = n . SLURM_CPU_FREQ_REQ
cpus-per-gpu            . = m . SBATCH_CPUS_PER_GPU
cpus-per-task           c = m .
deadline                . = m +
delay-boot              . = n + SBATCH_DELAY_BOOT
dependency              d = m +
distribution            m = n + SBATCH_DISTRIBUTION
error                   e = m + SBATCH_ERROR
exclude                 x = n +
exclusive               . ? n . SBATCH_EXCLUSIVE
export                  . = m + SBATCH_EXPORT
export-file             . = r +
extra                   . = n .
extra-node-info         B = n .
get-user-env            . ? n + SBATCH_GET_USER_ENV
gid                     . = r +
gpu-bind                . = n . SBATCH_GPU_BIND
gpu-freq                . = n . SBATCH_GPU_FREQ
gpus                    G = m . SBATCH_GPUS
gpus-per-node           . = m . SBATCH_GPUS_PER_NODE
gpus-per-socket         . = n . SBATCH_GPUS_PER_SOCKET
gpus-per-task           . = m . SBATCH_GPUS_PER_TASK
gres                    . = m . SBATCH_GRES
gres-flags              . = n . SBATCH_GRES_FLAGS
help                    h . c .
hint                    . = n . SBATCH_HINT,SLURM_HINT
hold-on-failure         . = m .
hold                    H . m +
ignore-pbs              . . n + SBATCH_IGNORE_PBS
input                   i = m + SBATCH_INPUT
job-group               . = m . OVERSPAN_JOB_GROUP
job-name                J = m + SBATCH_JOB_NAME
json                    . ? c .
kill-on-invalid-dep     . = m .
licenses                L = n .
mail-type               . = n .
mail-user               . = n .
mcs-label               . = n +
mem                     . = m + SBATCH_MEM_PER_NODE
mem-bind                . = n . SBATCH_MEM_BIND
mem-per-cpu             . = m . SBATCH_MEM_PER_CPU
mem-per-gpu             . = m . SBATCH_MEM_PER_GPU
mincpus                 . = m .
network                 . = n . SBATCH_NETWORK
nice                    . ? m +
no-job-group            . . m .
no-kill                 k ? n + SBATCH_NO_KILL
no-requeue              . . m + SBATCH_NO_REQUEUE
nodefile                F = n .
nodelist                w = n .
nodes                   N = m .
ntasks                  n = m .
ntasks-per-core         . = n .
ntasks-per-gpu          . = n .
ntasks-per-node         . = m .
ntasks-per-socket       . = n .
ntasks-per-tres         . = n .
oom-kill-step           . ? n + SBATCH_OOM_KILL_STEP
open-mode               . = m . SBATCH_OPEN_MODE
output                  o = m + SBATCH_OUTPUT
overcommit              O . n . SBATCH_OVERCOMMIT
oversubscribe           s . n .
parsable                . . c +
pool                    . = m . SBATCH_POOL
partition               p = m . SBATCH_PARTITION
power                   . = n . SBATCH_POWER
prefer                  . = n .
priority                . = m +
profile                 . = n + SBATCH_PROFILE
propagate               . ? n +
qos                     q = m + SBATCH_QOS
quiet                   Q . c +
reboot                  . . r +
requeue                 . . m + SBATCH_REQUEUE
reservation             . = n + SBATCH_RESERVATION
resv-ports              . ? n .
segment                 . = n . SBATCH_SEGMENT_SIZE
signal                  . = m + SBATCH_SIGNAL
sockets-per-node        . = n .
spread-job              . . n . SBATCH_SPREAD_JOB
stepmgr                 . . n .
switches                . = n . SBATCH_REQ_SWITCH
tasks-per-node          . = m .
test-only               . . c +
thread-spec             . = n . SBATCH_THREAD_SPEC
threads-per-core        . = n . SBATCH_THREADS_PER_CORE
time                    t = m + SBATCH_TIMELIMIT
time-min                . = n +
tmp                     . = n .
tree-width              . = n .
tres-bind               . = n . SBATCH_TRES_BIND
tres-per-task           . = n . SBATCH_TRES_PER_TASK
uid                     . = r +
usage                   . . c .
use-min-nodes           . . n . SBATCH_USE_MIN_NODES
verbose                 v . c + SBATCH_DEBUG
version                 V . c .
wait                    W . c + SBATCH_WAIT
wait-all-nodes          . = n + SBATCH_WAIT_ALL_NODES
wckey                   . = n + SBATCH_WCKEY
wrap                    . = m .
"""

ALIASES = {"tasks-per-node": "ntasks-per-node"}
"""Second names of options."""
OWN = frozenset({"hold-on-failure", "job-group", "json", "no-job-group", "pool"})
"""Overspan's own options. A prefix of a name means one of Slurm's first, so that they make none ambiguous."""


def _read_rows() -> tuple[SbatchOption, ...]:
    options = []
    for row in _ROWS.strip().splitlines():
        name, letter, argument, treatment, heir, *variables = row.split()
        options.append(
            SbatchOption(
                name,
                letter.strip("."),
                _ARGUMENTS[argument.strip(".")],
                tuple(variables[0].split(",")) if variables else (),
                _TREATMENTS[treatment],
                heir == "+",
            )
        )
    return tuple(options)


OPTIONS = _read_rows()
BY_NAME = {option.name: option for option in OPTIONS}
BY_LETTER = {option.letter: option for option in OPTIONS if option.letter}

_KINDS = {Argument.REQUIRED: getopt.VALUE, Argument.OPTIONAL: getopt.OPTIONAL, Argument.NONE: getopt.FLAG}
WORDS = tuple(
    getopt.Option(
        option.name,
        option.letter,
        _KINDS[option.argument],
        own=option.name in OWN,
        stands_for=ALIASES.get(option.name, ""),
    )
    for option in OPTIONS
)
"""The options as command lines are read by them."""


def match_names(text: str) -> list[str]:
    """The long names that a beginning can mean: those of Slurm, else Overspan's own."""
    found = [option.name for option in OPTIONS if option.name.startswith(text)]
    return [name for name in found if name not in OWN] or found

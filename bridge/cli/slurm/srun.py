"""`span srun`: run a step. Inside a job it becomes the step program; outside, it asks for an allocation first."""

from __future__ import annotations

import sys

from overspan.bridge.cli.invocation import Invocation
from overspan.bridge.cli.output import write
from overspan.bridge.cli.slurm.allocations import allocate, become, find_run, has_job, refuse_words
from overspan.bridge.cli.slurm.native_allocations import step_in
from overspan.bridge.model.errors import InvalidRequest
from overspan.bridge.model.options.srun import parse_words

_HELP = """\
usage: span srun [OPTION...] PROGRAM [ARGUMENT...] [: [OPTION...] PROGRAM [ARGUMENT...]]...

Runs a program as a step: inside a job on its nodes, outside on new ones.
  -N, --nodes=N            -n, --ntasks=N           --ntasks-per-node=N
  -c, --cpus-per-task=N    -w, --nodelist=HOSTS     -x, --exclude=HOSTS
  -G, --gpus=N             --gpus-per-task=N        --gres=gpu:N
  -m, --distribution=HOW   block, cyclic or plane=N
  -l, --label              the rank before each line
  -u, --unbuffered         output as it comes, not by lines
  -o, -e, -i PATTERN       files, with %j %J %A %a %s %t %n %N %u %x
      --open-mode=append   add to files
      --export=NAMES       ALL, NONE, NAME, NAME=VALUE
  -D, --chdir=FOLDER       -J, --job-name=NAME
  -K, --kill-on-bad-exit   one rank that fails ends the others
  -W, --wait=SECONDS       end the others so long after the first
      --multi-prog         PROGRAM is a file: ranks and their commands
      --het-group=LIST     components of a heterogeneous job
      --pty                give rank 0 a terminal
      --jobid=N            run inside that job
  -Q, --quiet              -v, --verbose            -V, --version

Exit code: the highest of the ranks'; 128 + the signal's number where one was killed.
"""


def run(call: Invocation) -> int:
    """Run one command line."""
    try:
        parts = parse_words("srun", call.words)
    except InvalidRequest as error:
        return refuse_words(call, error)
    first = parts[0]
    if first.has("help") or first.has("usage"):
        write(_HELP)
        return 0
    if first.has("version"):
        from overspan.bridge.cli.service.version import slurm_version

        write(slurm_version())
        return 0
    if not parts[-1].command and not first.has("pty"):
        print("srun: fatal: No command given to execute.", file=sys.stderr)
        return 1
    job = has_job(call.environment, first)
    if job:
        try:
            folder = find_run(call.environment, job)
        except InvalidRequest as error:
            code = step_in(call, job)
            if code is not None:
                return code
            print(f"srun: error: {error.message}", file=sys.stderr)
            print(f"srun: Check SLURM_JOB_ID environment variable. Expired or invalid job {job}", file=sys.stderr)
            return 1
        return become("srun", call.words, folder, call.environment)
    return allocate(call, parts)

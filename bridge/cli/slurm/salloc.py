"""`span salloc`: hold an allocation while a command runs on this host."""

from __future__ import annotations

import os

from overspan.bridge.cli.invocation import Invocation
from overspan.bridge.cli.output import write
from overspan.bridge.cli.slurm.allocations import allocate, refuse_words
from overspan.bridge.model.errors import InvalidRequest
from overspan.bridge.model.options.srun import parse_words

_HELP = """\
usage: span salloc [OPTION...] [COMMAND [ARGUMENT...]]

Asks for an allocation, runs COMMAND (your shell) on this host with it, and gives it back.
`srun` inside the command runs on the allocation's nodes.
  -N, --nodes=N            -n, --ntasks=N           --ntasks-per-node=N
  -c, --cpus-per-task=N    -G, --gpus=N             --gres=gpu:N
  -t, --time=LIMIT         -p, --partition=NAME     -M, --clusters=NAME
  -J, --job-name=NAME      -D, --chdir=FOLDER       -Q, --quiet
      --no-shell           leave the allocation to its limit or scancel; use it with srun --jobid
  -V, --version

Exit code: the command's; 1 when there was no allocation.
"""


def run(call: Invocation) -> int:
    """Run one command line."""
    try:
        parts = parse_words("salloc", call.words)
    except InvalidRequest as error:
        return refuse_words(call, error)
    if parts[0].has("help") or parts[0].has("usage"):
        write(_HELP)
        return 0
    if parts[0].has("version"):
        from overspan.bridge.cli.service.version import slurm_version

        write(slurm_version())
        return 0
    if parts[0].has("chdir"):
        folder = parts[0].last("chdir")
        try:
            os.chdir(folder)
        except OSError as error:
            raise InvalidRequest(f"chdir({folder}): {error.strerror}") from None
    return allocate(call, parts)

"""salloc and srun outside of a job on a cluster: the daemon holds a native job for as long as this process lives.

Steps are started on the cluster, by Slurm's own srun on the login node or ours in a pod; see `native_steps`.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from overspan.bridge.cli.invocation import Invocation
from overspan.bridge.model.allocations import GIVE_BACK, GIVE_BACK_AS_STEPS
from overspan.bridge.model.errors import OverspanError
from overspan.bridge.model.options.srun import Part

if TYPE_CHECKING:
    from overspan.bridge.client import Client
    from overspan.bridge.client.allocation_hold import AllocationHold

NATIVE = ("slurm", "kubernetes")
"""The kinds of clusters where an allocation is theirs, and steps start there."""
_END_SECONDS = 5.0
"""How long to wait for an allocation to end."""


def list_natives(client: Client) -> frozenset[str]:
    """The clusters where allocations are native jobs."""
    return frozenset(str(found["name"]) for found in client.clusters() if found["kind"] in NATIVE)


def hold_native(call: Invocation, job: str) -> AllocationHold:
    """Take hold of the allocation: it lasts until this process lets go."""
    from overspan.bridge.client import Client
    from overspan.bridge.client.allocation_hold import AllocationHold

    hold = AllocationHold(lambda: Client(environment=call.environment, autostart=False), job)
    hold.start()
    return hold


def run_native(
    call: Invocation, part: Part, command: Sequence[str], facts: Mapping[str, Any], hold: AllocationHold
) -> int:
    """Run the step of srun, or the command of salloc, and give the allocation back; gives its exit code."""
    job = str(facts["id"])
    if call.verb == "srun":
        try:
            with call.client() as client:
                code = _run_step(call, client, job, own=True, is_over=lambda: hold.over)
        except (OSError, OverspanError):
            # No step began, so there is no exit code to end with.
            _give_back(call, job, "")
            raise
        _give_back(call, job, GIVE_BACK_AS_STEPS if code else GIVE_BACK)
        return code
    code = _run_command(command, make_environment(call.environment, part, facts), hold, job)
    if not part.has("quiet"):
        print(f"salloc: Relinquishing job allocation {job}", file=sys.stderr, flush=True)
    _give_back(call, job, GIVE_BACK)
    return code


def step_in(call: Invocation, job: str) -> int | None:
    """Run a step in a job of a cluster; gives its exit code, or None where no daemon knows such a running job."""
    from overspan.bridge.client import Client
    from overspan.bridge.model.errors import Conflict, NotFound, Unreachable

    try:
        # A compute node has no daemon, and none must be started there.
        with Client(environment=call.environment, autostart=False) as client:
            return _run_step(call, client, job, own=False)
    except (Conflict, NotFound, Unreachable):
        return None


def make_environment(environment: Mapping[str, str], part: Part, facts: Mapping[str, Any]) -> dict[str, str]:
    """The variables of salloc's command: this host's, and what salloc(1) sets. The job's id is Overspan's."""
    job, task = str(facts["id"]), facts["tasks"][0]
    found = {
        "SLURM_JOB_ID": job,
        "SLURM_JOBID": job,
        "SLURM_JOB_NAME": facts["name"],
        "SLURM_JOB_NODELIST": task["node_list"],
        "SLURM_NODELIST": task["node_list"],
        "SLURM_JOB_NUM_NODES": str(task["nodes"]),
        "SLURM_NNODES": str(task["nodes"]),
        "SLURM_JOB_PARTITION": facts["partition"],
        "SLURM_JOB_ACCOUNT": facts["account"],
        "SLURM_JOB_QOS": facts["qos"],
        "SLURM_CLUSTER_NAME": facts["cluster"],
        "SLURM_SUBMIT_DIR": os.getcwd(),
        "SLURM_SUBMIT_HOST": os.uname().nodename,
        "SLURM_NTASKS": part.last("ntasks"),
        "SLURM_NPROCS": part.last("ntasks"),
        "SLURM_NTASKS_PER_NODE": part.last("ntasks-per-node"),
        "SLURM_CPUS_PER_TASK": part.last("cpus-per-task"),
        "SRUN_CPUS_PER_TASK": part.last("cpus-per-task"),
    }
    return {**environment, **{name: value for name, value in found.items() if value}}


def _run_step(
    call: Invocation, client: Client, job: str, *, own: bool, is_over: Callable[[], bool] = lambda: False
) -> int:
    from overspan.bridge.cli.slurm.native_steps import is_terminal, run_step, take_slot

    alone, terminal = not take_slot(call.environment), is_terminal(call.words)
    found = client.prepare_step(job, call.words, own=own, terminal=terminal, alone=alone)
    client.close()
    return run_step(found, call.environment, is_over)


def _run_command(command: Sequence[str], environment: Mapping[str, str], hold: AllocationHold, job: str) -> int:
    """Run salloc's command, which has the terminal's signals; its exit code."""
    try:
        process = subprocess.Popen(command, env=dict(environment))
    except OSError as error:
        missing = isinstance(error, FileNotFoundError)
        text = f'Unable to find command "{command[0]}"' if missing else f"{command[0]}: {error.strerror}"
        print(f"salloc: error: _fork_command: {text}", file=sys.stderr)
        return 1
    for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGTSTP):
        signal.signal(number, signal.SIG_IGN)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda received, frame: process.send_signal(received))
    hold.on_end = lambda: print(f"salloc: Job allocation {job} has been revoked.", file=sys.stderr, flush=True)
    status = process.wait()
    hold.on_end = lambda: None
    return 128 - status if status < 0 else status


def _give_back(call: Invocation, job: str, name: str) -> None:
    """End the allocation by a signal, or cancel it. If its cluster does not answer now, the daemon ends it later."""
    from overspan.bridge.client import CancelOrder

    try:
        with call.client() as client:
            done = client.cancel(CancelOrder(refs=(job,), signal=name, batch_only=bool(name)))
            for line in done.note.splitlines():
                print(f"{call.verb}: {line}", file=sys.stderr)
            if not (done.note or done.errors):
                client.wait(job, timeout=_END_SECONDS)
    except OverspanError as error:
        print(f"{call.verb}: error: allocation {job} is given back later: {error.message}", file=sys.stderr)

"""Slurm's commands in a pod, where no supervisor runs: the same steps, from what the pod has mounted.

    srun WORDS       run a step on the job's pods
    scontrol WORDS   host lists
    command WORDS    span, by the client that the daemon gives
    stepd            wait for steps, on a pod of a batch script that does not run its text

What a supervisor would leave in the run directory is a mounted document, and the job's key where a script has several
pods. The run directory is the pod's own and holds no more than the number of the next step and what its steps leave.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from overspan.bridge.model.records import NamedTuple
from overspan.bridge.model.slurm.answers import HOST_KINDS, answer_hosts, slurm_version
from overspan.bridge.model.slurm.words import word_lost_allocation
from overspan.bridge.runtime.core.allocation import Allocation, Endpoint, parse_allocation, read_key

_USAGE = "usage: srun [OPTION...] PROGRAM [ARGUMENT...]\nThe options are those of `span help srun`.\n"
NO_DAEMON = "the daemon of Overspan cannot be reached from a pod"
ELSEWHERE = "run this where the job was submitted"


class Mounted(NamedTuple):
    """Where a pod has things: its run directory, the document of the allocation, and the folder of the key."""

    run_dir: str
    document: str
    key_folder: str
    access: str = ""
    """What says how to reach the daemon, where the pod has it."""


def main(words: Sequence[str], mounted: Mounted) -> int:
    """Run one of the commands; gives its exit code."""
    verb, *rest = words
    if verb == "scontrol" and not (mounted.access and os.path.exists(mounted.access) and not _is_here(rest)):
        return _answer(rest, os.environ)
    if verb == "stepd":
        return _serve(mounted, os.environ)
    if verb == "srun":
        return _run_step(rest, mounted)
    return _ask(words, mounted)


def _ask(words: Sequence[str], mounted: Mounted) -> int:
    """Run a command that asks the daemon."""
    from overspan.bridge.runtime.core.job_access import ACCESS
    from overspan.bridge.runtime.job_command import main as become_client

    os.environ[ACCESS] = mounted.access
    os.environ.setdefault("OVERSPAN_RUN_DIR", mounted.run_dir)
    return become_client(words)


# --- srun ------------------------------------------------------------------------------------------------------------


def _run_step(words: Sequence[str], mounted: Mounted) -> int:
    # Loaded by the one command that needs it: sources in a zip are compiled at every start.
    from overspan.bridge.model.errors import InvalidRequest
    from overspan.bridge.model.options.srun import Part, parse_words
    from overspan.bridge.runtime.srun.messages import fail, say
    from overspan.bridge.runtime.srun.srun import run_words

    try:
        first = parse_words("srun", words)[0]
    except InvalidRequest:
        first = Part((), ())  # srun itself tells what is wrong
    if first.has("version"):
        sys.stdout.write(slurm_version())
        return 0
    if first.has("help") or first.has("usage"):
        sys.stdout.write(_USAGE)
        return 0
    try:
        allocation = open_allocation(mounted, os.environ)
    except (OSError, ValueError, KeyError) as error:
        return fail(f"Unable to confirm allocation for job: {error}")
    job = first.last("jobid", str(allocation.job))
    if job != str(allocation.job):
        say(f"error: {NO_DAEMON}, and so no other job")
        return fail(word_lost_allocation(job))
    return run_words(words, allocation)


def open_allocation(mounted: Mounted, environment: Mapping[str, str]) -> Allocation:
    """The allocation that this pod is in, with a folder for its steps. Raises OSError and ValueError."""
    with open(mounted.document, encoding="utf-8") as file:
        document = json.load(file)
    if not document["components"]:
        document["components"] = [_describe_own(environment)]
    folder = os.path.join(mounted.run_dir, "steps")
    os.makedirs(folder, mode=0o700, exist_ok=True)
    try:
        os.symlink(os.path.join(mounted.key_folder, "key"), os.path.join(folder, "key"))
    except FileExistsError:
        pass
    return parse_allocation(document, folder)


def _describe_own(environment: Mapping[str, str]) -> dict[str, Any]:
    """The pod alone: steps of a job file's task stay on the node that they are started on."""
    gpus = environment.get("SLURM_GPUS_ON_NODE", "")
    index = environment.get("OVERSPAN_NODE_INDEX", "")
    node = {
        "task": environment.get("OVERSPAN_TASK", ""),
        "index": int(index) if index.isdigit() else 0,
        "name": environment.get("SLURMD_NODENAME") or os.uname().nodename,
        "address": environment.get("OVERSPAN_ADDR", ""),
        "gpus": list(range(int(gpus) if gpus.isdigit() else 0)),
        "served": False,
    }
    return {"nodes": [node], "ntasks": 0, "ntasks_per_node": 0, "cpus": 0}


# --- the step daemon -------------------------------------------------------------------------------------------------


def _serve(mounted: Mounted, environment: Mapping[str, str]) -> int:
    """Serve steps until the pod is terminated."""
    from overspan.bridge.runtime.srun.step_daemon import open_daemon

    address = environment.get("OVERSPAN_ADDR", "")
    with open(mounted.document, encoding="utf-8") as file:
        port = int(json.load(file)["port"])
    try:
        daemon = open_daemon(Endpoint(address, port), read_key(mounted.key_folder))
    except OSError as error:
        print(f"span: steps cannot be waited for at {address}:{port}: {error}", file=sys.stderr)
        return 1
    return daemon.serve()


# --- scontrol --------------------------------------------------------------------------------------------------------


def _is_here(words: Sequence[str]) -> bool:
    """Whether the pod itself has the answer."""
    if words and words[0] in ("-V", "--version", "version"):
        return True
    return len(words) > 1 and words[0].lower() == "show" and words[1].lower().startswith("host")


def _answer(words: Sequence[str], environment: Mapping[str, str]) -> int:
    """What scontrol knows without the daemon: host lists, and its version."""
    if words and words[0] in ("-V", "--version", "version"):
        sys.stdout.write(slurm_version())
        return 0
    if len(words) > 1 and words[0].lower() == "show":
        kind, _, attached = words[1].partition("=")
        names = (attached, *words[2:]) if attached else tuple(words[2:])
        found = next((known for known in HOST_KINDS if kind and known.startswith(kind.lower())), "")
        if found:
            answer = answer_hosts(found, names, environment)
            sys.stdout.write(answer.text)
            sys.stdout.flush()
            if answer.error:
                print(answer.error, file=sys.stderr)
            return answer.code
    print(
        f"scontrol: error: {NO_DAEMON}, {ELSEWHERE}; here it knows the host lists of `scontrol show`", file=sys.stderr
    )
    return 1

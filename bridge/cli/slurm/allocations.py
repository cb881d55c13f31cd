"""What `srun` and `salloc` share: finding the run of a job, asking for one, and becoming the step program.

The step program is an entry of the zip application that runs beside the work; its words are in the run directory.
"""

from __future__ import annotations

import glob
import json
import os
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from overspan.bridge.cli.invocation import Invocation
from overspan.bridge.cli.slurm.native_allocations import hold_native, list_natives, run_native
from overspan.bridge.model.allocations import HOLD_SCRIPT, KEEP_SCRIPT
from overspan.bridge.model.errors import InvalidRequest, OverspanError
from overspan.bridge.model.options.srun import Part, allocation_words
from overspan.bridge.model.slurm.words import word_lost_allocation

if TYPE_CHECKING:
    from overspan.bridge.client import Accepted, Client, Submission

_PENDING_SECONDS = 1.0
_POLL_SECONDS = 0.05
_DOCUMENT_SECONDS = 30.0
_UNREADABLE = 255
_FAILED = "Batch job submission failed"
_FAILED_HERE = {"srun": "Unable to allocate resources", "salloc": "Job submit/allocate failed"}
_WAITING = ("PENDING", "CONFIGURING", "REQUEUED")


def refuse_words(call: Invocation, error: InvalidRequest) -> int:
    """Report a wrong command line as callers of getopt do."""
    print(f"{call.verb}: {error.message}", file=sys.stderr)
    print(f'Try "{call.verb} --help" for more information', file=sys.stderr)
    return _UNREADABLE


def has_job(environment: Mapping[str, str], part: Part) -> str:
    """The job in which srun runs its step: --jobid, else SLURM_JOB_ID; empty where it needs a new allocation."""
    return part.last("jobid") or environment.get("SLURM_JOB_ID", "") or environment.get("SLURM_JOBID", "")


def find_run(environment: Mapping[str, str], job: str) -> str:
    """The run directory of a job: the one that the environment names, else by the job's id. Raises InvalidRequest."""
    folder = environment.get("OVERSPAN_RUN_DIR", "")
    if folder and environment.get("OVERSPAN_JOB_ID", job) == job and os.path.exists(_document(folder)):
        return folder
    if job.isdigit():
        from overspan.bridge.config.paths import find_paths

        pattern = os.path.join(glob.escape(find_paths(environment).state), "clusters", "*", "runs", job)
        for folder in glob.glob(pattern):
            if os.path.exists(_document(folder)):
                return folder
    raise InvalidRequest(word_lost_allocation(job))


def signal_step(job: str, step: str, number: int, environment: Mapping[str, str]) -> bool:
    """Hand a signal to the srun of a running step; KILL ends the step. False where no such step runs."""
    import subprocess

    try:
        run_dir = find_run({**environment, "OVERSPAN_RUN_DIR": ""}, job)
        words = [*_read_program(run_dir), "sattach", step, f"--signal={number}"]
    except InvalidRequest:
        return False
    told = subprocess.run(words, env={**environment, "OVERSPAN_RUN_DIR": run_dir}, stderr=subprocess.DEVNULL)
    return told.returncode == 0


def become(entry: str, words: Sequence[str], run_dir: str, environment: Mapping[str, str]) -> NoReturn:
    """Replace this process by an entry of the application that the job's supervisor runs."""
    program = _read_program(run_dir)
    sys.stdout.flush()
    sys.stderr.flush()
    os.execve(program[0], [*program, entry, *words], {**environment, "OVERSPAN_RUN_DIR": run_dir})


def allocate(call: Invocation, parts: Sequence[Part]) -> int:
    """Ask for an allocation, wait for it, and go on as the program that holds it."""
    verb = call.verb
    quiet = parts[0].has("quiet")
    trial = parts[0].has("test-only")
    with call.client() as client:
        accepted = _send(client, _make_submission(call, parts))
        if not quiet:
            for note in accepted.notes:
                print(f"{verb}: {note}", file=sys.stderr)
        if trial:
            print(f"{verb}: {accepted.text}", file=sys.stderr)
            return 0
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, _interrupt)
        try:
            natives = list_natives(client)
            hold = hold_native(call, str(accepted.id)) if natives and not parts[0].has("no-shell") else None
            facts = _await_start(call, client, accepted.id, quiet)
            native = facts["cluster"] in natives
            run_dir = "" if native else _await_run(call, accepted.id)
        except KeyboardInterrupt:
            return _withdraw(call, client, accepted.id)
    if verb == "salloc" and not quiet:
        print(f"salloc: Granted job allocation {accepted.id}", file=sys.stderr)
    if parts[0].has("no-shell"):
        return 0
    command = parts[-1].command or (call.environment.get("SHELL") or "/bin/sh",)
    if native and hold is not None:
        return run_native(call, parts[0], command, facts, hold)
    mode = ["--quiet"] if quiet else []
    if verb == "srun":
        become("salloc", ["--step", *mode, "--", *call.words], run_dir, call.environment)
    become("salloc", [*mode, "--", *command], run_dir, call.environment)


def _make_submission(call: Invocation, parts: Sequence[Part]) -> Submission:
    from overspan.bridge.client import Submission

    return Submission(
        kind="script",
        text=KEEP_SCRIPT if parts[0].has("no-shell") else HOLD_SCRIPT,
        file=call.verb,
        # Without requeue: the client of a lost allocation would not hold the next one.
        argv=["--output=/dev/null", "--no-requeue", *allocation_words(parts)],
        command=(call.verb, *call.words),
        name=parts[0].last("job-name") or _default_name(call.verb, parts),
        test_only=parts[0].has("test-only"),
    )


def _withdraw(call: Invocation, client: Client, job: int) -> int:
    """Cancel an allocation that is still waited for; gives the exit code."""
    from overspan.bridge.client import CancelOrder

    client.cancel(CancelOrder(refs=(str(job),)))
    gone = f"Force Terminated job {job}" if call.verb == "srun" else f"Job allocation {job} has been revoked."
    print(f"{call.verb}: {gone}", file=sys.stderr)
    return 1


def _send(client: Client, submission: Submission) -> Accepted:
    """Submit. Raises OverspanError in the words of the verb that asks."""
    try:
        return client.send(submission)
    except OverspanError as error:
        error.message = error.message.replace(_FAILED, _FAILED_HERE[submission.file])
        raise


def _interrupt(number: int, frame: object) -> NoReturn:
    raise KeyboardInterrupt


def _default_name(verb: str, parts: Sequence[Part]) -> str:
    if verb == "srun" and parts[0].command:
        return os.path.basename(parts[0].command[0])
    if parts[0].has("no-shell"):
        return "no-shell"
    return "interactive"


def _await_start(call: Invocation, client: Client, job: int, quiet: bool) -> dict[str, Any]:
    """Wait until the job runs; gives its facts. Raises OverspanError when it ends before."""
    begin = time.monotonic()
    told = False
    while True:
        facts: dict[str, Any] = client.show(str(job))
        state = str(facts.get("state", ""))
        if state not in _WAITING:
            break
        if not told and not quiet and time.monotonic() - begin > _PENDING_SECONDS:
            told = True
            if call.verb == "salloc":
                print(f"salloc: Pending job allocation {job}", file=sys.stderr)
            print(f"{call.verb}: job {job} queued and waiting for resources", file=sys.stderr, flush=True)
        time.sleep(_POLL_SECONDS if not told else 0.5)
    if state != "RUNNING":
        raise OverspanError(f"Unable to allocate resources: job {job} is {state}")
    if told:
        print(f"{call.verb}: job {job} has been allocated resources", file=sys.stderr, flush=True)
    return facts


def _await_run(call: Invocation, job: int) -> str:
    """Wait until a job that has just begun accepts steps; gives its run directory."""
    deadline = time.monotonic() + _DOCUMENT_SECONDS
    while True:
        try:
            return find_run({**call.environment, "OVERSPAN_RUN_DIR": ""}, str(job))
        except InvalidRequest:
            if time.monotonic() > deadline:
                raise
            time.sleep(_POLL_SECONDS)


def _read_program(run_dir: str) -> list[str]:
    try:
        with open(_document(run_dir), encoding="utf-8") as file:
            program: list[str] = json.load(file)["program"]
    except FileNotFoundError:
        # The job ended, and its run directory was packed after it was found.
        job = os.path.basename(run_dir)
        raise InvalidRequest(word_lost_allocation(job)) from None
    return program


def _document(folder: str) -> str:
    return os.path.join(folder, "steps", "allocation.json")

"""Steps from outside of a job in pods: the program of a step in the first pod, and kubectl's exec to start it.

The pods are those of a batch script, or of an allocation without one (scripts.HOLD_PODS). srun in the first pod places
the ranks, as it does for the script (manifests/commands.py). What the step was typed with is in a file of that pod that
removes itself when it starts, so neither variables nor words are in a command line or in the API server's audit log.
"""

from __future__ import annotations

import secrets
import shlex
from collections.abc import Iterable
from typing import NamedTuple

from overspan.adapters.abilities import StepEntrance, StepRequest
from overspan.adapters.kubernetes.api.connection import Connection
from overspan.adapters.kubernetes.api.executing import ExecCommand
from overspan.adapters.kubernetes.files import place_workdir
from overspan.adapters.kubernetes.manifests.exporting import choose_step_variables
from overspan.adapters.kubernetes.manifests.scripts import (
    COMMANDS_DIR,
    END_VARIABLE,
    KILL_VARIABLE,
    PROGRAM_VARIABLE,
    RUN_DIR,
    STEP_CODE,
)
from overspan.adapters.kubernetes.manifests.volumes import find_shared
from overspan.adapters.kubernetes.observation.records import MAIN, PodRecord
from overspan.adapters.kubernetes.settings import Settings
from overspan.adapters.kubernetes.shells import exec_words, find_live
from overspan.adapters.step_guards import render_guard
from overspan.bridge.model.errors import Conflict, InvalidRequest
from overspan.bridge.model.job import Job
from overspan.bridge.model.spec import Form, TaskSpec

_NO_COMMANDS, _NO_PYTHON = 3, 4
_RECEIVE = f"""\
[ -x {COMMANDS_DIR}/srun ] || exit {_NO_COMMANDS}
command -v python3 >/dev/null || exit {_NO_PYTHON}
umask 077; mkdir "$1" && head -c "$2" >"$1/step"
"""
"""Takes a step's program from its input. $1 is the step's folder, $2 how many bytes come."""
_RECEIVE_SECONDS = 15.0

_GUARD = render_guard('tell() { [ -s pid ] && read -r pid <pid && (kill -s "$1" "$pid") 2>/dev/null; }')
"""kubectl's end alone ends nothing in a pod. A child sends the signals: srun takes those of a process that the runtime
started for signals to all of the pod (StepClient)."""
_LAST_LINE = r"command terminated with exit code \d+\n"
"""What kubectl prints of itself when the command has ended with another code than 0."""


class StepSource(NamedTuple):
    """What a step is made of: the job as it was launched, its pods, and the settings of its partition."""

    job: Job
    pods: Iterable[PodRecord]
    settings: Settings


async def prepare_step(request: StepRequest, source: StepSource, connection: Connection) -> StepEntrance:
    """Put a step's program into the first pod, and give the command that starts it.

    Raises InvalidRequest for a job that takes no steps, Conflict where its first pod does not run, Unreachable.
    """
    task = source.job.spec.tasks[0]
    if task.form is not Form.BATCH:
        raise InvalidRequest(
            "a group takes no steps from outside: its tasks are what runs there",
            remedy="`span shell` runs a command beside a task",
        )
    pod = find_live(source.pods, task.name, 0)
    folder = f"{RUN_DIR}/step.{secrets.token_hex(8)}"
    text = render_step(folder, request, task, source.settings).encode("utf-8", "surrogateescape")
    words = ("/bin/sh", "-c", _RECEIVE, "step", folder, str(len(text)))
    command = ExecCommand(pod.namespace, pod.name, MAIN, words, text)
    code, output = await connection.run(connection.execute, command, _RECEIVE_SECONDS)
    _check_received(code, output, source.job.id)
    step = exec_words(pod, source.settings, ("/bin/sh", f"{folder}/step"), terminal=request.terminal)
    guard = exec_words(pod, source.settings, ("/bin/sh", "-c", _GUARD, "guard", folder), terminal=False)
    return StepEntrance(step, guard, _LAST_LINE)


def _check_received(code: int, output: str, job: int) -> None:
    if code == _NO_COMMANDS:
        raise InvalidRequest(
            f"the pods of job {job} have no srun: its script does not name it",
            remedy="`span shell` runs a command beside it; `commands: always` of the cluster gives all pods srun",
        )
    if code == _NO_PYTHON:
        raise InvalidRequest(
            f"the image of job {job} has no python3, which srun needs in a pod",
            remedy="choose an image with python3 3.9 or newer, by the cluster's `image`",
        )
    if code:
        raise Conflict(f"the first pod of job {job} did not take the step: {' '.join(output.split())[:200]}")


def render_step(folder: str, request: StepRequest, task: TaskSpec, settings: Settings) -> str:
    """The sh program of a step: it runs srun with the user's words, folder and variables."""
    shared = find_shared(request.directory, settings) is not None
    directory = request.directory if shared else place_workdir(task, {})
    variables = choose_step_variables(request.environment, request.words, settings)
    lines = [
        f"rm -f {folder}/step",
        f"cd {shlex.quote(directory)} || exit 1",
        f"umask {request.umask:04o}",
        f"unset {END_VARIABLE} {KILL_VARIABLE} {PROGRAM_VARIABLE}",
        *(f"export {name}={shlex.quote(value)}" for name, value in variables.items()),
        f"PATH={COMMANDS_DIR}:$PATH; export PATH",
        f"sh -c 'echo $$ >{folder}/pid; exec \"$@\"' step {shlex.join(('srun', *request.words))}",
        f"_code=$?; rm -f {folder}/pid",
        f"_most=0; [ ! -s {STEP_CODE} ] || read -r _most <{STEP_CODE}",
        f'[ "$_code" -le "$_most" ] || echo "$_code" >{STEP_CODE}',
        'exit "$_code"',
    ]
    return "\n".join(lines) + "\n"

"""A shell or a command as a member of a job has it: `PYZ shell RUN_DIR LAUNCH PART TASK NODE [WORD...]`.

It runs on the member's node; PART is the folder of the task's own supervisor in the run directory, empty where one
supervisor has the whole launch. Of a member that lives it takes over environment, working directory and namespaces, so
that a debugger reaches its processes. Of one that has ended, while its nodes are kept, these are made again from plan
and journal. Nothing waits for a shell, and its end ends nothing else.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from typing import NoReturn

from overspan.bridge.lifecycle.execution import place_members
from overspan.bridge.lifecycle.rules import RULES
from overspan.bridge.model.events import event_from_document
from overspan.bridge.model.job import Job
from overspan.bridge.model.names import member_name
from overspan.bridge.model.records import NamedTuple
from overspan.bridge.runtime.core import isolation, kernel
from overspan.bridge.runtime.core.environment import NodeRunContext, build_environment, has_names, list_members
from overspan.bridge.runtime.core.isolation import Isolation
from overspan.bridge.runtime.core.run_directory import RunDirectory, RunPlan
from overspan.bridge.runtime.core.task_scripts import find_shell
from overspan.bridge.runtime.slurm.images import (
    carry_variables,
    find_home,
    is_held,
    list_carried,
    wrap_words,
    write_image_hosts,
)
from overspan.bridge.runtime.slurm.member_locations import locations_path, read_locations
from overspan.bridge.runtime.slurm.node_folders import make_folder
from overspan.bridge.runtime.slurm.node_staging import FOLDER_PLACEHOLDER
from overspan.bridge.runtime.slurm.placement import read_placement
from overspan.bridge.runtime.slurm.shell_folder import read_native
from overspan.bridge.runtime.slurm.variables import merge_variables

MARK = "OVERSPAN_SHELL"
"""The variable that tells a shell from the member's own programs."""

_TERMINAL = ("TERM", "COLORTERM")
_NO_SHELLS = ("nologin", "false")
_FROM_TERMINAL = (signal.SIGINT, signal.SIGQUIT)
_NOT_EXECUTABLE, _NOT_FOUND = 126, 127


class ShellPlace(NamedTuple):
    """Where a shell is: a program of the member's that lives (`pid`, else 0), and what is needed without one."""

    environment: Mapping[str, str]
    directory: str
    pid: int = 0
    isolation: Isolation = Isolation()


def main(words: Sequence[str]) -> int:
    """Run a shell or a command; gives its exit code, or 128 and its signal."""
    try:
        path, launch, part, task, number, *command = words
        directory, node = RunDirectory(path, int(launch), part), int(number)
        plan = directory.read_plan()
        job = replay(directory, plan)
        job = place_others(directory, job, task) if part else job
        folder = make_folder(("/tmp", os.environ.get("TMPDIR", "")))
    except (OSError, ValueError) as error:
        print(f"span: error: there is no way in: {error}", file=sys.stderr)
        return 1
    try:
        seat, argv = prepare(directory, plan._replace(job=job), (task, node), folder.path, command)
        return _wait(seat, argv)
    except (OSError, ValueError, KeyError) as error:
        print(f"span: error: there is no way in: {error}", file=sys.stderr)
        return 1
    finally:
        folder.remove()


def replay(directory: RunDirectory, plan: RunPlan) -> Job:
    """The job's facts by its journal, of which the last line may be half written. Raises OSError and ValueError."""
    job, reduce = plan.job, RULES[plan.decider].reduce
    with open(directory.file("journal.jsonl"), "rb") as file:
        data = file.read()
    for line in data[: data.rfind(b"\n") + 1].splitlines():
        document = json.loads(line)
        if "event" in document:
            job = reduce(job, event_from_document(document))
    return job


def place_others(directory: RunDirectory, job: Job, task: str) -> Job:
    """The job with the members of its other tasks where their own supervisors say that they are."""
    for other in job.spec.tasks:
        if other.name != task:
            job = place_members(job, read_locations(locations_path(directory.path, other.name, directory.launch)))
    return job


def prepare(
    directory: RunDirectory, plan: RunPlan, member: tuple[str, int], folder: str, command: Sequence[str]
) -> tuple[ShellPlace, tuple[str, ...]]:
    """Where the shell is, and its words. `folder` is for files of its own. Raises OSError, ValueError, KeyError."""
    job, (task, node) = plan.job, member
    pid = find_member(name_launch(directory), task, node)
    image = find_image(directory, task)
    if is_held(image) and not pid:
        raise ValueError(f"the container of {task} has ended with its program")
    if pid:
        environment = read_environment(pid)
        seat = ShellPlace(environment, os.readlink(f"/proc/{pid}/cwd"), pid)
    else:
        seat = build_shell_place(directory, plan, member, "" if image else folder)
    environment = {name: value for name, value in seat.environment.items() if name not in _TERMINAL}
    environment.update({name: os.environ[name] for name in _TERMINAL if name in os.environ}, **{MARK: "1"})
    argv = tuple(command) or (choose_shell(environment, bool(image)),)
    if is_held(image):
        argv = wrap_words((), argv, "", "")
    elif image:
        hosts = write_image_hosts(folder, list_members(job) if has_names(job) else ())
        argv = wrap_words(image, argv, find_home(environment), hosts, environment.get("OVERSPAN_RUN_DIR", ""))
        environment = carry_variables(environment, (*list_carried(job.spec_of(task), environment), MARK))
    return seat._replace(environment=environment), argv


def name_launch(directory: RunDirectory) -> str:
    """The variable that all programs of a launch have, and no others on this machine.

    Where the nodes share no folder, the run directory of each member is its own.
    """
    native = read_native(directory.path)
    return f"SLURM_JOB_ID={native}" if native else f"OVERSPAN_RUN_DIR={directory.path}"


def find_member(launch: str, task: str, node: int) -> int:
    """The oldest living program of a member on this machine, by its environment; 0 where there is none."""
    marks = {launch, f"OVERSPAN_TASK={task}", f"OVERSPAN_NODE_INDEX={node}"}
    wanted = {os.fsencode(mark) for mark in marks}
    found: list[kernel.Process] = []
    for pid in kernel.list_pids():
        try:
            variables = set(kernel.read_file(f"/proc/{pid}/environ").split(b"\0"))
        except OSError:
            continue
        if wanted <= variables and not any(item.startswith(MARK.encode() + b"=") for item in variables):
            process = kernel.read_process(pid)
            found += [process] if process is not None and process.state not in "ZX" else []
    return min(found, key=lambda process: (process.start_time, process.pid)).pid if found else 0


def read_environment(pid: int) -> dict[str, str]:
    """The environment that a process was started with. Raises OSError."""
    items = (item.partition(b"=") for item in kernel.read_file(f"/proc/{pid}/environ").split(b"\0") if b"=" in item)
    return {os.fsdecode(name): os.fsdecode(value) for name, _, value in items}


def find_image(directory: RunDirectory, task: str) -> tuple[str, ...]:
    """The words that run a program in the task's image; none without one, or where there is no placement."""
    try:
        steps = read_placement(directory.file("placement.json")).steps
    except FileNotFoundError:
        return ()
    return next((step.image for step in steps if step.task == task), ())


def build_shell_place(directory: RunDirectory, plan: RunPlan, member: tuple[str, int], folder: str) -> ShellPlace:
    """Environment, directory and names of a member anew; without a `folder` it gets no names."""
    job, (task, node) = plan.job, member
    spec = job.spec_of(task)
    slurm = os.path.exists(directory.file("placement.json"))
    attempt = job.task(task).current
    number, run = (attempt.number, attempt.nodes[node].run) if attempt is not None else (0, 0)
    place = NodeRunContext(task, node, number, run, directory.path, plan.cluster, plan.environment, real_nodes=slurm)
    environment = build_environment(job, place)
    if slurm:
        environment = merge_variables(environment, os.environ, "HOME" not in job.spec.environment)
    names = Isolation()
    if folder and has_names(job) and (slurm or directory.read_grant().isolation != isolation.ENV):
        names = isolation.prepare_isolation(folder, isolation.probe(), list_members(job))
        if names.method != isolation.ENV:
            names = names._replace(hostname=member_name(task, node + job.spec.first_index))
    cwd = spec.workdir or job.spec.origin.directory or directory.path
    # What was a member's own went with it.
    cwd = directory.path if cwd.startswith(FOLDER_PLACEHOLDER) else cwd
    return ShellPlace(isolation.extend_environment(names, environment), cwd, 0, names)


def choose_shell(environment: Mapping[str, str], image: bool) -> str:
    """The user's shell, else bash or sh; in an image what is in there."""
    own = environment.get("SHELL", "")
    if image:
        return "/bin/bash"
    usable = os.path.basename(own) not in _NO_SHELLS and os.path.isabs(own) and os.access(own, os.X_OK)
    return own if usable else find_shell()


def _wait(seat: ShellPlace, argv: Sequence[str]) -> int:
    """Run the words there and wait for them: what the terminal signals is theirs to heed."""
    sys.stdout.flush()
    sys.stderr.flush()
    for number in _FROM_TERMINAL:
        signal.signal(number, signal.SIG_IGN)
    pid = os.fork()
    if pid == 0:
        _become(seat, argv)
    _, status = os.waitpid(pid, 0)
    return os.WEXITSTATUS(status) if os.WIFEXITED(status) else 128 + os.WTERMSIG(status)


def _become(seat: ShellPlace, argv: Sequence[str]) -> NoReturn:
    code = 1
    try:
        # What is ignored is inherited; Python itself ignores SIGPIPE.
        for number in (*_FROM_TERMINAL, signal.SIGPIPE):
            signal.signal(number, signal.SIG_DFL)
        kernel.set_parent_death_signal(signal.SIGHUP)
        _enter(seat)
        code = _NOT_EXECUTABLE
        os.execvpe(argv[0], list(argv), dict(seat.environment))
    except FileNotFoundError as error:
        code = _NOT_FOUND
        _say(f"{argv[0]}: {error.strerror}")
    except (OSError, ValueError) as error:
        _say(str(error))
    finally:
        os._exit(code)


def _enter(seat: ShellPlace) -> None:
    if seat.pid:
        kernel.join_namespaces(seat.pid)
    else:
        isolation.enter_isolation(seat.isolation)
    try:
        os.chdir(seat.directory)
    except OSError as error:
        # A look around is still worth something.
        _say(f"the working directory {seat.directory} cannot be entered: {error.strerror}")


def _say(text: str) -> None:
    print(f"span: error: {text}", file=sys.stderr, flush=True)

"""A shell beside the work on a Slurm cluster: a step that shares the allocation's resources (srun(1), --overlap).

In a group the runtime application enters the member's environment. A single job has no application on its nodes, so it
gets a plain shell in the job's working directory. Where the nodes share no folder, the application first copies itself
to the member's node.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from overspan.adapters.abilities import Entrance, ShellRequest
from overspan.adapters.slurm.commands.queries import Queries
from overspan.adapters.slurm.files.application import InstalledApplication
from overspan.adapters.slurm.groups.handles import GroupHandle
from overspan.adapters.slurm.groups.parts import split_token
from overspan.adapters.slurm.groups.rendering import supervisor_words
from overspan.adapters.slurm.handles import Handle, parse_any
from overspan.adapters.slurm.rendering.renderer import resolve_root
from overspan.adapters.slurm.rendering.script import find_token
from overspan.adapters.slurm.settings import LOCAL, Settings
from overspan.adapters.slurm.transports.openssh import OpenSsh
from overspan.adapters.slurm.transports.transport import Transport
from overspan.bridge.model.errors import Conflict, InvalidRequest, Unreachable
from overspan.bridge.model.slurm.hostlists import expand
from overspan.bridge.runtime.slurm.part_folders import name_part
from overspan.bridge.runtime.slurm.remote_shell import remote_shell_words

_FORMAT, _SET_FORMAT = "%i|%T|%N|%Z", "%i|%T|%N|%k"
_OPEN = ("RUNNING", "COMPLETING")
_TIMEOUT = 30.0
_OVERLAP = (20, 11)
"""The first version of Slurm with --overlap; before, all steps overlapped (srun(1))."""
# If the terminal is inside of a job, that job's variables would act as options of srun (srun(1), INPUT ENVIRONMENT
# VARIABLES).
CLEAN = (
    'for name in $(env | sed -n "s/^\\(S\\(LURM\\|RUN\\|ALLOC\\)_[A-Za-z0-9_]*\\)=.*/\\1/p"); do '
    '[ "$name" = SLURM_CONF ] || unset "$name"; done'
)
"""An sh command that removes these variables."""


class NativeAllocation(NamedTuple):
    """One native job, or one component of a hetjob, with its nodes; its name is N, N+k or N_i (squeue(1), %i).

    `text` is its working directory, or the comment of a set's job.
    """

    name: str
    state: str
    nodes: tuple[str, ...]
    text: str


def list_allocations(text: str) -> list[NativeAllocation]:
    """Read squeue's answer about a job, a line for each component."""
    found = []
    for line in text.splitlines():
        if line.count("|") < 3:
            continue  # a site's squeue may print lines of its own
        name, state, nodes, told = line.split("|", 3)
        found.append(NativeAllocation(name, state, tuple(expand(nodes)) if nodes else (), told))
    return found


def list_parts(found: Sequence[NativeAllocation], handle: GroupHandle, task: str) -> list[tuple[int, NativeAllocation]]:
    """The native jobs of a set's task, each with the attempt that it began with, newest first."""
    named = [(split_token(find_token(allocation.text)), allocation) for allocation in found]
    own = [(name[2], allocation) for name, allocation in named if name and name[:2] == (handle.token, task)]
    return sorted(own, key=lambda part: part[0], reverse=True)


def choose_allocation(found: Sequence[NativeAllocation], request: ShellRequest, native: str) -> NativeAllocation:
    """The allocation with the member's node. Raises Conflict if it has no nodes yet, or has released them."""
    for allocation in found:
        if allocation.state in _OPEN and request.host in allocation.nodes:
            return allocation
    states = ", ".join(sorted({allocation.state for allocation in found}))
    told = f"is {states} for Slurm" if found else "is not in Slurm's queue any more"
    raise Conflict(
        f"{request.host or 'the node'} of {request.task} cannot be entered: job {native} {told}",
        remedy="`hold_on_failure` keeps the nodes of a job that fails",
    )


def step_words(
    allocation: NativeAllocation, request: ShellRequest, program: Sequence[str], version: tuple[int, ...] = ()
) -> list[str]:
    """The srun that runs the program beside the steps that run already. Without a version a current Slurm is meant."""
    native, plus, component = allocation.name.partition("+")
    # srun does not take a component's own id (measured on 22.05).
    words = ["srun", f"--jobid={native}", *([f"--het-group={component}"] if plus else [])]
    words += [] if version and version < _OVERLAP else ["--overlap"]
    words += ["--nodes=1", "--ntasks=1", "--mem=0"]
    words += [f"--nodelist={request.host}", "--job-name=shell"]
    return [*words, *(["--pty"] if request.terminal else []), *program]


def member_program(archive: Sequence[str], handle: GroupHandle, request: ShellRequest, part: str = "") -> list[str]:
    """The application's command on the member's node, begun by `archive`; `part` is the folder of a set's job."""
    member = (handle.folder, str(handle.launch), part, request.task, str(request.node))
    return [*archive, "shell", *member, *request.command]


def remote_shell_program(
    archive: Sequence[str], handle: GroupHandle, request: ShellRequest, member: Sequence[str], step: Sequence[str]
) -> list[str]:
    """The application's command on the login node, from where it copies itself to the node by the srun `step`.

    `member` is the folder of a set's job, the native id, and the Python there.
    """
    *part, python = member
    launch = (handle.folder, str(handle.launch), *part)
    member = (request.task, str(request.node), python)
    return [*archive, *remote_shell_words(launch, member, step, request.command)]


def render_command(words: Sequence[str], path: str) -> str:
    """The words as an sh command; `path` is a folder that comes first in PATH."""
    lines = [f"PATH={shlex.quote(path)}:$PATH; export PATH"] if path else []
    return "; ".join([*lines, CLEAN, f"exec {shlex.join(words)}"])


def open_terminal(
    transport: Transport, settings: Settings, words: Sequence[str], terminal: bool, alone: bool = False
) -> Entrance:
    """The command for the user's terminal, with `alone` on an ssh connection of its own.

    Raises InvalidRequest on a transport without terminals.
    """
    command = render_command(words, settings.path)
    if isinstance(transport, OpenSsh):
        # The login shell may be of any kind, so the program for sh is one quoted word of its command.
        text = shlex.join(["exec", "/bin/sh", "-c", command])
        return Entrance(tuple(transport.terminal_words(text, terminal, alone)))
    if settings.transport == LOCAL:
        return Entrance(("/bin/sh", "-c", command))
    raise InvalidRequest(
        f"{settings.host} is reached by {settings.transport}, which has no terminal",
        remedy=f"set `transport: ssh`, or run there: {shlex.join(words)}",
    )


@dataclass(frozen=True)
class Shells:
    """Opens shells on one cluster: `transport` is the user's own, `queries` ask Slurm, `root` is the setting."""

    queries: Queries
    transport: Transport
    settings: Settings
    root: str

    async def enter(self, request: ShellRequest) -> Entrance:
        """The command for the user's terminal. Raises Conflict, InvalidRequest, Unreachable."""
        if not request.host:
            raise InvalidRequest(f"it is not known yet where {request.task} runs", remedy="try again in a few seconds")
        handle = parse_any(request.handle)
        if isinstance(handle, GroupHandle):
            words = await self._enter_group(handle, request)
        else:
            words = await self._enter_job(handle, request)
        return open_terminal(self.transport, self.settings, words, request.terminal)

    async def _enter_job(self, handle: Handle, request: ShellRequest) -> list[str]:
        found = await self._ask(f"--jobs={handle.name}", f"--format={_FORMAT}")
        allocation = choose_allocation(found, request, handle.name)
        words = await self._start(allocation, request, request.command or ("bash",))
        return [words[0], f"--chdir={allocation.text}", *words[1:]]

    async def _enter_group(self, handle: GroupHandle, request: ShellRequest) -> list[str]:
        allocation, folder = await self._find_part(handle, request)
        archive = await self._bring_archive()
        if self.settings.shared_root:
            return await self._start(allocation, request, member_program(archive, handle, request, folder))
        step = await self._start(allocation, request, ())
        member = (folder, allocation.name.partition("+")[0], self.settings.python)
        return remote_shell_program(archive, handle, request, member, step)

    async def _find_part(self, handle: GroupHandle, request: ShellRequest) -> tuple[NativeAllocation, str]:
        """The native job with the member's node, and its folder in the run directory."""
        part = handle.part(request.task)
        if not part.task:
            found = await self._ask(f"--jobs={part.native}", f"--format={_FORMAT}")
            return choose_allocation(found, request, str(part.native)), ""
        # Others have followed the first native job of a task where that has ended.
        user = (await self.queries.site()).user
        found = await self._ask(f"--user={user}", f"--nodelist={request.host}", f"--format={_SET_FORMAT}")
        parts = list_parts(found, handle, request.task)
        allocation = choose_allocation([part for _, part in parts], request, f"of {request.task}")
        return allocation, name_part(request.task, next(first for first, part in parts if part is allocation))

    async def _start(self, allocation: NativeAllocation, request: ShellRequest, program: Sequence[str]) -> list[str]:
        return step_words(allocation, request, program, (await self.queries.site()).version)

    async def _ask(self, *options: str) -> list[NativeAllocation]:
        done = await self.queries.transport.run(["squeue", "-h", *options], timeout=_TIMEOUT)
        if done.rc != 0 and "Invalid job id" not in done.words:
            raise Unreachable(done.words.strip() or "squeue does not answer")
        return list_allocations(done.text)

    async def _bring_archive(self) -> tuple[str, ...]:
        """Install the application, since another version may have submitted the job, and return its command."""
        root = resolve_root(self.root, (await self.queries.site()).home)
        await InstalledApplication(self.queries.transport).bring(root)
        return supervisor_words(self.settings, root)

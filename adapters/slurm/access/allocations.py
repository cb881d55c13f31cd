"""Allocations without a script on a Slurm cluster: the native job that holds the nodes, and the srun of a step. Pure.

The native job is a batch job whose script waits for a signal. A step is Slurm's own srun on the login node, with the
user's words without those that the allocation has used.
"""

from __future__ import annotations

import posixpath
import shlex
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from overspan.adapters.slurm.settings import PARAMIKO, Settings
from overspan.adapters.slurm.transports.programs import split_variables
from overspan.adapters.step_guards import render_guard
from overspan.bridge.model.allocations import GIVE_BACK, GIVE_BACK_AS_STEPS
from overspan.bridge.model.errors import InvalidRequest
from overspan.bridge.model.options.getopt import VALUE
from overspan.bridge.model.options.srun import OPTIONS, Part, allocation_words, parse_words
from overspan.bridge.runtime.core.job_access import ACCESS, ACCESS_FILE, COMMANDS

HOLDING = f"""\
#!/bin/sh
# Holds the nodes of an allocation that has no script until it is given back: by {GIVE_BACK} with 0, by
# {GIVE_BACK_AS_STEPS} with the highest exit code of its steps.
end_as_steps() {{
    for try in 1 2 3 4 5 6; do
        set -- $(scontrol --details show job "$SLURM_JOB_ID" |
            sed -n 's/.*DerivedExitCode=\\([0-9]*\\):\\([0-9]*\\).*/\\1 \\2/p')
        [ "${{2:-0}}" -eq 0 ] || exit $((128 + $2))
        [ "${{1:-0}}" -eq 0 ] || exit "$1"
        sleep 0.5
    done
    exit 1
}}
trap 'exit 0' {GIVE_BACK}
trap end_as_steps {GIVE_BACK_AS_STEPS}
while :; do
    sleep 3600 &
    wait $!
done
"""
"""The batch script. It asks again, because Slurm records a step's exit code a moment after its srun has ended."""
OWN_OPTIONS = {"output": "/dev/null", "no-requeue": ""}
"""Further options of the native job: salloc(1) and srun(1) write no output file, and their jobs are not requeued."""

GUARD = render_guard(
    """\
tell() {
    [ -s pid ] && read -r pid host <pid && [ "$host" = "$(uname -n)" ] &&
        [ "$(cat "/proc/$pid/comm" 2>/dev/null)" = srun ] && kill -s "$1" "$pid"
}"""
)
"""It checks host name and program before each signal: one login node's name may stand for several machines, and process
ids are used again."""

_REFUSED = {
    "gid": "steps run as yourself",
    "immediate": "leave it out, and cancel what waits too long",
    "no-allocate": "only Slurm's own administrators can use it, on the login node",
    "uid": "steps run as yourself",
    "x11": "run Slurm's own srun on the login node",
}
_ALLOCATED = frozenset(
    {
        *("account", "bb", "bbf", "begin", "cluster-constraint", "clusters", "comment", "constraint", "contiguous"),
        *("core-spec", "deadline", "delay-boot", "dependency", "hold", "jobid", "licenses", "mail-type", "mail-user"),
        *("mincpus", "nice", "no-kill", "oversubscribe", "partition", "power", "priority", "qos", "reboot"),
        *("reservation", "signal", "spread-job", "switches", "thread-spec", "time-min", "tmp", "use-min-nodes"),
        "wckey",
    }
)
"""Options of srun that the allocation has already used (srun(1): a step ignores them)."""
_ALLOCATED_ONCE = frozenset({"exclusive", "time"})
"""Those that have another meaning for a step: --exclusive, and a limit that would end it before its job."""
_HERE = ("SLURM_CLUSTER", "SLURM_CONF", "SLURM_JOB", "SLURM_NODELIST", "SLURM_STEP", "SLURM_SUBMIT", "SLURM_TASKS")
_NEVER = (*_HERE, "OVERSPAN_", "SALLOC_", "SBATCH_", "SPAN_")
"""Prefixes of variables that describe the submitter's own allocation, or this installation."""
_INPUT = ("SLURM_", "SRUN_")
"""Prefixes of srun's input variables."""


def hold_command(command: Sequence[str]) -> tuple[str, ...]:
    """The sbatch command for the allocation of an salloc or srun command line.

    Raises InvalidRequest with the name of an option that does not work from here.
    """
    verb = command[0] if command else "salloc"
    parts = parse_words(verb, command[1:])
    check_parts(parts)
    return ("sbatch", *allocation_words(parts))


def check_parts(parts: Sequence[Part]) -> None:
    """Refuse options that are not supported on a Slurm cluster. Raises InvalidRequest."""
    if len(parts) > 1:
        raise InvalidRequest(
            "components (`:`) of salloc and srun are not carried to a Slurm cluster",
            remedy="submit them by `span sbatch`: the script's own srun takes components",
        )
    for name, _ in parts[0].options:
        if name in _REFUSED:
            raise InvalidRequest(f"--{name} is not carried to a Slurm cluster", remedy=_REFUSED[name])


def check_terminal(settings: Settings) -> None:
    """Refuse allocations without a script on a transport without terminals. Raises InvalidRequest."""
    if settings.transport == PARAMIKO:
        raise InvalidRequest(
            f"{settings.host} is reached by {settings.transport}, which has no terminal for srun and salloc",
            remedy="set `transport: ssh`, or run Slurm's own there",
        )


def step_words(native: int | str, words: Sequence[str], own: bool) -> list[str]:
    """The srun of a step; `own` means that the allocation was made for this step alone. Raises InvalidRequest."""
    parts = parse_words("srun", words)
    check_parts(parts)
    left_out = _ALLOCATED | _ALLOCATED_ONCE if own else _ALLOCATED
    kinds = {option.name: option.kind for option in OPTIONS}
    options = [
        f"--{name}={value}" if value or kinds[name] == VALUE else f"--{name}"
        for name, value in parts[0].options
        if name not in left_out
    ]
    return ["srun", f"--jobid={native}", *options, *parts[0].command]


class StepAccess(NamedTuple):
    """How commands in a step reach the daemon: what `Launch.access` says, and the text of `span`."""

    document: str
    command: str


def choose_variables(environment: Mapping[str, str], words: Sequence[str], shared: bool) -> dict[str, str]:
    """The user's variables for a step's srun on the login node, in addition to the login's own.

    Without a shared file system these are srun's input variables, and those that --export names.
    """
    given = {name: value for name, value in environment.items() if not name.startswith(_NEVER)}
    if shared:
        return given
    exported = parse_words("srun", words)[0].last("export")
    named = {word.partition("=")[0].strip() for word in exported.split(",")}
    return {name: value for name, value in given.items() if name in named or name.startswith(_INPUT)}


def render_step(
    folder: str,
    words: Sequence[str],
    variables: Mapping[str, str],
    place: tuple[str, str, str],
    access: StepAccess | None = None,
) -> str:
    """The sh program that writes its process id into the folder and then becomes the step's srun by exec.

    `place` are the working directory, a folder that comes first in PATH, and the umask in octal; each may be empty.
    """
    directory, path, umask = place
    given = [] if access is None else _render_access(folder, access)
    exports, odd = split_variables(variables)
    lines = [
        f"rm -f {shlex.quote(f'{folder}/step')}",
        # Steps that were prepared an hour ago and never started.
        f"find {shlex.quote(posixpath.dirname(folder))} -name step -mmin +60 -exec rm -f {{}} + 2>/dev/null",
        *([f"PATH={shlex.quote(path)}:$PATH; export PATH"] if path else []),
        # Looked up before the variables are set, because the user's PATH is meant for the step.
        "overspan_srun=$(command -v srun) || overspan_srun=srun",
        *([f"cd {shlex.quote(directory)}"] if directory else []),
        f'echo "$$ $(uname -n)" >{shlex.quote(f"{folder}/pid")} || exit 1',
        *([f"umask {umask}"] if umask else []),
        exports,
        *given,
        f'exec {f"env {odd} " if odd else ""}"$overspan_srun" {shlex.join(words[1:])}',
    ]
    return "\n".join([line for line in lines if line]) + "\n"


def _render_access(folder: str, access: StepAccess) -> list[str]:
    """Lines that write `span` and its file into the step's folder, which the guard removes, and name them.

    The shell's own printf shows no token in a command line. A disk that is full costs the step its commands alone.
    """
    path, commands = f"{folder}/{ACCESS_FILE}", f"{folder}/{COMMANDS}"
    files = ((path, access.document), (f"{commands}/span", access.command))
    writes = "; ".join(f"printf %s {shlex.quote(text)} >{shlex.quote(file)}" for file, text in files)
    made = f"mkdir -p {shlex.quote(commands)}; {writes}; chmod 700 {shlex.quote(f'{commands}/span')}"
    return [
        f"( umask 077; {made} ) 2>/dev/null",
        f"export {ACCESS}={shlex.quote(path)}; PATH={shlex.quote(commands)}:$PATH; export PATH",
    ]

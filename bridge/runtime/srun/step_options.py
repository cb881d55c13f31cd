"""The options of a step and of its components: srun's options, else its input variables (srun(1))."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Optional

from overspan.bridge.model.durations import parse_time_limit
from overspan.bridge.model.options.srun import Part
from overspan.bridge.model.records import NamedTuple
from overspan.bridge.model.slurm.hostlists import expand


class OptionError(Exception):
    """An invalid value, in Slurm's words, with srun's exit code for it; 0 means the usual one."""

    def __init__(self, text: str, code: int = 0) -> None:
        super().__init__(text)
        self.code = code


class StreamOptions(NamedTuple):
    """The standard streams of a component: filename patterns as given, labels, and whether to append."""

    label: bool = False
    unbuffered: bool = False
    output: str = ""
    error: str = ""
    input: str = ""
    append: bool = False


class ComponentOptions(NamedTuple):
    """Options of one component; numbers that were not given are None. `named`: it was an option, not a variable."""

    command: tuple[str, ...]
    nodes: Optional[int] = None
    nodes_named: bool = False
    ntasks: Optional[int] = None
    ntasks_named: bool = False
    ntasks_per_node: Optional[int] = None
    cpus_per_task: Optional[int] = None
    nodelist: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    relative: int = 0
    overcommit: bool = False
    distribution: str = "block"
    gpus: Optional[int] = None
    gpus_per_node: Optional[int] = None
    gpus_per_task: Optional[int] = None
    multi_prog: bool = False
    export: str = "ALL"
    chdir: str = ""
    name: str = ""
    title: Optional[str] = None
    """The name that the step itself was given, if any; `name` may be its job's."""
    exact: bool = False
    streams: StreamOptions = StreamOptions()


class StepOptions(NamedTuple):
    """Options of the whole step."""

    pty: bool = False
    kill_on_bad_exit: bool = False
    wait: int = 0
    quiet: bool = False
    verbose: int = 0
    disable_status: bool = False
    quit_on_interrupt: bool = False
    immediate: bool = False


UNREADABLE = 255
"""srun's exit code for an invalid option."""

# Input variables, first wins (srun(1), INPUT ENVIRONMENT VARIABLES).
_VARIABLES = {
    "nodes": ("SLURM_NNODES", "SLURM_JOB_NUM_NODES"),
    "ntasks": ("SLURM_NTASKS", "SLURM_NPROCS"),
    "ntasks-per-node": ("SLURM_NTASKS_PER_NODE",),
    "cpus-per-task": ("SRUN_CPUS_PER_TASK",),
    "distribution": ("SLURM_DISTRIBUTION",),
    "gpus": ("SLURM_GPUS",),
    "gpus-per-node": ("SLURM_GPUS_PER_NODE",),
    "gpus-per-task": ("SLURM_GPUS_PER_TASK",),
    "export": ("SRUN_EXPORT_ENV", "SLURM_EXPORT_ENV"),
    "chdir": ("SLURM_REMOTE_CWD",),
    "job-name": ("SLURM_JOB_NAME",),
    "label": ("SLURM_LABELIO",),
    "unbuffered": ("SLURM_UNBUFFEREDIO",),
    "output": ("SRUN_OUTPUT", "SLURM_STDOUTMODE"),
    "error": ("SRUN_ERROR", "SLURM_STDERRMODE"),
    "input": ("SRUN_INPUT", "SLURM_STDINMODE"),
    "open-mode": ("SLURM_OPEN_MODE",),
    "kill-on-bad-exit": ("SLURM_KILL_BAD_EXIT",),
    "wait": ("SLURM_WAIT",),
    "multi-prog": ("SLURM_MULTI_PROG",),
    "overcommit": ("SLURM_OVERCOMMIT",),
    "disable-status": ("SLURM_DISABLE_STATUS",),
}


def read_component_options(part: Part, environment: Mapping[str, str]) -> ComponentOptions:
    """Read the options of one component. Raises OptionError."""

    def number(name: str, least: int = 1) -> Optional[int]:
        return _read_count(name, _value(part, name, environment), least)

    return ComponentOptions(
        command=part.command,
        nodes=_read_nodes(_value(part, "nodes", environment)),
        nodes_named=part.has("nodes"),
        ntasks=number("ntasks"),
        ntasks_named=part.has("ntasks"),
        ntasks_per_node=number("ntasks-per-node"),
        cpus_per_task=number("cpus-per-task"),
        nodelist=_read_hosts("nodelist", part.last("nodelist")),
        exclude=_read_hosts("exclude", part.last("exclude")),
        relative=_read_count("relative", part.last("relative"), 0) or 0,
        overcommit=_flag(part, "overcommit", environment),
        distribution=_value(part, "distribution", environment) or "block",
        gpus=_read_gpus("gpus", _value(part, "gpus", environment)),
        gpus_per_node=_read_gres(part) or _read_gpus("gpus-per-node", _value(part, "gpus-per-node", environment)),
        gpus_per_task=_read_gpus("gpus-per-task", _value(part, "gpus-per-task", environment)),
        multi_prog=_flag(part, "multi-prog", environment),
        export=_value(part, "export", environment) or "ALL",
        chdir=_value(part, "chdir", environment),
        name=_value(part, "job-name", environment),
        title=part.last("job-name") if part.has("job-name") else None,
        exact=part.has("exact") or part.has("exclusive"),
        streams=_read_stream_options(part, environment),
    )


def read_step_options(part: Part, environment: Mapping[str, str]) -> StepOptions:
    """Read the options of the step, from its first component. Raises OptionError."""
    if part.has("time"):
        _check_time(part.last("time"))
    kill = part.last("kill-on-bad-exit", environment.get("SLURM_KILL_BAD_EXIT", ""))
    return StepOptions(
        pty=part.has("pty"),
        kill_on_bad_exit=kill != "0" if part.has("kill-on-bad-exit") else kill not in ("", "0"),
        wait=_read_count("wait", _value(part, "wait", environment), 0) or 0,
        quiet=part.has("quiet"),
        verbose=sum(name == "verbose" for name, _ in part.options),
        disable_status=_flag(part, "disable-status", environment),
        quit_on_interrupt=part.has("quit-on-interrupt"),
        immediate=part.has("immediate"),
    )


def _check_time(text: str) -> None:
    try:
        parse_time_limit(text)
    except ValueError:
        raise OptionError("Invalid --time specification", UNREADABLE) from None


def _read_stream_options(part: Part, environment: Mapping[str, str]) -> StreamOptions:
    mode = _value(part, "open-mode", environment)
    if mode and mode[0] not in "at":
        raise OptionError(f"Invalid --open-mode specification: {mode}", UNREADABLE)
    return StreamOptions(
        label=_flag(part, "label", environment),
        unbuffered=_flag(part, "unbuffered", environment),
        output=_value(part, "output", environment),
        error=_value(part, "error", environment),
        input=_value(part, "input", environment),
        append=mode.startswith("a"),
    )


def _value(part: Part, name: str, environment: Mapping[str, str]) -> str:
    if part.has(name):
        return part.last(name)
    return next((environment[key] for key in _VARIABLES.get(name, ()) if environment.get(key)), "")


def _flag(part: Part, name: str, environment: Mapping[str, str]) -> bool:
    return part.has(name) or any(environment.get(key, "0") not in ("", "0", "no") for key in _VARIABLES[name])


def _read_count(name: str, text: str, least: int) -> Optional[int]:
    if not text:
        return None
    if not text.isdigit() or int(text) < least:
        raise OptionError(f'Invalid numeric value "{text}" for --{name}.')
    return int(text)


def _read_nodes(text: str) -> Optional[int]:
    """`N` or `MIN-MAX`: as many as there are up to the most."""
    if not text:
        return None
    first, dash, last = text.partition("-")
    if not first.isdigit() or (dash and not last.isdigit()) or not int(first):
        raise OptionError(f'"{text}" is not a valid node count', UNREADABLE)
    if dash and int(last) < int(first):
        raise OptionError(f"Maximum node count {last} is less than minimum node count {first}", UNREADABLE)
    return int(last or first)


def _read_hosts(name: str, text: str) -> tuple[str, ...]:
    try:
        return tuple(dict.fromkeys(expand(text))) if text else ()
    except ValueError:
        raise OptionError(f"Invalid --{name} specification: {text}") from None


def _read_gpus(name: str, text: str) -> Optional[int]:
    """`[TYPE:]N`, several of them by comma."""
    if not text:
        return None
    total = 0
    for piece in text.split(","):
        count = piece.rpartition(":")[2]
        if not count.isdigit():
            raise OptionError(f"Invalid --{name} specification: {text}")
        total += int(count)
    return total


def _read_gres(part: Part) -> Optional[int]:
    """The GPUs of --gres=gpu[:TYPE][:N]; other resources are accepted."""
    found = None
    for piece in part.last("gres").split(","):
        words = piece.removeprefix("gres/").replace("=", ":").split(":") if piece else []
        if words and words[0] == "gpu":
            found = (found or 0) + (int(words[-1]) if words[-1].isdigit() else 1)
    return found

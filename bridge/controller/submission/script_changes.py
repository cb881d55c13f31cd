"""Changed options of a batch script, whose own lines Slurm reads again."""

from __future__ import annotations

from collections.abc import Mapping

from overspan.bridge.model.durations import format_limit, parse_wall_time
from overspan.bridge.model.errors import InvalidRequest
from overspan.bridge.model.spec import JobSpec
from overspan.bridge.readers.sbatch.arguments import GivenOptions, parse_sbatch
from overspan.bridge.readers.sbatch.directives import scan_directives

GPU_OPTIONS = ("gpus-per-node", "gpus", "gpus-per-task", "gpus-per-socket", "gres")


def write_script_option(name: str, value: str) -> str:
    """A value as sbatch takes it: `2h` is Overspan's own form."""
    return format_limit(parse_wall_time(value)) if name == "time" else value


def check_gpu_options(spec: JobSpec, options: Mapping[str, str]) -> None:
    """Refuse to name GPUs by another option than the script's lines do: Slurm would add them up, or refuse both."""
    named = [name for name in GPU_OPTIONS if _asks_for_gpus(name, options.get(name))]
    if not named:
        return
    lines = _read_lines(spec)
    for name in GPU_OPTIONS:
        given = lines.get(name)
        if given is not None and name not in options and _asks_for_gpus(name, given.value):
            raise InvalidRequest(
                f"--{named[0]}: the script asks for its GPUs by --{name}={given.value}", remedy=f"give --{name}=..."
            )


def list_gpu_options(spec: JobSpec) -> dict[str, str]:
    """How a batch script asks for GPUs: by its lines, its command line and the changes of earlier resubmissions."""
    found = {name: given.value or "" for name, given in read_script_options(spec).items() if name in GPU_OPTIONS}
    changed = {name: value for name, value in spec.script_options.items() if name in GPU_OPTIONS}
    # GPUs that were named anew replace those of the script, and its other resources stay.
    anew = any(_asks_for_gpus(name, value) for name, value in changed.items())
    return {**{name: value for name, value in found.items() if not (anew and _asks_for_gpus(name, value))}, **changed}


def read_script_options(spec: JobSpec) -> GivenOptions:
    """The options of a batch script's own lines and of the command line that submitted it first."""
    command = spec.origin.command
    typed = parse_sbatch(command[1:], {}).components[0] if command[:1] == ("sbatch",) else {}
    return {**_read_lines(spec), **typed}


def _read_lines(spec: JobSpec) -> GivenOptions:
    return scan_directives(spec.tasks[0].run, "").components[0]


def _asks_for_gpus(name: str, value: str | None) -> bool:
    if name != "gres":
        return value is not None
    return any(part.removeprefix("gres:").split(":")[0] == "gpu" for part in (value or "").split(","))

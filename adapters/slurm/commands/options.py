"""Options of sbatch as a mapping of long names to values: parsed, merged, and rendered.

A value is empty where an option has none. Slurm's precedence is command line, SBATCH_* variables, #SBATCH lines.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from overspan.bridge.model.errors import InvalidRequest
from overspan.bridge.model.options.sbatch import (
    ALIASES,
    BY_LETTER,
    BY_NAME,
    OWN,
    Argument,
    SbatchOption,
    Treatment,
    match_names,
)
from overspan.bridge.model.spec import JobSpec, TaskSpec

Options = Mapping[str, str]

RESERVED = frozenset({"job-name", "output", "error", "chdir", "wrap", "uid", "gid"})
"""Native options that Overspan sets itself, or never passes on."""
_CLIENT = frozenset(name for name, option in BY_NAME.items() if option.treatment is Treatment.CLIENT)
_REMEDIES = {
    "job-name": "write `name:`",
    "array": "write `array:` in the header",
    "clusters": "write `cluster:`, or give -M",
    "wrap": "write the command under `run:`",
    "chdir": "write `workdir:`",
}
_ELSEWHERE = frozenset({"array", "clusters"})
"""Native options that Overspan itself has to know; keys of the job file set them."""
MEMORY = ("mem", "mem-per-cpu", "mem-per-gpu")
_GPUS = ("gpus", "gpus-per-node", "gpus-per-task", "gpus-per-socket")
_RIVALS = (MEMORY, _GPUS, ("requeue", "no-requeue"))
_PLAIN = re.compile(r"[A-Za-z0-9_@%+=:,./\[\]&|*-]+")
_SEPARATOR = ":"


class ReservedOption(InvalidRequest):
    """A native option that may not be given; `option` is its long name."""

    def __init__(self, option: str, task: str = "") -> None:
        where = f"`slurm:` of the task {task!r}" if task else "`slurm:` of the header"
        remedy = _REMEDIES.get(option, "take it out: Overspan sets it or never passes it on")
        super().__init__(f"the sbatch option --{option} is reserved and stands in {where}", remedy=remedy)
        self.option = option
        self.task = task


class Overlay(NamedTuple):
    """Merged options, and a sentence for each conflict."""

    options: dict[str, str]
    conflicts: tuple[str, ...] = ()


def check_native(options: Options, task: str = "") -> None:
    """Refuse native options that are reserved, or that control only the sbatch command. Raises ReservedOption."""
    for name in options:
        if name in RESERVED or name in _CLIENT or name in _ELSEWHERE or name in OWN:
            raise ReservedOption(name, task)


def native_options(spec: JobSpec, task: TaskSpec) -> Overlay:
    """The native options of a task: the job's partition, account and QOS, the header's `slurm:`, the task's own.

    A later one wins. Raises ReservedOption.
    """
    header = {name: str(value) for name, value in spec.native.get("slurm", {}).items()}
    own = {name: str(value) for name, value in task.native.get("slurm", {}).items()}
    check_native(header)
    check_native(own, task.name)
    base = {"partition": spec.partition, "account": spec.account, "qos": spec.qos}
    first = lay_over({name: value for name, value in base.items() if value}, header, "`slurm:` of the header")
    # A task's own options override the header on purpose, so these conflicts are not reported.
    second = lay_over(first.options, own, "")
    return Overlay(second.options, first.conflicts)


def lay_over(below: Options, above: Options, source: str) -> Overlay:
    """Merge options: `above` overrides `below`, also with options that exclude each other.

    `source` names `above` in the conflicts; without it none are reported. GPUs in the lower --gres stay if the upper
    --gres names none.
    """
    options, conflicts = dict(below), []
    for name, value in above.items():
        for rival in _rivals_of(name, value, options):
            if rival in above or (rival == name and options[rival] == value):
                continue
            old = _take_rival(options, rival, name)
            if old is not None and source:
                conflicts.append(f"{source} has {_show(name, value)}, which replaces {_show(rival, old)}")
        if name == "gres" and "gres" in options and not _has_gpu(value):
            value = ",".join(part for part in (*_gpu_parts(options["gres"]), value) if part)
        elif name in options and options[name] != value and source:
            conflicts.append(f"{source} has {_show(name, value)}, which replaces {_show(name, options[name])}")
        options[name] = value
    return Overlay(options, tuple(conflicts))


def _rivals_of(name: str, value: str, options: Options) -> list[str]:
    found = [rival for group in _RIVALS if name in group for rival in group if rival != name and rival in options]
    if name in _GPUS and _has_gpu(options.get("gres", "")):
        found.append("gres")
    if name == "gres" and _has_gpu(value):
        found += [rival for rival in _GPUS if rival in options]
    return found


def _take_rival(options: dict[str, str], rival: str, name: str) -> str | None:
    old = options.pop(rival, None)
    if rival == "gres" and old is not None and name in _GPUS:
        others = [part for part in old.split(",") if not _has_gpu(part)]
        if others:
            options["gres"] = ",".join(others)
        return ",".join(_gpu_parts(old))
    return old


def _has_gpu(gres: str) -> bool:
    return bool(_gpu_parts(gres))


def _gpu_parts(gres: str) -> list[str]:
    return [part for part in gres.split(",") if part.removeprefix("gres:").split(":")[0] == "gpu"]


def _show(name: str, value: str) -> str:
    return f"--{name}={value}" if value else f"--{name}"


def render_option(name: str, value: str) -> str:
    """An option as one word of a command line."""
    known = BY_NAME.get(name)
    if known is not None and known.argument is Argument.NONE:
        return f"--{name}"
    bare = not value and (known is None or known.argument is Argument.OPTIONAL)
    return f"--{name}" if bare else f"--{name}={value}"


def render_words(options: Options) -> tuple[str, ...]:
    """Options as words of a command line."""
    return tuple(render_option(name, value) for name, value in options.items())


def render_directives(options: Options) -> tuple[list[str], dict[str, str]]:
    """Options as #SBATCH lines, and those that no line can hold (line breaks), for the command line.

    Words are quoted for sbatch's own parser: double quotes group, a backslash escapes one character (measured on
    Slurm 22.05).
    """
    lines, rest = [], {}
    for name, value in options.items():
        if re.search(r"[\x00-\x08\x0a-\x1f\x7f]", value):
            rest[name] = value
        else:
            lines.append(f"#SBATCH {_quote(render_option(name, value))}")
    return lines, rest


def _quote(word: str) -> str:
    if _PLAIN.fullmatch(word):
        return word
    name, equals, value = word.partition("=")
    escaped = re.sub(r'(["\\])', r"\\\1", value)
    return f'{name}{equals}"{escaped}"'


def list_components(words: Sequence[str], script_options: Options) -> list[dict[str, str]]:
    """The options of each component of a recorded sbatch command line; `script_options` count before the first's."""
    first, *others = read_command(words)
    return [lay_over(first, script_options, "").options, *others]


def read_command(words: Sequence[str]) -> list[dict[str, str]]:
    """The options of a recorded sbatch command line, one mapping for each hetjob component.

    The words were validated at submission; the first is the command. Options that control only the command, Overspan's
    own, and --wrap are left out: they have taken effect already.
    """
    components: list[dict[str, str]] = [{}]
    at = 1
    while at < len(words):
        word = words[at]
        if word == _SEPARATOR:
            components.append({})
            at += 1
            continue
        if word in ("", "-", "--") or not word.startswith("-"):
            break
        following = words[at + 1] if at + 1 < len(words) else ""
        taken, used = _read_long(word, following) if word.startswith("--") else _read_letters(word, following)
        for option, value in taken:
            name = ALIASES.get(option.name, option.name)
            if name not in _CLIENT and name not in OWN and name not in ("wrap", "clusters", "uid", "gid"):
                components[-1].pop(name, None)
                components[-1][name] = value
        at += used
    return components


def _read_long(word: str, following: str) -> tuple[list[tuple[SbatchOption, str]], int]:
    name, equals, value = word[2:].partition("=")
    names = [name] if name in BY_NAME else match_names(name)
    if not names:
        return [], 1
    option = BY_NAME[names[0]]
    if equals or option.argument is not Argument.REQUIRED:
        return [(option, value)], 1
    return [(option, following)], 2


def _read_letters(word: str, following: str) -> tuple[list[tuple[SbatchOption, str]], int]:
    taken: list[tuple[SbatchOption, str]] = []
    for place, letter in enumerate(word[1:], 1):
        option = BY_LETTER.get(letter)
        if option is None:
            break
        if option.argument is Argument.NONE:
            taken.append((option, ""))
            continue
        attached = word[place + 1 :]
        if attached or option.argument is Argument.OPTIONAL:
            return [*taken, (option, attached)], 1
        return [*taken, (option, following)], 2
    return taken, 1


def inherited(options: Iterable[str]) -> frozenset[str]:
    """The options that a later hetjob component inherits from an earlier one unless it has its own."""
    return frozenset(name for name in options if name in BY_NAME and BY_NAME[name].heir)

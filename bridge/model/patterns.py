"""File name patterns of sbatch(1): %j, %A_%a and their like."""

from __future__ import annotations

import re

from overspan.bridge.model.records import NamedTuple

# Slurm prints these for a job that is not an array element: its NO_VAL, and NO_VAL modulo 10 for %b.
NO_INDEX = 4294967294
MAX_WIDTH = 10

BATCH_DEFAULT = "slurm-%j.out"
ARRAY_DEFAULT = "slurm-%A_%a.out"


class FilenameFields(NamedTuple):
    """The values of a pattern's fields. `array_job` is None for a job that is not an array element."""

    job: int
    name: str = ""
    user: str = ""
    host: str = ""
    array_job: int | None = None
    element: int | None = None
    node: int = 0
    task: int = 0
    step: str = "batch"
    restarts: int = 0


def expand_filename(pattern: str, fields: FilenameFields) -> str:
    """Fill in a file name pattern.

    %% %A %a %b %J %j %N %n %r %s %t %u %x; a width as in %5j pads numbers with zeros, 10 at most; unknown
    letters stay as they are. A backslash anywhere switches expansion off, and backslashes are dropped
    (sbatch(1), measured on 22.05).
    """
    if "\\" in pattern:
        return pattern.replace("\\", "")
    if "%" not in pattern:
        return pattern

    def fill(match: re.Match[str]) -> str:
        letter = match[2]
        if letter is None:
            return "%"
        value = _field(letter, fields)
        if isinstance(value, int):
            return f"{value:0{min(int(match[1] or 0), MAX_WIDTH)}d}"
        return match[0] if value is None else value

    return re.sub(r"%(?:%|([0-9]*)([A-Za-z]))", fill, pattern)


def has_field(pattern: str, letter: str) -> bool:
    """Whether `expand_filename` puts something in the place of this letter."""
    found = re.finditer(r"%(?:%|[0-9]*([A-Za-z]))", "" if "\\" in pattern else pattern)
    return any(match[1] == letter for match in found)


def keep_fields(pattern: str, letters: str) -> str:
    """The pattern that `expand_filename` fills in, except these letters, which it leaves as they are."""
    if "\\" in pattern:
        return pattern
    return re.sub(
        r"%(?:%|[0-9]*([A-Za-z]))", lambda match: ("%" if match[1] and match[1] in letters else "") + match[0], pattern
    )


def _field(letter: str, fields: FilenameFields) -> int | str | None:
    """Give what a letter stands for: a number, a text, or None for an unknown letter."""
    if letter == "j":
        return fields.job
    if letter == "J":
        # A batch script has no step number to show.
        return fields.job if fields.step == "batch" else f"{fields.job}.{fields.step}"
    if letter == "A":
        return fields.job if fields.array_job is None else fields.array_job
    if letter in "ab":
        index = NO_INDEX if fields.element is None else fields.element
        return index if letter == "a" else index % 10
    if letter == "s":
        return int(fields.step) if fields.step.isdecimal() else fields.step
    others: dict[str, int | str] = {
        "N": fields.host.partition(".")[0],
        "n": fields.node,
        "r": fields.restarts,
        "t": fields.task,
        "u": fields.user,
        "x": fields.name,
    }
    return others.get(letter)

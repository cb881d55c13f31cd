"""Text of a batch script: rejects what sbatch rejects, and finds the options on #SBATCH lines."""

from __future__ import annotations

import os.path
import re
from typing import NamedTuple

from overspan.bridge.model.errors import Place
from overspan.bridge.readers.sbatch.arguments import GivenOptions, Word, scan_options, split_directive
from overspan.bridge.readers.sbatch.errors import fatal, refused_script

MAX_SCRIPT = 4 * 1024 * 1024
"""Bytes of a script: Slurm's default max_script_size."""
SEPARATORS = ("hetjob", "packjob")
_PACKJOB = 'Warning: the "packjob" component separator is being deprecated. Please, use "hetjob" instead.'
_MAX_NOTES = 5
_DIRECTIVE = "#SBATCH"
_FOREIGN = re.compile(r"#(PBS|BSUB)\s")
_IGNORED = ("wrap", "help", "usage", "version")
"""Options without effect in a script (measured on Slurm 22.05)."""


class Directives(NamedTuple):
    """What a script's #SBATCH lines give to each component, and what was skipped."""

    components: list[GivenOptions]
    notes: list[str]


def check_script(text: str, file: str) -> None:
    """Refuse what sbatch refuses to submit, in its words (measured on Slurm 22.05)."""
    place = Place(file or "stdin", 1)
    if not text:
        raise refused_script("Batch script is empty!", place=place)
    if not text.strip():
        raise refused_script("Batch script contains only whitespace!", place=place)
    if not text.startswith("#!"):
        raise refused_script(
            "This does not look like a batch script.  The first",
            "line must start with #! followed by the path to an interpreter.",
            "For instance: #!/bin/sh",
            place=place,
            remedy=f"for a job file: span submit {file}" if file.endswith((".yaml", ".yml", ".json")) else "",
        )
    if "\0" in text:
        raise refused_script(
            "The Slurm controller does not allow scripts that", "contain a NULL character '\\0'.", place=place
        )
    if "\r\n" in text:
        line = text.count("\n", 0, text.index("\r\n")) + 1
        raise refused_script(
            "Batch script contains DOS line breaks (\\r\\n)",
            "instead of expected UNIX line breaks (\\n).",
            place=place._replace(line=line),
            remedy="convert it with dos2unix",
        )
    if len(text.encode("utf-8", "surrogatepass")) > MAX_SCRIPT:
        raise refused_script("Job script exceeds size allowed", place=place)


def scan_directives(text: str, file: str) -> Directives:
    """Read #SBATCH lines up to the first line that is neither blank nor a comment.

    The words of all lines of a component are one command line to sbatch. Raises SbatchUsage and SbatchRefused.
    """
    words: list[list[Word]] = [[]]
    notes: list[str] = []
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip() and not line.lstrip().startswith("#"):
            break
        if _FOREIGN.match(line):
            notes.append(f"{file}:{number}: {line.split()[0]} lines are not read; write #SBATCH")
        if not line.startswith(_DIRECTIVE):
            continue
        place = Place(file, number, len(_DIRECTIVE) + 1)
        try:
            found = list(split_directive(line[len(_DIRECTIVE) :], place))
        except ValueError as error:
            raise fatal(f"{os.path.basename(file)}: line {number}: {error}", place) from None
        separator = next((at for at, word in enumerate(found) if word.text in SEPARATORS), None)
        words[-1] += found[:separator]
        if separator is not None:
            words.append([])
            if found[separator].text == "packjob":
                notes.append(_PACKJOB)
    components: list[GivenOptions] = []
    for part in words:
        options, _ = scan_options(part, stop=False)
        components.append({name: given for name, given in options.items() if name not in _IGNORED})
    return Directives(components, notes[:_MAX_NOTES])

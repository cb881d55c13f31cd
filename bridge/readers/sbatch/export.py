"""sbatch --export: which variables of the submitter's environment a script gets."""

from __future__ import annotations

from collections.abc import Mapping

ALL = "ALL"
NOTHING = ("NONE", "NIL")
LOGIN = ("HOME", "LOGNAME", "SHELL", "USER")
"""Variables that every login sets."""
ALWAYS = "SLURM_"
"""Variables with this prefix are exported for any value of --export (sbatch(1))."""


def select_environment(export: str | None, environment: Mapping[str, str]) -> dict[str, str]:
    """Choose variables: ALL (also where nothing is given), NONE, or NAME and NAME=value after each other.

    Quotes in a value are kept, and group commas (measured on Slurm 22.05). Anything but ALL alone asks for a login
    environment below: SLURM_GET_USER_ENV=1, and SLURM_EXPORT_ENV tells steps the value. Of a login the variables of
    LOGIN are given, as the submitter has them; its profile is not read.
    """
    words = split_quoted(export if export is not None else ALL)
    if not words or words == [ALL] or (len(words) == 1 and words[0].upper() == ALL):
        return dict(environment)
    chosen = {
        name: value for name, value in environment.items() if name.startswith(ALWAYS) or (name in LOGIN and value)
    }
    if any(word.upper() == ALL for word in words):
        chosen = dict(environment)
    chosen["SLURM_GET_USER_ENV"] = "1"
    for word in words:
        name, equals, value = word.partition("=")
        if equals:
            chosen[name] = value
        elif name in environment and word.upper() not in (ALL, *NOTHING):
            chosen[name] = environment[name]
    chosen["SLURM_EXPORT_ENV"] = str(export)
    return chosen


def split_quoted(text: str) -> list[str]:
    """Split at commas that are not between quotes; empty parts are dropped."""
    parts: list[str] = [""]
    quote = ""
    for letter in text:
        if not quote and letter == ",":
            parts.append("")
            continue
        if letter == quote:
            quote = ""
        elif not quote and letter in "\"'":
            quote = letter
        parts[-1] += letter
    return [part for part in parts if part]

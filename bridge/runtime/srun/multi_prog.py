"""Configuration files of `srun --multi-prog`: which ranks run which program (srun(1), MULTIPLE PROGRAM CONFIGURATION).

0-1,5  server --rank %t
*      worker --place %o     # %t is the rank, %o its place in the line's list
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence


class ProgramError(Exception):
    """The file cannot be used; the text says where and why."""


def read_programs(text: str, ntasks: int, name: str = "", more: Sequence[str] = ()) -> list[tuple[str, ...]]:
    """The command of each rank, with `more` words behind it; `name` is the file's.

    Raises ProgramError for a bad line, and for a rank without a program.
    """
    commands: list[tuple[str, ...]] = [()] * ntasks
    rest: tuple[str, ...] = ()
    for number, line in _join_lines(text):
        fields = line.split(None, 1)
        if len(fields) < 2:
            raise ProgramError(f"Configuration line {number} has no program: {line}")
        try:
            words = shlex.split(fields[1], comments=True)
        except ValueError as error:
            raise ProgramError(f"Configuration line {number}: {error}") from None
        if not words:
            raise ProgramError(f"Configuration line {number} has no program: {line}")
        if fields[0] == "*":
            rest = tuple(words)
            continue
        for place, rank in enumerate(_read_ranks(fields[0], number)):
            if rank < ntasks and not commands[rank]:
                commands[rank] = _fill(words, rank, place)
    for rank, command in enumerate(commands):
        if not command and rest:
            commands[rank] = _fill(rest, rank, rank)
        elif not command:
            raise ProgramError(f"Configuration file {name} invalid, no record for task id {rank}")
    return [(*command, *more) for command in commands]


def _join_lines(text: str) -> list[tuple[int, str]]:
    """Lines with content, and where each begins; a backslash at the end joins the next one."""
    joined: list[tuple[int, str]] = []
    open_line = ""
    begin = 0
    for number, line in enumerate(text.splitlines(), 1):
        begin = begin or number
        if line.endswith("\\"):
            open_line += line[:-1] + " "
            continue
        whole = (open_line + line).strip()
        if whole and not whole.startswith("#"):
            joined.append((begin, whole))
        open_line, begin = "", 0
    if open_line.strip():
        joined.append((begin, open_line.strip()))
    return joined


def _read_ranks(text: str, number: int) -> list[int]:
    ranks: list[int] = []
    for part in text.split(","):
        first, dash, last = part.partition("-")
        if not first.isdigit() or (dash and not last.isdigit()):
            raise ProgramError(f"Configuration line {number} has an invalid task list: {text}")
        ranks += range(int(first), int(last if dash else first) + 1)
    return ranks


def _fill(words: Sequence[str], rank: int, place: int) -> tuple[str, ...]:
    return tuple(word.replace("%t", str(rank)).replace("%o", str(place)) for word in words)

"""Parses Slurm's job states: a base state, the flags shown in its place, and the user who cancelled."""

from __future__ import annotations

import re
from dataclasses import dataclass

from overspan.bridge.model.state_words import BASES, CODES, FOREIGN

__all__ = ["BASES", "FLAGS", "NativeState", "read_reason", "read_state"]

FLAGS = {
    **{name: code for name, code in CODES.items() if name not in BASES},
    **FOREIGN,
    "LAUNCH_FAILED": "LF",
    "RECONFIG_FAIL": "RC",
    "POWER_UP_NODE": "PU",
    "UPDATE_DB": "UD",
    "EXPEDITING": "EX",
}
"""Flags that text commands show in place of the base (squeue(1), JOB STATE CODES; slurm.h, JOB_STATE_FLAGS)."""

_BY_CODE = {code: name for table in (BASES, FLAGS) for name, code in table.items()}
_SPELLINGS = {"CANCELED": "CANCELLED", "NODE_FAILED": "NODE_FAIL", "SPECIAL_EXIT_STATE": "SPECIAL_EXIT"}
_UNKNOWN = ""


@dataclass(frozen=True)
class NativeState:
    """A job's state: the base (empty if only a flag is shown), the flags, and the uid that cancelled it.

    `unknown` keeps words that this version does not know.
    """

    base: str = _UNKNOWN
    flags: frozenset[str] = frozenset()
    by: int | None = None
    unknown: str = ""


def read_state(text: str) -> NativeState:
    """Read a state: names or codes, joined by `+`, `,` or blanks; `CANCELLED by UID`; shortened to `CANCELLED+`.

    Never raises: unknown words are kept in `unknown`, so that a new release of Slurm fails no job.
    """
    word = text.strip().upper()
    by = None
    match = re.fullmatch(r"(.*?)\s+BY\s+(\d{1,10})", word)
    if match:
        word, by = match[1], int(match[2])
    base, flags, unknown = _UNKNOWN, set(), []
    for part in re.split(r"[+,\s]+", word):
        name = _BY_CODE.get(part, _SPELLINGS.get(part, part))
        if name in BASES:
            base = base or name
        elif name in FLAGS:
            flags.add(name)
        elif part:
            unknown.append(part)
    return NativeState(base, frozenset(flags), by, "+".join(unknown))


def read_reason(text: str) -> str:
    """A reason as squeue shows it, on one line; "None" if there is none.

    Usually it is a code. Sometimes Slurm writes free text instead (`job requeued in held state`) or details behind the
    code (`ReqNodeNotAvail, UnavailableNodes:x`); scontrol writes blanks there as `_`.
    """
    shown = "".join(letter if letter.isprintable() else " " for letter in text.replace(",_", ", "))
    word = " ".join(shown.split()).strip("()")
    known = _FREE_TEXTS.get(word.lower().replace("_", " "))
    if known:
        return known
    return "None" if word.lower() in ("", "none", "null", "n/a") else word


_FREE_TEXTS = {
    "job requeued in held state": "JobHeldUser",
    "launch failed requeued held": "JobHeldUser",
    "prolog error": "Prolog",
    "user env retrieval failed requeued held": "JobHeldUser",
}

"""Slurm's --dependency, as plain data."""

from __future__ import annotations

import re
from typing import Any

KINDS = ("after", "afterany", "afterok", "afternotok", "aftercorr", "afterburstbuffer")
_JOB = r"[1-9][0-9]{0,17}(?:_[0-9]{1,9}|_\*|\+[0-9]{1,9})?"


def parse_dependency(text: str) -> dict[str, Any]:
    """Read TYPE:ID[:ID...][,TYPE:ID...], or with `?` instead of `,` for any of them. Raises ValueError.

    Gives {"any": bool, "on": [{"kind", "job", "delay"}]}, delay in minutes; nothing for an empty text. A bare id
    after a comma means afterany, so `afterok:1,2` is afterok:1 and afterany:2 (measured on Slurm 22.05).
    """
    if not text.strip():
        return {}
    if "," in text and "?" in text:
        raise ValueError(f"{text!r} mixes ',' and '?'; use one of them")
    needs: list[dict[str, Any]] = []
    for part in re.split("[,?]", text.strip()):
        needs.extend(_read_part(part, text))
    return {"any": "?" in text, "on": needs}


def _read_part(part: str, text: str) -> list[dict[str, Any]]:
    if part.lower() == "singleton":
        return [{"kind": "singleton"}]
    kind, colon, rest = part.partition(":")
    if not colon:
        kind, rest = "afterany", part
    if kind.lower() not in KINDS:
        raise ValueError(
            f"{kind!r} in {text!r} is not a kind of dependency; write one of {', '.join(KINDS)}, singleton"
        )
    return [_read_target(kind.lower(), target, text) for target in rest.split(":")]


def _read_target(kind: str, target: str, text: str) -> dict[str, Any]:
    # In `after:7+5` the number after + is minutes; elsewhere it is the place of a task in its group.
    pattern = r"([1-9][0-9]{0,17}(?:_[0-9]{1,9})?)\+([0-9]{1,9})" if kind == "after" else rf"({_JOB})()"
    match = re.fullmatch(pattern, target) or re.fullmatch(rf"({_JOB})()", target)
    if not match:
        raise ValueError(f"{target!r} in {text!r} is not a job id")
    return {"kind": kind, "job": match[1], "delay": int(match[2])} if match[2] else {"kind": kind, "job": match[1]}

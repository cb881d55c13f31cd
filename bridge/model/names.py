"""Names of tasks and members, and the forms that DNS and the environment want of them."""

from __future__ import annotations

import re
from collections.abc import Iterable

MAX_LABEL = 63
"""Letters in one label of a DNS name (RFC 1035, 2.3.4)."""

ID_FIELD = "{id}"


def check_task_name(text: str) -> str:
    """Give a name back if it is one: ASCII letters, digits, `-` and `_` only, as SkyPilot's rule has it.

    Raises ValueError. The DNS form has rules of its own: see dns_label.
    """
    if not isinstance(text, str) or not text:
        raise ValueError("a name is missing; give one of letters, digits, '-' and '_'")
    wrong = re.search(r"[^A-Za-z0-9_-]", text)
    if wrong:
        raise ValueError(f"the name {text!r} has {wrong[0]!r} in it; use letters, digits, '-' and '_' only")
    return text


def dns_label(text: str) -> str:
    """Give a name's form as a DNS label: lower case, `_` as `-` (RFC 1123). ValueError where it has none."""
    label = _fold(text)
    if len(label) > MAX_LABEL:
        raise ValueError(f"{text!r} has {len(label)} letters; a host name takes at most {MAX_LABEL}: shorten it")
    if not re.fullmatch(r"[a-z0-9](?:[a-z0-9-]*[a-z0-9])?", label):
        raise ValueError(
            f"{text!r} cannot be a host name; use letters, digits, '-' and '_', with a letter or digit at both ends"
        )
    return label


def one_line(text: str, most: int) -> str:
    """Give a program's text as one line that is safe on a terminal: at most that many characters, `?` for others."""
    words = " ".join(text.split())
    safe = "".join(letter if letter.isprintable() else "?" for letter in words[: most + 1])
    return safe if len(safe) <= most else f"{safe[: most - 3]}..."


def member_name(task: str, index: int) -> str:
    """Name one node of a task: `task-index`, in the DNS form, so that it is the same on every cluster.

    Raises ValueError where that is no DNS label.
    """
    return dns_label(f"{task}-{index}")


def member_host(task: str, index: int, group: str) -> str:
    """Name one node of a task within its group's domain: `task-index.group`. Raises ValueError as dns_label does."""
    return f"{dns_label(f'{task}-{index}')}.{dns_label(group)}"


def env_name(task: str) -> str:
    """Give a name's form inside a variable's name: upper case, `_` for all but letters and digits.

    `data-server` gives DATA_SERVER, as in OVERSPAN_DATA_SERVER_HOSTS.
    """
    return re.sub(r"[^A-Za-z0-9]", "_", task).upper()


def find_collisions(names: Iterable[str]) -> list[tuple[str, ...]]:
    """Find names that come to the same host name or variable: one tuple for each clash, in the order given."""
    seen: dict[str, list[str]] = {}
    for name in names:
        seen.setdefault(_fold(name), []).append(name)
    return [tuple(same) for same in seen.values() if len(same) > 1]


def fill_name(pattern: str, job_id: int) -> str:
    """Put the job's id in place of `{id}`. Any other brace raises ValueError."""
    name = pattern.replace(ID_FIELD, str(job_id))
    if "{" in name or "}" in name:
        raise ValueError(f"the name {pattern!r} has a brace in it; only {ID_FIELD} is filled in")
    return name


def _fold(text: str) -> str:
    """Make equal what DNS and the environment do not tell apart."""
    return text.lower().replace("_", "-")

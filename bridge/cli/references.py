"""How users refer to jobs, users and states: ids or names."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from overspan.bridge.client.records import JobFilter
from overspan.bridge.model.errors import InvalidRequest, NotFound
from overspan.bridge.model.state_words import CODES, FOREIGN

if TYPE_CHECKING:
    from overspan.bridge.client import Client

# `CLUSTER:NATIVE` is an id too; names of Kubernetes contexts may hold nearly anything.
_NATIVE = r"[^\s:]\S*:[^\s:]+"
_REF = r"[0-9]{1,18}(?:[+_][0-9]{1,9}|_\[[0-9,:%-]+\])?(?:\.[A-Za-z0-9_-]+)?"


def is_ref(text: str) -> bool:
    """Whether a text has the form of an id: N, N+k, N_i, N.task, CLUSTER:NATIVE."""
    return re.fullmatch(_REF, text) is not None or re.fullmatch(_NATIVE, text) is not None


def split_refs(text: str) -> list[str]:
    """Split ids at commas, but not inside of brackets."""
    refs, depth = [""], 0
    for letter in text:
        depth += (letter == "[") - (letter == "]")
        if letter == "," and not depth:
            refs.append("")
        else:
            refs[-1] += letter
    return [ref for ref in refs if ref]


def check_refs(words: Iterable[str], what: str = "Invalid job id") -> tuple[str, ...]:
    """Give the words back if all are ids; raises InvalidRequest in Slurm's words."""
    refs = tuple(words)
    for word in refs:
        if not is_ref(word) or word == "0":
            raise InvalidRequest(f"{what}: {word}")
    return refs


def find_job(client: Client, word: str) -> str:
    """Give the id for an id or a name: the live job of that name, else the newest. Raises NotFound, InvalidRequest."""
    if not word.strip():
        raise InvalidRequest("no job is named", remedy="give an id or a name")
    if is_ref(word):
        return word
    rows = client.queue(JobFilter(names=(word,))).rows
    if len(rows) > 1:
        listed = ", ".join(str(row.id) for row in rows)
        raise InvalidRequest(f"several jobs are named {word}: {listed}", remedy="give the id")
    rows = rows or client.history(JobFilter(names=(word,), limit=1)).rows[-1:]
    if not rows:
        raise NotFound(f"there is no job {word}", remedy="`span squeue` lists the jobs, `span sacct` finished ones too")
    return str(rows[0].id)


def split_ref(ref: str) -> tuple[str, str]:
    """Split `N.task` into the id and the task's name."""
    if ":" in ref:
        return ref, ""
    job, _, task = ref.partition(".")
    return job, task


def find_user(word: str) -> str | None:
    """The name of a user given by name or uid; None where this host knows none."""
    import pwd

    try:
        return pwd.getpwuid(int(word)).pw_name if word.isdecimal() else pwd.getpwnam(word).pw_name
    except (KeyError, OverflowError):
        return None


def parse_states(items: Iterable[str]) -> tuple[str, ...]:
    """Read states as names or codes, in any case; `all` is itself. Raises InvalidRequest as squeue does."""
    known = {**CODES, **FOREIGN}
    by_text = {state.lower(): state for state in known}
    by_text.update({code.lower(): state for state, code in known.items()})
    states = []
    for item in items:
        text = item.strip().lower()
        if text == "all":
            return ("all",)
        state = by_text.get(text)
        if state is None:
            listed = ",".join(known)
            raise InvalidRequest(f"Invalid job state specified: {item}\nValid job states include: {listed}\n")
        states.append(state)
    return tuple(dict.fromkeys(states))

"""Differences between two sets of answers, and the reviewed file of those that may stand."""

from __future__ import annotations

import re
import shlex
import socket
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import yaml

FIELDS = ("rc", "stdout", "stderr")
ACCEPTED = Path(__file__).with_name("accepted.yaml")
# Years of the corpus itself (2001, 2031) are compared.
_REPLACED = (
    (re.compile(r"\b202\d-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?"), "TIME"),
    (re.compile(r"\b(Mon|Tue|Wed|Thu|Fri|Sat|Sun) [A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d 202\d"), "TIME"),
    (re.compile(r"^(slurm-wlm|slurm|overspan) \d+\.\d+\.\d+\S*$", re.MULTILINE), "slurm VERSION"),
    (re.compile(rf"\b(node1|ctl|{re.escape(socket.gethostname())})\b"), "HOST"),
    # Not the name of the one who plays, which the player takes out.
    (re.compile(r"\bpermitted by USER user"), "permitted by root user"),
    (re.compile(r"\bAllocNode:Sid=\S+"), "AllocNode:Sid=HOST:SID"),
    (re.compile(r"\bJob \S+ to start at \S+"), "Job ID to start at TIME"),
    # The machine's own limit hangs on its memory.
    (re.compile(r"\bRLIMIT_NPROC=\d+"), "RLIMIT_NPROC=N"),
    # Whether a shell waited for a program when the signal came is chance too.
    (re.compile(r"^User defined signal 1\n", re.MULTILINE), ""),
    # Whether a job had to wait a moment, and whether salloc still hears of the end, is chance.
    (re.compile(r"^salloc: Job allocation \S+ has been revoked\.\n", re.MULTILINE), ""),
    (re.compile(r"^(srun|salloc): (job|Pending job allocation) .*\n", re.MULTILINE), ""),
)


class Difference(NamedTuple):
    """One field of one step that is not the same."""

    case: str
    step: int
    command: str
    field: str
    expected: Any
    got: Any


class LineRule(NamedTuple):
    """Lines that Overspan writes to stderr besides Slurm's own: an expression for the whole line, and why."""

    line: str
    why: str

    def strip(self, text: str) -> str:
        """The text without such lines."""
        return re.sub(rf"^{self.line}\n", "", text, flags=re.MULTILINE)


class Entry(NamedTuple):
    """A line of the reviewed file: the case (a last `*` stands for any rest), the fields that differ, and why.

    `chance` tells that it hangs on the moment whether they differ.
    """

    case: str
    differs: tuple[str, ...]
    why: str
    chance: bool = False

    def covers(self, difference: Difference) -> bool:
        """Whether the entry speaks of this difference."""
        name, pattern = difference.case, self.case
        same = name.startswith(pattern[:-1]) if pattern.endswith("*") else name == pattern
        return same and difference.field in self.differs


def normalise(text: str) -> str:
    """Take out what differs between two installations that behave alike: times, host, cluster and version.

    Names of users, hosts and folders have other lengths: in lines with one, runs of blanks count as one.
    """
    for pattern, word in _REPLACED:
        text = pattern.sub(word, text)
    lines = text.split("\n")
    return "\n".join(re.sub(" +", " ", line).strip() if re.search(r"USER|HOST|\$DIR", line) else line for line in lines)


def compare(
    document: Mapping[str, Any], got: Iterable[Mapping[str, Any]], rules: Sequence[LineRule] = ()
) -> list[Difference]:
    """The differences of one case: a golden document against answers to the same steps, without the rules' lines."""
    compared = [step for step in document["steps"] if not step.get("until")]
    expected, answers = list(document["answers"]), list(got)
    found = []
    for place, (one, other) in enumerate(zip(expected, answers, strict=False)):
        command = shlex.join(compared[place]["argv"]) if place < len(compared) else "?"
        for field in FIELDS:
            want, have = one[field], other[field]
            if field == "stderr":
                for rule in rules:
                    have = rule.strip(have)
            if field != "rc":
                want, have = normalise(want), normalise(have)
            if field != "rc" and document["unordered"]:
                want, have = "\n".join(sorted(want.split("\n"))), "\n".join(sorted(have.split("\n")))
            if want != have:
                found.append(Difference(document["name"], place, command, field, want, have))
    if not found and len(answers) != len(expected):
        # A case ends early where a job was refused; the refusal is a difference of its own.
        found.append(
            Difference(document["name"], len(answers), "", "rc", f"{len(expected)} steps", f"{len(answers)} steps")
        )
    return found


@cache
def read_rules(file: Path = ACCEPTED) -> list[LineRule]:
    """The lines that are accepted in every case."""
    document = yaml.safe_load(file.read_text(encoding="utf-8"))
    return [LineRule(row["line"], row["why"]) for row in document.get("lines") or []]


@cache
def read_entries(file: Path = ACCEPTED) -> tuple[list[Entry], list[Entry]]:
    """The reviewed file: (accepted, pending)."""
    document = yaml.safe_load(file.read_text(encoding="utf-8")) or {}

    def read(kind: str) -> list[Entry]:
        rows = document.get(kind) or []
        return [Entry(row["case"], tuple(row["differs"]), row.get("why", ""), bool(row.get("chance"))) for row in rows]

    return read("accepted"), read("pending")


def unexplained(differences: Iterable[Difference], entries: Iterable[Entry]) -> list[Difference]:
    """Differences that no entry covers."""
    known = list(entries)
    return [difference for difference in differences if not any(entry.covers(difference) for entry in known)]


def stale(differences: Iterable[Difference], entries: Iterable[Entry]) -> list[str]:
    """Entries, or fields of them, that cover no difference: they have to go."""
    seen = list(differences)
    return [
        f"{entry.case} ({field})"
        for entry in entries
        for field in entry.differs
        if not entry.chance and not any(entry._replace(differs=(field,)).covers(difference) for difference in seen)
    ]


def render(differences: Iterable[Difference]) -> str:
    """A table that people read."""
    lines = []
    for difference in differences:
        lines += [f"{difference.case}  [{difference.field}]  $ {difference.command}"]
        lines += [f"    Slurm    {difference.expected!r}", f"    Overspan {difference.got!r}"]
    return "\n".join(lines)

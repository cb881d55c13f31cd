"""Answers of Slurm's commands that need no daemon: their version, and host lists. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from overspan.bridge.model.records import NamedTuple
from overspan.bridge.model.slurm.hostlists import compress, expand

SLURM_VERSION = "24.05.8"
"""The Slurm release whose options and formats these verbs follow; clients read the second word."""
HOSTNAMES = "hostnames"
HOST_KINDS = (HOSTNAMES, "hostlist", "hostlistsorted")
"""The forms in which `scontrol show` prints host lists."""


class Answer(NamedTuple):
    """The text for stdout, the line for stderr (without its newline), and the exit code."""

    text: str = ""
    error: str = ""
    code: int = 0


def slurm_version() -> str:
    """The line that squeue --version and its like print."""
    return f"slurm {SLURM_VERSION}\n"


def answer_hosts(kind: str, names: Sequence[str], environment: Mapping[str, str]) -> Answer:
    """`scontrol show hostnames`, `hostlist` and `hostlistsorted` (scontrol(1), measured on Slurm 22.05)."""
    if len(names) > 1:
        return Answer(error="too many arguments for keyword:show", code=1)
    if tuple(names) == ("",):
        return Answer()
    text = "".join(names) or (environment.get("SLURM_NODELIST", "") if kind == HOSTNAMES else "")
    if not text:
        if kind == HOSTNAMES:
            return Answer(error="scontrol: error: host list is empty")
        return Answer(error="invalid encode argument", code=1)
    try:
        hosts = expand(text)
    except ValueError:
        return Answer(error=f"Invalid hostlist: {text}")
    if kind == HOSTNAMES:
        return Answer("".join(f"{host}\n" for host in hosts))
    return Answer(compress(sorted(hosts, key=_host_key) if kind == "hostlistsorted" else hosts) + "\n")


def _host_key(name: str) -> tuple[str, int, str]:
    stem = name.rstrip("0123456789")
    return stem, int(name[len(stem) :] or 0), name

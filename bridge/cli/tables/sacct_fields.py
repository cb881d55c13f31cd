"""sacct's choice of fields: its formats, and the names and widths that --format gives (sacct(1))."""

from __future__ import annotations

import re
from typing import NamedTuple

from overspan.bridge.listings.fields import account_columns
from overspan.bridge.listings.layout import Column
from overspan.bridge.model.errors import InvalidRequest

DEFAULT_FIELDS = "JobID,JobName,Partition,Account,AllocCPUS,State,ExitCode"
BRIEF_FIELDS = "JobID,State,ExitCode"
LONG_FIELDS = (
    "jobid,jobidraw,jobname,partition,maxvmsize,maxvmsizenode,maxvmsizetask,avevmsize,maxrss,maxrssnode,maxrsstask,"
    "averss,maxpages,maxpagesnode,maxpagestask,avepages,mincpu,mincpunode,mincputask,avecpu,ntasks,alloccpus,elapsed,"
    "state,exitcode,avecpufreq,reqcpufreqmin,reqcpufreqmax,reqcpufreqgov,reqmem,consumedenergy,maxdiskread,"
    "maxdiskreadnode,maxdiskreadtask,avediskread,maxdiskwrite,maxdiskwritenode,maxdiskwritetask,avediskwrite,reqtres,"
    "alloctres,tresusageinave,tresusageinmax,tresusageinmaxnode,tresusageinmaxtask,tresusageinmin,tresusageinminnode,"
    "tresusageinmintask,tresusageintot,tresusageoutmax,tresusageoutmaxnode,tresusageoutmaxtask,tresusageoutave,"
    "tresusageouttot"
)


class AccountField(NamedTuple):
    """A chosen field: a negative width is left-justified, as in `%-30`."""

    column: Column
    width: int


FIELDS: dict[str, Column] = account_columns()
_LATER = frozenset(
    (
        "Extra",
        "FailedNode",
        "Licenses",
        "Planned",
        "PlannedCPU",
        "PlannedCPURAW",
        "Restarts",
        "StdErr",
        "StdIn",
        "StdOut",
    )
)
_BY_NAME = {name.lower(): column for name, column in FIELDS.items()}


def parse_fields(text: str) -> list[AccountField]:
    """Read a --format list; `%width` or `%-width` after a name. A beginning of a name is enough: the first has it.

    Raises InvalidRequest in sacct's words.
    """
    fields = []
    for item in filter(None, (part.strip() for part in text.split(","))):
        match = re.fullmatch(r"([A-Za-z_]+)(?:%(-?[0-9]*).*)?", item)
        name = match[1].lower() if match else ""
        column = _BY_NAME.get(name) or next((c for n, c in _BY_NAME.items() if name and n.startswith(name)), None)
        if match is None or column is None:
            raise InvalidRequest(f'Invalid field requested: "{item.partition("%")[0]}"')
        fields.append(AccountField(column, _width(match[2], column.width)))
    return fields


def _width(text: str | None, default: int) -> int:
    """What stands behind `%`; no number there is 0, as in Slurm."""
    if text is None:
        return default
    return int(text) if text.strip("-") else 0


def list_fields() -> str:
    """What --helpformat prints: four names a line; those that came after Slurm 22.05 are taken all the same."""
    names = [name for name in FIELDS if name not in _LATER]
    lines = [names[start : start + 4] for start in range(0, len(names), 4)]
    return "".join(" ".join(f"{name:<19}" for name in line) + "\n" for line in lines)

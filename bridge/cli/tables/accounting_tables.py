"""The tables of sstat, sacctmgr and sshare: fields with their widths, and lines of texts by field. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from overspan.bridge.model.errors import InvalidRequest
from overspan.bridge.model.options.getopt import Words

Fields = Mapping[str, int]
"""Widths by field; a negative one is left-justified."""
Table = list[tuple[str, int]]

STAT_FIELDS: Fields = {
    "JobID": -12, "MaxVMSize": 10, "MaxVMSizeNode": 14, "MaxVMSizeTask": 14, "AveVMSize": 10, "MaxRSS": 10,
    "MaxRSSNode": 10, "MaxRSSTask": 10, "AveRSS": 10, "MaxPages": 8, "MaxPagesNode": 12, "MaxPagesTask": 14,
    "AvePages": 10, "MinCPU": 10, "MinCPUNode": 10, "MinCPUTask": 10, "AveCPU": 10, "NTasks": 8, "AveCPUFreq": 10,
    "ReqCPUFreqMin": 13, "ReqCPUFreqMax": 13, "ReqCPUFreqGov": 13, "ConsumedEnergy": 14, "MaxDiskRead": 12,
    "MaxDiskReadNode": 15, "MaxDiskReadTask": 15, "AveDiskRead": 12, "MaxDiskWrite": 12, "MaxDiskWriteNode": 16,
    "MaxDiskWriteTask": 16, "AveDiskWrite": 12, "TRESUsageInAve": 14, "TRESUsageInMax": 14, "TRESUsageInMaxNode": 18,
    "TRESUsageInMaxTask": 18, "TRESUsageInMin": 14, "TRESUsageInMinNode": 18, "TRESUsageInMinTask": 18,
    "TRESUsageInTot": 14, "TRESUsageOutAve": 15, "TRESUsageOutMax": 15, "TRESUsageOutMaxNode": 19,
    "TRESUsageOutMaxTask": 19, "TRESUsageOutMin": 15, "TRESUsageOutMinNode": 19, "TRESUsageOutMinTask": 19,
    "TRESUsageOutTot": 15, "ConsumedEnergyRaw": 17, "Nodelist": 20, "Pids": 20, "ReqCPUFreq": 10,
}  # fmt: skip
_STAT_TAIL = ("ConsumedEnergyRaw", "Nodelist", "Pids", "ReqCPUFreq")
STAT_FORMAT = ",".join(name for name in STAT_FIELDS if name not in _STAT_TAIL)

SHARE_FIELDS: Fields = {
    "Account": -20, "User": 10, "RawShares": 10, "NormShares": 11, "RawUsage": 11, "NormUsage": 11,
    "EffectvUsage": 13, "FairShare": 10, "LevelFS": 10, "GrpTRESMins": 30, "TRESRunMins": 30, "Cluster": 10,
    "ID": 6, "Partition": 12, "GrpTRESRaw": 30,
}  # fmt: skip
SHARE_FORMAT = "Account,User,RawShares,NormShares,RawUsage,EffectvUsage,FairShare"
SHARE_LONG_FORMAT = (
    "Account,User,RawShares,NormShares,RawUsage,NormUsage,EffectvUsage,FairShare,LevelFS,GrpTRESMins,TRESRunMins"
)

_LIMITS: Fields = {
    "Share": 9, "Priority": 10, "GrpJobs": 7, "GrpTRES": 13, "GrpSubmit": 9, "GrpWall": 11, "GrpTRESMins": 13,
    "MaxJobs": 7, "MaxTRES": 13, "MaxTRESPerNode": 14, "MaxSubmit": 9, "MaxWall": 11, "MaxTRESMins": 13, "QOS": 20,
    "Def QOS": 9, "GrpTRESRunMin": 13,
}  # fmt: skip
ENTITIES: dict[str, tuple[Fields, str]] = {
    "account": ({"Account": 10, "Descr": 20, "Org": 20, "User": 10}, "Account,Descr,Org"),
    "association": (
        {"Cluster": 10, "Account": 10, "User": 10, "Partition": 10, **_LIMITS},
        "Cluster,Account,User,Partition," + ",".join(_LIMITS),
    ),
    "cluster": (
        {"Cluster": 10, "ControlHost": 15, "ControlPort": 12, "RPC": 5, **_LIMITS},
        "Cluster,ControlHost,ControlPort,RPC,Share,GrpJobs,GrpTRES,GrpSubmit,MaxJobs,MaxTRES,MaxSubmit,MaxWall,QOS,"
        "Def QOS",
    ),
    "qo": (
        {"Name": 10, "Priority": 10, "GraceTime": 10, "Preempt": 10, "PreemptMode": 11, "Flags": 40, **_LIMITS},
        "Name,Priority,GraceTime,Preempt,PreemptMode,Flags,GrpTRES,GrpJobs,GrpSubmit,GrpWall,MaxTRES,MaxWall",
    ),
    "tre": ({"Type": 8, "Name": 15, "ID": 6}, "Type,Name,ID"),
    "user": (
        {"User": 10, "Def Acct": 10, "Admin": 9, "Account": 10, "Cluster": 10, "Partition": 10},
        "User,Def Acct,Admin",
    ),
    "wckey": ({"WCKey": 10, "Cluster": 10, "User": 10}, "WCKey,Cluster,User"),
}
"""Entities of sacctmgr, by their name without a last s: all fields, and the fields shown by default."""
ENTITY_HELP = """No valid entity in list command
Input line must include "Account", "Association", "Cluster", "Configuration",
"Event", "Federation", "Problem", "QOS", "Resource", "Reservation",
"RunAwayJobs", "Stats", "Transaction", "TRES", "User", or "WCKey\""""


def read_table(text: str, fields: Fields) -> Table:
    """Read `Name,Name%20,Name%-20`: fields and widths. A beginning of a name is enough. Raises InvalidRequest."""
    table = []
    for item in filter(None, (part.strip() for part in text.split(","))):
        name, _, width = item.partition("%")
        wanted = name.replace(" ", "").lower()
        found = next((known for known in fields if known.replace(" ", "").lower().startswith(wanted)), None)
        if found is None or not (width or "1").lstrip("-").isdigit():
            raise InvalidRequest(f'Invalid field requested: "{name}"')
        table.append((found, int(width) if width else fields[found]))
    return table


def write_table(table: Table, lines: Sequence[Mapping[str, str]], words: Words) -> str:
    """Write the lines in widths, or parsable; a longer text ends in `+`."""
    rows = [[line.get(name, "") for name, _ in table] for line in lines]
    header = not words.has("noheader")
    if words.has("parsable") or words.has("parsable2"):
        end = "" if words.has("parsable2") else "|"
        texts = [[name for name, _ in table], *rows] if header else rows
        return "".join("|".join(row) + end + "\n" for row in texts)
    widths = [width for _, width in table]
    written = []
    if header:
        written.append(_line([name[: abs(width)] for name, width in table], widths))
        written.append(_line(["-" * abs(width) for width in widths], widths))
    return "".join([*written, *(_line(row, widths) for row in rows)])


def _line(texts: Sequence[str], widths: Sequence[int]) -> str:
    cells = []
    for text, width in zip(texts, widths):
        size = abs(width)
        shown = text if len(text) <= size else text[: max(size - 1, 0)] + "+"
        cells.append(f"{shown:<{size}} " if width < 0 else f"{shown:>{size}} ")
    return "".join(cells) + "\n"

"""Fields of sacct: names, widths and texts (sacct(1), src/sacct/sacct.c)."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

from overspan.bridge.cli.row_texts import format_time, group_id, group_name, priority, reason_word
from overspan.bridge.cli.sacct_lines import AccountLine, tres_text
from overspan.bridge.cli.squeue_fields import eligible_at
from overspan.bridge.cli.steps import StepLine
from overspan.bridge.cli.table_layout import Column
from overspan.bridge.client.records import JobRow
from overspan.bridge.model.durations import format_elapsed_long
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


def _any(header: str, width: int, text: Callable[[AccountLine, float], str]) -> Column:
    """A field of jobs and steps."""
    return Column(header, width, text)


def _job(header: str, width: int, text: Callable[[JobRow, float], str]) -> Column:
    """A field that a step leaves empty."""
    return Column(header, width, lambda account, now: "" if account.step else text(account.row, now))


def _step(header: str, width: int, text: Callable[[StepLine], str]) -> Column:
    """A field that only steps have."""
    return Column(header, width, lambda account, now: text(account.step) if account.step else "")


def _frequency(account: AccountLine, now: float) -> str:
    """What a script asks of its CPUs is known to be nothing."""
    return "0" if account.step and account.step.batch else "Unknown"


def _line(account: AccountLine, now: float) -> str:
    return account.step.submit_line if account.step else account.row.submit_line


def _empty(header: str, width: int) -> Column:
    return Column(header, width, lambda account, now: "")


def _limit_minutes(row: JobRow, now: float) -> str:
    return "UNLIMITED" if row.time_limit is None else str(-(-row.time_limit // 60))


def _seconds_waited(row: JobRow, now: float) -> int:
    eligible = eligible_at(row)
    if eligible is None:
        return 0
    end = row.started_at or row.ended_at or now
    return max(0, int(end) - int(eligible))


_MEMORY = (
    ("AveCPU", 10), ("AveCPUFreq", 10), ("AveDiskRead", 14), ("AveDiskWrite", 14), ("AvePages", 10), ("AveRSS", 10),
    ("AveVMSize", 10), ("ConsumedEnergy", 14), ("ConsumedEnergyRaw", 17), ("MaxDiskRead", 12),
    ("MaxDiskReadNode", 15), ("MaxDiskReadTask", 15), ("MaxDiskWrite", 12), ("MaxDiskWriteNode", 16),
    ("MaxDiskWriteTask", 16), ("MaxPages", 8), ("MaxPagesNode", 12), ("MaxPagesTask", 14), ("MaxRSS", 10),
    ("MaxRSSNode", 10), ("MaxRSSTask", 10), ("MaxVMSize", 10), ("MaxVMSizeNode", 14), ("MaxVMSizeTask", 14),
    ("MinCPU", 10), ("MinCPUNode", 10), ("MinCPUTask", 10), ("TRESUsageInAve", 14), ("TRESUsageInMax", 14),
    ("TRESUsageInMaxNode", 18), ("TRESUsageInMaxTask", 18), ("TRESUsageInMin", 14), ("TRESUsageInMinNode", 18),
    ("TRESUsageInMinTask", 18), ("TRESUsageInTot", 14), ("TRESUsageOutAve", 15), ("TRESUsageOutMax", 15),
    ("TRESUsageOutMaxNode", 19), ("TRESUsageOutMaxTask", 19), ("TRESUsageOutMin", 15), ("TRESUsageOutMinNode", 19),
    ("TRESUsageOutMinTask", 19), ("TRESUsageOutTot", 15),
)  # fmt: skip
"""Measured use of a program. Nothing measures it here, so these are empty."""
_NEVER = (
    ("AdminComment", 15), ("BlockID", 16), ("Container", 19), ("Extra", 14), ("FailedNode", 15), ("McsLabel", 12),
    ("ReservationId", 13), ("SystemComment", 15), ("WCKeyID", 10),
)  # fmt: skip


def _option(header: str, width: int, name: str) -> Column:
    return _job(header, width, lambda row, now: str(row.options.get(name) or ""))


def _order(column: Column) -> str:
    """Sort by name, except for a field that Slurm lists elsewhere."""
    return "comments" if column.header == "Constraints" else column.header.lower()


_TABLE: tuple[Column, ...] = (
    *(_empty(name, width) for name, width in (*_MEMORY, *_NEVER)),
    _job("Account", 10, lambda row, now: row.account),
    _any("AllocCPUS", 10, lambda account, now: str(account.cpus)),
    _any("AllocNodes", 10, lambda account, now: str(account.nodes if account.started else 0)),
    _any("AllocTRES", 10, lambda account, now: tres_text(account) if account.started else ""),
    _job("AssocID", 7, lambda row, now: "0"),
    _any("Cluster", 10, lambda account, now: account.row.cluster),
    _job("Comment", 14, lambda row, now: row.comment),
    _option("Constraints", 19, "constraint"),
    _any("CPUTime", 10, lambda account, now: format_elapsed_long(account.elapsed(now) * account.cpus)),
    _any("CPUTimeRAW", 10, lambda account, now: str(account.elapsed(now) * account.cpus)),
    _any("DBIndex", -10, lambda account, now: str(account.row.raw_id)),
    _any("DerivedExitCode", 15, lambda account, now: "" if account.step else "{}:{}".format(*account.derived)),
    _any("Elapsed", 10, lambda account, now: format_elapsed_long(account.elapsed(now))),
    _any("ElapsedRaw", 10, lambda account, now: str(account.elapsed(now))),
    _any("Eligible", 19, lambda account, now: format_time(account.eligible_at, "Unknown")),
    _any("End", 19, lambda account, now: format_time(account.ended_at, "Unknown")),
    _any("ExitCode", 8, lambda account, now: account.exit_text),
    # Slurm's spelling; it says that the start of the job is in the accounting.
    _job("Flags", 19, lambda row, now: "StartRecieved"),
    _job("GID", 6, group_id),
    _job("Group", 9, group_name),
    _any("JobID", -12, lambda account, now: account.id),
    _any("JobIDRaw", -12, lambda account, now: account.raw_id),
    _any("JobName", 10, lambda account, now: account.name),
    _step("Layout", 9, lambda step: step.layout),
    _option("Licenses", 10, "licenses"),
    _any("NCPUS", 10, lambda account, now: str(account.cpus)),
    _any("NNodes", 8, lambda account, now: str(account.nodes)),
    _any("NodeList", 15, lambda account, now: account.node_list),
    _step("NTasks", 8, lambda step: str(step.ntasks)),
    _job("Partition", 10, lambda row, now: row.partition),
    _job("Planned", 10, lambda row, now: format_elapsed_long(_seconds_waited(row, now))),
    _job("PlannedCPU", 10, lambda row, now: format_elapsed_long(_seconds_waited(row, now) * row.cpus)),
    _job("PlannedCPURAW", 13, lambda row, now: str(_seconds_waited(row, now) * row.cpus)),
    _job("Priority", 10, lambda row, now: str(priority(row))),
    _job("QOS", 10, lambda row, now: row.qos or "normal"),
    _job("QOSRAW", 6, lambda row, now: "1"),
    _job("Reason", 22, reason_word),
    _any("ReqCPUFreq", 10, _frequency),
    _any("ReqCPUFreqGov", 13, _frequency),
    _any("ReqCPUFreqMax", 13, _frequency),
    _any("ReqCPUFreqMin", 13, _frequency),
    _any("ReqCPUS", 8, lambda account, now: str(account.cpus)),
    _any("ReqMem", 10, lambda account, now: account.memory_text),
    _any("ReqNodes", 8, lambda account, now: str(account.nodes)),
    _any("ReqTRES", 10, lambda account, now: "" if account.step else tres_text(account)),
    _option("Reservation", 20, "reservation"),
    _job("Reserved", 10, lambda row, now: format_elapsed_long(_seconds_waited(row, now))),
    _job("Restarts", 8, lambda row, now: str(row.restarts)),
    _job("ResvCPU", 10, lambda row, now: format_elapsed_long(_seconds_waited(row, now) * row.cpus)),
    _job("ResvCPURAW", 10, lambda row, now: str(_seconds_waited(row, now) * row.cpus)),
    _any("Start", 19, lambda account, now: format_time(account.started_at, "Unknown")),
    _any("State", 10, lambda account, now: account.state),
    _job("StdErr", 20, lambda row, now: row.stderr or row.stdout),
    _job("StdIn", 20, lambda row, now: row.stdin or "/dev/null"),
    _job("StdOut", 20, lambda row, now: row.stdout),
    _any("Submit", 19, lambda account, now: format_time(account.submitted_at, "Unknown")),
    _any("SubmitLine", 20, _line),
    _any("Suspended", 10, lambda account, now: format_elapsed_long(account.suspended(now))),
    _any("SystemCPU", 10, lambda account, now: "00:00:00"),
    _job("Timelimit", 10, lambda row, now: format_elapsed_long(row.time_limit)),
    _job("TimelimitRaw", 10, _limit_minutes),
    _any("TotalCPU", 10, lambda account, now: "00:00:00"),
    _job("UID", 6, lambda row, now: "" if row.uid is None else str(row.uid)),
    _job("User", 9, lambda row, now: row.user),
    _any("UserCPU", 10, lambda account, now: "00:00:00"),
    _option("WCKey", 10, "wckey"),
    _job("WorkDir", 20, lambda row, now: row.work_dir),
)
FIELDS: dict[str, Column] = {column.header: column for column in sorted(_TABLE, key=_order)}
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

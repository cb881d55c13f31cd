"""Fields of squeue -O, by name; most have a letter of -o too (squeue(1), src/squeue/opts.c)."""

from __future__ import annotations

from collections.abc import Callable

from overspan.bridge.cli.row_texts import NULL, format_time, is_held, shortest_time, tres
from overspan.bridge.cli.squeue_letters import LETTERS, fixed
from overspan.bridge.cli.table_layout import Column
from overspan.bridge.client.records import JobRow
from overspan.bridge.model.durations import format_elapsed

_NAMED_LETTERS = {
    "Account": "a",
    "ArrayJobID": "F",
    "ArrayTaskID": "K",
    "BatchHost": "B",
    "Command": "o",
    "Comment": "k",
    "Contiguous": "O",
    "Cores": "I",
    "CoreSpec": "X",
    "Dependency": "E",
    "EndTime": "e",
    "ExcNodes": "x",
    "Feature": "f",
    "Gres": "b",
    "GroupID": "G",
    "GroupName": "g",
    "JobArrayID": "i",
    "JobID": "A",
    "Licenses": "W",
    "MinCPUs": "c",
    "MinMemory": "m",
    "MinTmpDisk": "d",
    "Name": "j",
    "Nice": "y",
    "NodeList": "N",
    "NumCPUs": "C",
    "NumNodes": "D",
    "OverSubscribe": "h",
    "Partition": "P",
    "Priority": "p",
    "PriorityLong": "Q",
    "QOS": "q",
    "ReasonList": "R",
    "ReqNodes": "n",
    "Reservation": "v",
    "SchedNodes": "Y",
    "SCT": "z",
    "Shared": "h",
    "Sockets": "H",
    "StartTime": "S",
    "State": "T",
    "StateCompact": "t",
    "SubmitTime": "V",
    "Threads": "J",
    "TimeLeft": "L",
    "TimeLimit": "l",
    "TimeUsed": "M",
    "tres-per-node": "b",
    "UserID": "U",
    "UserName": "u",
    "WCKey": "w",
    "WorkDir": "Z",
}
_MISSING = {
    "admin_comment": "ADMIN_COMMENT",
    "BurstBuffer": "BURST_BUFFER",
    "BurstBufferState": "BURST_BUFFER_STATE",
    "ClusterFeature": "CLUSTER_FEATURES",
    "Container": "CONTAINER",
    "MCSLabel": "MCSLABEL",
    "Network": "NETWORK",
    "Prefer": "PREFER",
    "system_comment": "SYSTEM_COMMENT",
}
_NOT_APPLICABLE = {
    "cpus-per-tres": "CPUS_PER_TRES",
    "mem-per-tres": "MEM_PER_TRES",
    "NTPerCore": "NTASKS_PER_CORE",
    "NTPerSocket": "NTASKS_PER_SOCKET",
    "PreemptTime": "PREEMPT_TIME",
    "ResizeTime": "RESIZE_TIME",
    "tres-bind": "TRES_BIND",
    "tres-freq": "TRES_FREQ",
    "tres-per-job": "TRES_PER_JOB",
    "tres-per-socket": "TRES_PER_SOCKET",
    "tres-per-task": "TRES_PER_TASK",
}
_ZERO = {
    "AllocSID": "ALLOC_SID",
    "AssocID": "ASSOC_ID",
    "BoardsPerNode": "BOARDS_PER_NODE",
    "DerivedEC": "DERIVED_EC",
    "NTPerBoard": "NTASKS_PER_BOARD",
    "Reboot": "REBOOT",
    "ReqSwitch": "REQ_SWITCH",
    "SPerBoard": "SOCKETS_PER_BOARD",
}
_ONE_CLUSTER = {
    "Origin": "ORIGIN",
    "OriginRaw": "ORIGIN_RAW",
    "SiblingsActive": "ACTIVE_SIBLINGS",
    "SiblingsActiveRaw": "ACTIVE_SIBLINGS_RAW",
    "SiblingsViable": "VIABLE_SIBLINGS",
    "SiblingsViableRaw": "VIALBLE_SIBLINGS_RAW",
}


def eligible_at(row: JobRow) -> float | None:
    """When it became eligible, or will by its begin time; None where it waits for something else."""
    if row.state == "PENDING" and (is_held(row) or row.reason.startswith(("Dependency", "JobArrayTaskLimit"))):
        return None
    return max(row.begin or 0, row.submitted_at or 0)


def tasks_of(row: JobRow) -> int:
    """How many tasks `srun` starts: --ntasks, else one on each node."""
    return row.ntasks or (row.ntasks_per_node or 1) * max(row.nodes, 1)


def _exit_status(row: JobRow, now: float) -> str:
    return str(row.exit_code << 8 | row.signal)


def _seconds_pending(row: JobRow, now: float) -> str:
    end = row.started_at if row.started_at is not None and row.state != "PENDING" else row.ended_at or now
    return str(max(0, int(end) - int(row.submitted_at or end)))


def _het(header: str, text: Callable[[JobRow], object]) -> Column:
    """A column that only tasks of a group have."""
    return Column(header, 0, lambda row, now: "N/A" if row.task_offset is None else str(text(row)))


_OWN: dict[str, Column] = {
    "AccrueTime": Column("ACCRUE_TIME", 0, lambda row, now: format_time(eligible_at(row))),
    "AllocNodes": Column("ALLOC_NODES", 0, lambda row, now: row.host or NULL),
    "BatchFlag": Column("BATCH_FLAG", 0, lambda row, now: str(int(row.batch))),
    "Cluster": Column("CLUSTER", 0, lambda row, now: row.cluster, core=True),
    "cpus-per-task": Column("CPUS_PER_TASK", 0, lambda row, now: str(row.cpus_per_task or 1)),
    "CPUsPerTask": Column("CPUS_PER_TASK", 0, lambda row, now: str(row.cpus_per_task or 1)),
    "Deadline": Column("DEADLINE", 0, lambda row, now: format_time(row.deadline)),
    "DelayBoot": fixed("DELAY_BOOT", "0:00"),
    "EligibleTime": Column("ELIGIBLE_TIME", 0, lambda row, now: format_time(eligible_at(row))),
    "exit_code": Column("EXIT_CODE", 0, _exit_status),
    "HetJobID": _het("HET_JOB_ID", lambda row: row.id),
    "HetJobIDSet": _het("HET_JOB_ID_SET", lambda row: f"{row.id}-{row.id + row.tasks - 1}"),
    "HetJobOffset": _het("HET_JOB_OFFSET", lambda row: row.task_offset),
    "LastSchedEval": Column("LAST_SCHED_EVAL", 0, lambda row, now: format_time(row.started_at or row.submitted_at)),
    "MaxCPUs": Column("MAX_CPUS", 0, lambda row, now: str(row.cpus)),
    "MaxNodes": Column("MAX_NODES", 0, lambda row, now: str(row.nodes)),
    "MinTime": Column("TIME_MIN", 0, lambda row, now: format_elapsed(shortest_time(row) or 0)),
    "NTPerNode": Column("NTASKS_PER_NODE", 0, lambda row, now: str(row.ntasks_per_node or 0)),
    "NumTasks": Column("TASKS", 0, lambda row, now: str(tasks_of(row))),
    "PendingTime": Column("PENDING_TIME", 0, _seconds_pending),
    "Profile": fixed("PROFILE", "NotSet"),
    # Clients split these rows at blanks (PSI/J asserts three words).
    "Reason": Column("REASON", 0, lambda row, now: row.reason.replace(" ", ""), core=True),
    "Requeue": Column("REQUEUE", 0, lambda row, now: str(int(row.requeue))),
    "RestartCnt": Column("RESTART_COUNT", 0, lambda row, now: str(row.restarts)),
    "STDERR": Column("STDERR", 0, lambda row, now: row.stderr or row.stdout),
    "STDIN": Column("STDIN", 0, lambda row, now: row.stdin or "/dev/null"),
    "STDOUT": Column("STDOUT", 0, lambda row, now: row.stdout),
    "tres": Column("TRES_ALLOC", 0, tres),
    "tres-alloc": Column("TRES_ALLOC", 0, tres),
    "Wait4Switch": fixed("WAIT4SWITCH", "0:00"),
}

NAMES: dict[str, Column] = {
    **{name: LETTERS[letter] for name, letter in _NAMED_LETTERS.items()},
    **{name: fixed(header, NULL) for name, header in _MISSING.items()},
    **{name: fixed(header, "N/A") for name, header in _NOT_APPLICABLE.items()},
    **{name: fixed(header, "0") for name, header in _ZERO.items()},
    **{name: fixed(header, "NA") for name, header in _ONE_CLUSTER.items()},
    **_OWN,
    "PackJobID": _OWN["HetJobID"],
    "PackJobIDSet": _OWN["HetJobIDSet"],
    "PackJobOffset": _OWN["HetJobOffset"],
}

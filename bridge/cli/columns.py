"""What squeue can show: letters of -o and names of -O, with Slurm's headers (squeue(1), src/squeue/print.c)."""

from __future__ import annotations

from overspan.bridge.cli.layout import Column
from overspan.bridge.client.records import JobRow
from overspan.bridge.model.durations import format_elapsed, format_limit, format_timestamp
from overspan.bridge.model.states import CODES

DEFAULT_FORMAT = "%.18i %.9P %.8j %.8u %.2t %.10M %.6D %R"
LONG_FORMAT = "%.18i %.9P %.8j %.8u %.8T %.10M %.9l %.6D %R"
START_FORMAT = "%.18i %.9P %.8j %.8u %.2t %.19S %.6D %20Y %R"

STATE_CODES = {state.value: code for state, code in CODES.items()}
# Where Slurm prints a missing text.
_NULL = "(null)"
_MAX_PRIORITY = 0xFFFFFFFF
_REASON_SHOWN = frozenset({"PENDING", "TIMEOUT", "OUT_OF_MEMORY", "DEADLINE", "FAILED"})
_PRINTED_AS_ENDED = frozenset({"COMPLETING", "RUNNING", "SUSPENDED", "CONFIGURING", "PENDING"})


def job_id(row: JobRow, now: float = 0) -> str:
    """The id as users write it."""
    return str(row.id) if row.task_offset is None else f"{row.id}+{row.task_offset}"


def seconds_used(row: JobRow, now: float) -> float:
    """Wall seconds of the present run: 0 while pending, up to the end when it has ended."""
    if row.started_at is None or row.state == "PENDING":
        return 0
    return (now if row.ended_at is None else row.ended_at) - row.started_at


def time_used(row: JobRow, now: float) -> str:
    """squeue's TIME."""
    if row.started_at is None or row.state == "PENDING":
        return "0:00"
    return format_elapsed((now if row.ended_at is None else row.ended_at) - row.started_at)


def nodes_or_reason(row: JobRow, now: float = 0) -> str:
    """The nodes, or the reason in parentheses where there are none to tell or the end needs one."""
    return f"({row.reason})" if row.state in _REASON_SHOWN else row.node_list


def tres(row: JobRow, now: float = 0) -> str:
    """Trackable resources of the whole row, as scontrol and sacct write them."""
    from overspan.bridge.model.sizes import format_memory

    parts = [f"cpu={row.cpus}"]
    if row.memory:
        parts.append(f"mem={format_memory(row.memory * row.nodes)}")
    parts += [f"node={row.nodes}", f"billing={row.cpus}"]
    if row.gpus:
        parts.append(f"gres/gpu={row.gpus:g}")
    return ",".join(parts)


def first_node(row: JobRow, now: float = 0) -> str:
    """The node of the batch script."""
    from overspan.bridge.model.hostlists import expand

    return expand(row.node_list)[0] if row.node_list else "n/a"


def _time_left(row: JobRow, now: float) -> str:
    return "UNLIMITED" if row.time_limit is None else format_elapsed(row.time_limit - seconds_used(row, now))


def _end_time(row: JobRow, now: float) -> str:
    if row.ended_at is not None:
        return format_timestamp(row.ended_at)
    if row.started_at is None or row.state not in _PRINTED_AS_ENDED:
        return "N/A"
    return "NONE" if row.time_limit is None else format_timestamp(row.started_at + row.time_limit)


def _start_time(row: JobRow, now: float) -> str:
    return format_timestamp(row.started_at or row.begin)


def _memory(row: JobRow, now: float) -> str:
    from overspan.bridge.model.sizes import format_memory

    return format_memory(row.memory)


def _gpus_per_node(row: JobRow, now: float) -> str:
    return f"gres/gpu:{row.gpus / max(row.nodes, 1):g}" if row.gpus else "N/A"


def _user_id(row: JobRow, now: float) -> str:
    if row.uid is not None:
        return str(row.uid)
    import pwd

    try:
        return str(pwd.getpwnam(row.user).pw_uid)
    except KeyError:
        return row.user


def _group_name(row: JobRow, now: float) -> str:
    import grp
    import pwd

    try:
        return grp.getgrgid(pwd.getpwnam(row.user).pw_gid).gr_name
    except KeyError:
        return "N/A"


def _fixed(text: str) -> Column:
    """A column whose text never differs here; its header is filled in by the table."""
    return Column("", 0, lambda row, now: text)


_ID = Column("JOBID", 18, job_id)
_RAW_ID = Column("JOBID", 18, lambda row, now: str(row.raw_id))
_NAME = Column("NAME", 8, lambda row, now: row.name)
_STATE = Column("STATE", 8, lambda row, now: row.state)
_CODE = Column("ST", 2, lambda row, now: STATE_CODES.get(row.state, row.state))
_REASON = Column("REASON", 0, lambda row, now: row.reason)
_USER = Column("USER", 8, lambda row, now: row.user)
_TIME = Column("TIME", 10, time_used)
_LIMIT = Column("TIME_LIMIT", 9, lambda row, now: format_limit(row.time_limit))
_LEFT = Column("TIME_LEFT", 10, _time_left)
_START = Column("START_TIME", 19, _start_time)
_END = Column("END_TIME", 19, _end_time)
_SUBMIT = Column("SUBMIT_TIME", 19, lambda row, now: format_timestamp(row.submitted_at))
_PARTITION = Column("PARTITION", 9, lambda row, now: row.partition)
_NODES = Column("NODES", 6, lambda row, now: str(row.nodes))
_NODE_LIST = Column("NODELIST", 0, lambda row, now: row.node_list, cut=False)
_PLACE = Column("NODELIST(REASON)", 0, nodes_or_reason, cut=False)
_CPUS = Column("CPUS", 4, lambda row, now: str(row.cpus))
_COMMAND = Column("COMMAND", 0, lambda row, now: row.command or _NULL)
_WORK_DIR = Column("WORK_DIR", 0, lambda row, now: row.work_dir)
_ACCOUNT = Column("ACCOUNT", 0, lambda row, now: row.account or _NULL)
_COMMENT = Column("COMMENT", 0, lambda row, now: row.comment or _NULL)
_DEPENDENCY = Column("DEPENDENCY", 0, lambda row, now: row.dependency or _NULL)
_PRIORITY = Column("PRIORITY", 0, lambda row, now: str(row.priority or 0))
_QOS = Column("QOS", 0, lambda row, now: row.qos or _NULL)
_PER_NODE = Column("TRES_PER_NODE", 0, _gpus_per_node)
_MEMORY = Column("MIN_MEMORY", 0, _memory)
_HOST = Column("EXEC_HOST", 0, first_node)
_UID = Column("UID", 0, _user_id)

LETTERS: dict[str, Column] = {
    "a": _ACCOUNT,
    "A": _RAW_ID,
    "b": _PER_NODE,
    "B": _HOST,
    "c": Column("MIN_CPUS", 0, lambda row, now: str(max(1, row.cpus // max(row.nodes, 1)))),
    "C": _CPUS,
    "d": _fixed("0")._replace(header="MIN_TMP_DISK"),
    "D": _NODES,
    "e": _END,
    "E": _DEPENDENCY,
    "f": _fixed(_NULL)._replace(header="FEATURES"),
    "F": Column("ARRAY_JOB_ID", 0, lambda row, now: str(row.raw_id)),
    "g": Column("GROUP", 0, _group_name),
    "h": _fixed("OK")._replace(header="OVER_SUBSCRIBE"),
    "i": _ID,
    "j": _NAME,
    "k": _COMMENT,
    "K": _fixed("N/A")._replace(header="ARRAY_TASK_ID"),
    "l": _LIMIT,
    "L": _LEFT,
    "m": _MEMORY,
    "M": _TIME,
    "n": _fixed("")._replace(header="REQ_NODES"),
    "N": _NODE_LIST,
    "o": _COMMAND,
    "p": Column("PRIORITY", 0, lambda row, now: f"{(row.priority or 0) / _MAX_PRIORITY:16.14f}"),
    "P": _PARTITION,
    "q": _QOS,
    "Q": _PRIORITY,
    "r": _REASON,
    "R": _PLACE,
    "S": _START,
    "t": _CODE,
    "T": _STATE,
    "u": _USER,
    "U": _UID,
    "v": _fixed(_NULL)._replace(header="RESERVATION"),
    "V": _SUBMIT,
    "w": _fixed(_NULL)._replace(header="WCKEY"),
    "W": _fixed(_NULL)._replace(header="LICENSES"),
    "x": _fixed("")._replace(header="EXC_NODES"),
    "X": _fixed("N/A")._replace(header="CORE_SPEC"),
    "y": _fixed("0")._replace(header="NICE"),
    "Y": _fixed(_NULL)._replace(header="SCHEDNODES"),
    "z": _fixed("*:*:*")._replace(header="S:C:T"),
    "Z": _WORK_DIR,
}

NAMES: dict[str, Column] = {
    "Account": _ACCOUNT,
    "ArrayJobID": LETTERS["F"],
    "ArrayTaskID": LETTERS["K"],
    "BatchHost": _HOST,
    "Cluster": Column("CLUSTER", 0, lambda row, now: row.cluster),
    "Command": _COMMAND,
    "Comment": _COMMENT,
    "Dependency": _DEPENDENCY,
    "EndTime": _END,
    "Feature": LETTERS["f"],
    "HetJobID": Column("HET_JOB_ID", 0, lambda row, now: "N/A" if row.task_offset is None else str(row.id)),
    "HetJobOffset": Column(
        "HET_JOB_OFFSET", 0, lambda row, now: "N/A" if row.task_offset is None else str(row.task_offset)
    ),
    "JobArrayID": _ID,
    "JobID": _RAW_ID,
    "MinCpus": LETTERS["c"],
    "MinMemory": _MEMORY,
    "Name": _NAME,
    "NodeList": _NODE_LIST,
    "NumCPUs": _CPUS,
    "NumNodes": _NODES,
    "Partition": _PARTITION,
    "PriorityLong": _PRIORITY,
    "QOS": _QOS,
    # Clients split these rows at blanks (PSI/J asserts three words).
    "Reason": Column("REASON", 0, lambda row, now: row.reason.replace(" ", "")),
    "ReasonList": _PLACE,
    "RestartCnt": Column("RESTART_COUNT", 0, lambda row, now: str(row.restarts)),
    "StartTime": _START,
    "State": _STATE,
    "StateCompact": _CODE,
    "STDERR": Column("STDERR", 0, lambda row, now: row.stderr or row.stdout),
    "STDIN": _fixed("/dev/null")._replace(header="STDIN"),
    "STDOUT": Column("STDOUT", 0, lambda row, now: row.stdout),
    "SubmitTime": _SUBMIT,
    "TimeLeft": _LEFT,
    "TimeLimit": _LIMIT,
    "TimeUsed": _TIME,
    "tres-alloc": Column("TRES_ALLOC", 0, tres),
    "tres-per-node": _PER_NODE,
    "UserID": _UID,
    "UserName": _USER,
    "WorkDir": _WORK_DIR,
}

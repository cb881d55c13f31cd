"""Fields of squeue -o, by letter, with Slurm's headers (squeue(1), src/squeue/print.c)."""

from __future__ import annotations

from overspan.bridge.cli.row_texts import (
    NULL,
    array_task,
    core_limit,
    cpus_per_node,
    describe_gpus,
    end_time,
    first_node,
    format_time,
    group_id,
    group_name,
    job_id,
    node_memory,
    nodes_or_reason,
    option,
    over_subscribe,
    priority,
    reason_word,
    start_time,
    time_left,
    time_used,
    user_id,
)
from overspan.bridge.cli.table_layout import Column
from overspan.bridge.model.state_words import CODES

DEFAULT_FORMAT = "%.18i %.9P %.8j %.8u %.2t %.10M %.6D %R"
LONG_FORMAT = "%.18i %.9P %.8j %.8u %.8T %.10M %.9l %.6D %R"
START_FORMAT = "%.18i %.9P %.8j %.8u %.2t %.19S %.6D %20Y %R"

_MAX_PRIORITY = 0xFFFFFFFF


def fixed(header: str, text: str) -> Column:
    """A column whose text never differs here."""
    return Column(header, 0, lambda row, now: text, core=True)


JOB_ID = Column("JOBID", 18, job_id, core=True)
RAW_ID = Column("JOBID", 18, lambda row, now: str(row.raw_id), core=True)
STATE = Column("STATE", 8, lambda row, now: row.state, core=True)
CODE = Column("ST", 2, lambda row, now: CODES.get(row.state, row.state), core=True)

LETTERS: dict[str, Column] = {
    "a": Column("ACCOUNT", 0, lambda row, now: row.account or NULL, usual=True),
    "A": RAW_ID,
    "b": Column("TRES_PER_NODE", 0, describe_gpus),
    "B": Column("EXEC_HOST", 0, first_node, core=True),
    "c": Column("MIN_CPUS", 0, cpus_per_node),
    "C": Column("CPUS", 4, lambda row, now: str(row.cpus), core=True),
    "d": fixed("MIN_TMP_DISK", "0"),
    "D": Column("NODES", 6, lambda row, now: str(row.nodes), core=True),
    "e": Column("END_TIME", 19, end_time, core=True),
    "E": Column("DEPENDENCY", 0, lambda row, now: row.dependency or NULL, usual=True),
    "f": Column("FEATURES", 0, option("constraint")),
    "F": Column("ARRAY_JOB_ID", 0, lambda row, now: str(row.array_id or row.raw_id), core=True),
    "g": Column("GROUP", 0, group_name),
    "G": Column("GROUP", 0, group_id),
    "h": Column("OVER_SUBSCRIBE", 0, over_subscribe),
    "H": fixed("SOCKETS_PER_NODE", "*"),
    "i": JOB_ID,
    "I": fixed("CORES_PER_SOCKET", "*"),
    "j": Column("NAME", 8, lambda row, now: row.name, core=True),
    "J": fixed("THREADS_PER_CORE", "*"),
    "k": Column("COMMENT", 0, lambda row, now: row.comment or NULL, usual=True),
    "K": Column(
        "ARRAY_TASK_ID",
        0,
        array_task,
        core=True,
    ),
    "l": Column("TIME_LIMIT", 9, core_limit, cut=False, core=True),
    "L": Column("TIME_LEFT", 10, time_left, cut=False, core=True),
    "m": Column("MIN_MEMORY", 0, node_memory),
    "M": Column("TIME", 10, time_used, cut=False, core=True),
    "n": Column("REQ_NODES", 0, option("nodelist", "")),
    "N": Column("NODELIST", 0, lambda row, now: row.node_list, cut=False, cut_header=False, core=True),
    "o": Column("COMMAND", 0, lambda row, now: row.command or NULL, usual=True),
    "O": Column("CONTIGUOUS", 0, lambda row, now: "1" if "contiguous" in row.options else "0"),
    "p": Column("PRIORITY", 0, lambda row, now: f"{priority(row) / _MAX_PRIORITY:16.14f}", core=True),
    "P": Column("PARTITION", 9, lambda row, now: row.partition, core=True),
    "q": Column("QOS", 0, lambda row, now: row.qos or "normal", usual=True),
    "Q": Column("PRIORITY", 0, lambda row, now: str(priority(row)), core=True),
    "r": Column("REASON", 0, reason_word, core=True),
    "R": Column("NODELIST(REASON)", 0, nodes_or_reason, cut=False, cut_header=False, core=True),
    "s": fixed("", ""),
    "S": Column("START_TIME", 19, start_time, core=True),
    "t": CODE,
    "T": STATE,
    "u": Column("USER", 8, lambda row, now: row.user, core=True),
    "U": Column("UID", 0, user_id),
    "v": Column("RESERVATION", 0, option("reservation")),
    "V": Column("SUBMIT_TIME", 19, lambda row, now: format_time(row.submitted_at), core=True),
    "w": Column("WCKEY", 0, option("wckey")),
    "W": Column("LICENSES", 0, option("licenses")),
    "x": Column("EXC_NODES", 0, option("exclude", "")),
    "X": fixed("CORE_SPEC", "N/A"),
    "y": Column("NICE", 0, lambda row, now: str(row.nice)),
    "Y": fixed("SCHEDNODES", NULL)._replace(cut_header=False),
    "z": fixed("S:C:T", "*:*:*"),
    "Z": Column("WORK_DIR", 0, lambda row, now: row.work_dir, usual=True),
}

"""Fields that tell what a job asks for and has: sizes, nodes, options, files (squeue(1), sacct(1))."""

from __future__ import annotations

from typing import Any

from overspan.bridge.listings.field import Field, constant, of_step, option
from overspan.bridge.listings.rows import JobRow
from overspan.bridge.listings.texts import (
    NULL,
    cpus_per_node,
    describe_gpus,
    first_node,
    node_memory,
    over_subscribe,
    tasks_of,
    tres,
)
from overspan.bridge.listings.values import Document, number


def _describe_nodes(row: JobRow, now: float) -> Document | None:
    """Resources on each node; None while the job waits."""
    if not row.node_list:
        return None
    from overspan.bridge.model.slurm.hostlists import expand

    names = expand(row.node_list)
    share = row.cpus // max(len(names), 1)
    nodes = [
        {"nodename": name, "cpus_used": share, "memory_used": 0, "memory_allocated": row.memory, "sockets": {}}
        for name in names
    ]
    return {
        "nodes": row.node_list,
        "allocated_cores": row.cpus,
        "allocated_cpus": row.cpus,
        "allocated_hosts": len(names),
        "allocated_nodes": nodes,
    }


def _describe_request(row: JobRow, now: float) -> Document:
    return {
        "CPUs": row.cpus,
        "memory_per_cpu": number(row.memory_per_cpu),
        "memory_per_node": number(None if row.memory_per_cpu else row.memory),
    }


def _describe_tres(line: Any, now: float) -> Document:
    amounts = line.tres_amounts()
    return {"allocated": amounts if line.started else [], "requested": amounts}


def _given_tres(row: JobRow, now: float) -> str:
    return tres(row) if row.started_at is not None and row.state != "PENDING" else ""


AMOUNTS: tuple[Field, ...] = (
    Field(
        "nodes",
        "NODES",
        lambda row, now: str(row.nodes),
        lambda row, now: number(row.nodes),
        lambda row, now: row.nodes,
        extent="core",
        letter="D",
        long_names=("NumNodes",),
        width=6,
        json="node_count",
        sacct="NNodes",
        sacct_width=8,
        sacct_text=lambda line, now: str(line.nodes),
    ),
    Field("nodes_asked", sacct="ReqNodes", sacct_width=8, sacct_text=lambda line, now: str(line.nodes)),
    Field(
        "nodes_given",
        value=lambda row, now: row.nodes if row.started_at is not None and row.state != "PENDING" else 0,
        sacct="AllocNodes",
        sacct_text=lambda line, now: str(line.nodes if line.started else 0),
        sacct_json="allocation_nodes",
    ),
    Field("most_nodes", "MAX_NODES", lambda row, now: str(row.nodes), long_names=("MaxNodes",)),
    Field(
        "cpus",
        "CPUS",
        lambda row, now: str(row.cpus),
        lambda row, now: number(row.cpus),
        lambda row, now: row.cpus,
        extent="core",
        letter="C",
        long_names=("NumCPUs",),
        width=4,
        json="cpus",
        sacct="NCPUS",
        sacct_text=lambda line, now: str(line.cpus),
    ),
    Field("cpus_asked", sacct="ReqCPUS", sacct_width=8, sacct_text=lambda line, now: str(line.cpus)),
    Field("cpus_given", sacct="AllocCPUS", sacct_text=lambda line, now: str(line.cpus)),
    Field("most_cpus", "MAX_CPUS", lambda row, now: str(row.cpus), long_names=("MaxCPUs",)),
    Field("billing", value=lambda row, now: number(row.cpus), json="billable_tres"),
    Field("request", value=_describe_request, sacct_json="required"),
    Field(
        "cpus_per_node",
        "MIN_CPUS",
        cpus_per_node,
        lambda row, now: number(int(cpus_per_node(row))),
        lambda row, now: int(cpus_per_node(row)),
        letter="c",
        long_names=("MinCPUs",),
        json="minimum_cpus_per_node",
    ),
    Field(
        "cpus_per_task",
        "CPUS_PER_TASK",
        lambda row, now: str(row.cpus_per_task or 1),
        lambda row, now: number(row.cpus_per_task or 1),
        long_names=("CPUsPerTask", "cpus-per-task"),
        json="cpus_per_task",
    ),
    Field(
        "ntasks",
        "TASKS",
        lambda row, now: str(tasks_of(row)),
        lambda row, now: number(tasks_of(row)),
        long_names=("NumTasks",),
        json="tasks",
        sacct="NTasks",
        sacct_width=8,
        sacct_text=of_step(lambda step: str(step.ntasks)),
    ),
    Field(
        "ntasks_per_node",
        "NTASKS_PER_NODE",
        lambda row, now: str(row.ntasks_per_node or 0),
        lambda row, now: number(row.ntasks_per_node or 0),
        long_names=("NTPerNode",),
        json="tasks_per_node",
    ),
    Field("layout", sacct="Layout", sacct_width=9, sacct_text=of_step(lambda step: str(step.layout))),
    Field(
        "memory",
        "MIN_MEMORY",
        node_memory,
        lambda row, now: number(None if row.memory_per_cpu else row.memory),
        lambda row, now: row.memory,
        letter="m",
        long_names=("MinMemory",),
        json="memory_per_node",
        sacct="ReqMem",
        sacct_text=lambda line, now: line.memory_text,
    ),
    Field("memory_per_cpu", value=lambda row, now: number(row.memory_per_cpu), json="memory_per_cpu"),
    Field(
        "gpus",
        "TRES_PER_NODE",
        describe_gpus,
        lambda row, now: describe_gpus(row) if row.gpus else "",
        letter="b",
        long_names=("Gres", "tres-per-node"),
        json="tres_per_node",
    ),
    Field(
        "tres",
        "TRES_ALLOC",
        tres,
        _given_tres,
        long_names=("tres", "tres-alloc"),
        json="tres_alloc_str",
        sacct="AllocTRES",
        sacct_text=lambda line, now: line.tres_text() if line.started else "",
        sacct_json="tres",
        sacct_value=_describe_tres,
    ),
    Field(
        "tres_asked",
        value=lambda row, now: tres(row),
        json="tres_req_str",
        sacct="ReqTRES",
        sacct_text=lambda line, now: "" if line.step else line.tres_text(),
    ),
)
"""How much of what."""

PLACES: tuple[Field, ...] = (
    Field(
        "partition",
        "PARTITION",
        lambda row, now: row.partition,
        lambda row, now: row.partition,
        lambda row, now: row.partition,
        extent="core",
        letter="P",
        long_names=("Partition",),
        width=9,
        json="partition",
        sacct="Partition",
        sacct_json="partition",
    ),
    Field(
        "node_list",
        "NODELIST",
        lambda row, now: row.node_list,
        lambda row, now: row.node_list,
        lambda row, now: row.node_list,
        extent="core",
        letter="N",
        long_names=("NodeList",),
        width=20,
        cut=False,
        cut_header=False,
        json="nodes",
        sacct="NodeList",
        sacct_width=15,
        sacct_text=lambda line, now: line.node_list,
        sacct_json="nodes",
        sacct_value=lambda line, now: line.row.node_list or "None assigned",
    ),
    Field(
        "batch_host",
        "EXEC_HOST",
        first_node,
        lambda row, now: first_node(row) if row.node_list else "",
        lambda row, now: row.node_list,
        extent="core",
        letter="B",
        long_names=("BatchHost",),
        json="batch_host",
    ),
    Field("node_resources", value=_describe_nodes, json="job_resources"),
    Field(
        "submit_host",
        "ALLOC_NODES",
        lambda row, now: row.host or NULL,
        lambda row, now: row.host,
        long_names=("AllocNodes",),
        json="allocating_node",
    ),
    option("nodes_wanted", "REQ_NODES", "nodelist", "", letter="n", long_names=("ReqNodes",), json="required_nodes"),
    option("nodes_excluded", "EXC_NODES", "exclude", "", letter="x", long_names=("ExcNodes",), json="excluded_nodes"),
    option(
        "constraint",
        "FEATURES",
        "constraint",
        letter="f",
        long_names=("Feature",),
        json="features",
        sacct="Constraints",
        sacct_width=19,
        sacct_json="constraints",
    ),
    option(
        "reservation",
        "RESERVATION",
        "reservation",
        letter="v",
        long_names=("Reservation",),
        json="resv_name",
        sacct="Reservation",
        sacct_width=20,
        sacct_json="reservation",
        sacct_value=lambda line, now: {"id": 0, "name": line.row.options.get("reservation") or ""},
    ),
    option(
        "licenses",
        "LICENSES",
        "licenses",
        letter="W",
        long_names=("Licenses",),
        json="licenses",
        sacct="Licenses",
        sacct_json="licenses",
    ),
    option(
        "wckey",
        "WCKEY",
        "wckey",
        letter="w",
        long_names=("WCKey",),
        json="wckey",
        sacct="WCKey",
        sacct_json="wckey",
        sacct_value=lambda line, now: {"wckey": line.row.options.get("wckey") or "", "flags": []},
    ),
    Field(
        "contiguous",
        "CONTIGUOUS",
        lambda row, now: str(int("contiguous" in row.options)),
        lambda row, now: "contiguous" in row.options,
        letter="O",
        long_names=("Contiguous",),
        json="contiguous",
    ),
    Field(
        "over_subscribe",
        "OVER_SUBSCRIBE",
        over_subscribe,
        lambda row, now: "exclusive" not in row.options,
        letter="h",
        long_names=("OverSubscribe", "Shared"),
        json="oversubscribe",
    ),
    Field("shared", value=lambda row, now: ["none"] if "exclusive" in row.options else [], json="shared"),
)
"""Where, and by which options that only Slurm carries out."""

FILES: tuple[Field, ...] = (
    Field(
        "command",
        "COMMAND",
        lambda row, now: row.command or NULL,
        lambda row, now: row.command,
        lambda row, now: row.command,
        extent="usual",
        letter="o",
        long_names=("Command",),
        json="command",
    ),
    Field(
        "submit_line",
        value=lambda row, now: row.submit_line,
        sacct="SubmitLine",
        sacct_width=20,
        sacct_text=lambda line, now: line.step.submit_line if line.step else line.row.submit_line,
        sacct_json="submit_line",
    ),
    Field(
        "work_dir",
        "WORK_DIR",
        lambda row, now: row.work_dir,
        lambda row, now: row.work_dir,
        lambda row, now: row.work_dir,
        extent="usual",
        letter="Z",
        long_names=("WorkDir",),
        json="current_working_directory",
        sacct="WorkDir",
        sacct_width=20,
        sacct_json="working_directory",
    ),
    Field(
        "stdin",
        "STDIN",
        lambda row, now: row.stdin or "/dev/null",
        lambda row, now: row.stdin or "/dev/null",
        long_names=("STDIN",),
        json="standard_input",
        sacct="StdIn",
        sacct_width=20,
    ),
    Field(
        "stdout",
        "STDOUT",
        lambda row, now: row.stdout,
        lambda row, now: row.stdout,
        long_names=("STDOUT",),
        json="standard_output",
        sacct="StdOut",
        sacct_width=20,
    ),
    Field(
        "stderr",
        "STDERR",
        lambda row, now: row.stderr or row.stdout,
        lambda row, now: row.stderr or row.stdout,
        long_names=("STDERR",),
        json="standard_error",
        sacct="StdErr",
        sacct_width=20,
    ),
)
"""What it runs, and its files."""

CONSTANTS: tuple[Field, ...] = (
    constant("tmp_disk", "MIN_TMP_DISK", "0", number(0), letter="d", long_names=("MinTmpDisk",),
             json="minimum_tmp_disk_per_node"),
    constant("sockets", "SOCKETS_PER_NODE", "*", letter="H", long_names=("Sockets",)),
    constant("cores", "CORES_PER_SOCKET", "*", number(None), letter="I", long_names=("Cores",),
             json="cores_per_socket"),
    constant("threads", "THREADS_PER_CORE", "*", number(None), letter="J", long_names=("Threads",),
             json="threads_per_core"),
    constant("spare", "", "", letter="s"),
    constant("core_spec", "CORE_SPEC", "N/A", 0, letter="X", long_names=("CoreSpec",), json="core_spec"),
    constant("scheduled_nodes", "SCHEDNODES", "(null)", "", letter="Y", long_names=("SchedNodes",), cut_header=False,
             json="scheduled_nodes"),
    constant("sockets_cores_threads", "S:C:T", "*:*:*", letter="z", long_names=("SCT",)),
)  # fmt: skip
"""What squeue -o has a letter for, and no cluster tells."""

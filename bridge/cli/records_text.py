"""scontrol's records: `Key=Value` lines of a job, node or partition (scontrol(1)). Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from overspan.bridge.cli.columns import first_node, seconds_used, tres
from overspan.bridge.client.records import JobRow
from overspan.bridge.model.durations import format_elapsed_long, format_timestamp
from overspan.bridge.model.hostlists import compress
from overspan.bridge.model.sizes import format_memory

_NULL = "(null)"


def job_record(row: JobRow, now: float) -> list[str]:
    """The lines of one job, or of one task of a group, which is shown as a component of a hetjob is."""
    het = "" if row.task_offset is None else f" HetJobId={row.id} HetJobOffset={row.task_offset}"
    last = row.id + row.tasks - 1
    ids = [f"HetJobIdSet={row.id}-{last}"] if het else []
    end = row.ended_at or row.end_limit
    return [
        f"JobId={row.raw_id}{het} JobName={row.name}",
        *ids,
        f"UserId={row.user}({'' if row.uid is None else row.uid}) GroupId=N/A MCS_label=N/A",
        f"Priority={row.priority or 0} Nice=0 Account={row.account or _NULL} QOS={row.qos or _NULL}",
        f"JobState={row.state} Reason={row.reason} Dependency={row.dependency or _NULL}",
        f"Requeue=1 Restarts={row.restarts} BatchFlag=1 Reboot=0 ExitCode={row.exit_code}:{row.signal}",
        f"RunTime={format_elapsed_long(seconds_used(row, now))} TimeLimit={format_elapsed_long(row.time_limit)}"
        " TimeMin=N/A",
        f"SubmitTime={format_timestamp(row.submitted_at)}"
        f" EligibleTime={format_timestamp(row.begin or row.submitted_at)}",
        f"StartTime={format_timestamp(row.started_at or row.begin, 'Unknown')}"
        f" EndTime={format_timestamp(end, 'Unknown')} Deadline=N/A",
        f"Partition={row.partition or _NULL} AllocNode:Sid=N/A",
        "ReqNodeList=(null) ExcNodeList=(null)",
        f"NodeList={row.node_list or _NULL}",
        *([f"BatchHost={first_node(row)}"] if row.node_list else []),
        f"NumNodes={row.nodes} NumCPUs={row.cpus} NumTasks={row.nodes} CPUs/Task=N/A ReqB:S:C:T=0:0:*:*",
        f"TRES={tres(row)}",
        f"MinCPUsNode={max(1, row.cpus // max(row.nodes, 1))} MinMemoryNode={format_memory(row.memory)}"
        " MinTmpDiskNode=0",
        "Features=(null) DelayBoot=00:00:00",
        "OverSubscribe=OK Contiguous=0 Licenses=(null) Network=(null)",
        f"Command={row.command or _NULL}",
        f"WorkDir={row.work_dir}",
        *([f"Comment={row.comment}"] if row.comment else []),
        f"StdErr={row.stderr or row.stdout}",
        "StdIn=/dev/null",
        f"StdOut={row.stdout}",
        *([f"TresPerJob=gres/gpu:{row.gpus:g}"] if row.gpus else []),
        f"Cluster={row.cluster}",
    ]


def node_record(node: Mapping[str, Any]) -> list[str]:
    """The lines of one node."""
    gres = f"gpu:{node['gpu_kind']}:{node['gpus']}" if node.get("gpu_kind") else f"gpu:{node.get('gpus')}"
    lines = [
        f"NodeName={node.get('name')} Arch=N/A CoresPerSocket=1",
        f"CPUAlloc={node.get('cpus_used', 0):g} CPUEfctv={node.get('cpus', 0):g} CPUTot={node.get('cpus', 0):g}",
        f"Gres={gres if node.get('gpus') else _NULL}",
        f"NodeAddr={node.get('name')} NodeHostName={node.get('name')}",
        f"RealMemory={node.get('memory', 0)} AllocMem={node.get('memory_used', 0)}",
        f"State={str(node.get('state', '')).upper()}",
        f"Partitions={node.get('partition')}",
        f"Cluster={node.get('cluster')}",
    ]
    return [*lines, f"Reason={node['reason']}"] if node.get("reason") else lines


def partition_record(name: str, nodes: Sequence[Mapping[str, Any]]) -> list[str]:
    """The lines of one partition."""
    first = nodes[0]
    limit = first.get("time_limit")
    total = sum(float(node.get("cpus") or 0) for node in nodes)
    return [
        f"PartitionName={name}",
        f"AllowGroups=ALL AllowAccounts=ALL AllowQos=ALL Default={'YES' if first.get('default') else 'NO'}",
        f"MaxTime={format_elapsed_long(limit)} MinNodes=0",
        f"Nodes={compress([str(node.get('name')) for node in nodes])}",
        f"State=UP TotalCPUs={total:g} TotalNodes={len(nodes)}",
    ]


def write_records(records: Sequence[Sequence[str]], one_line: bool) -> str:
    """Put records together: an indent for all lines but the first and a blank line between, or one line each (-o)."""
    if one_line:
        return "".join(" ".join(record) + "\n" for record in records)
    return "".join("\n   ".join(record) + "\n\n" for record in records)

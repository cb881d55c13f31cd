"""Records of scontrol show: `Key=Value` lines of a job, step, node or partition (scontrol(1), Slurm 22.05). Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from overspan.bridge.cli.tables.steps import StepLine
from overspan.bridge.listings.rows import JobRow
from overspan.bridge.listings.texts import (
    NULL,
    cpus_per_node,
    describe_gpus,
    eligible_at,
    first_node,
    format_time,
    group_id,
    group_name,
    node_memory,
    over_subscribe,
    planned_start,
    priority,
    seconds_used,
    shorten_indices,
    shortest_time,
    tasks_of,
    tres,
    user_id,
)
from overspan.bridge.model.durations import format_elapsed_long
from overspan.bridge.model.slurm.hostlists import compress


def job_record(row: JobRow, now: float, details: bool = False) -> list[str]:
    """The lines of one job, element or task of a group, which is shown as a component of a hetjob is."""
    het = row.task_offset is not None
    return [
        f"JobId={row.raw_id} {_family(row)}JobName={row.name}",
        *([f"HetJobIdSet={row.id}-{row.id + row.tasks - 1}"] if het else []),
        f"UserId={row.user}({user_id(row)}) GroupId={group_name(row)}({group_id(row)}) MCS_label=N/A",
        f"Priority={priority(row)} Nice={row.nice} Account={row.account or NULL} QOS={row.qos or 'normal'}",
        f"JobState={row.state} Reason={row.reason.replace(' ', '_')} Dependency={row.dependency or NULL}",
        f"Requeue={int(row.requeue)} Restarts={row.restarts} BatchFlag={int(row.batch)} Reboot=0"
        f" ExitCode={row.exit_code}:{row.signal}",
        *(["DerivedExitCode=0:0"] if details else []),
        *_times(row, now),
        *_places(row),
        *_amounts(row),
        *_paths(row),
    ]


def _family(row: JobRow) -> str:
    """The ids of the array or group that it belongs to."""
    if row.task_offset is not None:
        return f"HetJobId={row.id} HetJobOffset={row.task_offset} "
    if row.array_id is None:
        return ""
    throttle = row.array_throttle
    index = shorten_indices(row.array_waiting) if row.array_waiting else row.array_index
    return f"ArrayJobId={row.array_id} ArrayTaskId={index} " + (f"ArrayTaskThrottle={throttle} " if throttle else "")


def _times(row: JobRow, now: float) -> list[str]:
    begin = planned_start(row) if row.state == "PENDING" else row.started_at
    end = row.ended_at or row.end_limit
    if row.state == "PENDING" and begin and row.time_limit:
        end = begin + row.time_limit
    eligible = format_time(eligible_at(row), "Unknown")
    evaluated = format_time(row.started_at or row.submitted_at, "Unknown")
    shortest = shortest_time(row)
    return [
        f"RunTime={format_elapsed_long(seconds_used(row, now))} TimeLimit={format_elapsed_long(row.time_limit)}"
        f" TimeMin={'N/A' if shortest is None else format_elapsed_long(shortest)}",
        f"SubmitTime={format_time(row.submitted_at, 'Unknown')} EligibleTime={eligible}",
        f"AccrueTime={eligible}",
        f"StartTime={format_time(begin, 'Unknown')} EndTime={format_time(end, 'Unknown')}"
        f" Deadline={format_time(row.deadline)}",
        f"SuspendTime={format_time(row.paused_at, 'None')} SecsPreSuspend={_before_suspension(row)}"
        f" LastSchedEval={evaluated} Scheduler=Main",
    ]


def _before_suspension(row: JobRow) -> int:
    """Seconds for which a suspended job ran before."""
    return 0 if row.paused_at is None else int(seconds_used(row, row.paused_at))


def _places(row: JobRow) -> list[str]:
    options = row.options
    return [
        f"Partition={row.partition} AllocNode:Sid={row.host or 'N/A'}:0",
        f"ReqNodeList={options.get('nodelist') or NULL} ExcNodeList={options.get('exclude') or NULL}",
        f"NodeList={row.node_list}",
        *([f"BatchHost={first_node(row)}"] if row.node_list else []),
    ]


def _amounts(row: JobRow) -> list[str]:
    options = row.options
    kind = "CPU" if row.memory_per_cpu else "Node"
    reservation = options.get("reservation")
    return [
        f"NumNodes={row.nodes} NumCPUs={row.cpus} NumTasks={tasks_of(row)} CPUs/Task={row.cpus_per_task or 1}"
        " ReqB:S:C:T=0:0:*:*",
        f"TRES={tres(row)}",
        f"Socks/Node=* NtasksPerN:B:S:C={row.ntasks_per_node or 0}:0:*:* CoreSpec=*",
        f"MinCPUsNode={cpus_per_node(row)} MinMemory{kind}={node_memory(row)} MinTmpDiskNode=0",
        f"Features={options.get('constraint') or NULL} DelayBoot=00:00:00",
        *([f"Reservation={reservation}"] if reservation else []),
        f"OverSubscribe={over_subscribe(row)} Contiguous={int('contiguous' in options)}"
        f" Licenses={options.get('licenses') or NULL} Network=(null)",
    ]


def _paths(row: JobRow) -> list[str]:
    return [
        f"Command={row.command or NULL}",
        f"WorkDir={row.work_dir}",
        *([f"Comment={row.comment} "] if row.comment else []),
        *_streams(row),
        "Power=",
        *([f"TresPerNode={describe_gpus(row)}"] if row.gpus else []),
        "",
    ]


def _streams(row: JobRow) -> list[str]:
    """A batch job's streams; those of other jobs are in their run directories."""
    if not row.batch:
        return []
    stdin = row.stdin or "/dev/null"
    return [f"StdErr={row.stderr or row.stdout}", f"StdIn={stdin}", f"StdOut={row.stdout}"]


def step_record(step: StepLine) -> list[str]:
    """The lines of a running step."""
    row = step.row
    cpus, tres, how = 0, NULL, ""
    if not step.batch:
        memory = f"mem={row.memory * step.nodes}M," if row.memory else ""
        cpus, tres, how = step.cpus, f"cpu={step.cpus},{memory}node={step.nodes}", f" Dist={step.layout}"
    return [
        f"StepId={step.ref} UserId={user_id(row)} StartTime={format_time(step.started_at, 'Unknown')}"
        " TimeLimit=UNLIMITED",
        f"State={step.state} Partition={row.partition} NodeList={step.node_list}",
        f"Nodes={step.nodes} CPUs={cpus} Tasks={step.ntasks} Name={step.name} Network=(null)",
        f"TRES={tres}",
        "ResvPorts=(null)",
        f"CPUFreqReq=Default{how}",
        f"SrunHost:Pid={step.srun}",
    ]


def node_record(nodes: Sequence[Mapping[str, Any]], now: float) -> list[str]:
    """The lines of one node, which stands once for each of its partitions."""
    node = nodes[0]
    name, cpus, used = node.get("name"), _count(node, "cpus"), _count(node, "cpus_used")
    memory, taken = _count(node, "memory"), _count(node, "memory_used")
    gres = NULL
    if node.get("gpus"):
        gres = f"gpu:{node['gpu_kind']}:{node['gpus']}" if node.get("gpu_kind") else f"gpu:{node['gpus']}"
    allocated = ",".join(filter(None, (f"cpu={used}" if used else "", f"mem={taken}M" if taken else "")))
    return [
        f"NodeName={name} Arch={node.get('arch') or 'N/A'} CoresPerSocket=1 ",
        f"CPUAlloc={used} CPUEfctv={cpus} CPUTot={cpus} CPULoad=N/A",
        "AvailableFeatures=(null)",
        "ActiveFeatures=(null)",
        f"Gres={gres}",
        f"NodeAddr={name} NodeHostName={name} ",
        f"RealMemory={memory} AllocMem={taken} FreeMem=N/A Sockets={cpus} Boards=1",
        f"State={str(node.get('state', '')).upper()} ThreadsPerCore=1 TmpDisk=0 Weight=1 Owner=N/A MCS_label=N/A",
        f"Partitions={','.join(str(part.get('partition')) for part in nodes)} ",
        "BootTime=None SlurmdStartTime=None",
        f"LastBusyTime={format_time(now, 'Unknown')}",
        f"CfgTRES=cpu={cpus},mem={memory}M,billing={cpus}",
        f"AllocTRES={allocated}",
        "CapWatts=n/a",
        "CurrentWatts=0 AveWatts=0",
        "ExtSensorsJoules=n/s ExtSensorsWatts=0 ExtSensorsTemp=n/s",
        *([f"Reason={node['reason']}"] if node.get("reason") else []),
    ]


def partition_record(name: str, nodes: Sequence[Mapping[str, Any]]) -> list[str]:
    """The lines of one partition."""
    first = nodes[0]
    cpus, memory, gpus = (sum(_count(node, key) for node in nodes) for key in ("cpus", "memory", "gpus"))
    amounts = f"cpu={cpus},mem={memory}M,node={len(nodes)},billing={cpus}" + (f",gres/gpu={gpus}" if gpus else "")
    return [
        f"PartitionName={name}",
        "AllowGroups=ALL AllowAccounts=ALL AllowQos=ALL",
        f"AllocNodes=ALL Default={'YES' if first.get('default') else 'NO'} QoS=N/A",
        "DefaultTime=NONE DisableRootJobs=NO ExclusiveUser=NO GraceTime=0 Hidden=NO",
        f"MaxNodes=UNLIMITED MaxTime={format_elapsed_long(first.get('time_limit'))} MinNodes=0 LLN=NO"
        " MaxCPUsPerNode=UNLIMITED",
        f"Nodes={compress([str(node.get('name')) for node in nodes])}",
        "PriorityJobFactor=1 PriorityTier=1 RootOnly=NO ReqResv=NO OverSubscribe=NO",
        "OverTimeLimit=NONE PreemptMode=OFF",
        f"State=UP TotalCPUs={cpus} TotalNodes={len(nodes)} SelectTypeParameters=NONE",
        "JobDefaults=(null)",
        "DefMemPerNode=UNLIMITED MaxMemPerNode=UNLIMITED",
        f"TRES={amounts}",
    ]


def _count(node: Mapping[str, Any], key: str) -> int:
    return int(float(node.get(key) or 0))


def write_records(records: Sequence[Sequence[str]], one_line: bool) -> str:
    """Put records together: an indent for all lines but the first and a blank line between, or one line each (-o)."""
    if one_line:
        return "".join(" ".join(record) + "\n" for record in records)
    return "".join("\n   ".join(record) + "\n\n" for record in records)

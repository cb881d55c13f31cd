"""`scontrol show config`: the parameters of slurm.conf(5) that have a meaning here. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from overspan.bridge.listings.texts import format_time

MAX_ARRAY_SIZE = 1001
"""Slurm's default. Clients split their arrays by it."""
MIN_JOB_AGE = 300
_FIXED: dict[str, str] = {
    "AccountingStorageEnforce": "none",
    "AccountingStorageTRES": "cpu,mem,energy,node,billing,fs/disk,vmem,pages",
    "AccountingStorageType": "accounting_storage/overspan",
    "BatchStartTimeout": "10 sec",
    "DefMemPerNode": "UNLIMITED",
    "EnforcePartLimits": "NO",
    "FirstJobId": "1",
    "GresTypes": "gpu",
    "InactiveLimit": "0 sec",
    "JobFileAppend": "0",
    "JobRequeue": "1",
    "KillOnBadExit": "0",
    "KillWait": "30 sec",
    "Licenses": "(null)",
    "MaxMemPerNode": "UNLIMITED",
    "MaxTasksPerNode": "512",
    "MessageTimeout": "10 sec",
    "MinJobAge": f"{MIN_JOB_AGE} sec",
    "OverTimeLimit": "0 min",
    "PreemptMode": "OFF",
    "PreemptType": "preempt/none",
    "PriorityType": "priority/basic",
    "PrivateData": "none",
    "PropagateResourceLimits": "ALL",
    "SchedulerType": "sched/backfill",
    "SelectType": "select/cons_tres",
    "SelectTypeParameters": "CR_CORE_MEMORY",
    "SlurmctldTimeout": "120 sec",
    "TmpFS": "/tmp",
    "TrackWCKey": "No",
    "WaitTime": "0 sec",
}


def configuration_text(ping: Mapping[str, Any], clusters: Sequence[Mapping[str, Any]], now: float, version: str) -> str:
    """The whole answer: a line a parameter, in alphabetical order, as Slurm's is."""
    name = next((str(cluster["name"]) for cluster in clusters if cluster.get("default")), "local")
    host = str(ping.get("host") or "localhost")
    values = {
        **_FIXED,
        "BOOT_TIME": format_time(_epoch(ping.get("since")), "Unknown"),
        "ClusterName": name,
        "MaxArraySize": str(ping.get("max_array_size") or MAX_ARRAY_SIZE),
        "SlurmctldHost[0]": host,
        "SLURM_VERSION": version,
        "StateSaveLocation": str(ping.get("state_dir") or ""),
    }
    lines = [f"Configuration data as of {format_time(now)}"]
    lines += [f"{key:<23} = {values[key]}" for key in sorted(values, key=str.lower)]
    lines += ["", ping_text(host)]
    return join_lines(lines)


def ping_text(host: str) -> str:
    """What `scontrol ping` says."""
    return f"Slurmctld(primary) at {host} is UP"


def join_lines(lines: Iterable[str]) -> str:
    """Lines with their ends."""
    return "".join(f"{line}\n" for line in lines)


def _epoch(value: Any) -> float | None:
    return float(value) if isinstance(value, (int, float)) else None

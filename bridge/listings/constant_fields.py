"""Fields that never differ here, except those with a letter: what no cluster of ours has, measures or tells."""

from __future__ import annotations

from typing import Any

from overspan.bridge.listings.field import Field, constant
from overspan.bridge.listings.values import number

_ZERO_TIME = "00:00:00"


def _used_frequency(line: Any, now: float) -> str:
    """What a script asks of its CPUs is known to be nothing."""
    return "0" if line.step and line.step.batch else "Unknown"


def _no_use(line: Any, now: float) -> str:
    return _ZERO_TIME


def _nothing(line: Any, now: float) -> str:
    return ""


NAMED: tuple[Field, ...] = (
    constant("delay_boot", "DELAY_BOOT", "0:00", number(0), long_names=("DelayBoot",), json="delay_boot"),
    constant("profile", "PROFILE", "NotSet", [], long_names=("Profile",), json="profile"),
    constant("switch_wait", "WAIT4SWITCH", "0:00", 0, long_names=("Wait4Switch",), json="maximum_switch_wait_time"),
    constant("association_id", "ASSOC_ID", "0", 0, long_names=("AssocID",), json="association_id", sacct="AssocID",
             sacct_width=7),
    constant("qos_id", "", "1", sacct="QOSRAW", sacct_width=6),
    # Slurm's spelling; it says that the start of the job is in the accounting.
    constant("flags", "", "StartRecieved", [], json="flags", sacct="Flags", sacct_width=19, sacct_json="flags"),
    Field("frequency", sacct="ReqCPUFreq", sacct_text=_used_frequency),
    Field("frequency_governor", value=lambda row, now: number(None), json="cpu_frequency_governor",
          sacct="ReqCPUFreqGov", sacct_width=13, sacct_text=_used_frequency),
    Field("frequency_maximum", value=lambda row, now: number(None), json="cpu_frequency_maximum",
          sacct="ReqCPUFreqMax", sacct_width=13, sacct_text=_used_frequency),
    Field("frequency_minimum", value=lambda row, now: number(None), json="cpu_frequency_minimum",
          sacct="ReqCPUFreqMin", sacct_width=13, sacct_text=_used_frequency),
    Field("system_time", sacct="SystemCPU", sacct_text=_no_use),
    Field("total_time", sacct="TotalCPU", sacct_text=_no_use),
    Field("user_time", sacct="UserCPU", sacct_text=_no_use),
)  # fmt: skip
"""Those with several names, or a text of their own."""

_TEXTS = {
    "(null)": {
        "admin_comment": "ADMIN_COMMENT", "BurstBuffer": "BURST_BUFFER", "BurstBufferState": "BURST_BUFFER_STATE",
        "ClusterFeature": "CLUSTER_FEATURES", "Container": "CONTAINER", "MCSLabel": "MCSLABEL", "Network": "NETWORK",
        "Prefer": "PREFER", "system_comment": "SYSTEM_COMMENT",
    },
    "N/A": {
        "cpus-per-tres": "CPUS_PER_TRES", "mem-per-tres": "MEM_PER_TRES", "NTPerCore": "NTASKS_PER_CORE",
        "NTPerSocket": "NTASKS_PER_SOCKET", "PreemptTime": "PREEMPT_TIME", "ResizeTime": "RESIZE_TIME",
        "tres-bind": "TRES_BIND", "tres-freq": "TRES_FREQ", "tres-per-job": "TRES_PER_JOB",
        "tres-per-socket": "TRES_PER_SOCKET", "tres-per-task": "TRES_PER_TASK",
    },
    "0": {
        "AllocSID": "ALLOC_SID", "BoardsPerNode": "BOARDS_PER_NODE", "DerivedEC": "DERIVED_EC",
        "NTPerBoard": "NTASKS_PER_BOARD", "Reboot": "REBOOT", "ReqSwitch": "REQ_SWITCH",
        "SPerBoard": "SOCKETS_PER_BOARD",
    },
    "NA": {
        "Origin": "ORIGIN", "OriginRaw": "ORIGIN_RAW", "SiblingsActive": "ACTIVE_SIBLINGS",
        "SiblingsActiveRaw": "ACTIVE_SIBLINGS_RAW", "SiblingsViable": "VIABLE_SIBLINGS",
        "SiblingsViableRaw": "VIALBLE_SIBLINGS_RAW",
    },
}  # fmt: skip
"""Names of squeue -O with their headers, by their text."""
_MEASURED = (
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
"""Fields of sacct about the measured use of a program, with widths. Nothing measures it here, so these are empty."""
_NEVER = (
    ("AdminComment", 15), ("BlockID", 16), ("Container", 19), ("Extra", 14), ("FailedNode", 15), ("McsLabel", 12),
    ("ReservationId", 13), ("SystemComment", 15), ("WCKeyID", 10),
)  # fmt: skip
"""Fields of sacct that are empty too."""
_EMPTY_TEXTS = (
    "admin_comment", "batch_features", "burst_buffer", "burst_buffer_state", "cluster_features", "container",
    "container_id", "cpus_per_tres", "cron", "extra", "failed_node", "federation_origin",
    "federation_siblings_active", "federation_siblings_viable", "mail_user", "mcs_label", "memory_per_tres",
    "network", "prefer", "selinux_context", "state_description", "system_comment", "tres_bind", "tres_freq",
    "tres_per_job", "tres_per_socket", "tres_per_task",
)  # fmt: skip
_UNSET_NUMBERS = ("sockets_per_node", "tasks_per_board", "tasks_per_core", "tasks_per_socket", "tasks_per_tres")
_ZERO_NUMBERS = ("max_cpus", "max_nodes", "pre_sus_time", "preempt_time", "preemptable_time", "resize_time")
DOCUMENT: dict[str, Any] = {
    **dict.fromkeys(_EMPTY_TEXTS, ""),
    **{name: number(None) for name in _UNSET_NUMBERS},
    **{name: number(0) for name in _ZERO_NUMBERS},
    **{name: [] for name in ("exclusive", "gres_detail", "job_size_str", "mail_type", "show_flags")},
    **dict.fromkeys(("minimum_switches", "sockets_per_board", "thread_spec"), 0),
    "power": {"flags": []},
    "reboot": False,
}
"""What the documents of squeue and scontrol have for every job, by name."""
ACCOUNT_DOCUMENT: dict[str, Any] = {
    **dict.fromkeys(("block", "container", "extra", "failed_node", "script", "used_gres"), ""),
    "mcs": {"label": ""},
}
"""What the documents of sacct have for every job, by name."""

UNNAMED: tuple[Field, ...] = (
    *(
        constant(f"squeue_{name}", header, text, long_names=(name,))
        for text, headers in _TEXTS.items()
        for name, header in headers.items()
    ),
    *(
        Field(f"sacct_{name}", sacct=name, sacct_width=width, sacct_text=_nothing)
        for name, width in (*_MEASURED, *_NEVER)
    ),
)
"""Those with one name and no fact behind them."""

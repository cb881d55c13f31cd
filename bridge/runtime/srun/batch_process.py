"""The batch process of a job's first node, which has no step daemon: srun from outside (`--jobid`) joins it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Optional

from overspan.bridge.model.records import NamedTuple
from overspan.bridge.runtime.core import node_records, shim_control
from overspan.bridge.runtime.core.allocation import AllocatedNode, Allocation


class BatchProcess(NamedTuple):
    """A node's running program: the location of its record, and its pid."""

    directory: str
    key: str
    pid: int

    @property
    def alive(self) -> bool:
        """Whether the node's shim lives."""
        return node_records.shim_alive(self.directory, self.key)


def find_batch_process(allocation: Allocation, node: AllocatedNode) -> Optional[BatchProcess]:
    """Find the program that runs on a node now; None when there is none."""
    folder = os.path.join(os.path.dirname(allocation.folder), "nodes")
    prefix = f"{node.task}.{node.number}."
    for name in sorted(os.listdir(folder), reverse=True):
        key = name[: -len(".claim")]
        if not (name.startswith(prefix) and name.endswith(".claim") and node_records.shim_alive(folder, key)):
            continue
        record = node_records.read_record(folder, key)
        if record is not None and record.pid and not record.ended:
            return BatchProcess(folder, key, record.pid)
    return None


def is_inside(process: BatchProcess, environment: Mapping[str, str]) -> bool:
    """Whether this process is a descendant of that node's program."""
    return environment.get(shim_control.NODE_KEY) == shim_control.name_node(process.directory, process.key)

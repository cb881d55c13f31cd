"""The machines of the simulated lab: two Slurm clusters, one Kubernetes cluster, and this machine."""

from __future__ import annotations

from typing import NamedTuple

GIB = 1024


class DemoPartition(NamedTuple):
    """Machines of one kind. `prefix` and `width` name them; `memory` is MiB; `limit` is in seconds."""

    cluster: str
    name: str
    prefix: str
    machines: int
    cpus: int
    memory: int
    gpus: int = 0
    gpu_kind: str = ""
    default: bool = False
    limit: int | None = None
    width: int = 2

    def list_machines(self) -> list[DemoMachine]:
        """Its machines, by name."""
        return [DemoMachine(f"{self.prefix}{number:0{self.width}d}", self) for number in range(1, self.machines + 1)]


class DemoMachine(NamedTuple):
    """A machine; `state` is sinfo's word where it takes no work, `reason` what sinfo -R says then."""

    name: str
    partition: DemoPartition
    state: str = ""
    reason: str = ""


class DemoCluster(NamedTuple):
    """A cluster as the configuration has it. `queued` is what it says of a job that waits for resources."""

    name: str
    kind: str
    partitions: tuple[DemoPartition, ...]
    default: bool = False

    def list_machines(self) -> list[DemoMachine]:
        """All of its machines."""
        return [machine for partition in self.partitions for machine in partition.list_machines()]


DAY = 86_400
LEO = DemoCluster(
    "leo",
    "slurm",
    (
        DemoPartition("leo", "gpu", "leo-g", 8, 96, 1024 * GIB, 8, "h100", default=True, limit=3 * DAY),
        DemoPartition("leo", "cpu", "leo-c", 6, 64, 256 * GIB, limit=7 * DAY),
    ),
)
ALPS = DemoCluster(
    "alps",
    "slurm",
    (
        DemoPartition("alps", "normal", "nid", 12, 288, 800 * GIB, 4, "gh200", default=True, limit=DAY, width=6),
        DemoPartition("alps", "debug", "dbg", 2, 288, 800 * GIB, 4, "gh200", limit=1800),
    ),
)
ORBIT = DemoCluster("orbit", "kubernetes", (DemoPartition("orbit", "orbit", "pool-a-", 5, 64, 512 * GIB, 4, "a100"),))
LOCAL = DemoCluster("local", "local", (DemoPartition("local", "local", "desk-", 1, 16, 64 * GIB, 1, "rtx4090"),), True)

CLUSTERS = (LEO, ALPS, ORBIT, LOCAL)
AWAY = {
    "leo-g07": ("drained", "NVLink errors on GPU 3, ticket 4711"),
    "nid000009": ("down", "Not responding"),
    "leo-c06": ("draining", "kernel update tonight"),
}
"""Machines that take no work: sinfo's state, and the reason that an operator gave."""


def list_machines() -> list[DemoMachine]:
    """All machines of the lab; those that are away say so."""
    found = []
    for machine in (machine for cluster in CLUSTERS for machine in cluster.list_machines()):
        state, reason = AWAY.get(machine.name, ("", ""))
        found.append(machine._replace(state=state, reason=reason))
    return found

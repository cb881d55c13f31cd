"""Capacity of the simulated machines: what is in use, and where a task fits."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from overspan.tui.demo.machines import DemoMachine
from overspan.tui.demo.records import TaskWish


class Usage:
    """What runs on a machine: CPUs, memory (MiB) and GPUs in use."""

    def __init__(self, machine: DemoMachine) -> None:
        self.machine = machine
        self.cpus = self.memory = self.gpus = 0

    def fits(self, wish: TaskWish) -> bool:
        """Whether one node of the task has room."""
        has = self.machine.partition
        return (
            not self.machine.state
            and self.cpus + wish.cpus <= has.cpus
            and self.memory + wish.memory <= has.memory
            and self.gpus + wish.gpus <= has.gpus
        )

    def add(self, wish: TaskWish, times: int = 1) -> None:
        """Give the machine's room to one node of the task; -1 takes it back."""
        self.cpus += times * wish.cpus
        self.memory += times * wish.memory
        self.gpus += times * wish.gpus


class MachineCapacity:
    """All machines, by name."""

    def __init__(self, machines: Iterable[DemoMachine]) -> None:
        self.usages = {machine.name: Usage(machine) for machine in machines}

    def take(self, cluster: str, partition: str, wishes: Sequence[TaskWish]) -> list[list[str]] | None:
        """Machines for each node of each task, all or none; they are in use from now on."""
        found: list[list[str]] = []
        for wish in wishes:
            names = self._take_one(cluster, partition, wish)
            if names is None:
                for given, taken in zip(wishes, found, strict=False):
                    self.free(given, taken)
                return None
            found.append(names)
        return found

    def _take_one(self, cluster: str, partition: str, wish: TaskWish) -> list[str] | None:
        chosen: list[str] = []
        for name, usage in self.usages.items():
            place = usage.machine.partition
            if (place.cluster, place.name) != (cluster, partition):
                continue
            if usage.fits(wish):
                usage.add(wish)
                chosen.append(name)
            if len(chosen) == wish.nodes:
                return chosen
        self.free(wish, chosen)
        return None

    def free(self, wish: TaskWish, names: Iterable[str]) -> None:
        """Give back what one node of the task had on each of these machines."""
        for name in names:
            self.usages[name].add(wish, -1)

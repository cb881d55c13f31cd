"""Resource accounting of one machine: what is booked of its CPUs, memory and GPUs. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from overspan.bridge.model.resources import MILLI, NodeNeed


@dataclass(frozen=True)
class Capacity:
    """Thousandths of CPUs, MiB of memory, and the kind of each GPU, by its index."""

    cpu_milli: int
    memory_mib: int
    gpus: tuple[str, ...] = ()
    gpus_known: bool = True
    """False while nothing has told which GPUs there are; none are counted then."""


class BookedMember(NamedTuple):
    """One node of a task and what it needs. Members of different phases never run at the same time."""

    task: str
    node: int
    need: NodeNeed
    phase: int = 0


class Booking(NamedTuple):
    """What a job holds: its members, and the GPU indices of each."""

    members: tuple[BookedMember, ...]
    gpus: tuple[tuple[int, ...], ...]


Variant = tuple[BookedMember, ...]


class Bookings:
    """Booked resources: thousandths of CPUs and of each GPU, MiB of memory. Nothing is ever booked twice."""

    def __init__(self, capacity: Capacity) -> None:
        self.capacity = capacity
        self.cpu_milli = 0
        self.memory_mib = 0
        self._free_gpu_milli = [MILLI] * len(capacity.gpus)
        self._bookings: dict[str, Booking] = {}

    def __contains__(self, key: str) -> bool:
        return key in self._bookings

    def __len__(self) -> int:
        return len(self._bookings)

    def copy(self) -> Bookings:
        """A copy to try bookings in."""
        twin = Bookings(self.capacity)
        twin.cpu_milli, twin.memory_mib = self.cpu_milli, self.memory_mib
        twin._free_gpu_milli, twin._bookings = list(self._free_gpu_milli), dict(self._bookings)
        return twin

    def resize(self, capacity: Capacity) -> Bookings:
        """The same bookings on a machine of another size."""
        resized = Bookings(capacity)
        for key, booking in self._bookings.items():
            resized.restore(key, booking)
        return resized

    def fits(self, variants: Iterable[Variant]) -> bool:
        """Whether any variant could be booked now."""
        return any(self._fit(members) is not None for members in variants)

    def keys(self) -> list[str]:
        """The keys of all bookings."""
        return list(self._bookings)

    @property
    def gpu_milli(self) -> int:
        """Thousandths of GPUs that are booked."""
        return sum(MILLI - left for left in self._free_gpu_milli)

    def book(self, key: str, variants: Iterable[Variant]) -> Booking | None:
        """Book the first variant that fits beside what is booked; returns what it holds, None if none fits now.

        `key` names the launch for `release`. Raises ValueError for one with a booking.
        """
        if key in self._bookings:
            raise ValueError(f"{key} is booked already")
        for members in variants:
            gpus = self._fit(members)
            if gpus is not None:
                booking = Booking(members, gpus)
                self.restore(key, booking)
                return booking
        return None

    def restore(self, key: str, booking: Booking) -> None:
        """Enter a job's known booking, even if it exceeds the free resources."""
        self._bookings[key] = booking
        self._add(booking, 1)

    def release(self, key: str) -> bool:
        """Release the job's booking; False if it has none."""
        booking = self._bookings.pop(key, None)
        if booking is None:
            return False
        self._add(booking, -1)
        return True

    def _add(self, booking: Booking, sign: int) -> None:
        cpus, memory = self._sum(booking.members)
        self.cpu_milli += sign * cpus
        self.memory_mib += sign * memory
        # Shares by device and phase: a job books the largest share of any of its phases.
        shares: Counter[tuple[int, int]] = Counter()
        for member, indices in zip(booking.members, booking.gpus, strict=True):
            for index, share in zip(indices, _split(member.need.gpu_milli), strict=False):
                shares[index, member.phase] += share
        for index in {index for index, _ in shares if index < len(self._free_gpu_milli)}:
            self._free_gpu_milli[index] -= sign * max(share for (device, _), share in shares.items() if device == index)

    def _sum(self, members: Variant) -> tuple[int, int]:
        """CPUs and memory of the phase that needs most of each."""
        cpus: Counter[int] = Counter()
        memory: Counter[int] = Counter()
        for member in members:
            cpus[member.phase] += member.need.cpu_milli
            memory[member.phase] += self._memory(member.need)
        return max(cpus.values(), default=0), max(memory.values(), default=0)

    def _memory(self, need: NodeNeed) -> int:
        # As for Slurm's --mem, 0 is all of the node; a job without a memory request books none.
        return self.capacity.memory_mib if need.memory_mib == 0 else need.memory_mib or 0

    def _fit(self, members: Variant) -> tuple[tuple[int, ...], ...] | None:
        cpus, memory = self._sum(members)
        if self.cpu_milli + cpus > self.capacity.cpu_milli or self.memory_mib + memory > self.capacity.memory_mib:
            return None
        if any(member.need.gres for member in members):
            return None
        return self._fit_gpus(members)

    def _fit_gpus(self, members: Variant) -> tuple[tuple[int, ...], ...] | None:
        """Choose devices by best fit: named kinds first, then large shares, each on the fullest device with room."""
        phases = {member.phase: list(self._free_gpu_milli) for member in members}
        chosen: list[list[int]] = [[] for _ in members]
        asked = [
            (not member.need.gpu_kind, -share, place)
            for place, member in enumerate(members)
            for share in _split(member.need.gpu_milli)
        ]
        for _, negative, place in sorted(asked):
            kind = members[place].need.gpu_kind.lower()
            free = phases[members[place].phase]
            fitting = [
                (left, index)
                for index, left in enumerate(free)
                if left >= -negative and (not kind or is_kind(kind, self.capacity.gpus[index]))
            ]
            if not fitting:
                return None
            _, index = min(fitting)
            free[index] += negative
            chosen[place].append(index)
        # Large shares were placed first, so a fraction of a device is last, in the order of `_split`.
        return tuple(tuple(indices) for indices in chosen)


def is_kind(asked: str, device: str) -> bool:
    """Whether a device is of that kind: equal names, or the kind is its first words (`A100` for `A100-SXM4-80GB`)."""
    asked, device = asked.lower(), device.lower()
    return device == asked or device.startswith(f"{asked}-")


def _split(gpu_milli: int) -> list[int]:
    """Whole devices, then the share of one more: 2500 is 1000, 1000, 500."""
    whole, rest = divmod(gpu_milli, MILLI)
    return [MILLI] * whole + ([rest] if rest else [])

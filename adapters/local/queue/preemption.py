"""Preemption: which running launches to evict for the first in the queue. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from overspan.adapters.local.queue.booking import Booking, Bookings, Variant


class RunningLaunch(NamedTuple):
    """A running launch; `behind` is its rank's, `leaving` says that its end was ordered already."""

    key: str
    behind: int
    granted_at: float
    booking: Booking
    leaving: bool = False


def choose_victims(
    bookings: Bookings, variants: Sequence[Variant], behind: int, holders: Sequence[RunningLaunch]
) -> tuple[str, ...]:
    """The launches to evict so that one of that rank fits; none if eviction would not help or is not needed.

    Only launches of a lower priority, and no higher one than necessary. Among these, a single launch if one suffices,
    else a minimal set: low priority before high, large before small, young before old.
    """
    trial = bookings.copy()
    for holder in holders:
        if holder.leaving:
            trial.release(holder.key)
    if trial.fits(variants):
        return ()
    lower = [holder for holder in holders if holder.behind > behind and not holder.leaving]
    pool = _narrow(trial, variants, sorted(lower, key=lambda holder: (-holder.behind, -holder.granted_at)))
    for holder in pool:
        if _suffices(trial, variants, [holder]):
            return (holder.key,)
    return tuple(holder.key for holder in _spare(trial, variants, pool))


def _narrow(bookings: Bookings, variants: Sequence[Variant], lower: Sequence[RunningLaunch]) -> list[RunningLaunch]:
    """The launches from the lowest priority up to the first one that frees enough; empty if all free too little."""
    trial = bookings.copy()
    for place, holder in enumerate(lower):
        trial.release(holder.key)
        last = place + 1 == len(lower) or lower[place + 1].behind != holder.behind
        if last and trial.fits(variants):
            return list(lower[: place + 1])
    return []


def _spare(bookings: Bookings, variants: Sequence[Variant], pool: Sequence[RunningLaunch]) -> list[RunningLaunch]:
    """Reduce the pool to a minimal set: spare each launch that is not needed, the most deserving first."""
    trial = bookings.copy()
    for holder in pool:
        trial.release(holder.key)
    chosen = list(pool)
    for holder in sorted(pool, key=lambda holder: (holder.behind, _weigh(bookings, holder), holder.granted_at)):
        trial.restore(holder.key, holder.booking)
        if trial.fits(variants):
            chosen.remove(holder)
        else:
            trial.release(holder.key)
    return chosen


def _suffices(bookings: Bookings, variants: Sequence[Variant], gone: Sequence[RunningLaunch]) -> bool:
    trial = bookings.copy()
    for holder in gone:
        trial.release(holder.key)
    return trial.fits(variants)


def _weigh(bookings: Bookings, holder: RunningLaunch) -> float:
    """The largest part of the machine that a launch holds."""
    capacity = bookings.capacity
    needs = [member.need for member in holder.booking.members]
    parts = (
        (sum(need.cpu_milli for need in needs), capacity.cpu_milli),
        (sum(need.memory_mib or 0 for need in needs), capacity.memory_mib),
        (sum(need.gpu_milli for need in needs), 1000 * len(capacity.gpus)),
    )
    return max(held / whole for held, whole in parts if whole)

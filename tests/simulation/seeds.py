"""Which seeds are played, and one of them from its beginning to its end.

`SIMULATION_SEEDS=FIRST:COUNT` plays others, or a single one again: `SIMULATION_SEEDS=17:1`. A seed is of one kind.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol, TypeVar

import pytest
from tests.fakes.slurm_world import WorldLoop
from tests.simulation.clockwork import LIFE, Life
from tests.simulation.lives import Lives

SEEDS = "0:300"
SLURM_EACH, KUBERNETES_EACH = 5, 10
"""Each so many seeds one is of the fake Slurm, or of the fake Kubernetes; all others are of scripted clusters."""
CHUNK = 25


class Days(Protocol):
    """The world of a seed."""

    lives: Lives

    @property
    def starts(self) -> int:
        """How many programs were started."""

    async def play(self) -> None:
        """The whole run."""


D = TypeVar("D", bound=Days)


def is_slurm(seed: int) -> bool:
    """Whether a seed is of the fake Slurm."""
    return seed % SLURM_EACH == SLURM_EACH - 1


def is_kubernetes(seed: int) -> bool:
    """Whether a seed is of the fake Kubernetes."""
    return seed % KUBERNETES_EACH == 2


def is_scripted(seed: int) -> bool:
    """Whether a seed is of scripted clusters."""
    return not is_slurm(seed) and not is_kubernetes(seed)


def list_chunks(kind: Callable[[int], bool]) -> list[Sequence[int]]:
    """The seeds of a kind that are to be played, some to a test."""
    first, _, count = os.environ.get("SIMULATION_SEEDS", SEEDS).partition(":")
    chosen = [seed for seed in range(int(first), int(first) + int(count or 1)) if kind(seed)]
    return [chosen[place : place + CHUNK] for place in range(0, len(chosen), CHUNK)]


def name_chunk(seeds: Sequence[int]) -> str:
    """The name of a test."""
    return f"{seeds[0]}-{seeds[-1]}"


def play_seeds(
    seeds: Sequence[int],
    make: Callable[[int], D],
    caplog: pytest.LogCaptureFixture,
    loop: Callable[[], asyncio.AbstractEventLoop] = WorldLoop,
) -> Iterator[D]:
    """Play seeds; the first that fails or logs an error is told with how to play it again."""
    for seed in seeds:
        again = f"SIMULATION_SEEDS={seed}:1 pytest tests/simulation"
        with caplog.at_level(logging.ERROR):
            try:
                days = play_seed(seed, make, loop)
            except Exception as error:
                raise AssertionError(f"{again} fails: {type(error).__name__}: {error}") from error
        failed = [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]
        assert failed == [], f"{again} logs errors: {failed}"
        yield days


def play_seed(seed: int, make: Callable[[int], D], loop: Callable[[], asyncio.AbstractEventLoop]) -> D:
    """One run, on a loop of its own."""
    with asyncio.Runner(loop_factory=loop) as runner:
        return runner.run(_play(seed, make))


async def _play(seed: int, make: Callable[[int], D]) -> D:
    LIFE.set(Life())
    days = make(seed)
    try:
        await days.play()
    finally:
        days.lives.store.close()
    return days

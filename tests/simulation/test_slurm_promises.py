"""Seeded runs of controller, store and the real Slurm adapter over a fake Slurm, in which everything happens."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.simulation.seeds import CHUNK, is_slurm, list_chunks, name_chunk, play_seeds
from tests.simulation.slurm_days import SlurmDays


@pytest.mark.parametrize("seeds", list_chunks(is_slurm), ids=name_chunk)
def test_promises_hold_on_slurm(
    seeds: Sequence[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    played = list(play_seeds(seeds, lambda seed: SlurmDays(seed, tmp_path / str(seed), monkeypatch), caplog))
    # The runs were worth something.
    assert len(seeds) < CHUNK or sum(days.lives.crashes for days in played) > CHUNK // 2
    assert len(seeds) < CHUNK or sum(days.starts for days in played) > 5 * CHUNK

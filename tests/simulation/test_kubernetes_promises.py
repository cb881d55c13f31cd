"""Seeded runs of controller, store and the real Kubernetes adapter over a fake cluster, in which everything happens."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.simulation.fibers import FiberLoop
from tests.simulation.kubernetes_days import KubernetesDays
from tests.simulation.seeds import CHUNK, is_kubernetes, list_chunks, name_chunk, play_seed, play_seeds


@pytest.mark.parametrize("seeds", list_chunks(is_kubernetes), ids=name_chunk)
def test_promises_hold_on_kubernetes(
    seeds: Sequence[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def make(seed: int) -> KubernetesDays:
        return KubernetesDays(seed, tmp_path / str(seed), monkeypatch)

    played = list(play_seeds(seeds, make, caplog, FiberLoop))
    # The runs were worth something.
    assert len(seeds) < CHUNK or sum(days.lives.crashes for days in played) > CHUNK // 2
    assert len(seeds) < CHUNK or sum(days.starts for days in played) > 3 * CHUNK


def test_a_seed_is_played_the_same_way_each_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def play(folder: str) -> KubernetesDays:
        return play_seed(62, lambda seed: KubernetesDays(seed, tmp_path / folder, monkeypatch), FiberLoop)

    first, second = play("first"), play("second")
    asked = [[(one.method, one.path, one.query) for one in days.api.requests] for days in (first, second)]
    assert asked[0] == asked[1]
    assert first.started == second.started and first.lives.crashes == second.lives.crashes

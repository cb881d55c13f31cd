"""Seeded runs of controller, store and scripted clusters: crashes, lost answers and repetitions; the promises hold."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from tests.simulation.scripted_days import ScriptedDays
from tests.simulation.seeds import CHUNK, is_scripted, list_chunks, name_chunk, play_seeds


@pytest.mark.parametrize("seeds", list_chunks(is_scripted), ids=name_chunk)
def test_promises_hold_on_scripted_clusters(seeds: Sequence[int], caplog: pytest.LogCaptureFixture) -> None:
    played = list(play_seeds(seeds, ScriptedDays, caplog))
    # The runs were worth something.
    assert len(seeds) < CHUNK or sum(days.lives.crashes for days in played) > CHUNK // 2
    assert len(seeds) < CHUNK or sum(days.starts for days in played) > 3 * CHUNK
    assert len(seeds) < CHUNK or any(days.moved for days in played)

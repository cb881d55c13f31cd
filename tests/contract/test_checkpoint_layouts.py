"""Checkpoints as trainers write them: looked at between any two writes, none is complete before the last of its own."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.contract.checkpoint_sources import FolderRig, look, write_safetensors

from overspan.bridge.model.checkpoints.readiness import SETTLE, CheckpointLayout, Sighting, judge, recognise, sight
from overspan.bridge.model.evaluations import Readiness

STEPS = (9, 10, 100)
"""The tag of each later one begins as that of an earlier one does, so half of a tag may name another checkpoint."""


class Watcher:
    """Somebody who looks at a folder with checkpoints of one pattern, a second after each look."""

    def __init__(self, rig: FolderRig, pattern: str) -> None:
        self.rig, self.pattern = rig, pattern
        self.now = 0.0
        self.layouts: set[CheckpointLayout] = set()
        self._seen: dict[str, Sighting] = {}

    def list_ready(self, seconds: float = 1.0) -> set[str]:
        """The names of those that are complete."""
        self.now += seconds
        listing = look(self.rig, self.pattern)
        ready = set()
        for found in listing.found:
            seen = self._seen[found.name] = sight(found, self._seen.get(found.name), self.now)
            self.layouts.add(recognise(found, listing))
            if judge(Readiness(), found, listing, seen, self.now).ready:
                ready.add(found.name)
        return ready


def save_deepspeed(step: int) -> tuple[str, Sequence[tuple[str, bytes]]]:
    """`save_checkpoint` of DeepSpeed's engine: model states, each rank's optimizer, then the tag."""
    tag = f"global_step{step}"
    optimizers = [f"{tag}/bf16_zero_pp_rank_{rank}_mp_rank_00_optim_states.pt" for rank in range(2)]
    files = [f"{tag}/mp_rank_00_model_states.pt", *optimizers]
    return tag, [*((file, b"w" * 64) for file in files), ("latest", tag.encode())]


def save_megatron(step: int) -> tuple[str, Sequence[tuple[str, bytes]]]:
    """`save_checkpoint` of Megatron-LM: each rank's state, then the iteration."""
    tag = f"iter_{step:07d}"
    files = [f"{tag}/mp_rank_{rank:02d}/model_optim_rng.pt" for rank in range(2)]
    return tag, [*((file, b"w" * 64) for file in files), ("latest_checkpointed_iteration.txt", str(step).encode())]


def save_shards(step: int) -> tuple[str, Sequence[tuple[str, bytes]]]:
    """`save_pretrained` of Hugging Face's models: the shards, then their index."""
    tag = f"model_{step}"
    shards = [f"model-0000{number}-of-00002.safetensors" for number in (1, 2)]
    index = f'{{"weight_map": {{"a": "{shards[0]}", "b": "{shards[1]}"}}}}'
    files = [(f"{tag}/{shard}", write_safetensors(64)) for shard in shards]
    return tag, [*files, (f"{tag}/model.safetensors.index.json", index.encode())]


TRAINERS: dict[CheckpointLayout, tuple[str, Callable[[int], tuple[str, Sequence[tuple[str, bytes]]]]]] = {
    CheckpointLayout.DEEPSPEED: ("global_step{step:int}", save_deepspeed),
    CheckpointLayout.MEGATRON: ("iter_{step:int}", save_megatron),
    CheckpointLayout.SAFETENSORS: ("model_{step:int}", save_shards),
}


@pytest.mark.parametrize("layout", TRAINERS)
def test_a_later_checkpoint_is_not_complete_while_it_is_written(tmp_path: Path, layout: CheckpointLayout) -> None:
    """DT06: one checkpoint after another; what is complete stays so while the next one is written."""
    pattern, save = TRAINERS[layout]
    rig = FolderRig(tmp_path)
    watcher, whole = Watcher(rig, pattern), set()
    for step in STEPS:
        tag, files = save(step)
        for place, (name, data) in enumerate(files):
            for end in sorted({0, 1, len(data) // 2, len(data) - 1, len(data)}):
                rig.write(name, data[:end])
                last = place == len(files) - 1 and end == len(data)
                assert last or tag not in watcher.list_ready(), (name, end)
        watcher.list_ready()
        whole.add(tag)
        assert watcher.list_ready(2 * SETTLE) == whole
    assert watcher.layouts - {CheckpointLayout.UNKNOWN} == {layout}


class WatchedFile(io.FileIO):
    """A file that is looked at before each of its writes."""

    watch: Callable[[], None]

    def write(self, data: Any) -> int:
        self.watch()
        return super().write(data)


def test_an_archive_of_numpys_is_not_complete_before_its_last_write(tmp_path: Path) -> None:
    """DT06: `numpy.savez` in place, which writes heads twice and its list of contents at the end."""
    rig = FolderRig(tmp_path)
    watcher, looks = Watcher(rig, "step_{step:int}.npz"), []
    Path(rig.path).mkdir()

    def watch() -> None:
        looks.append(watcher.list_ready(2 * SETTLE))

    with WatchedFile(Path(rig.path, "step_1.npz"), "w+") as file:
        file.watch = watch
        np.savez(file, weights=np.arange(1000.0), bias=np.zeros(3))
    assert len(looks) > 8 and not any(looks)
    watcher.list_ready()
    assert watcher.list_ready(2 * SETTLE) == {"step_1.npz"}

"""Whether a checkpoint is complete: decided from what was seen now and before, by what each layout writes last.

Pure. Times are the watcher's own clock, so that the clocks of clusters do not matter.

What each layout writes last, and where that was read:

- PyTorch distributed checkpoints: `.metadata`, written by the coordinator when all ranks have written, under another
  name first (torch/distributed/checkpoint/filesystem.py, `FileSystemWriter.finish`).
- Hugging Face Trainer: `trainer_state.json` in `checkpoint-N` (transformers/trainer.py, `_save_checkpoint`). Earlier
  versions wrote the states of the random generators after it, which no evaluation reads.
- DeepSpeed: `latest` beside the checkpoints, with the tag of the newest (deepspeed/runtime/engine.py,
  `save_checkpoint`).
- Megatron-LM: `latest_checkpointed_iteration.txt` beside them, with the iteration (megatron/training/checkpointing.py,
  `save_checkpoint`).
- safetensors: an index, and all shards that it names; each shard's header tells its length
  (https://github.com/huggingface/safetensors, "Format").
- A single file that its own format ends (safetensors; the zip archives of torch.save and numpy.savez).
"""

from __future__ import annotations

import hashlib
import re
from enum import Enum
from typing import Optional

from overspan.bridge.model.checkpoints.listings import FolderListing, FoundCheckpoint
from overspan.bridge.model.evaluations import Readiness, ReadyRule
from overspan.bridge.model.records import dataclass

SETTLE = 0.1
"""Seconds for which a file that is written in place has to stay as it is after it looks complete."""
METADATA = ".metadata"
TRAINER_STATE = "trainer_state.json"
LATEST = "latest"
ITERATION = "latest_checkpointed_iteration.txt"
_INDEX = ".safetensors.index.json"
_TRAINER_NAME = re.compile(r"checkpoint-[0-9]+")
_MEGATRON_NAME = re.compile(r"iter_([0-9]{7,})|release")
_DEEPSPEED_FILE = re.compile(r"(?:.*/)?(?:mp_rank_[0-9]+.*_model_states|.*zero_pp_rank_.*_states|layer_[0-9]+-.*)\.pt")


class CheckpointLayout(str, Enum):
    """A layout of checkpoints whose completeness shows."""

    UNKNOWN = "unknown"
    TORCH = "torch distributed"
    TRAINER = "Hugging Face Trainer"
    DEEPSPEED = "DeepSpeed"
    MEGATRON = "Megatron-LM"
    SAFETENSORS = "safetensors"
    WHOLE_FILE = "whole file"


@dataclass(frozen=True)
class Sighting:
    """A checkpoint as it was seen, and since when nothing of it has changed (seconds of the watcher's clock)."""

    mark: str
    since: float


@dataclass(frozen=True)
class Verdict:
    """Whether a checkpoint is complete, and if not, what it waits for.

    `guess` is whether only a quiet period says so. `look_at` is when to look again though nothing has changed.
    """

    ready: bool
    why: str = ""
    layout: CheckpointLayout = CheckpointLayout.UNKNOWN
    guess: bool = False
    look_at: Optional[float] = None


def sight(found: FoundCheckpoint, before: Optional[Sighting], now: float) -> Sighting:
    """The checkpoint as it is seen now; `since` stays while nothing changes."""
    mark = _mark(found)
    return before if before is not None and before.mark == mark else Sighting(mark, now)


def judge(rule: Readiness, found: FoundCheckpoint, listing: FolderListing, seen: Sighting, now: float) -> Verdict:
    """Whether a checkpoint is complete. `seen` is its sighting with this listing in it (`sight`)."""
    if found.unreadable:
        return Verdict(False, found.unreadable)
    if rule.rule is ReadyRule.MARKER:
        return Verdict(True) if found.marker is not None else Verdict(False, f"its marker {rule.marker} is not there")
    if rule.rule is ReadyRule.RENAME:
        return Verdict(True)
    if rule.rule is ReadyRule.QUIET:
        return _judge_quiet(rule.quiet, found, seen, now, guess=False)
    layout = recognise(found, listing)
    if layout is CheckpointLayout.UNKNOWN:
        return _judge_quiet(rule.quiet, found, seen, now, guess=True)
    why = _find_missing(layout, found, listing)
    if why:
        return Verdict(False, why, layout)
    if layout in _WRITTEN_IN_PLACE and now - seen.since < SETTLE:
        return Verdict(False, "it was complete only a moment ago", layout, look_at=seen.since + SETTLE)
    return Verdict(True, layout=layout)


_WRITTEN_IN_PLACE = frozenset({CheckpointLayout.TRAINER, CheckpointLayout.SAFETENSORS, CheckpointLayout.WHOLE_FILE})
"""Layouts whose last file grows under its own name, so that it has to be seen unchanged."""


def recognise(found: FoundCheckpoint, listing: FolderListing) -> CheckpointLayout:
    """The layout that a checkpoint has, or begins to have."""
    if not found.folder:
        whole = found.files[0].whole if found.files else None
        return CheckpointLayout.UNKNOWN if whole is None else CheckpointLayout.WHOLE_FILE
    name = found.name.rpartition("/")[2]
    names = [file.name for file in found.files]
    if listing.text_beside(ITERATION) is not None and _MEGATRON_NAME.fullmatch(name):
        return CheckpointLayout.MEGATRON
    if _TRAINER_NAME.fullmatch(name) and (TRAINER_STATE in names or any(_is_of_trainer(each) for each in names)):
        return CheckpointLayout.TRAINER
    if TRAINER_STATE in names:
        return CheckpointLayout.TRAINER
    if any(_DEEPSPEED_FILE.fullmatch(each) for each in names):
        return CheckpointLayout.DEEPSPEED
    if _MEGATRON_NAME.fullmatch(name) and names:
        return CheckpointLayout.MEGATRON
    if METADATA in names or any(each.endswith(".distcp") for each in names):
        return CheckpointLayout.TORCH
    if any(each.endswith(_INDEX) for each in names) or any(re.search(r"-of-[0-9]+\.safetensors$", n) for n in names):
        return CheckpointLayout.SAFETENSORS
    return CheckpointLayout.UNKNOWN


def version_of(found: FoundCheckpoint, files: Optional[tuple[str, ...]] = None) -> str:
    """What a checkpoint's content is known by: its marker, else the names and sizes of its files, never times alone.

    `files` are those that it had when it was complete: what was added since, as by an evaluation, makes no version.
    """
    if found.marker is not None:
        text = f"marker {found.marker.size} {found.marker.time} {found.marker.text}"
    else:
        kept = [file for file in found.files if files is None or file.name in files]
        text = "files " + " ".join(f"{file.name!r}={file.size}" for file in sorted(kept, key=lambda file: file.name))
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:32]


def _judge_quiet(seconds: float, found: FoundCheckpoint, seen: Sighting, now: float, *, guess: bool) -> Verdict:
    if not found.size:
        return Verdict(False, "it is empty", guess=guess)
    quiet = now - seen.since
    if quiet >= seconds:
        return Verdict(True, guess=guess)
    return Verdict(False, f"it changed {max(quiet, 0.0):.0f} s ago", guess=guess, look_at=seen.since + seconds)


def _find_missing(layout: CheckpointLayout, found: FoundCheckpoint, listing: FolderListing) -> str:
    """What a checkpoint of a known layout lacks; empty where it is complete."""
    sizes = {file.name: file for file in found.files}
    partial = [file.name for file in found.files if file.whole is False]
    if layout is CheckpointLayout.WHOLE_FILE:
        return "the file is not complete" if partial else ""
    if layout is CheckpointLayout.TORCH:
        return "" if METADATA in sizes and sizes[METADATA].size else f"{METADATA} is not there"
    if layout is CheckpointLayout.TRAINER:
        state = sizes.get(TRAINER_STATE)
        if state is None or not state.size:
            return f"{TRAINER_STATE} is not there"
        return f"{TRAINER_STATE} is not complete" if state.whole is False else ""
    if layout is CheckpointLayout.SAFETENSORS:
        if found.shards is None:
            return "its index is not there, or not complete"
        missing = [name for name in found.shards if name not in sizes]
        if missing:
            return f"{len(missing)} of {len(found.shards)} shards are missing, such as {missing[0]}"
        return f"{partial[0]} is not complete" if partial else ""
    name = LATEST if layout is CheckpointLayout.DEEPSPEED else ITERATION
    return _compare_with_newest(found, listing, name)


def _compare_with_newest(found: FoundCheckpoint, listing: FolderListing, file: str) -> str:
    """Whether a checkpoint is the newest that is complete, or was before: then it has the files of the newest."""
    text = listing.text_beside(file)
    if text is None:
        return f"{file} is not there"
    own = found.name.rpartition("/")[2]
    if _same_tag(text, own):
        return ""
    number, newest = _last_number(own), _last_number(text)
    if number is None or newest is None or number > newest:
        return f"{file} says {text[:60]}"
    other = next((each for each in listing.found if _same_tag(text, each.name.rpartition("/")[2])), None)
    if other is None or _file_names(other) == _file_names(found):
        return ""
    return f"{file} says {text[:60]}, and that has other files: it may have been left incomplete"


def _same_tag(text: str, name: str) -> bool:
    """Whether `latest` or the iteration names this checkpoint."""
    megatron = _MEGATRON_NAME.fullmatch(name)
    if megatron is not None and megatron[1] is not None and text.isdecimal():
        return int(text) == int(megatron[1])
    return text == name


def _file_names(found: FoundCheckpoint) -> list[str]:
    return sorted(file.name for file in found.files)


def _last_number(text: str) -> Optional[int]:
    numbers = re.findall("[0-9]+", text)
    return int(numbers[-1]) if numbers else None


def _is_of_trainer(name: str) -> bool:
    """Whether a file is one that the Trainer writes before its state."""
    return name.startswith(("model", "pytorch_model", "adapter_", "optimizer", "scheduler", "rng_state", "config.json"))


def _mark(found: FoundCheckpoint) -> str:
    """All that may change of a checkpoint while it is written."""
    marker = found.marker and (found.marker.size, found.marker.time, found.marker.text)
    files = [(file.name, file.size, file.whole) for file in found.files]
    text = repr((found.folder, files, marker, found.shards, found.unreadable))
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:32]

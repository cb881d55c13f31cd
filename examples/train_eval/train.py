"""Trainer: softmax regression by gradient descent, with a checkpoint every so many epochs.

A checkpoint is `epoch-000500.json`, and it is complete once its marker `epoch-000500.done` exists.
Starts from the newest one. SIGUSR1 saves one at once; SIGTERM saves one and ends with exit code 143.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import signal
import sys
from pathlib import Path

from classifier import SPECIES, Flower, Weights, load_flowers, predict


class Signals:
    """What was asked for by signals; looked at between two epochs."""

    def __init__(self) -> None:
        self.save = False
        self.stop = False
        signal.signal(signal.SIGUSR1, self.request_save)
        signal.signal(signal.SIGTERM, self.request_stop)

    def request_save(self, *_: object) -> None:
        self.save = True

    def request_stop(self, *_: object) -> None:
        self.stop = True


def train_epoch(weights: Weights, flowers: list[Flower], rate: float) -> tuple[Weights, float]:
    """Return the weights after one pass over all flowers, and the mean loss before it."""
    slopes = [[0.0] * len(row) for row in weights]
    loss = 0.0
    for flower in flowers:
        chances = predict(weights, flower.features)
        loss -= math.log(chances[flower.species])
        for species, slope in enumerate(slopes):
            error = chances[species] - (species == flower.species)
            for column, value in enumerate(flower.features):
                slope[column] += error * value
    step = rate / len(flowers)
    moved = [[w - step * s for w, s in zip(*rows, strict=True)] for rows in zip(weights, slopes, strict=True)]
    return moved, loss / len(flowers)


def save_checkpoint(folder: Path, epoch: int, weights: Weights) -> None:
    """Write a checkpoint, and its marker once the data is on disk."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"epoch-{epoch:06d}.json"
    draft = path.with_suffix(".tmp")
    with draft.open("w", encoding="ascii") as file:
        json.dump({"epoch": epoch, "weights": weights}, file)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)
    path.with_suffix(".done").touch()


def load_newest_checkpoint(folder: Path) -> tuple[int, Weights]:
    """Return the newest complete checkpoint, or epoch 0 and a model that knows nothing."""
    markers = sorted(folder.glob("epoch-*.done"), key=lambda marker: int(marker.stem.removeprefix("epoch-")))
    if not markers:
        return 0, [[0.0] * 5 for _ in range(SPECIES)]
    saved = json.loads(markers[-1].with_suffix(".json").read_text(encoding="ascii"))
    return saved["epoch"], saved["weights"]


def main() -> int:
    run_dir = Path(os.environ.get("OVERSPAN_RUN_DIR", "."))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--checkpoint-dir", type=Path, default=run_dir / "checkpoints")
    parser.add_argument("--epochs", type=int, default=6000)
    parser.add_argument("--save-every", type=int, default=500, help="epochs between checkpoints")
    parser.add_argument("--learning-rate", type=float, default=0.3)
    args = parser.parse_args()

    signals = Signals()
    flowers, _ = load_flowers()
    epoch, weights = load_newest_checkpoint(args.checkpoint_dir)
    print(f"starting at epoch {epoch} of {args.epochs}", flush=True)
    while epoch < args.epochs:
        weights, loss = train_epoch(weights, flowers, args.learning_rate)
        epoch += 1
        if signals.save or signals.stop or epoch % args.save_every == 0 or epoch == args.epochs:
            save_checkpoint(args.checkpoint_dir, epoch, weights)
            print(f"epoch {epoch:5d}  loss {loss:.4f}  checkpoint saved", flush=True)
            signals.save = False
        if signals.stop:
            return 128 + signal.SIGTERM
    print(f"done after {epoch} epochs", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())

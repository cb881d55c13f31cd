"""Evaluator: measures every complete checkpoint once, until the trainer is done.

It learns of the trainer's end from the notice file of its group, or at the latest by SIGTERM; it then
measures what is left and ends with 0. Results are lines of JSON in `results.jsonl`.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import time
from pathlib import Path

from classifier import Flower, load_flowers, measure_accuracy


class Evaluator:
    """Remembers in a file which checkpoints it has measured, so that it can be restarted."""

    def __init__(self, checkpoints: Path, results: Path, held_out: list[Flower]) -> None:
        self.checkpoints = checkpoints
        self.results = results
        self.held_out = held_out
        self.accuracies: dict[int, float] = {}
        if results.exists():
            for line in results.read_text(encoding="ascii").splitlines():
                result = json.loads(line)
                self.accuracies[result["epoch"]] = result["accuracy"]

    def measure_new(self) -> None:
        """Measure every checkpoint that has its marker and no result yet."""
        for marker in sorted(self.checkpoints.glob("epoch-*.done")):
            if int(marker.stem.removeprefix("epoch-")) in self.accuracies:
                continue
            saved = json.loads(marker.with_suffix(".json").read_text(encoding="ascii"))
            epoch, accuracy = saved["epoch"], measure_accuracy(saved["weights"], self.held_out)
            self.accuracies[epoch] = accuracy
            with self.results.open("a", encoding="ascii") as file:
                file.write(json.dumps({"epoch": epoch, "accuracy": accuracy}) + "\n")
            print(f"epoch {epoch:5d}  held-out accuracy {accuracy:.3f}", flush=True)


def primaries_are_done(notice: Path) -> bool:
    """Tell whether the group's notice file says so. Its lines are JSON; the last one may be half written."""
    if not notice.exists():
        return False
    lines = notice.read_text(encoding="utf-8").splitlines(keepends=True)
    return any(json.loads(line)["kind"] == "primaries_done" for line in lines if line.endswith("\n"))


def main() -> int:
    run_dir = Path(os.environ.get("OVERSPAN_RUN_DIR", "."))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--checkpoint-dir", type=Path, default=run_dir / "checkpoints")
    parser.add_argument("--results", type=Path, default=run_dir / "results.jsonl")
    args = parser.parse_args()

    stopping = False

    def stop(*_: object) -> None:
        nonlocal stopping
        stopping = True

    signal.signal(signal.SIGTERM, stop)
    _, held_out = load_flowers()
    evaluator = Evaluator(args.checkpoint_dir, args.results, held_out)
    while True:
        # Ask first and look afterwards, so that the last checkpoint is not missed.
        last_look = stopping or primaries_are_done(run_dir / "notice")
        evaluator.measure_new()
        if last_look:
            break
        time.sleep(0.1)
    if evaluator.accuracies:
        accuracy, epoch = max((accuracy, epoch) for epoch, accuracy in evaluator.accuracies.items())
        print(f"best of {len(evaluator.accuracies)}: epoch {epoch}, accuracy {accuracy:.3f}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Fits a line by gradient descent, and writes a checkpoint every 20 steps. Standard library only."""

from __future__ import annotations

import json
import os
import random
import sys
import time

SLOPE, OFFSET = 3.0, -1.0
RATE, STEPS, EVERY = 0.02, 2000, 20


def save(folder: str, step: int, slope: float, offset: float) -> None:
    """Write a checkpoint that appears whole: under a name that no pattern fits, then renamed."""
    path = os.path.join(folder, f"step_{step}.json")
    with open(path + ".tmp", "w") as file:
        json.dump({"step": step, "slope": slope, "offset": offset}, file)
    os.replace(path + ".tmp", path)


def main(folder: str) -> None:
    """Train until the steps are done, or somebody ends it."""
    os.makedirs(folder, exist_ok=True)
    random.seed(7)
    slope = offset = 0.0
    for step in range(1, STEPS + 1):
        x = random.uniform(-1, 1)
        wrong = slope * x + offset - (SLOPE * x + OFFSET)
        slope -= RATE * wrong * x
        offset -= RATE * wrong
        if step % EVERY == 0:
            save(folder, step, slope, offset)
            print(f"step {step}: slope {slope:.3f}, offset {offset:.3f}", flush=True)
            time.sleep(0.1)


if __name__ == "__main__":
    main(sys.argv[1])

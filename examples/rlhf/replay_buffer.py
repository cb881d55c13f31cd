"""Replay buffer: keeps recent experience and deals the part of it that teaches most.

On SIGTERM it writes its statistics and ends with exit code 0.
"""

from __future__ import annotations

import argparse
import json
import os
from collections import deque
from pathlib import Path

import numpy as np
from wire import Arrays, RefusedError, serve


class ReplayBuffer:
    """The newest `capacity` groups: a prompt with all its answers, log-probabilities and rewards."""

    def __init__(self, capacity: int, seed: int) -> None:
        self.groups: deque[Arrays] = deque(maxlen=capacity)
        self.rng = np.random.default_rng(seed)
        self.added = 0
        self.dealt = 0
        self.reward_sum = 0.0

    def add(self, request: Arrays) -> Arrays:
        """Store groups: every array's first dimension counts them."""
        names = ("images", "answers", "log_probs", "rewards")
        columns = [request[name] for name in names]
        for row in zip(*columns, strict=True):
            self.groups.append(dict(zip(names, row, strict=True)))
        self.added += len(columns[0])
        self.reward_sum += float(request["rewards"].mean(axis=1).sum())
        return {}

    def sample(self, request: Arrays) -> Arrays:
        """`count` groups, those with mixed rewards first of all: where all answers fared alike there is no lesson."""
        if not self.groups:
            raise RefusedError("the buffer is empty")
        weights = np.array([group["rewards"].std() for group in self.groups]) + 0.02
        picks = self.rng.choice(len(self.groups), int(request["count"]), p=weights / weights.sum())
        self.dealt += len(picks)
        return {name: np.stack([self.groups[pick][name] for pick in picks]) for name in self.groups[0]}

    def write_statistics(self, path: Path) -> None:
        """Replace the file at `path` in one step."""
        mean = self.reward_sum / self.added if self.added else None
        numbers = {"added": self.added, "dealt": self.dealt, "held": len(self.groups), "mean_reward": mean}
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_name(path.name + ".tmp")
        draft.write_text(json.dumps(numbers) + "\n", encoding="utf-8")
        draft.replace(path)
        print(f"statistics written to {path}: {json.dumps(numbers)}", flush=True)


def main() -> None:
    run_dir = Path(os.environ.get("OVERSPAN_RUN_DIR", "."))
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8003)
    parser.add_argument("--capacity", type=int, default=256, help="groups kept; old ones are off-policy")
    parser.add_argument("--statistics", type=Path, default=run_dir / "replay-statistics.json")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()

    buffer = ReplayBuffer(args.capacity, args.seed)
    try:
        serve(args.host, args.port, {"/add": buffer.add, "/sample": buffer.sample})
    finally:
        buffer.write_statistics(args.statistics)


if __name__ == "__main__":
    main()

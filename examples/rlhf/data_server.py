"""Data server: hands out prompts (images without their labels)."""

from __future__ import annotations

import argparse

import numpy as np
from digits import Digits, load_digits
from wire import Arrays, serve


class PromptSource:
    """Deals the training rows in random order, and all of them before any comes again."""

    def __init__(self, digits: Digits, seed: int) -> None:
        self.digits = digits
        self.rng = np.random.default_rng(seed)
        self.queue = np.empty(0, np.int64)

    def prompts(self, request: Arrays) -> Arrays:
        """`count` prompts: ids (count,) and images (count, 64)."""
        count = int(request["count"])
        if not 0 < count <= len(self.digits.training_ids):
            raise ValueError(f"count is {count}, must be from 1 to {len(self.digits.training_ids)}")
        if len(self.queue) < count:
            self.queue = np.concatenate([self.queue, self.rng.permutation(self.digits.training_ids)])
        ids, self.queue = self.queue[:count], self.queue[count:]
        return {"ids": ids, "images": self.digits.images[ids]}

    def held_out(self, request: Arrays) -> Arrays:
        """Every held-out row: ids and images."""
        ids = self.digits.held_out_ids
        return {"ids": ids, "images": self.digits.images[ids]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()

    source = PromptSource(load_digits(), args.seed)
    serve(args.host, args.port, {"/prompts": source.prompts, "/held-out": source.held_out})


if __name__ == "__main__":
    main()

"""Reward server: checks answers against the truth, which only it knows."""

from __future__ import annotations

import argparse

import numpy as np
from digits import load_digits
from wire import Arrays, serve


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8002)
    args = parser.parse_args()

    labels = load_digits().labels

    def score(request: Arrays) -> Arrays:
        """Reward 1 for a right answer and 0 for a wrong one: ids (n,), answers and rewards (n, samples)."""
        truth = labels[request["ids"]][:, np.newaxis]
        return {"rewards": (request["answers"] == truth).astype(np.float32)}

    serve(args.host, args.port, {"/score": score})


if __name__ == "__main__":
    main()

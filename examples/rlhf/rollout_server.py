"""Rollout server: answers prompts by sampling from the newest policy it was given."""

from __future__ import annotations

import argparse

import numpy as np
from policy import Weights, run_policy
from wire import Arrays, RefusedError, serve


class Sampler:
    """Holds one version of the policy's weights."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.version = -1
        self.weights: Weights = {}

    def load(self, request: Arrays) -> Arrays:
        """Take the weights of a `version` of the policy."""
        self.version = int(request.pop("version"))
        self.weights = request
        return {}

    def generate(self, request: Arrays) -> Arrays:
        """`samples` answers for each of the images, with their log-probabilities: both (images, samples).

        Refused unless `version` is the one loaded: after a restart there is none.
        """
        if int(request["version"]) != self.version:
            raise RefusedError(f"this server has version {self.version}")
        _, log_probs = run_policy(self.weights, request["images"])
        # The largest of log-probability plus Gumbel noise is a fair draw from the distribution.
        noise = self.rng.gumbel(size=(int(request["samples"]), *log_probs.shape))
        answers = (log_probs + noise).argmax(axis=2).T
        return {"answers": answers, "log_probs": np.take_along_axis(log_probs, answers, axis=1)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8001)
    parser.add_argument("--seed", type=int, default=0, help="give each node its own, or all draw alike")
    args = parser.parse_args()

    sampler = Sampler(args.seed)
    serve(args.host, args.port, {"/weights": sampler.load, "/generate": sampler.generate})


if __name__ == "__main__":
    main()

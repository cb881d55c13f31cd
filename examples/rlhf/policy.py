"""The policy: a network with one hidden layer that looks at a digit and names it, and how it learns."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

PIXELS, HIDDEN, ANSWERS = 64, 64, 10

Floats = NDArray[np.float32]
Weights = dict[str, Floats]


def make_weights(rng: np.random.Generator) -> Weights:
    """Return random weights of a policy that knows nothing yet."""
    return {
        "hidden": rng.normal(0, PIXELS**-0.5, (PIXELS, HIDDEN)).astype(np.float32),
        "hidden_bias": np.zeros(HIDDEN, np.float32),
        "answer": rng.normal(0, 0.1 * HIDDEN**-0.5, (HIDDEN, ANSWERS)).astype(np.float32),
        "answer_bias": np.zeros(ANSWERS, np.float32),
    }


def run_policy(weights: Weights, images: Floats) -> tuple[Floats, Floats]:
    """Return the hidden layer (n, HIDDEN) and the log-probabilities of the answers (n, ANSWERS)."""
    hidden = np.tanh(images @ weights["hidden"] + weights["hidden_bias"])
    scores = hidden @ weights["answer"] + weights["answer_bias"]
    scores -= scores.max(axis=1, keepdims=True)
    return hidden, scores - np.log(np.exp(scores).sum(axis=1, keepdims=True))


@dataclass(frozen=True)
class Experience:
    """Prompts with a group of answers each: n prompts, g answers a prompt.

    images (n, PIXELS); answers, rewards and log_probs (n, g), the last under the policy that answered.
    """

    images: Floats
    answers: NDArray[np.int64]
    log_probs: Floats
    rewards: Floats

    @property
    def advantages(self) -> Floats:
        """How much better each answer did than its group: the group is the baseline (GRPO, arXiv:2402.03300)."""
        centred: Floats = self.rewards - self.rewards.mean(axis=1, keepdims=True)
        spread: Floats = self.rewards.std(axis=1, keepdims=True)
        return centred / (spread + 1e-3)


def compute_gradient(weights: Weights, batch: Experience, clip: float) -> Weights:
    """Return the ascent direction of the clipped objective (PPO, Schulman et al., arXiv:1707.06347)."""
    hidden, log_probs = run_policy(weights, batch.images)
    ratios = np.exp(np.take_along_axis(log_probs, batch.answers, axis=1) - batch.log_probs)
    gains = batch.advantages
    # Where the clip binds, the objective is flat.
    free = np.where(gains > 0, ratios < 1 + clip, ratios > 1 - clip)
    pull = np.where(free, ratios * gains, 0) / gains.size

    chosen = np.eye(ANSWERS, dtype=np.float32)[batch.answers]
    scores = np.einsum("ng,nga->na", pull, chosen) - pull.sum(axis=1, keepdims=True) * np.exp(log_probs)
    inner = (scores @ weights["answer"].T) * (1 - hidden**2)
    return {
        "hidden": batch.images.T @ inner,
        "hidden_bias": inner.sum(axis=0),
        "answer": hidden.T @ scores,
        "answer_bias": scores.sum(axis=0),
    }


@dataclass(frozen=True)
class Adam:
    """The optimiser's memory. Nothing is changed in place, so any moment is a consistent checkpoint."""

    updates: int
    mean: Weights
    square: Weights

    @classmethod
    def start(cls, weights: Weights) -> Adam:
        zeros = {name: np.zeros_like(value) for name, value in weights.items()}
        return cls(0, zeros, zeros)

    def ascend(self, weights: Weights, gradient: Weights, rate: float) -> tuple[Weights, Adam]:
        """Return the weights one step up the gradient, and the memory after it."""
        updates = self.updates + 1
        mean: Weights = {name: 0.9 * self.mean[name] + 0.1 * slope for name, slope in gradient.items()}
        square: Weights = {name: 0.99 * self.square[name] + 0.01 * slope**2 for name, slope in gradient.items()}
        mean_scale, square_scale = 1 / (1 - 0.9**updates), 1 / (1 - 0.99**updates)

        def move(name: str) -> Floats:
            slope: Floats = mean_scale * mean[name] / (np.sqrt(square_scale * square[name]) + 1e-8)
            moved: Floats = weights[name] + rate * slope
            return moved

        return {name: move(name) for name in weights}, Adam(updates, mean, square)

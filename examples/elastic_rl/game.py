"""A game with a hidden answer: which of eight levers pays in which of four rooms. A policy has a weight for each."""

from __future__ import annotations

import math
import random

ROOMS, LEVERS = 4, 8
BEST = [5, 2, 7, 0]
"""The lever that pays in each room; the policy is not told."""
USUAL = 0.3
"""What a reward is compared with."""

Table = list[list[float]]


def make_table() -> Table:
    """A table of zeros: a policy that knows nothing."""
    return [[0.0] * LEVERS for _ in range(ROOMS)]


def find_odds(weights: list[float]) -> list[float]:
    """The odds of each lever, from the weights of a room (softmax)."""
    top = max(weights)
    raised = [math.exp(weight - top) for weight in weights]
    return [one / sum(raised) for one in raised]


def play(policy: Table, episodes: int, seed: int) -> tuple[float, Table]:
    """Play some episodes; gives the mean reward, and the slope along which the policy gets better (REINFORCE)."""
    draw = random.Random(seed)
    slope = make_table()
    total = 0.0
    for _ in range(episodes):
        room = draw.randrange(ROOMS)
        odds = find_odds(policy[room])
        lever = draw.choices(range(LEVERS), odds)[0]
        reward = 1.0 if lever == BEST[room] else 0.0
        total += reward
        for index in range(LEVERS):
            slope[room][index] += (reward - USUAL) * ((index == lever) - odds[index]) / episodes
    return total / episodes, slope

"""A game with a hidden answer: which of eight levers pays in which of four rooms. The policy is a table of weights."""

import math
import random

ROOMS, LEVERS = 4, 8
BEST = [5, 2, 7, 0]
"""The lever that pays in each room; the policy is not told."""


def chances(weights):
    """The chance of each lever, from the weights of a room (softmax)."""
    top = max(weights)
    raised = [math.exp(weight - top) for weight in weights]
    return [one / sum(raised) for one in raised]


def play(policy, episodes, seed):
    """Play some episodes; gives the mean reward, and the direction in which the policy gets better (REINFORCE)."""
    draw = random.Random(seed)
    better = [[0.0] * LEVERS for _ in range(ROOMS)]
    total = 0.0
    for _ in range(episodes):
        room = draw.randrange(ROOMS)
        odds = chances(policy[room])
        lever = draw.choices(range(LEVERS), odds)[0]
        reward = 1.0 if lever == BEST[room] else 0.0
        total += reward
        for index in range(LEVERS):
            better[room][index] += (reward - 0.3) * ((index == lever) - odds[index]) / episodes
    return total / episodes, better

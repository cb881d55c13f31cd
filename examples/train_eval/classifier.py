"""The data and the model that trainer and evaluator share: iris flowers and softmax regression."""

from __future__ import annotations

import csv
import math
from dataclasses import dataclass
from pathlib import Path

DATA = Path(__file__).with_name("data") / "iris.csv"
SPECIES = 3
HELD_OUT_EVERY = 5
"""Each fifth flower is for the evaluator only."""

Weights = list[list[float]]
"""For each species one weight a feature."""


@dataclass(frozen=True)
class Flower:
    """Four lengths in decimetres and a constant 1; the species from 0 to 2."""

    features: tuple[float, ...]
    species: int


def load_flowers(path: Path = DATA) -> tuple[list[Flower], list[Flower]]:
    """Return the flowers to train on, and those held out."""
    with path.open(encoding="ascii", newline="") as lines:
        _, *rows = csv.reader(lines)
    flowers = [Flower((*(float(cell) / 10 for cell in row[:4]), 1.0), int(row[4])) for row in rows]
    training = [flower for number, flower in enumerate(flowers) if number % HELD_OUT_EVERY]
    return training, flowers[::HELD_OUT_EVERY]


def predict(weights: Weights, features: tuple[float, ...]) -> list[float]:
    """Return the probability of each species."""
    scores = [sum(w * x for w, x in zip(row, features, strict=True)) for row in weights]
    largest = max(scores)
    powers = [math.exp(score - largest) for score in scores]
    total = sum(powers)
    return [power / total for power in powers]


def measure_accuracy(weights: Weights, flowers: list[Flower]) -> float:
    """Return the share of flowers whose likeliest species is the right one."""
    right = 0
    for flower in flowers:
        chances = predict(weights, flower.features)
        right += chances.index(max(chances)) == flower.species
    return right / len(flowers)

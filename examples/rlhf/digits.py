"""The data set: 1797 hand-written digits of 8x8 pixels (data/SOURCE.md)."""

from __future__ import annotations

import gzip
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

DATA = Path(__file__).with_name("data") / "digits.csv.gz"
HELD_OUT_EVERY = 6
"""Each sixth row is for measuring only and is never a prompt."""


@dataclass(frozen=True)
class Digits:
    """Images (rows, 64) from 0 to 1, labels (rows,) from 0 to 9. A row's number is its id."""

    images: NDArray[np.float32]
    labels: NDArray[np.int64]

    @property
    def held_out_ids(self) -> NDArray[np.int64]:
        return np.arange(0, len(self.labels), HELD_OUT_EVERY)

    @property
    def training_ids(self) -> NDArray[np.int64]:
        return np.setdiff1d(np.arange(len(self.labels)), self.held_out_ids)


def load_digits(path: Path = DATA) -> Digits:
    """Read the data set: 64 pixels from 0 to 16 and a label on each line."""
    with gzip.open(path, "rt", encoding="ascii") as lines:
        table = np.loadtxt(lines, delimiter=",", dtype=np.float32)
    return Digits(images=table[:, :-1] / np.float32(16), labels=table[:, -1].astype(np.int64))

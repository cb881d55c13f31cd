"""What a native job of a set has told."""

from __future__ import annotations

from collections.abc import Mapping

from tests.unit.adapters.slurm.samples import NOW

from overspan.bridge.model.events import (
    Granted,
)

STANDS: Mapping[str, Granted] = {
    "a": Granted(NOW + 1, (("a", 0, "n1", "10.0.0.1", ()), ("a", 1, "n2", "10.0.0.2", ()))),
    "b": Granted(NOW + 3, (("b", 0, "n3", "10.0.0.3", ()),)),
}

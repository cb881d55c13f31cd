"""A folder for a local cluster, whose supervisors end with the test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.system.local.machine import end_supervisors


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    """The cluster's folder; `go` beside it lets its jobs end."""
    folder = tmp_path / "cluster"
    yield folder
    end_supervisors(folder)

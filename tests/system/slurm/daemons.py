"""A daemon outside that reaches the rig over ssh, for single jobs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.system.conftest import Span
from tests.system.slurm.conftest import Site
from tests.waiting import WaitUntil


@pytest.fixture
def remote(site: Site, tmp_path: Path, wait_until: WaitUntil) -> Iterator[Span]:
    """The commands of an installation that knows the rig."""
    span = Span(tmp_path, wait_until)
    settings = {"kind": "slurm", "tick": 0.5, **site.access.settings}
    span.config.write_text(json.dumps({"clusters": {"rig": settings}}))
    yield span
    span.close()


def submit(span: Span, *words: str) -> int:
    done = span.run("sbatch", "--parsable", "-M", "rig", "--mem=50", *words)
    return int(done.stdout.partition(";")[0])


def link_up(span: Span) -> None:
    """Have the daemon reach the cluster: a verdict is waited for some seconds, which are for the verdict alone."""
    span.run("sinfo", "-M", "rig")

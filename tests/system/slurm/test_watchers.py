"""MJ23, CC06 and K17 on a real Slurm: a watcher in a group launches evaluations over the daemon's port for jobs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.rigs.reach import find_address
from tests.system.conftest import Span
from tests.system.slurm.conftest import Site
from tests.system.watchers import find_own_address, list_programs, open_for_jobs, train_and_evaluate
from tests.waiting import WaitUntil

FOLDER = "/home/researcher/checkpoints"


@pytest.fixture
def span(site: Site, tmp_path: Path, wait_until: WaitUntil) -> Iterator[Span]:
    """A daemon outside, which the nodes reach by its port for jobs alone."""
    span = Span(tmp_path, wait_until)
    settings = {"kind": "slurm", "tick": 0.5, "shared": False, **site.access.settings}
    span.config.write_text(json.dumps({"default_cluster": "rig", "clusters": {"rig": settings}}))
    open_for_jobs(span, find_own_address(find_address(site.rig)))
    for name, text in list_programs().items():
        done = site.rig.run(["sh", "-c", f"rm -rf {FOLDER}.old; mkdir -p {FOLDER}; cat >{FOLDER}/{name}"], stdin=text)
        assert done.rc == 0, done.stderr
    yield span
    span.close()
    site.rig.run(["rm", "-rf", FOLDER])


def test_a_watcher_on_a_node_launches_an_evaluation_for_each_checkpoint(span: Span, site: Site) -> None:
    train_and_evaluate(span, FOLDER)
    # What the work was given is closed to others, and no command line has it.
    found = site.rig.run(["sh", "-c", "stat -c %a ~/.overspan/runs/*/access.json | sort -u"])
    assert found.stdout.split() == ["600"]

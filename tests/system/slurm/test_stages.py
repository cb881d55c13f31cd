"""Pipelines on a real Slurm: a stage is a native job that is submitted at its turn. Row MJ10 of docs/acceptance.md."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from tests.system.conftest import Span
from tests.system.slurm.conftest import Site
from tests.system.slurm.gates import Gate
from tests.system.slurm.groups import SMALL, connect, native_of, start
from tests.waiting import WaitUntil


@pytest.fixture
def remote(site: Site, tmp_path: Path, wait_until: WaitUntil) -> Iterator[Span]:
    span = connect(site, tmp_path, wait_until)
    yield span
    span.close()


def test_a_stage_holds_nothing_before_its_turn(remote: Span, site: Site) -> None:
    """The first is a plain job, the second an allocation; the daemon dies while the first runs."""
    gate = Gate(site)
    documents = [
        {"name": "stages"},
        {"name": "fit", "resources": SMALL, "run": f"echo fitted; {gate.wait}"},
        {"name": "judge", "resources": SMALL, "num_nodes": 2, "run": "echo judged $OVERSPAN_MEMBERS"},
    ]
    job = start(remote, str(yaml.safe_dump_all(documents, sort_keys=False)))
    remote.until(job, "RUNNING", task="fit")
    first = native_of(remote, job)
    ours = ("squeue", "-h", "-n", "stages", "-o", "%A %D")
    assert site.slurm(*ours).split() == [first, "1"]
    rows = remote.run("squeue", "-h", "-j", str(job), "-o", "%i %T %r").stdout.splitlines()
    assert sorted(rows) == [f"{job}+0 RUNNING None", f"{job}+1 PENDING Dependency"]
    remote.kill_daemon()
    gate.open()
    remote.until(job, "COMPLETED")
    second = native_of(remote, job)
    assert second != first
    assert remote.log(job, "fit") == "fitted\n"
    assert remote.log(job, "judge", "--node", "0") == "judged judge-0.stages,judge-1.stages\n"
    ends = site.slurm("sacct", "-nXPj", first, "-o", "End").strip()
    assert ends <= site.slurm("sacct", "-nXPj", second, "-o", "Submit").strip()

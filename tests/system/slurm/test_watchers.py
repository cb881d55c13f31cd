"""MJ23, CC06 and K17 on a real Slurm: a watcher in a group launches evaluations over the daemon's port for jobs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.rigs.reach import find_address
from tests.system.conftest import Span
from tests.system.scaling_trainers import scale_from_inside
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


SCRIPT = """\
#!/bin/bash
#SBATCH --job-name=trainer --mem=50
exec 2>&1
span squeue -h -o '%i %j'; echo code $?
echo '{name: late, resources: {memory: 0.05}, run: echo evaluated}' | span submit - --parsable; echo code $?
span scancel OTHER; echo code $?
env | grep "$(sed 's/.*"token":"//; s/".*//' "$SPAN_JOB_ACCESS")"; echo leak code $?
squeue --version
"""


def test_a_batch_script_submits_and_asks_for_its_own_jobs_alone(span: Span, site: Site) -> None:
    other = span.wrap("sleep 600", "--mem=50")
    job = int(span.run("sbatch", "--parsable", stdin=SCRIPT.replace("OTHER", str(other))).stdout.partition(";")[0])
    span.until(job, "COMPLETED", "FAILED", timeout=60)
    told = span.log(job).splitlines()
    assert told[:2] == [f"{job} trainer", "code 0"], told
    inner = int(told[2].partition(";")[0])
    assert told[3] == "code 0" and span.job(inner)["cluster"] == "rig"
    assert "Access/permission denied" in told[4] and told[5] == "code 1"
    assert told[6] == "leak code 1" and told[7].startswith("slurm")
    assert span.until(inner, "COMPLETED", timeout=60) and span.log(inner) == "evaluated\n"
    assert span.job(other)["state"] in ("PENDING", "RUNNING")


def test_a_watcher_on_a_node_launches_an_evaluation_for_each_checkpoint(span: Span, site: Site) -> None:
    group = train_and_evaluate(span, FOLDER)
    # What the work is given is closed to others, and goes with the group.
    _, rights, path = span.log(group, "eval-watcher").partition("\n")[0].split()
    assert rights == "600" and path.endswith("/access.json")
    span.wait_until(lambda: site.rig.run(["test", "-e", path]).rc, 30, "the way to the daemon to be removed")


def test_a_trainer_in_a_step_has_its_own_group_grow(span: Span) -> None:
    """JG41: `span scale` by the daemon's port for jobs, for the job's own group alone."""
    scale_from_inside(span)

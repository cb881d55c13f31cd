"""Groups that wait for readiness on a real Slurm, in an allocation and as a set; and alternatives in several places."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.system.conftest import Span
from tests.system.slurm.conftest import Site
from tests.waiting import WaitUntil

FILE = """
name: g
execution: parallel
primary_tasks: [t]
---
name: t
resources: {cpus: 1, memory: 0.1}
run: "true"
needs: s
---
name: s
resources: {cpus: 1, memory: 0.1}
run: sleep 600
ready: {tcp: 9999, timeout: TIMEOUT}
on_failure: fail_group
grace_period: 1
"""
PLACES = """
name: places
resources:
  ordered:
    - {infra: local, accelerators: "A100:8"}
    - {infra: rig, cpus: 900}
    - {infra: rig, cpus: 1, memory: 0.1}
run: echo cpus $SLURM_CPUS_ON_NODE
"""
FORMS = pytest.mark.parametrize("form", ["", "restart: task"], ids=["allocation", "set"])


@pytest.fixture
def remote(site: Site, tmp_path: Path, wait_until: WaitUntil) -> Iterator[Span]:
    """A daemon outside that reaches the rig over ssh."""
    span = Span(tmp_path, wait_until)
    settings = {"kind": "slurm", "tick": 0.5, **site.access.settings}
    span.config.write_text(json.dumps({"clusters": {"rig": settings}}))
    yield span
    span.close()


def submit(remote: Span, form: str, timeout: str) -> str:
    header, rest = FILE.split("---", 1)
    return str(remote.submit(f"{header}{form}\n---{rest}".replace("TIMEOUT", timeout), "-M", "rig"))


@FORMS
def test_whoever_waits_says_for_whom_and_the_end_says_why(remote: Span, form: str) -> None:
    job = submit(remote, form, "15s")
    words = "t waits for s: tcp s-0:9999, "
    remote.wait_until(lambda: words in remote.run("show", job).stdout, 90, "an answer of the probe")
    shown = next(line for line in remote.run("show", job).stdout.splitlines() if line.startswith(words))
    assert shown.endswith("connection refused")
    assert remote.run("squeue", "-M", "rig", "-h", "-j", f"{job}+0", "-o", "%T %r").stdout.splitlines()[-1:] == [
        "PENDING Dependency"
    ]
    remote.until(job, "FAILED", timeout=120)
    shown = remote.run("show", job).stdout
    assert "s attempt 0: FAILED not_ready" in shown and "not ready within 15 s: tcp s-0:9999, " in shown


def test_the_first_alternative_that_can_ever_run_has_the_job_with_what_it_asks_for(remote: Span) -> None:
    job = str(remote.submit(PLACES))
    found = remote.until(job, "COMPLETED", timeout=120)
    assert (found["cluster"], found["tasks"][0]["gpus"]) == ("rig", 0)
    assert remote.log(job).strip() == "cpus 1"
    assert [(each["cluster"], each["refused"]) for each in found["passed"]] == [("local", True), ("rig", True)]

"""The configuration of a Slurm cluster changes under running work: nothing is ended, nothing runs twice, all is said.

Row CS07 of docs/acceptance.md.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.system.conftest import Span
from tests.system.slurm.conftest import Site
from tests.waiting import WaitUntil


@pytest.fixture
def remote(site: Site, tmp_path: Path, wait_until: WaitUntil) -> Iterator[Span]:
    span = Span(tmp_path, wait_until)
    configure(span, site, "leo", "twin")
    yield span
    span.close()


def configure(span: Span, site: Site, *names: str, **more: Any) -> None:
    """Have entries of these names for the one site, and a new daemon."""
    span.run("shutdown", check=False)
    entry = {"kind": "slurm", "tick": 0.5, **site.access.settings, **more}
    span.config.write_text(json.dumps({"clusters": dict.fromkeys(names, entry)}))


def submit_set(span: Span, cluster: str, run: str) -> int:
    """A group whose tasks are native jobs of their own, which the daemon decides about."""
    small = {"resources": {"memory": "50M", "infra": f"slurm/{cluster}"}, "run": run}
    head = {"name": f"on-{cluster}", "execution": "parallel", "restart": "task"}
    return span.submit("\n---\n".join(map(json.dumps, [head, {"name": "a", **small}, {"name": "b", **small}])))


def test_a_renamed_entry_leaves_its_native_jobs_alone(remote: Span, site: Site) -> None:
    gate = "/home/researcher/renamed.gate"
    site.rig.run(["rm", "-f", gate])
    stays = submit_set(remote, "leo", f"until [ -e {gate} ]; do sleep 0.2; done")
    remote.until(stays, "RUNNING", timeout=90)

    def running() -> set[str]:
        return set(site.slurm("squeue", "-ht", "RUNNING", "-u", "researcher", "-o", "%i").split())

    before = running()
    assert len(before) == 2
    try:
        configure(remote, site, "lion", "twin")
        remote.until(submit_set(remote, "twin", "true"), "COMPLETED", timeout=90)
        assert remote.run("ping", check=False).returncode == 1
        assert "does not name the cluster leo" in remote.run("clusters").stdout
        remote.run("fsck", "twin", "--release", check=False)
        assert before <= running() and remote.job(stays)["state"] == "RUNNING"
    finally:
        assert site.rig.run(["touch", gate]).rc == 0
    configure(remote, site, "leo", "twin")
    remote.until(stays, "COMPLETED", timeout=90)

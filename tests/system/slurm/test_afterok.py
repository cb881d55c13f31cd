"""What a real Slurm makes of afterok where the predecessor does not simply succeed; docs/architecture.md, Stages."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.rigs.plugin import rig_or_skip
from tests.rigs.reach import open_access
from tests.rigs.slurm import Variant
from tests.system.slurm.conftest import Site
from tests.system.slurm.gates import Gate
from tests.waiting import WaitUntil


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A site that forgets ended jobs at once."""
    folder = tmp_path_factory.mktemp("ssh")
    with rig_or_skip(Variant("forgets", {"MinJobAge=": "MinJobAge=2"})) as rig, open_access(rig, folder) as access:
        yield Site(access)


def submit(site: Site, script: str, *words: str) -> str:
    return site.slurm("sbatch", "--parsable", "--mem=50", "-o", "/dev/null", *words, "--wrap", script).strip()


def look(site: Site, native: str) -> str:
    """State, reason and dependency in the queue; empty for a job that is forgotten."""
    return site.rig.run(["squeue", "-h", "-t", "all", "-j", f"{native},{native}", "-o", "%T %r %E"]).stdout.strip()


def judge(site: Site, native: str) -> str:
    """The state in the accounting."""
    return site.slurm("sacct", "-nXPj", native, "-o", "State").strip()


def until_forgotten(site: Site, wait_until: WaitUntil, native: str) -> None:
    wait_until(lambda: site.rig.run(["scontrol", "show", "job", native]).rc != 0, 120, "the job to be forgotten")


@pytest.mark.parametrize("words", [(), ("--hold",)], ids=["waits", "held"])
def test_a_failure_is_noted_before_it_is_forgotten(site: Site, wait_until: WaitUntil, words: tuple[str, ...]) -> None:
    first = submit(site, "sleep 3; exit 3")
    second = submit(site, "true", f"--dependency=afterok:{first}", *words)
    until_forgotten(site, wait_until, first)
    # The reason may be that it is held; what counts is that Slurm keeps the failure.
    state, _, dependency = look(site, second).split()
    assert (state, dependency) == ("PENDING", f"afterok:{first}(failed)")
    site.slurm("scancel", second)


def test_one_that_is_already_forgotten_counts_as_a_success(site: Site, wait_until: WaitUntil) -> None:
    first = submit(site, "exit 3")
    wait_until(lambda: judge(site, first) == "FAILED", 30, "the failure")
    until_forgotten(site, wait_until, first)
    second = submit(site, "true", f"--dependency=afterok:{first}")
    wait_until(lambda: judge(site, second) == "COMPLETED", 30, "its dependent to run")


def test_it_waits_through_a_requeue(site: Site, wait_until: WaitUntil) -> None:
    gate = Gate(site)
    first = submit(site, gate.wait, "--requeue")
    second = submit(site, "true", f"--dependency=afterok:{first}")
    wait_until(lambda: look(site, first).startswith("RUNNING"), 30, "the first to run")
    site.slurm("scontrol", "requeue", first)
    wait_until(lambda: look(site, first).startswith("PENDING BeginTime"), 30, "the first to wait")
    assert look(site, second) == f"PENDING Dependency afterok:{first}(unfulfilled)"
    gate.open()
    wait_until(lambda: judge(site, second) == "COMPLETED", 180, "both to end")
    assert judge(site, first) == "COMPLETED"

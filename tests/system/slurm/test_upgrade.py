"""Work on a real Slurm that an earlier version started is adopted: the supervisor there is that version's own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.system.slurm.conftest import Site
from tests.system.slurm.gates import Gate
from tests.system.slurm.groups import SERVE, group
from tests.upgrade.changes import change, list_accounts, list_starts, old
from tests.upgrade.installation import Installation, end_processes
from tests.upgrade.old_version import OldVersion
from tests.waiting import WaitUntil

__all__ = ["old"]

ON = ("-M", "rig")


@pytest.fixture
def outside(site: Site, old: OldVersion, tmp_path: Path) -> Iterator[Installation]:
    """An installation of the old version that reaches the rig over ssh."""
    found = Installation(tmp_path, old.span)
    found.configure({"rig": {"kind": "slurm", "tick": 0.5, **site.access.settings}})
    yield found
    found.end()
    end_processes(found.state)


@pytest.mark.parametrize("header", [{}, {"restart": "task"}], ids=["allocation", "set"])
def test_a_group_of_the_old_version_is_adopted_signalled_and_ends_by_its_rules(
    outside: Installation, site: Site, wait_until: WaitUntil, header: dict[str, str]
) -> None:
    gate = Gate(site)
    trainer = f"trap 'echo hint' USR1; echo training; {gate.wait}; echo trained"
    text = group({"server": {"run": SERVE}, "trainer": {"run": trainer}}, primary_tasks=["trainer"], **header)
    job = outside.submit("group", text, *ON)
    outside.until(job, "RUNNING", timeout=60)
    wait_until(lambda: "training" in outside.log(job) and "up" in outside.log(job), 60, "their first lines")
    before = list_starts(outside, job)
    change(outside)
    assert list_starts(outside, job) == before
    outside.run("scancel", "-s", "USR1", f"{job}+1")
    wait_until(lambda: "hint" in outside.log(job), 30, "the signal's effect")
    gate.open()
    assert outside.until(job, "COMPLETED", "FAILED", timeout=60)["state"] == "COMPLETED"
    assert list_starts(outside, job) == before
    assert list_accounts(outside, job) == [[f"{job}+0", "COMPLETED", "0:0"], [f"{job}+1", "COMPLETED", "0:0"]]
    # The shell has a word of its own for what the signal ended in it.
    lines = [f"trainer-0 | {word}" for word in ("training", "hint", "trained")]
    assert [line for line in outside.log(job).splitlines() if line in lines] == lines


def test_single_jobs_and_an_array_of_the_old_version_are_adopted_and_cancelled(
    outside: Installation, site: Site
) -> None:
    gate = Gate(site)
    ends = outside.batch(f"echo begun; {gate.wait}; exit 3", *ON, "--mem=50")
    array = outside.batch("sleep 3600", *ON, "--mem=50", "--array=0-2%1")
    outside.until(ends, "RUNNING", timeout=60)
    outside.until(f"{array}_0", "RUNNING", timeout=60)
    change(outside)
    assert outside.show(f"{array}_0")["state"] == "RUNNING"
    gate.open()
    assert outside.until(ends, "COMPLETED", "FAILED", timeout=60)["exit_code"] == 3
    outside.run("scancel", str(array))
    assert outside.until(array, "CANCELLED", timeout=60)["state"] == "CANCELLED"
    assert list_accounts(outside, ends) == [[str(ends), "FAILED", "3:0"]]
    assert outside.log(ends) == "begun\n"

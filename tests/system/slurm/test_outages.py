"""A site whose slurmctld, accounting or disk fails for a while: nothing is lost, and nothing is told that is not so."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.rigs.plugin import rig_or_skip
from tests.rigs.reach import open_access
from tests.rigs.slurm import CONTEXT, Variant
from tests.system.conftest import Span
from tests.system.slurm.conftest import Site
from tests.system.slurm.test_groups import SERVE, group, start, until_said
from tests.waiting import WaitUntil

STOPPED = "/run/slurmctld.stopped"


def hold_controller(script: str) -> str:
    """start.sh with a slurmctld that is started again when it ends, but not while a file is there."""
    assert "exec slurmctld -D" in script
    loop = f"while :; do while [ -e {STOPPED} ]; do sleep 0.1; done; slurmctld -D || :; sleep 0.1; done"
    return script.replace("exec slurmctld -D", loop)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A site that forgets ended jobs after two seconds, so that its accounting alone tells of them."""
    files = {"/start.sh": hold_controller((CONTEXT / "start.sh").read_text())}
    folder = tmp_path_factory.mktemp("ssh")
    with (
        rig_or_skip(Variant("outages", {"MinJobAge=": "MinJobAge=2"}, files, nodes=2)) as rig,
        open_access(rig, folder) as access,
    ):
        yield Site(access)


@pytest.fixture
def remote(site: Site, tmp_path: Path, wait_until: WaitUntil) -> Iterator[Span]:
    span = Span(tmp_path, wait_until)
    connect(span, site)
    yield span
    span.close()


def connect(span: Span, site: Site, **settings: object) -> None:
    """The configuration: a daemon that tries again soon."""
    cluster = {"kind": "slurm", "tick": 0.5, **site.access.settings, **settings}
    span.config.write_text(json.dumps({"clusters": {"rig": cluster}, "ticks": {"retry": 1, "retry_limit": 1}}))


def submit(span: Span, *words: str) -> str:
    done = span.run("sbatch", "--parsable", "-M", "rig", "--mem=50", *words)
    return done.stdout.partition(";")[0]


def as_root(site: Site, script: str) -> None:
    done = site.rig.run(["sh", "-c", script], user="root")
    assert done.rc == 0, done.stderr


def test_a_controller_that_is_killed_and_comes_back_loses_nothing(remote: Span, site: Site) -> None:
    gate = f"/home/researcher/gate-{remote.folder.name}"
    wait = f"echo up; until [ -e {gate} ]; do sleep 0.1; done"
    single = submit(remote, "--wrap", f"{wait}; exit 5")
    many = start(remote, group({"a": {"run": wait}, "b": {"run": SERVE}}, primary_tasks=["a"]))
    for job, task in ((single, ""), (many, "b")):
        until_said(remote, job, task, "up")
    as_root(site, f"touch {STOPPED}; pkill -KILL -x slurmctld")
    try:
        remote.wait_until(lambda: remote.job(single).get("stale_since"), 30, "the row to be stale")
        assert remote.job(single)["state"] == "RUNNING" and "has not answered" in remote.run("squeue").stderr
        # A submission is taken, and waits for a cluster that answers.
        later = submit(remote, "--wrap", "echo later")
        assert remote.job(later)["state"] == "PENDING"
        # The group goes on by its own supervisor, without slurmctld.
        site.slurm("touch", gate)
    finally:
        as_root(site, f"rm -f {STOPPED}")
    shown = remote.until(single, "FAILED", timeout=60)
    assert (shown["exit_code"], shown["stale_since"]) == (5, None)
    assert [task["state"] for task in remote.until(many, "COMPLETED", timeout=60)["tasks"]] == ["COMPLETED"] * 2
    remote.until(later, "COMPLETED", timeout=60)
    assert remote.log(later) == "later\n"
    # Nothing was sent twice.
    kept = site.slurm("sacct", "-nXP", "-u", "researcher", "-S", "now-10minutes", "-o", "JobName").split()
    assert len(kept) == 3, kept


def test_an_end_that_only_the_accounting_knows_while_that_is_down(remote: Span, site: Site) -> None:
    single = submit(remote, "--wrap", "echo up; sleep 2; exit 6")
    until_said(remote, single, "", "up")
    as_root(site, "pkill -KILL -x slurmdbd")
    try:
        # Slurm's queue forgets it while no daemon looks, and the accounting does not answer.
        remote.kill_daemon()
        remote.wait_until(lambda: not site.slurm("squeue", "-ht", "all"), 60, "Slurm to forget the job")
        remote.run("ping")
        remote.wait_until(lambda: remote.job(single)["state"] == "RUNNING", 20, "what was known last")
        assert [remote.job(single)["state"] for _ in range(20)] == ["RUNNING"] * 20
    finally:
        as_root(site, "slurmdbd")
    shown = remote.until(single, "FAILED", timeout=90)
    assert shown["exit_code"] == 6


def test_a_full_disk_of_the_cluster_holds_a_group_back_and_sends_nothing(remote: Span, site: Site) -> None:
    connect(remote, site, root="/dev/shm/overspan")
    as_root(site, "head -c 1G /dev/zero > /dev/shm/filler || :")
    try:
        job = start(remote, group({"a": {"run": "true"}, "b": {"run": "true"}}))
        remote.wait_until(lambda: "No space left on device" in remote.job(job)["reason"], 30, "the wait")
        assert remote.job(job)["state"] == "PENDING" and site.slurm("squeue", "-h", "-o", "%i") == ""
        # With room again it is sent by itself; the nodes have a /dev/shm of their own, so it is not to run.
        as_root(site, "rm -f /dev/shm/filler")
        remote.wait_until(lambda: remote.job(job).get("native_id"), 60, "its way into Slurm")
    finally:
        as_root(site, "rm -f /dev/shm/filler")

"""A site whose slurmctld, accounting or disk fails for a while: nothing is lost, and nothing is told that is not so."""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from tests.rigs.plugin import rig_or_skip
from tests.rigs.reach import find_address, open_access
from tests.rigs.slurm import CONTEXT, Variant
from tests.system.conftest import Span
from tests.system.slurm.conftest import Site
from tests.system.slurm.groups import SERVE, group, start, until_said
from tests.waiting import WaitUntil

from overspan.adapters.slurm.transports.openssh import CONNECT_SECONDS
from overspan.adapters.slurm.transports.reconnection import LONGEST_WAIT

STOPPED = "/run/slurmctld.stopped"
AWAY = "(Unable to contact slurm controller|slurm_msg_sendto)"
"""How the commands word that the controller is away."""
SAVED = "/var/spool/slurmctld/job_state"
SOON = {"retry": 1, "retry_limit": 1}
RETRY, JITTER = 4, 1.2
NOBODY = "02:00:00:00:00:01"
"""A hardware address that no machine has."""


def hold_controller(script: str) -> str:
    """start.sh with a slurmctld that is started again when it ends, but not while a file is there."""
    assert "exec slurmctld -D" in script
    loop = f"while :; do while [ -e {STOPPED} ]; do sleep 0.1; done; slurmctld -D || :; sleep 0.1; done"
    return script.replace("exec slurmctld -D", loop)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A site that forgets ended jobs after two seconds, so that its accounting alone tells of them."""
    files = {"/start.sh": hold_controller((CONTEXT / "start.sh").read_text())}
    # Slurm's commands look for their controller as long as a message may take.
    lines = {"MinJobAge=": "MinJobAge=2", "MessageTimeout=": "MessageTimeout=4"}
    folder = tmp_path_factory.mktemp("ssh")
    with rig_or_skip(Variant("outages", lines, files, nodes=1)) as rig, open_access(rig, folder) as access:
        yield Site(access)


@pytest.fixture
def remote(site: Site, tmp_path: Path, wait_until: WaitUntil) -> Iterator[Span]:
    span = Span(tmp_path, wait_until)
    connect(span, site)
    yield span
    span.close()


def connect(span: Span, site: Site, ticks: Mapping[str, int] = SOON, **settings: object) -> None:
    """The configuration: a daemon that tries again soon."""
    cluster = {"kind": "slurm", "tick": 0.5, **site.access.settings, **settings}
    span.config.write_text(json.dumps({"clusters": {"rig": cluster}, "ticks": ticks}))


def submit(span: Span, *words: str) -> str:
    done = span.run("sbatch", "--parsable", "-M", "rig", "--mem=50", *words)
    return done.stdout.partition(";")[0]


def as_root(site: Site, script: str) -> None:
    done = site.rig.run(["sh", "-c", script], user="root")
    assert done.rc == 0, done.stderr


def await_saved(site: Site) -> None:
    """Slurm answers a submission before it has written it down; a controller that is killed then has lost the job."""
    as_root(
        site,
        f"touch /run/before; scancel $(sbatch --parsable --hold --mem=1 --wrap true);"
        f" for _ in $(seq 600); do [ {SAVED} -nt /run/before ] && exit 0; sleep 0.1; done; exit 1",
    )


def test_a_controller_that_is_killed_and_comes_back_loses_nothing(remote: Span, site: Site) -> None:
    gate = f"/home/researcher/gate-{remote.folder.name}"
    wait = f"echo up; until [ -e {gate} ]; do sleep 0.1; done"
    single = submit(remote, "--wrap", f"{wait}; exit 5")
    many = start(remote, group({"a": {"run": wait}, "b": {"run": SERVE}}, primary_tasks=["a"]))
    for job, task in ((single, ""), (many, "b")):
        until_said(remote, job, task, "up")
    remote.until(single, "RUNNING")
    await_saved(site)
    as_root(site, f"touch {STOPPED}; pkill -KILL -x slurmctld")
    try:
        remote.wait_until(lambda: remote.job(single).get("stale_since"), 30, "the row to be stale")
        assert remote.job(single)["state"] == "RUNNING"
        told = remote.run("squeue").stderr
        assert re.search(f"has not answered since .*{AWAY}", told), told
        assert re.search(f"cluster rig does not answer: {AWAY}", remote.run("sinfo", "-M", "rig", check=False).stderr)
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
    assert "cluster rig" not in remote.run("squeue").stderr
    # Nothing was sent twice.
    words = ("sacct", "-nXP", "-u", "researcher", "-S", "now-10minutes", "-o", "JobName")
    remote.wait_until(lambda: len(site.slurm(*words).split()) >= 3, 60, "the accounting to have all jobs")
    assert len(site.slurm(*words).split()) == 3


@contextlib.contextmanager
def cut_link(site: Site) -> Iterator[None]:
    """What is sent to the login node is lost without a word; its own network stays whole."""
    address = find_address(site.rig)
    device = json.loads(run_here("ip", "-json", "route", "get", address))[0]["dev"]
    run_here("ip", "neigh", "replace", address, "lladdr", NOBODY, "dev", device, "nud", "permanent")
    try:
        yield
    finally:
        run_here("ip", "neigh", "delete", address, "dev", device)


def run_here(*words: str) -> str:
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(("transport", "connect_seconds"), [("ssh", 5), ("paramiko", CONNECT_SECONDS)])
def test_a_link_that_is_back_is_noticed_soon(remote: Span, site: Site, transport: str, connect_seconds: int) -> None:
    options = ["-o", f"ConnectTimeout={connect_seconds}", "-o", "ServerAliveInterval=2"]
    more = {"ssh_options": options} if transport == "ssh" else {}
    # News are waited for far longer than the test lasts: what is fresh here was asked for because the link is back.
    connect(remote, site, {"observe": 3600, "retry": 1, "retry_limit": RETRY}, transport=transport, **more)
    gate = f"/home/researcher/gate-{remote.folder.name}"
    job = submit(remote, "--wrap", f"echo up; until [ -e {gate} ]; do sleep 0.1; done; exit 5")
    until_said(remote, job, "", "up")
    remote.until(job, "RUNNING")
    with cut_link(site):
        # Until connections were tried in vain, so that the waits have grown.
        remote.wait_until(lambda: "timed out" in remote.run("squeue").stderr, 60, "a connection that cannot be had")
        assert remote.job(job)["state"] == "RUNNING"
        assert "cluster rig does not answer: " in remote.run("sinfo", "-M", "rig", check=False).stderr
    # Of a job that only runs there is no news: its row is fresh all the same.
    soon = RETRY * JITTER + connect_seconds + LONGEST_WAIT
    remote.wait_until(lambda: remote.job(job)["stale_since"] is None, soon, "the row to be fresh")
    assert remote.job(job)["state"] == "RUNNING"
    site.slurm("touch", gate)
    assert remote.until(job, "FAILED")["exit_code"] == 5


def test_an_end_that_only_the_accounting_knows_while_that_is_down(remote: Span, site: Site) -> None:
    gate = f"/home/researcher/gate-{remote.folder.name}"
    single = submit(remote, "--wrap", f"echo up; until [ -e {gate} ]; do sleep 0.1; done; exit 6")
    until_said(remote, single, "", "up")
    remote.until(single, "RUNNING")
    native = str(remote.job(single)["native_id"])
    as_root(site, "pkill -KILL -x slurmdbd")
    try:
        # Slurm's queue forgets it while no daemon looks, and the accounting does not answer.
        remote.kill_daemon()
        site.slurm("touch", gate)
        remote.wait_until(lambda: is_forgotten(site, native), 60, "Slurm to forget the job")
        remote.run("ping")
        remote.wait_until(lambda: remote.job(single)["state"] == "RUNNING", 20, "what was known last")
        said = remote.wait_until(lambda: find_sentence(remote, "the accounting does not answer"), 20, "a sentence")
        assert "cluster rig, since " in said and "the accounting does not answer (" in said, said
        assert "jobs that have left the queue are shown as they were" in said
        assert [remote.job(single)["state"] for _ in range(20)] == ["RUNNING"] * 20
    finally:
        as_root(site, "slurmdbd")
    shown = remote.until(single, "FAILED", timeout=90)
    assert shown["exit_code"] == 6
    remote.wait_until(lambda: remote.run("squeue").stderr == "", 20, "no more to be said")


def is_forgotten(site: Site, native: str) -> bool:
    """Whether Slurm's queue, which answers, knows nothing of a job."""
    done = site.rig.run(["squeue", "-ht", "all", "-o", "%i"])
    return done.rc == 0 and native not in done.stdout.split()


def find_sentence(span: Span, words: str) -> str:
    """What the commands say of the cluster, once it has these words."""
    said = span.run("squeue").stderr
    return said if words in said else ""


def test_a_full_disk_of_the_cluster_holds_a_group_back_and_sends_nothing(remote: Span, site: Site) -> None:
    connect(remote, site, root="/dev/shm/overspan")
    as_root(site, "head -c 1G /dev/zero > /dev/shm/filler || :")
    try:
        job = start(remote, group({"a": {"run": "true"}, "b": {"run": "true"}}, name="full"))
        start_of = "Resources: /dev/shm/overspan/"
        remote.wait_until(lambda: remote.job(job)["reason"].startswith(start_of), 30, "the reason")
        assert "No space left on device" in remote.job(job)["reason"]
        assert remote.job(job)["state"] == "PENDING" and site.slurm("squeue", "-hn", "full", "-o", "%i") == ""
        # With room again it is sent by itself; the nodes have a /dev/shm of their own, so it is not to run.
        as_root(site, "rm -f /dev/shm/filler")
        remote.wait_until(lambda: remote.job(job).get("native_id"), 60, "its way into Slurm")
    finally:
        as_root(site, "rm -f /dev/shm/filler")

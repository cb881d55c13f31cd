"""Groups at a site where the machines share no folder at all, by a daemon outside that reaches it over ssh."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.contract.conformance import Conformance, Rig
from tests.contract.test_slurm import RemoteSlurm
from tests.rigs.plugin import rig_or_skip
from tests.rigs.reach import open_access
from tests.rigs.slurm import Variant
from tests.system.conftest import Span
from tests.system.slurm.conftest import Site
from tests.system.slurm.test_groups import SERVE, group, native_of, read_time, start, until_said
from tests.waiting import WaitUntil

from overspan.adapters.contract import Adapter, ClusterConfig
from overspan.adapters.slurm import open_cluster

FIND = "for host in trainer-0.g trainer-1.g server-0.g; do getent hosts $host || exit 9; done"
WAIT = "while [ ! -e /tmp/go ]; do sleep 0.1; done; rm /tmp/go"
NODES = ("node1", "node2", "node3")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A site whose machines have homes of their own."""
    folder = tmp_path_factory.mktemp("ssh")
    with rig_or_skip(Variant("unshared", shared_home=False)) as rig, open_access(rig, folder) as access:
        yield Site(access)


@pytest.fixture
def remote(site: Site, tmp_path: Path, wait_until: WaitUntil) -> Iterator[Span]:
    span = Span(tmp_path, wait_until)
    settings = {"kind": "slurm", "tick": 0.5, "shared_root": False, **site.access.settings}
    span.config.write_text(json.dumps({"clusters": {"rig": settings}}))
    yield span
    span.close()


def list_left(site: Site) -> str:
    """What is in the nodes' /tmp, and which of our programs run on any machine."""
    found = [site.rig.run(["find", "/tmp", "-mindepth", "1", "-user", "researcher"], on=node).stdout for node in NODES]
    running = [site.rig.run(["pgrep", "-fl", "overspan|span-"], on=node).stdout for node in ("ctl", *NODES)]
    return "".join([*found, *running])


def until_clean(span: Span, site: Site) -> None:
    span.wait_until(lambda: not list_left(site), 20, f"nothing to be left, but there is {list_left(site)}")


def test_a_group_ends_by_its_own_rules_while_the_daemon_is_dead(remote: Span, site: Site) -> None:
    job = start(
        remote,
        group(
            {
                "trainer": {
                    "num_nodes": 2,
                    "secrets": {"KEY": "s3cret"},
                    "run": f"{FIND}; echo $KEY at $(hostname) in $PWD; sleep 5; echo late >&2; date +end=%s.%N",
                },
                "server": {"spread": True, "run": f"{FIND}; {SERVE}"},
            },
            primary_tasks=["trainer"],
            termination_delay="1s",
        ),
    )
    until_said(remote, job, "server", "up")
    native = native_of(remote, job)
    script = site.rig.run(["scontrol", "write", "batch_script", native, "-"]).stdout
    assert "s3cret" not in script and "OVERSPAN_APPLICATION" in script
    remote.kill_daemon()
    remote.wait_until(
        lambda: "COMPLETED" in site.slurm("squeue", "-ht", "all", "-j", native, "-o", "%T"), 30, "its end"
    )
    shown = remote.until(job, "COMPLETED")
    tasks = {task["name"]: task for task in shown["tasks"]}
    assert {name: (task["state"], task["exit_code"]) for name, task in tasks.items()} == {
        "trainer": ("COMPLETED", 0),
        "server": ("COMPLETED", 0),
    }
    assert tasks["server"]["reason"] == "PrimariesDone"
    for node in ("0", "1"):
        assert "s3cret at trainer-" in remote.log(job, "trainer", "--node", node)
    ended = max(read_time(remote.log(job, "trainer", "--node", node), "end") for node in ("0", "1"))
    term = read_time(remote.log(job, "server"), "term")
    assert 0.9 < term - ended < 3
    assert abs(tasks["trainer"]["ended_at"] - ended) < 1
    assert abs(tasks["server"]["ended_at"] - term) < 1
    assert "late" in remote.log(job, "trainer", "--errors")
    until_clean(remote, site)


def test_a_relay_that_was_killed_goes_on_where_it_was(remote: Span, site: Site) -> None:
    count = "for i in $(seq 1 400); do echo line $i; sleep 0.02; done"
    job = start(remote, group({"a": {"run": f"{count}; {WAIT}"}, "b": {"run": SERVE}}, primary_tasks=["a"]))
    until_said(remote, job, "a", "line 20\n")
    for _ in range(2):
        kill_relay(remote, site, job)
    until_said(remote, job, "a", "line 400\n")
    assert remote.log(job, "a", "--stream", "output") == "".join(f"line {i}\n" for i in range(1, 401))
    node = remote.task(job, "a")["node_list"]
    assert site.rig.run(["touch", "/tmp/go"], on=node).rc == 0
    remote.until(job, "COMPLETED")
    until_clean(remote, site)


def kill_relay(span: Span, site: Site, job: int) -> None:
    """Kill daemon and relay; any command starts the daemon, and that another relay."""
    before = list_relays(site)
    assert before
    span.kill_daemon()
    assert site.rig.run(["kill", "-KILL", *before]).rc == 0
    span.wait_until(lambda: span.job(job) and set(list_relays(site)) - set(before), 30, "another relay")


def list_relays(site: Site) -> list[str]:
    """The pids of relays on the login node."""
    return site.rig.run(["pgrep", "-f", "supervisor-[0-9a-f]*.pyz relay"]).stdout.split()


def test_a_cancelled_group_ends_with_its_grace(remote: Span, site: Site) -> None:
    polite = "trap 'echo bye; exit 0' TERM; echo up; while :; do sleep 0.05; done"
    job = start(remote, group({"a": {"run": polite}, "b": {"run": polite, "spread": True}}))
    for task in ("a", "b"):
        until_said(remote, job, task, "up")
    remote.kill_daemon()
    remote.run("scancel", str(job))
    shown = remote.until(job, "CANCELLED")
    assert {task["state"] for task in shown["tasks"]} == {"CANCELLED"}
    for task in ("a", "b"):
        until_said(remote, job, task, "bye")
    until_clean(remote, site)


def test_a_group_that_slurm_ends_has_slurms_verdict_and_its_last_words(remote: Span, site: Site) -> None:
    job = start(remote, group({"a": {"run": SERVE}, "b": {"run": SERVE, "spread": True}}))
    for task in ("a", "b"):
        until_said(remote, job, task, "up")
    site.slurm("scancel", native_of(remote, job))
    shown = remote.until(job, "CANCELLED")
    assert {task["state"] for task in shown["tasks"]} == {"CANCELLED"}
    until_said(remote, job, "b", "term")
    until_clean(remote, site)


def test_attempts_setups_mounts_notices_and_much_output(remote: Span, site: Site) -> None:
    for node in NODES:
        assert (
            site.rig.run(
                ["sh", "-c", "mkdir -p /home/researcher/data; hostname >/home/researcher/data/name"], on=node
            ).rc
            == 0
        )
    once = "[ $OVERSPAN_ATTEMPT -gt 0 ] || exit 4; seq 1 300000; cat data/name; rm data"
    recovery = {"cpus": 1, "memory": "100M", "job_recovery": {"max_restarts_on_errors": 2}}
    notice = "trap 'cat $OVERSPAN_RUN_DIR/notice; exit 0' USR1; echo up; while :; do sleep 0.05; done"
    job = start(
        remote,
        group(
            {
                "trainer": {
                    "setup": "echo set up",
                    "run": once,
                    "resources": recovery,
                    "backoff": {"first": 0.1},
                    "file_mounts": {"data": "/home/researcher/data"},
                },
                "server": {"run": notice, "spread": True, "notice_signal": "USR1"},
            },
            primary_tasks=["trainer"],
            termination_delay="5s",
        ),
    )
    shown = remote.until(job, "COMPLETED", timeout=60)
    trainer = next(task for task in shown["tasks"] if task["name"] == "trainer")
    assert [attempt["exit_code"] for attempt in trainer["attempts"]] == [4, 0]
    text = remote.log(job, "trainer", "--stream", "output")
    assert text == "set up\n" + "".join(f"{i}\n" for i in range(1, 300001)) + f"{trainer['node_list']}\n"
    assert remote.log(job, "trainer", "--attempt", "0") == "set up\n"
    assert "primaries_done" in remote.log(job, "server")
    until_clean(remote, site)


def test_a_group_that_is_requeued_runs_again_with_logs_of_its_own(remote: Span, site: Site) -> None:
    job = start(
        remote,
        group({"a": {"run": f"echo launch $SLURM_RESTART_COUNT; {SERVE}"}, "b": {"run": SERVE, "spread": True}}),
    )
    until_said(remote, job, "a", "up")
    remote.run("scontrol", "requeue", str(job))
    remote.wait_until(lambda: "launch 1\nup" in remote.log(job, "a"), 60, "the second launch")
    remote.run("scancel", str(job))
    remote.until(job, "CANCELLED")
    until_clean(remote, site)


def test_where_nobody_takes_the_record_slurm_tells_the_end(remote: Span, site: Site) -> None:
    job = start(remote, group({"a": {"run": f"echo up; {WAIT}"}, "b": {"run": SERVE}}, primary_tasks=["a"]))
    until_said(remote, job, "a", "up")
    node, native = remote.task(job, "a")["node_list"], native_of(remote, job)
    remote.kill_daemon()
    assert site.rig.run(["kill", "-KILL", *list_relays(site)]).rc == 0
    assert site.rig.run(["touch", "/tmp/go"], on=node).rc == 0
    remote.wait_until(
        lambda: "COMPLETED" in site.slurm("squeue", "-ht", "all", "-j", native, "-o", "%T"), 120, "its end"
    )
    remote.until(job, "COMPLETED")
    rows = remote.timeline(job)
    assert any("its record stayed on the node" in json.dumps(row) for row in rows)
    until_clean(remote, site)


def test_a_hetjob_takes_orders_and_shows_quiet_tasks_and_files_of_their_own(remote: Span, site: Site) -> None:
    tell = "echo $SLURM_JOB_PARTITION; getent ahostsv4 a-0.g; getent ahostsv4 b-0.g"
    job = start(
        remote,
        group(
            {
                "a": {"run": f"{tell}; {WAIT}"},
                "b": {"run": f"{tell}; {SERVE}", "slurm": {"partition": "short"}},
                "quiet": {"run": "while :; do sleep 0.1; done"},
            },
            primary_tasks=["a"],
        ),
    )
    until_said(remote, job, "b", "up")
    assert "a-0.g" in remote.log(job, "b") and "b-0.g" in remote.log(job, "b")
    remote.until(job, "RUNNING", task="quiet")
    assert remote.run("logs", str(job), "quiet").stdout == ""
    remote.run("restart", str(job), "b")
    remote.wait_until(lambda: len(remote.task(job, "b")["attempts"]) == 2, 20, "a second attempt")
    until_said(remote, job, "b", "up")
    remote.run("scancel", f"{job}+2")
    remote.until(job, "CANCELLED", task="quiet")
    assert site.rig.run(["touch", "/tmp/go"], on=remote.task(job, "a")["node_list"]).rc == 0
    remote.until(job, "COMPLETED")
    until_clean(remote, site)


def test_a_supervisor_that_cannot_run_fails_the_group_and_leaves_its_words(remote: Span, site: Site) -> None:
    settings = json.loads(remote.config.read_text())
    settings["clusters"]["rig"]["python"] = "/nowhere/python3"
    remote.config.write_text(json.dumps(settings))
    job = start(remote, group({"a": {"run": "true"}, "b": {"run": "true"}}))
    shown = remote.until(job, "FAILED", timeout=60)
    log = f"/tmp/overspan-{native_of(remote, job)}.log"
    assert f"{log} on its first node" in json.dumps(remote.timeline(job)), shown
    found = [site.rig.run(["cat", log], on=node).stdout for node in NODES]
    assert sum("/nowhere/python3" in text for text in found) == 1
    for node in NODES:
        site.rig.run(["rm", "-f", log], on=node)
    until_clean(remote, site)


class UnsharedSlurm(RemoteSlurm):
    """Groups of this site for the conformance suite."""

    def open(self) -> Adapter:
        settings = {"tick": 0.5, "shared_root": False, **self._access.settings}
        return open_cluster(ClusterConfig("rig", "slurm", settings))


class TestConformance(Conformance):
    ids = itertools.count(1)

    @pytest.fixture
    def rig(self, site: Site) -> Iterator[Rig]:
        rig = UnsharedSlurm(site.access, "group", self.ids)
        yield rig
        rig.clean()

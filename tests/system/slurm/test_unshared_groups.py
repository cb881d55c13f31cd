"""Groups at a site where the machines share no folder at all, by a daemon outside that reaches it over ssh."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
from tests.contract.conformance import Conformance, Rig
from tests.contract.slurm_clusters import RemoteSlurm
from tests.system.conftest import Span
from tests.system.slurm.conftest import Site
from tests.system.slurm.groups import SERVE, check_delay, group, native_of, read_time, start, until_said
from tests.system.slurm.relays import NODES, kill_relay, list_relays, until_clean

from overspan.adapters.contract import Adapter, ClusterConfig
from overspan.adapters.slurm import open_cluster

FIND = "for host in trainer-0.g trainer-1.g server-0.g; do getent hosts $host || exit 9; done"
WAIT = "while [ ! -e /tmp/go ]; do sleep 0.1; done; rm /tmp/go"


def test_a_group_ends_by_its_own_rules_while_the_daemon_is_dead(unshared: Span, unshared_site: Site) -> None:
    job = start(
        unshared,
        group(
            {
                "trainer": {
                    "num_nodes": 2,
                    "secrets": {"KEY": "s3cret"},
                    "run": f"{FIND}; echo $KEY at $(hostname) in $PWD; {WAIT}; echo late >&2; date +end=%s.%N",
                },
                "server": {"spread": True, "run": f"{FIND}; {SERVE}"},
            },
            primary_tasks=["trainer"],
            termination_delay="1s",
        ),
    )
    until_said(unshared, job, "server", "up")
    native = native_of(unshared, job)
    script = unshared_site.rig.run(["scontrol", "write", "batch_script", native, "-"]).stdout
    assert "s3cret" not in script and "OVERSPAN_APPLICATION" in script
    unshared.kill_daemon()
    for name in NODES:
        assert unshared_site.rig.run(["touch", "/tmp/go"], on=name).rc == 0
    unshared.wait_until(
        lambda: "COMPLETED" in unshared_site.slurm("squeue", "-ht", "all", "-j", native, "-o", "%T"), 30, "its end"
    )
    unseen = time.time()
    for name in NODES:
        # The server's has not taken it away.
        unshared_site.rig.run(["rm", "-f", "/tmp/go"], on=name)
    shown = unshared.until(job, "COMPLETED")
    tasks = {task["name"]: task for task in shown["tasks"]}
    assert {name: (task["state"], task["exit_code"]) for name, task in tasks.items()} == {
        "trainer": ("COMPLETED", 0),
        "server": ("COMPLETED", 0),
    }
    assert tasks["server"]["reason"] == "PrimariesDone"
    for node in ("0", "1"):
        assert "s3cret at trainer-" in unshared.log(job, "trainer", "--node", node)
    ended = max(read_time(unshared.log(job, "trainer", "--node", node), "end") for node in ("0", "1"))
    check_delay(tasks, ended, read_time(unshared.log(job, "server"), "term"), unseen)
    assert "late" in unshared.log(job, "trainer", "--errors")
    until_clean(unshared, unshared_site)


def test_a_relay_that_was_killed_goes_on_where_it_was(unshared: Span, unshared_site: Site) -> None:
    count = "for i in $(seq 1 400); do echo line $i; sleep 0.02; done"
    job = start(unshared, group({"a": {"run": f"{count}; {WAIT}"}, "b": {"run": SERVE}}, primary_tasks=["a"]))
    until_said(unshared, job, "a", "line 20\n")
    for _ in range(2):
        kill_relay(unshared, unshared_site, job)
    until_said(unshared, job, "a", "line 400\n")
    assert unshared.log(job, "a", "--stream", "output") == "".join(f"line {i}\n" for i in range(1, 401))
    node = unshared.task(job, "a")["node_list"]
    assert unshared_site.rig.run(["touch", "/tmp/go"], on=node).rc == 0
    unshared.until(job, "COMPLETED")
    until_clean(unshared, unshared_site)


def test_a_cancelled_group_ends_with_its_grace(unshared: Span, unshared_site: Site) -> None:
    polite = "trap 'echo bye; exit 0' TERM; echo up; while :; do sleep 0.05; done"
    job = start(unshared, group({"a": {"run": polite}, "b": {"run": polite, "spread": True}}))
    for task in ("a", "b"):
        until_said(unshared, job, task, "up")
    unshared.kill_daemon()
    unshared.run("scancel", str(job))
    shown = unshared.until(job, "CANCELLED")
    assert {task["state"] for task in shown["tasks"]} == {"CANCELLED"}
    for task in ("a", "b"):
        until_said(unshared, job, task, "bye")
    until_clean(unshared, unshared_site)


def test_a_group_that_slurm_ends_has_slurms_verdict_and_its_last_words(unshared: Span, unshared_site: Site) -> None:
    job = start(unshared, group({"a": {"run": SERVE}, "b": {"run": SERVE, "spread": True}}))
    for task in ("a", "b"):
        until_said(unshared, job, task, "up")
    unshared_site.slurm("scancel", native_of(unshared, job))
    shown = unshared.until(job, "CANCELLED")
    assert {task["state"] for task in shown["tasks"]} == {"CANCELLED"}
    until_said(unshared, job, "b", "term")
    until_clean(unshared, unshared_site)


def test_attempts_setups_mounts_notices_and_much_output(unshared: Span, unshared_site: Site) -> None:
    for node in NODES:
        assert (
            unshared_site.rig.run(
                ["sh", "-c", "mkdir -p /home/researcher/data; hostname >/home/researcher/data/name"], on=node
            ).rc
            == 0
        )
    once = f"[ $OVERSPAN_ATTEMPT -gt 0 ] || exit 4; {WAIT}; seq 1 300000; cat data/name; rm data"
    recovery = {"cpus": 1, "memory": "100M", "job_recovery": {"max_restarts_on_errors": 2}}
    notice = "trap 'cat $OVERSPAN_RUN_DIR/notice; exit 0' USR1; echo up; while :; do sleep 0.05; done"
    job = start(
        unshared,
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
    until_said(unshared, job, "server", "up")
    node = unshared.task(job, "trainer")["node_list"]
    assert unshared_site.rig.run(["touch", "/tmp/go"], on=node).rc == 0
    shown = unshared.until(job, "COMPLETED", timeout=60)
    trainer = next(task for task in shown["tasks"] if task["name"] == "trainer")
    assert [attempt["exit_code"] for attempt in trainer["attempts"]] == [4, 0]
    text = unshared.log(job, "trainer", "--stream", "output")
    assert text == "set up\n" + "".join(f"{i}\n" for i in range(1, 300001)) + f"{trainer['node_list']}\n"
    assert unshared.log(job, "trainer", "--attempt", "0") == "set up\n"
    assert "primaries_done" in unshared.log(job, "server")
    until_clean(unshared, unshared_site)


def test_a_group_that_is_requeued_runs_again_with_logs_of_its_own(unshared: Span, unshared_site: Site) -> None:
    job = start(
        unshared,
        group({"a": {"run": f"echo launch $SLURM_RESTART_COUNT; {SERVE}"}, "b": {"run": SERVE, "spread": True}}),
    )
    until_said(unshared, job, "a", "up")
    unshared.run("scontrol", "requeue", str(job))
    unshared.wait_until(lambda: "launch 1\nup" in unshared.log(job, "a"), 60, "the second launch")
    unshared.run("scancel", str(job))
    unshared.until(job, "CANCELLED")
    until_clean(unshared, unshared_site)


def test_where_nobody_takes_the_record_slurm_tells_the_end(unshared: Span, unshared_site: Site) -> None:
    job = start(unshared, group({"a": {"run": f"echo up; {WAIT}"}, "b": {"run": SERVE}}, primary_tasks=["a"]))
    until_said(unshared, job, "a", "up")
    node, native = unshared.task(job, "a")["node_list"], native_of(unshared, job)
    unshared.kill_daemon()
    assert unshared_site.rig.run(["kill", "-KILL", *list_relays(unshared_site)]).rc == 0
    assert unshared_site.rig.run(["touch", "/tmp/go"], on=node).rc == 0
    unshared.wait_until(
        lambda: "COMPLETED" in unshared_site.slurm("squeue", "-ht", "all", "-j", native, "-o", "%T"), 120, "its end"
    )
    unshared.until(job, "COMPLETED")
    rows = unshared.timeline(job)
    assert any("its record stayed on the node" in json.dumps(row) for row in rows)
    until_clean(unshared, unshared_site)


def test_a_hetjob_takes_orders_and_shows_quiet_tasks_and_files_of_their_own(
    unshared: Span, unshared_site: Site
) -> None:
    tell = "echo $SLURM_JOB_PARTITION; getent ahostsv4 a-0.g; getent ahostsv4 b-0.g"
    job = start(
        unshared,
        group(
            {
                "a": {"run": f"{tell}; {WAIT}"},
                "b": {"run": f"{tell}; {SERVE}", "slurm": {"partition": "short"}},
                "quiet": {"run": "while :; do sleep 0.1; done"},
            },
            primary_tasks=["a"],
        ),
    )
    until_said(unshared, job, "b", "up")
    assert "a-0.g" in unshared.log(job, "b") and "b-0.g" in unshared.log(job, "b")
    unshared.until(job, "RUNNING", task="quiet")
    assert unshared.run("logs", str(job), "quiet").stdout == ""
    unshared.run("restart", str(job), "b")
    unshared.wait_until(lambda: len(unshared.task(job, "b")["attempts"]) == 2, 20, "a second attempt")
    until_said(unshared, job, "b", "up")
    unshared.run("scancel", f"{job}+2")
    unshared.until(job, "CANCELLED", task="quiet")
    assert unshared_site.rig.run(["touch", "/tmp/go"], on=unshared.task(job, "a")["node_list"]).rc == 0
    unshared.until(job, "COMPLETED")
    until_clean(unshared, unshared_site)


def test_a_file_on_its_own_node_makes_a_task_ready(unshared: Span, unshared_site: Site) -> None:
    serve = f"while [ ! -e /tmp/go ]; do sleep 0.1; done; mv /tmp/go up; {SERVE}"
    job = start(
        unshared,
        group(
            {
                "client": {"run": "echo $SLURMD_NODENAME; [ ! -e /tmp/up ]", "needs": ["ready:server"]},
                "server": {"run": serve, "spread": True, "ready": {"file": "up"}},
            },
            primary_tasks=["client"],
        ),
    )
    unshared.until(job, "RUNNING", task="server")
    node = unshared.task(job, "server")["node_list"]
    assert unshared.task(job, "client")["state"] == "PENDING"
    assert unshared_site.rig.run(["touch", "/tmp/go"], on=node).rc == 0
    unshared.until(job, "COMPLETED")
    assert unshared.log(job, "client").strip() not in ("", node)
    assert any("ready" in row["text"] for row in unshared.timeline(job)), unshared.timeline(job)
    unshared_site.rig.run(["rm", "-f", "/tmp/up"], on=node)
    until_clean(unshared, unshared_site)


def test_members_are_entered_while_they_live_and_while_their_nodes_are_kept(
    unshared: Span, unshared_site: Site
) -> None:
    tell = "echo $OVERSPAN_TASK $OVERSPAN_NODE_INDEX $KEY $SLURM_JOB_ID $SLURMD_NODENAME; getent hosts a-0.g b-0.g"
    wait = "echo up; while [ ! -e $OVERSPAN_RUN_DIR/stop ]; do sleep 0.1; done; exit 3"
    tasks: dict[str, dict[str, Any]] = {
        "a": {"run": wait, "num_nodes": 2, "secrets": {"KEY": "s3cret"}, "time": "3m"},
        "b": {"run": SERVE, "spread": True, "time": "3m"},
    }
    job = start(unshared, group(tasks, primary_tasks=["a"], hold_on_failure="3m"))
    until_said(unshared, job, "b", "up")
    for node in ("0", "1"):
        unshared.wait_until(lambda node=node: "up" in unshared.log(job, "a", "--node", node), 20, "a to be up")
    native = native_of(unshared, job)
    words = ("shell", f"{job}.a", "--node=1", "--", "sh", "-c")
    for first, last in ((True, "; exit 9"), (False, "; [ ! -e $OVERSPAN_RUN_DIR/stop ] && exit 9")):
        done = unshared.run(*words, tell + last, check=False)
        told, *hosts = done.stdout.splitlines()
        assert done.returncode == 9 and told.startswith(f"a 1 s3cret {native} node"), done.stderr
        assert [line.split()[1] for line in hosts] == ["a-0.g", "b-0.g"]
        if first:
            # The members' end may be that of this shell too.
            unshared.run(*words, ": >$OVERSPAN_RUN_DIR/stop", check=False)
        unshared.wait_until(lambda: unshared.job(job)["reason"] == "HeldOnFailure", 30, "the hold")
    other = unshared.run("shell", f"{job}.b", "--", "sh", "-c", tell).stdout.splitlines()
    assert other[0].startswith(f"b 0 {native}") and len(other) == 3
    unshared.run("scancel", str(job))
    assert unshared.until(job, "FAILED")["exit_code"] == 3
    until_clean(unshared, unshared_site)


def test_a_supervisor_that_cannot_run_fails_the_group_and_leaves_its_words(unshared: Span, unshared_site: Site) -> None:
    settings = json.loads(unshared.config.read_text())
    settings["clusters"]["rig"]["python"] = "/nowhere/python3"
    unshared.config.write_text(json.dumps(settings))
    job = start(unshared, group({"a": {"run": "true"}, "b": {"run": "true"}}))
    shown = unshared.until(job, "FAILED", timeout=60)
    log = f"/tmp/overspan-{native_of(unshared, job)}.log"
    assert f"{log} on its first node" in json.dumps(unshared.timeline(job)), shown
    found = [unshared_site.rig.run(["cat", log], on=node).stdout for node in NODES]
    assert sum("/nowhere/python3" in text for text in found) == 1
    for node in NODES:
        unshared_site.rig.run(["rm", "-f", log], on=node)
    until_clean(unshared, unshared_site)


class UnsharedSlurm(RemoteSlurm):
    """Groups of this site for the conformance suite."""

    def open(self) -> Adapter:
        settings = {"tick": 0.5, "shared_root": False, **self._access.settings}
        return open_cluster(ClusterConfig("rig", "slurm", settings))


class TestConformance(Conformance):
    ids = itertools.count(1)

    @pytest.fixture
    def rig(self, unshared_site: Site) -> Iterator[Rig]:
        rig = UnsharedSlurm(unshared_site.access, "group", self.ids)
        yield rig
        rig.clean()

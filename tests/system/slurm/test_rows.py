"""Rows of docs/acceptance.md on a real Slurm that forgets ended jobs at once: its accounting is what tells of them."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from tests.rigs.plugin import rig_or_skip
from tests.rigs.reach import open_access
from tests.rigs.slurm import Variant
from tests.system.conftest import Span
from tests.system.slurm.conftest import Site
from tests.system.slurm.fillers import fill
from tests.system.slurm.gates import Gate
from tests.system.slurm.groups import SERVE, connect, group, native_of, read_time, start, until_said
from tests.waiting import WaitUntil

NODES = ("node1", "node2", "node3")
WHOLE = {"cpus": 4, "memory": "100M"}
Tasks = dict[str, dict[str, Any]]
OTHER = {"slurm": {"partition": "short"}}
"""A task with it is in a component of its own."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("ssh")
    with rig_or_skip(Variant("forgets", {"MinJobAge=": "MinJobAge=2"})) as rig, open_access(rig, folder) as access:
        yield Site(access)


@pytest.fixture
def remote(site: Site, tmp_path: Path, wait_until: WaitUntil) -> Iterator[Span]:
    span = connect(site, tmp_path, wait_until)
    yield span
    span.close()


def submit(span: Span, *words: str) -> str:
    done = span.run("sbatch", "--parsable", "-M", "rig", "--mem=50", *words)
    return done.stdout.partition(";")[0]


def list_processes(site: Site) -> list[str]:
    """Command lines of the user's processes on the nodes, but for those that have ended and are not waited for yet."""
    asked = ("ps", "-u", "researcher", "-o", "stat=,args=")
    rows = [
        row.split(None, 1) for node in NODES for row in site.rig.run(asked, user="root", on=node).stdout.splitlines()
    ]
    return [args for state, args in rows if not state.startswith("Z")]


def end_in_slurm(span: Span, site: Site, native: str) -> float:
    """When a job ended by Slurm's queue, or by its accounting once that knows it."""
    queue, accounts = (
        ("squeue", "-ht", "all", "-j", f"{native},{native}", "-o", "%e"),
        ("sacct", "-nXPj", native, "-oEnd"),
    )

    def look() -> list[str]:
        said = [site.rig.run(words, env={"TZ": "UTC"}).stdout.split() for words in (queue, accounts)]
        return [text for texts in said for text in texts if text[:1].isdigit()]

    return read_utc(span.wait_until(look, 20, f"the end of {native}")[0])


def until_forgotten(span: Span, site: Site) -> None:
    """Wait until Slurm's queue knows nothing of any job."""
    span.wait_until(lambda: not site.slurm("squeue", "-ht", "all"), 40, "Slurm to forget all jobs")


class TestBatchScript:
    def test_the_script_is_the_job_and_nothing_of_ours_is_beside_it(self, remote: Span, site: Site) -> None:
        gate = Gate(site)
        job = submit(remote, "--wrap", f"{gate.wait}; date +end=%s.%N; exit 4")
        remote.until(job, "RUNNING")
        remote.kill_daemon()
        remote.wait_until(lambda: any("slurm_script" in row for row in list_processes(site)), 20, "the script")
        running = list_processes(site)
        assert running and all("slurm_script" in row or row.startswith("sleep") for row in running), running
        gate.open()
        remote.wait_until(lambda: not list_processes(site), 20, "no process to be left")
        ended = remote.until(job, "FAILED")
        assert ended["exit_code"] == 4
        assert int(read_time(remote.log(job), "end")) <= ended["ended_at"]
        assert ended["ended_at"] == end_in_slurm(remote, site, native_of(remote, job))


class TestComponents:
    def test_a_failing_primary_ends_both_components(self, remote: Span, site: Site) -> None:
        gate = Gate(site)
        tasks: Tasks = {"trainer": {"run": f"{gate.wait}; exit 3"}, "server": {"run": SERVE, **OTHER}}
        job = start(remote, group(tasks, primary_tasks=["trainer"]))
        until_said(remote, job, "server", "up")
        gate.open()
        shown = remote.until(job, "FAILED")
        states = {task["name"]: (task["state"], task["reason"]) for task in shown["tasks"]}
        assert shown["exit_code"] == 3
        assert states == {"trainer": ("FAILED", "NonZeroExitCode"), "server": ("CANCELLED", "PrimaryFailed")}
        remote.wait_until(lambda: not site.slurm("squeue", "-h"), 20, "both components to be given back")

    def test_a_failure_that_is_ignored_gives_its_component_back(self, remote: Span, site: Site) -> None:
        gate = Gate(site)
        server = {"run": "sleep 1; exit 5", "on_failure": "ignore", **OTHER}
        tasks: Tasks = {"trainer": {"run": gate.wait}, "server": server}
        job = start(remote, group(tasks, primary_tasks=["trainer"]))
        remote.until(job, "FAILED", task="server")
        native = native_of(remote, job)
        left = ("squeue", "-h", "-o", "%i %T")
        remote.wait_until(lambda: site.slurm(*left).split("\n") == [f"{native}+0 RUNNING", ""], 20, "one component")
        assert remote.job(job)["state"] == "RUNNING"
        gate.open()
        assert remote.until(job, "COMPLETED")["exit_code"] == 0

    def test_a_failure_restarts_its_task_in_the_same_allocation(self, remote: Span, site: Site) -> None:
        gate = Gate(site)
        again = f"echo try in $SLURM_JOB_ID; [ $OVERSPAN_ATTEMPT -gt 0 ] || exit 5; {SERVE}"
        server = {"run": again, "on_failure": "restart", "backoff": {"first": 0.1}, **OTHER}
        job = start(remote, group({"trainer": {"run": gate.wait}, "server": server}, primary_tasks=["trainer"]))
        until_said(remote, job, "server", "up")
        native = native_of(remote, job)
        gate.open()
        remote.until(job, "COMPLETED")
        attempts = remote.task(job, "server")["attempts"]
        assert [attempt["exit_code"] for attempt in attempts] == [5, 0]
        assert f"try in {native}" in remote.log(job, "server")
        assert native_of(remote, job) == native

    def test_a_failure_fails_the_group_where_the_file_says_so(self, remote: Span, site: Site) -> None:
        gate = Gate(site)
        server = {"run": f"{gate.wait}; exit 5", "on_failure": "fail_group", **OTHER}
        job = start(remote, group({"trainer": {"run": SERVE}, "server": server}, primary_tasks=["trainer"]))
        until_said(remote, job, "trainer", "up")
        gate.open()
        shown = remote.until(job, "FAILED")
        states = {task["name"]: (task["state"], task["reason"]) for task in shown["tasks"]}
        assert states == {"trainer": ("CANCELLED", "AuxiliaryFailed"), "server": ("FAILED", "NonZeroExitCode")}
        assert "term" in remote.log(job, "trainer")
        remote.wait_until(lambda: not site.slurm("squeue", "-h"), 20, "both components to be given back")


class TestGroups:
    @pytest.mark.parametrize(("header", "attempts"), [({}, (1, 2)), ({"restart": "group"}, (2, 2))])
    def test_a_member_whose_agent_is_lost_comes_back_in_the_same_allocation(
        self, remote: Span, site: Site, header: dict[str, str], attempts: tuple[int, int]
    ) -> None:
        gate = Gate(site)
        run = f"echo at $OVERSPAN_ATTEMPT in $SLURM_JOB_ID; {gate.wait}"
        tasks = {name: {"run": run, "spread": True, "backoff": {"first": 0.1}} for name in ("a", "b")}
        job = start(remote, group(tasks, **header))
        for name in tasks:
            until_said(remote, job, name, "at 0")
        native, node = native_of(remote, job), remote.task(job, "b")["node_list"]
        assert site.rig.run(["pkill", "-KILL", "-x", "span-agent"], user="root", on=node).rc == 0
        for name, count in zip(tasks, attempts, strict=True):
            until_said(remote, job, name, f"at {count - 1} in {native}\n")
        # What the lost agent watched is gone, on this node too, where Slurm itself does not find orphans.
        asked = ("pgrep", "-c", "-u", "researcher", "-x", "bash")
        remote.wait_until(lambda: site.rig.run(asked, user="root", on=node).stdout == "1\n", 20, "one program there")
        gate.open()
        shown = remote.until(job, "COMPLETED")
        assert tuple(len(task["attempts"]) for task in shown["tasks"]) == attempts
        assert shown["tasks"][1]["attempts"][0]["state"] == "NODE_FAIL"

    def test_no_member_starts_before_there_is_room_for_all_and_two_wide_groups_both_finish(
        self, remote: Span, site: Site
    ) -> None:
        wide: Tasks = {
            "a": {"num_nodes": 2, "run": "echo run; sleep 1", "resources": WHOLE},
            "b": {"run": "echo run; sleep 1", "resources": WHOLE},
        }
        remote.wait_until(lambda: not list_processes(site), 20, "the end of what ran before")
        with fill(site, remote.wait_until, "-w", "node2", "-c4", "--mem=50") as filler:
            jobs = [start(remote, group(wide, name=f"g{number}")) for number in range(2)]
            waiting = {"Resources", "Priority"}
            for job in jobs:
                remote.wait_until(lambda job=job: remote.job(job)["reason"] in waiting, 20, "it waits")
            assert not any("overspan" in row for row in list_processes(site))
            assert set(site.slurm("squeue", "-h", "-t", "R", "-o", "%i").split()) == {filler}
            assert all(remote.log(job, task) == "" for job in jobs for task in ("a", "b"))
        ended = [remote.until(job, "COMPLETED", timeout=60) for job in jobs]
        times = sorted((min(task["started_at"] for task in job["tasks"]), job["ended_at"]) for job in ended)
        assert times[0][1] <= times[1][0]

    def test_a_task_shares_the_nodes_of_another_and_one_has_its_own(self, remote: Span, site: Site) -> None:
        gate = Gate(site)
        tasks: Tasks = {
            "trainer": {"run": f"{gate.wait}; echo $OVERSPAN_HOST"},
            "loader": {"run": f"echo $OVERSPAN_HOST; {SERVE}", "share": "trainer"},
            "alone": {"run": f"echo $OVERSPAN_HOST; {SERVE}", "spread": True},
        }
        job = start(remote, group(tasks, primary_tasks=["trainer"]))
        for name in ("loader", "alone"):
            until_said(remote, job, name, "up")
        # The one that shares has no node of its own; what has one of another size is another component.
        native = native_of(remote, job)
        wanted, listed = {f"{native}+{place} 1" for place in (0, 1)}, ("squeue", "-h", "-o", "%i %D")
        # What has run before may still be on its way out.
        remote.wait_until(lambda: set(site.slurm(*listed).splitlines()) == wanted, 20, f"only {wanted}")
        nodes = {task["name"]: task["node_list"] for task in remote.job(job)["tasks"]}
        assert nodes["trainer"] == nodes["loader"] != nodes["alone"]
        gate.open()
        shown = remote.until(job, "COMPLETED")
        assert {task["name"]: task["reason"] for task in shown["tasks"]} == {
            "trainer": "None",
            "loader": "PrimariesDone",
            "alone": "PrimariesDone",
        }
        assert remote.log(job, "trainer") == "trainer-0.g\n"
        assert [remote.log(job, name).split()[0] for name in ("loader", "alone")] == ["loader-0.g", "alone-0.g"]


def check_unseen_ends(span: Span, site: Site, forgotten: bool) -> None:
    """A single job and a group end while no daemon is there: state, exit code and times are true afterwards."""
    gate = Gate(site)
    single = submit(span, "--wrap", f"{gate.wait}; date +end=%s.%N; exit 9")
    ends = f"{gate.wait}; date +end=%s.%N; exit 5"
    many = start(span, group({"a": {"run": ends}, "b": {"run": SERVE}}, primary_tasks=["a"]))
    for job in (single, many):
        span.until(job, "RUNNING")
    natives = {job: native_of(span, job) for job in (single, many)}
    span.kill_daemon()
    gate.open()
    span.wait_until(lambda: not site.slurm("squeue", "-h"), 20, "their ends")
    if forgotten:
        until_forgotten(span, site)
    for job, code, task in ((single, 9, ""), (many, 5, "a")):
        shown = span.until(job, "FAILED")
        assert shown["exit_code"] == code
        # Slurm's own times are whole seconds.
        end = int(read_time(span.log(job, task), "end"))
        assert end <= shown["tasks"][0]["ended_at"] <= end_in_slurm(span, site, natives[job]) + 1


class TestAway:
    def test_ends_that_only_the_accounting_knows(self, remote: Span, site: Site) -> None:
        check_unseen_ends(remote, site, True)

    def test_ends_without_an_accounting(
        self, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, wait_until: WaitUntil
    ) -> None:
        lines = {
            "AccountingStorageType=": "AccountingStorageType=accounting_storage/none",
            "AccountingStorageHost=": "",
        }
        folder = tmp_path_factory.mktemp("ssh")
        with rig_or_skip(Variant("rows-bare", lines, nodes=2)) as rig, open_access(rig, folder) as access:
            span = connect(Site(access), tmp_path, wait_until)
            try:
                check_unseen_ends(span, Site(access), False)
            finally:
                span.close()


def read_utc(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


SINFO = ("sinfo", "-N", "-h", "-o", "%N %P %c %T")


def list_nodes(span: Span) -> list[str]:
    """The same as Overspan tells it."""
    lines = span.run(*SINFO, "-M", "rig").stdout.splitlines()
    return sorted(" ".join(line.split()) for line in lines if not line.startswith("CLUSTER"))


class TestVerbs:
    def test_what_runs_is_shown_as_slurm_has_it(self, remote: Span, site: Site) -> None:
        gate = Gate(site)
        single = submit(remote, "--wrap", gate.wait)
        array = submit(remote, "--array=3,5", "--wrap", gate.wait)
        many = start(remote, group({"a": {"run": gate.wait}, "b": {"run": gate.wait, "spread": True}}))
        refs = {single: single, f"{array}_5": f"{array}_5", str(many): f"{many}+0"}
        for ref in (*refs, f"{array}_3"):
            remote.until(ref, "RUNNING")
        for task in ("a", "b"):
            remote.until(many, "RUNNING", task=task)
        shown = remote.run("squeue", "-h", "-o", "%i|%T|%N|%S", environment={"TZ": "UTC"}).stdout.splitlines()
        rows = {row.split("|")[0]: row.split("|")[1:] for row in shown}
        assert set(rows) == {single, f"{array}_3", f"{array}_5", f"{many}+0", f"{many}+1"}
        for ref, line in refs.items():
            native = native_of(remote, ref)
            asked = site.rig.run(["squeue", "-hj", native, "-o", "%A|%T|%N|%S"], env={"TZ": "UTC"}).stdout.split()
            # An array's last element has the id of the array too.
            (told,) = (row.split("|")[1:] for row in asked if row.startswith(f"{native}|"))
            state, nodes, began = told
            assert rows[line][0] == state
            assert (rows[line][1] == nodes) is (ref != str(many))
            # A member starts when the supervisor has started it.
            latest = time.time() if ref == str(many) else read_utc(began) + 1
            assert read_utc(began) - 1 <= read_utc(rows[line][2]) <= latest
            text = remote.run("scontrol", "show", "job", ref).stdout
            assert "JobState=RUNNING" in text and f"NodeList={rows[line][1]}" in text
        assert {rows[f"{many}+{number}"][1] for number in (0, 1)} < set(NODES)
        # What has run before may still be on its way out.
        remote.wait_until(lambda: list_nodes(remote) == sorted(site.slurm(*SINFO).splitlines()), 20, "the nodes")
        gate.open()
        for ref in (*refs, f"{array}_3"):
            remote.until(ref, "COMPLETED")
        kept = remote.run("sacct", "-nXP", "-j", f"{single},{array}_5,{many}", "-o", "JobID,State,ExitCode").stdout
        assert set(kept.split()) == {f"{ref}|COMPLETED|0:0" for ref in (single, f"{array}_5", f"{many}+0", f"{many}+1")}

    def test_a_log_is_followed_until_its_end(self, remote: Span, site: Site) -> None:
        gate = Gate(site)
        job = submit(remote, "--wrap", f"echo first; {gate.wait}; echo last")
        remote.until(job, "RUNNING")
        words = [str(Path(sys.executable).with_name("span")), "logs", "-f", job, "batch"]
        with subprocess.Popen(words, env=remote.environment, stdout=subprocess.PIPE, text=True) as following:
            assert following.stdout is not None
            assert following.stdout.readline() == "first\n"
            gate.open()
            assert following.stdout.read() == "last\n"
            assert following.wait(300) == 0

    def test_a_signal_reaches_single_jobs_and_members(self, remote: Span) -> None:
        hear = "trap 'echo heard; exit 0' USR1; echo up; while :; do sleep 0.1; done"
        single = submit(remote, "--wrap", hear)
        many = start(remote, group({"a": {"run": hear}, "b": {"run": hear}}))
        for job, task in ((single, ""), (many, "a"), (many, "b")):
            until_said(remote, job, task, "up")
        remote.run("scancel", "--batch", "--signal=USR1", single)
        remote.run("scancel", "--signal=USR1", str(many))
        for job, task in ((single, ""), (many, "a"), (many, "b")):
            until_said(remote, job, task, "heard")
            remote.until(job, "COMPLETED")

    def test_waiting_jobs_are_held_changed_and_let_go(self, remote: Span, site: Site) -> None:
        with fill(site, remote.wait_until, "-N3", "--exclusive"):
            job = submit(remote, "--time=10", "--wrap", "true")
            self.change(remote, site, job, native_of(remote, job))
        assert remote.until(job, "COMPLETED")["exit_code"] == 0

    def change(self, remote: Span, site: Site, job: str, native: str) -> None:
        """Hold a job that waits, change it and let it go."""
        waiting = ("Reason=Resources", "Reason=Priority")
        for words, said in (
            (("hold", job), ("Reason=JobHeldUser",)),
            (("scontrol", "update", f"JobId={job}", "TimeLimit=5"), ("TimeLimit=00:05:00",)),
            (("release", job), waiting),
        ):
            remote.run(*words)
            until_slurm_says(remote, site, native, said)
        remote.wait_until(lambda: remote.job(job)["reason"] in ("Resources", "Priority"), 20, "the release")
        shown = remote.run("squeue", "-h", "-j", job, "-o", "%T %l").stdout.split()
        assert shown == ["PENDING", "5:00"]
        priority = re.compile(r"Priority=(\d+)")
        before = priority.findall(site.slurm("scontrol", "show", "job", native))
        done = remote.run("scontrol", "top", job, check=False)
        # The order of its queue is Slurm's own: a small number would put the job last.
        assert done.returncode != 0 and "is that of the cluster's own queue" in done.stderr
        assert priority.findall(site.slurm("scontrol", "show", "job", native)) == before


def until_slurm_says(span: Span, site: Site, native: str, texts: tuple[str, ...]) -> None:
    """Wait until Slurm's own record of a job has one of the texts."""

    def look() -> bool:
        shown = site.slurm("scontrol", "show", "job", native)
        return any(text in shown for text in texts)

    span.wait_until(look, 20, f"Slurm to say {texts}")

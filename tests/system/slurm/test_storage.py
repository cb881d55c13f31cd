"""Storage in an object store on a real Slurm: what jobs write is there at their end, and credentials nowhere else."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import pytest
from tests.rigs.reach import find_address
from tests.stores import SECRET, TestStore, configure_store, lend_bucket, run_store, write_credentials
from tests.system.conftest import Span
from tests.system.slurm.conftest import Site
from tests.system.slurm.groups import native_of
from tests.system.watchers import find_own_address
from tests.waiting import WaitUntil

CACHED = "resources: {cpus: 1, memory: 100M}\nfile_mounts: {./out: {source: s3://lab/run, mode: MOUNT_CACHED}}\n"


@pytest.fixture(scope="module", name="shared_store")
def share_store(site: Site, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestStore]:
    """moto's server, where the nodes reach it."""
    with run_store(tmp_path_factory.mktemp("store"), find_own_address(find_address(site.rig))) as store:
        yield store


@pytest.fixture
def store(shared_store: TestStore) -> Iterator[TestStore]:
    """The store with an empty bucket `lab`."""
    with lend_bucket(shared_store) as store:
        yield store


@pytest.fixture
def lab(site: Site, store: TestStore, tmp_path: Path, wait_until: WaitUntil) -> Iterator[Span]:
    """A daemon that knows the rig and the store."""
    span = Span(tmp_path, wait_until)
    settings = {"kind": "slurm", "tick": 0.5, **site.access.settings}
    stores = configure_store(store, tmp_path)
    span.config.write_text(json.dumps({"clusters": {"rig": settings}, "stores": stores}))
    yield span
    span.close()
    # What Slurm has ended leaves its data and credentials in the run directory, where later tests look for theirs.
    site.rig.run(["sh", "-c", "rm -rf /home/researcher/.overspan/runs/*"], user="root")


def start(span: Span, text: str) -> int:
    """Submit a job that works in a folder of the cluster's."""
    return span.submit(f"workdir: /home/researcher\n{text}", "-M", "rig")


def find_secret(site: Site) -> list[str]:
    """The user's files on the cluster that hold the secret, with their rights."""
    words = ["sh", "-c", f"grep -rlF {SECRET} /home/researcher /tmp 2>/dev/null | xargs -r stat -c '%a %n'"]
    return site.rig.run(words, user="root").stdout.splitlines()


@contextlib.contextmanager
def without_node(site: Site, node: str) -> Iterator[None]:
    """Slurm takes a node for down meanwhile."""
    update = ["scontrol", "update", f"NodeName={node}"]
    assert site.rig.run([*update, "State=DOWN", "Reason=test"], user="root").rc == 0
    try:
        yield
    finally:
        # It may have come back by itself.
        site.rig.run([*update, "State=RESUME"], user="root")


def find_left(site: Site, job: int) -> list[str]:
    """Files of a job's storage that are still on the cluster."""
    words = ["sh", "-c", f"find /home/researcher -path '*/data/{job}/*/files/*' -type f"]
    return site.rig.run(words, user="root").stdout.splitlines()


def find_lock(site: Site, job: int) -> str:
    """The lock of a job's rescue, while there is one."""
    words = ["sh", "-c", f"find /home/researcher -path '*/data/{job}/rescue.lock'"]
    return site.rig.run(words, user="root").stdout.strip()


class TestModes:
    def test_a_copy_and_what_is_written_at_once_before_the_end(
        self, lab: Span, site: Site, store: TestStore, wait_until: WaitUntil
    ) -> None:
        store.open("lab").put("data/a", b"hello")
        mounts = "{./in: s3://lab/data, ./out: {source: s3://lab/run, mode: MOUNT_CACHED}}"
        run = "set -e; cat in/a; cp in/a out/a; head -c 20M /dev/urandom > out/b; sha256sum < out/b; exit 0"
        job = start(lab, f"resources: {{cpus: 1, memory: 100M}}\nfile_mounts: {mounts}\nrun: {run}\n")
        lab.until(job, "COMPLETED", timeout=90)
        texts = store.texts("lab", "run/")
        assert texts["run/a"] == b"hello"
        said = wait_until(lambda: lab.log(job) if "-" in lab.log(job) else "", 20, "the output")
        assert hashlib.sha256(texts["run/b"]).hexdigest() in said
        assert find_left(site, job) == []
        assert find_secret(site) == []
        assert site.rig.run(["ls", "-A", "/home/researcher/in", "/home/researcher/out"]).rc != 0

    def test_the_secret_is_in_one_file_of_the_user_s_while_it_runs(
        self, lab: Span, site: Site, store: TestStore, wait_until: WaitUntil
    ) -> None:
        job = start(lab, CACHED + "run: env > out/env; sleep 300\n")
        wait_until(lambda: "run/env" in store.texts("lab"), 60, "the first file to be sent while the job runs")
        assert SECRET.encode() not in store.texts("lab")["run/env"]
        (found,) = find_secret(site)
        assert found.startswith("600 ") and found.endswith("/stores/s3.json")
        native = native_of(lab, job)
        said = site.slurm("scontrol", "show", "job", "-dd", native) + site.slurm(
            "scontrol", "write", "batch_script", native, "-"
        )
        assert SECRET not in said
        lab.run("scancel", str(job))
        lab.until(job, "CANCELLED")


class TestEnds:
    def test_a_cancel_waits_for_the_data_and_slurm_s_own_too(
        self, lab: Span, site: Site, store: TestStore, wait_until: WaitUntil
    ) -> None:
        run = "run: trap 'sleep 0.2; echo last > out/last; exit 0' TERM; touch out/begun; sleep 99 & wait\n"
        for cancel in (
            lambda job: lab.run("scancel", str(job)),
            lambda job: site.slurm("scancel", native_of(lab, job)),
        ):
            for stored in list(store.open("lab").list_objects("")):
                store.open("lab").delete(stored.key)
            job = start(lab, CACHED + run)
            wait_until(lambda: "run/begun" in store.texts("lab"), 60, "the first file to be sent")
            cancel(job)
            lab.until(job, "CANCELLED", timeout=60)
            wait_until(lambda: store.texts("lab").get("run/last") == b"last\n", 20, "the last file to be in the store")

    def test_nothing_to_send_costs_no_time(self, lab: Span, store: TestStore) -> None:
        """DT05: from the program's end to the task's, beside a bare interpreter (10 ms when quiet)."""
        began = time.monotonic()
        subprocess.run([sys.executable, "-c", "pass"], check=True)
        bare = time.monotonic() - began
        job = start(lab, CACHED + "run: echo 1 > out/a; sleep 5\n")
        lab.until(job, "COMPLETED", timeout=90)
        told = {row["cause"]: datetime.fromisoformat(row["at"]) for row in lab.timeline(job)}
        assert (told["Flushed"] - told["NodeEnded"]).total_seconds() < 100 * max(bare, 0.01)
        assert store.texts("lab") == {"run/a": b"1\n"}

    def test_an_auxiliary_that_ends_with_its_group(self, lab: Span, store: TestStore) -> None:
        server = f"name: server\nworkdir: /home/researcher\n{CACHED}run: trap 'echo last > out/last; exit 0' TERM; "
        server += "touch out/begun; sleep 99 & wait\n"
        trainer = "name: trainer\nneeds: server\nresources: {cpus: 1, memory: 100M}\nrun: sleep 2\n"
        head = "name: g\nexecution: parallel\nprimary_tasks: [trainer]\n"
        job = lab.submit(f"{head}---\n{trainer}---\n{server}", "-M", "rig")
        lab.until(job, "COMPLETED", timeout=90)
        assert store.texts("lab") == {"run/begun": b"", "run/last": b"last\n"}

    def test_a_store_that_does_not_come_back_fails_the_job_and_the_data_stays(
        self, lab: Span, site: Site, store: TestStore, wait_until: WaitUntil
    ) -> None:
        job = start(lab, CACHED + "flush: {timeout: 8}\nrun: touch out/begun; sleep 5; echo 1234567 > out/a\n")
        wait_until(lambda: "run/begun" in store.texts("lab"), 60, "the first file to be sent")
        store.proxy.cut()
        lab.until(job, "COMPLETING")
        assert lab.look("squeue", "-h", "-o", "%T %r").split() == ["COMPLETING", "Flushing"]
        facts = lab.until(job, "FAILED", timeout=60)
        assert facts["reason"] == "FlushFailed"
        assert [path.rpartition("/")[2] for path in find_left(site, job)].count("a") == 1
        refused = lab.run("data", "rescue", str(job), check=False)
        assert refused.returncode != 0 and "Traceback" not in refused.stderr, refused.stderr
        store.proxy.mend()
        assert lab.run("data", "rescue", str(job)).stderr == "span: 1 file, 8 bytes sent\n"
        assert store.texts("lab") == {"run/begun": b"", "run/a": b"1234567\n"}
        assert find_left(site, job) == [] and find_secret(site) == []
        again = lab.run("data", "rescue", str(job), check=False)
        assert f"job {job} has left no data on rig" in again.stderr

    def test_a_rescue_that_outlives_its_daemon_keeps_the_next_one(
        self, lab: Span, site: Site, store: TestStore, wait_until: WaitUntil
    ) -> None:
        """The login node still sends for the daemon that is gone."""
        job = start(lab, CACHED + "flush: {timeout: 2}\nrun: touch out/begun; sleep 5; echo 1234567 > out/a\n")
        wait_until(lambda: "run/begun" in store.texts("lab"), 60, "the first file to be sent")
        store.proxy.cut()
        lab.until(job, "FAILED", timeout=60)
        store.proxy.mend()
        store.proxy.delay = 20.0
        words = [str(Path(sys.executable).with_name("span")), "data", "rescue", str(job)]
        with subprocess.Popen(
            words, env=lab.environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        ) as first:
            wait_until(lambda: find_lock(site, job), 60, "the first rescue to begin")
            lab.kill_daemon()
            first.wait(60)
        refused = lab.run("data", "rescue", str(job), check=False)
        assert f"the data of job {job} is being sent by another rescue (process " in refused.stderr
        assert "run/a" not in store.texts("lab")
        store.proxy.delay = 0.0
        wait_until(lambda: not find_lock(site, job), 120, "the first rescue to end")
        assert store.texts("lab")["run/a"] == b"1234567\n"
        again = lab.run("data", "rescue", str(job), check=False)
        assert f"job {job} has left no data on rig" in again.stderr

    def test_what_is_left_is_listed_removed_by_hand_and_goes_after_its_time(
        self, lab: Span, site: Site, store: TestStore, wait_until: WaitUntil
    ) -> None:
        run = "run: touch out/begun; sleep 5; echo 1234567 > out/a\n"
        first = start(lab, f"name: writer\n{CACHED}flush: {{timeout: 2}}\n{run}")
        wait_until(lambda: "run/begun" in store.texts("lab"), 60, "the first file to be sent")
        store.proxy.cut()
        lab.until(first, "FAILED", timeout=60)
        (row,) = json.loads(lab.look("data", "ls", "-M", "rig", "--json"))["unsent"]
        known = [row[key] for key in ("cluster", "job", "task", "files", "size", "state", "url")]
        assert known == ["rig", first, "writer", 1, 8, "left", "s3://lab/run"]
        assert lab.run("data", "rm", str(first)).stderr == "span: 1 file, 8 bytes removed from rig\n"
        assert find_left(site, first) == [] and len(lab.look("data", "ls").splitlines()) == 1
        settings = json.loads(lab.config.read_text())
        settings["clusters"]["rig"]["data_keep"] = "10s"
        lab.config.write_text(json.dumps(settings))
        lab.run("shutdown")
        store.proxy.mend()
        second = start(lab, CACHED + f"flush: {{timeout: 2}}\n{run.replace('begun', 'again')}")
        wait_until(lambda: "run/again" in store.texts("lab"), 60, "the first file to be sent")
        store.proxy.cut()
        lab.until(second, "FAILED", timeout=60)
        wait_until(lambda: find_left(site, second) == [], 60, "it to be removed")
        said = f"what job {second} could not send was removed from rig after 0:10: 1 file, 8 bytes, for s3://lab/run"
        wait_until(lambda: said in (lab.state / "daemon.log").read_text(), 10, "the log to say so")

    def test_a_daemon_that_is_killed_meanwhile(self, lab: Span, store: TestStore, wait_until: WaitUntil) -> None:
        job = start(lab, CACHED + "run: touch out/begun; sleep 4; echo 1234567 > out/a\n")
        wait_until(lambda: "run/begun" in store.texts("lab"), 60, "the first file to be sent")
        store.proxy.cut()
        lab.until(job, "COMPLETING")
        lab.kill_daemon()
        store.proxy.mend()
        lab.until(job, "COMPLETED", timeout=60)
        assert store.texts("lab")["run/a"] == b"1234567\n"


SHARDS = """
num_nodes: 2
resources: {cpus: 1, memory: 100M}
file_mounts: {./out: {source: s3://lab/run, mode: MOUNT_CACHED}}
run: |
  echo $SLURMD_NODENAME
  mkdir -p out/step_1
  if [ -e out/step_1/.metadata ]; then ls out/step_1; exit 0; fi
  # The second one is slow, and the first waits for it as at a barrier.
  [ $OVERSPAN_NODE_INDEX = 0 ] || sleep 4
  head -c 3000000 /dev/urandom > out/step_1/part
  mv out/step_1/part out/step_1/shard$OVERSPAN_NODE_INDEX
  until [ -e out/step_1/shard0 ] && [ -e out/step_1/shard1 ]; do sleep 0.1; done
  [ $OVERSPAN_NODE_INDEX = 1 ] || touch out/step_1/.metadata
  while :; do sleep 1; done
"""


class TestNodes:
    @pytest.mark.parametrize("lost", [0, 1])
    def test_a_checkpoint_of_two_nodes_is_whole_or_not_there_and_found_by_the_next_attempt(
        self, lab: Span, site: Site, store: TestStore, wait_until: WaitUntil, lost: int
    ) -> None:
        """DT10: a marker comes after the shards of both nodes; one that goes costs an attempt, which has all of it."""
        job = start(lab, SHARDS)
        seen: list[set[str]] = []

        def look() -> bool:
            seen.append({name.rpartition("/")[2] for name in store.texts("lab", "run/")})
            return ".metadata" in seen[-1]

        wait_until(look, 90, "the checkpoint in the store")
        assert all({"shard0", "shard1"} <= names for names in seen if ".metadata" in names)
        with without_node(site, lab.look("logs", str(job), "--node", str(lost)).split()[0]):
            lab.until(job, "COMPLETED", timeout=120)
        assert [attempt["state"] for attempt in lab.job(job)["tasks"][0]["attempts"]] == ["NODE_FAIL", "COMPLETED"]
        for number in (0, 1):
            assert lab.look("logs", str(job), "--node", str(number)).split()[-2:] == ["shard0", "shard1"]
        assert find_left(site, job) == []
        assert find_secret(site) == []

    def test_two_tasks_write_one_folder(self, lab: Span, site: Site, store: TestStore) -> None:
        """Each on a node of its own; the one that ends first does not end the sending for the other."""
        texts = [
            f"name: {name}\nworkdir: /home/researcher\nresources: {{cpus: 3, memory: 100M}}\n"
            "file_mounts: {./out: {source: s3://lab/run, mode: MOUNT_CACHED}}\n"
            f"run: echo early > out/{name}1; sleep {seconds}; head -c 9M /dev/urandom > out/{name}2; hostname\n"
            for name, seconds in (("a", 1), ("b", 4))
        ]
        job = lab.submit("---\n".join(["name: g\nexecution: parallel\n", *texts]), "-M", "rig")
        lab.until(job, "COMPLETED", timeout=90)
        found = store.texts("lab", "run/")
        assert {name: len(data) for name, data in found.items()} == {
            "run/a1": 6,
            "run/a2": 9 << 20,
            "run/b1": 6,
            "run/b2": 9 << 20,
        }
        assert lab.log(job, "a") != lab.log(job, "b")
        assert find_left(site, job) == []

    def test_a_folder_that_one_node_alone_sees_is_no_place_to_mount_at(self, lab: Span, store: TestStore) -> None:
        mount = "file_mounts: {/tmp/out: {source: s3://lab/run, mode: MOUNT_CACHED}}\nrun: touch /tmp/out/a\n"
        job = start(lab, f"num_nodes: 2\nresources: {{cpus: 1, memory: 100M}}\n{mount}")
        lab.until(job, "FAILED", timeout=90)
        assert "mount it in a shared folder" in lab.look("show", str(job))


class TestCache:
    def test_a_content_is_kept_for_the_next_job(
        self, lab: Span, site: Site, store: TestStore, wait_until: WaitUntil
    ) -> None:
        settings = json.loads(lab.config.read_text())
        settings["clusters"]["rig"] |= {"data_cache": "~/span-cache", "data_cache_size": "100M"}
        lab.config.write_text(json.dumps(settings))
        store.open("lab").put("data/a", b"hello")
        mount = "resources: {cpus: 1, memory: 100M}\nfile_mounts: {./in: s3://lab/data}\n"
        said = []
        for _ in range(2):
            job = start(lab, mount + "run: cat in/a; stat -L -c %i in/a\n")
            lab.until(job, "COMPLETED", timeout=90)
            said.append(lab.log(job))
        assert said[0] == said[1] and said[0].startswith("hello")
        (cache,) = json.loads(lab.look("cache", "ls", "-M", "rig", "--json"))["caches"]
        (content,) = cache["contents"]
        assert (content["name"], content["size"], content["links"]) == ("s3/lab/data/a", 5, 0)
        assert (cache["path"], cache["limit"]) == ("/home/researcher/span-cache", 100 << 20)
        assert lab.look("cache", "clean", "-M", "rig") == "rig: 1 content removed, 5 bytes\n"
        left = site.rig.run(["find", "/home/researcher/span-cache", "-type", "f"]).stdout.split()
        assert left == []


RESUMING = """
run: |
  if [ -e out/step_1 ]; then ls out; touch out/seen; exit 0; fi
  trap '' TERM
  echo one > out/step_1; exec 3> out/open; while :; do echo >&3; sleep 0.2; done
"""


class TestRequeues:
    def requeue(self, lab: Span, site: Site, job: int, by: str) -> None:
        """End the run of a job and have it queued again, by Overspan or by an operator of the cluster."""
        if by == "span":
            lab.run("scontrol", "requeue", str(job))
            return
        native = native_of(lab, job)
        for words in (["update", f"JobId={native}", "Requeue=1"], ["requeue", native]):
            assert site.rig.run(["scontrol", *words], user="root").rc == 0

    @pytest.mark.parametrize("by", ["span", "slurm"])
    def test_the_next_run_sees_all_that_was_written(
        self, lab: Span, site: Site, store: TestStore, wait_until: WaitUntil, by: str
    ) -> None:
        """Also what was not sent: the store is away when the first run ends, and its mover goes on for a while."""
        job = start(lab, CACHED + "grace_period: 3\nflush: {timeout: 15}\n" + RESUMING)
        wait_until(lambda: "run/step_1" in store.texts("lab"), 60, "the first file to be sent")
        store.proxy.cut()
        self.requeue(lab, site, job, by)
        live = ("RUNNING", "COMPLETING")
        wait_until(lambda: lab.job(job)["tasks"][0]["attempts"][0]["state"] not in live, 60, "the end of the first run")
        store.proxy.mend()
        lab.until(job, "COMPLETED", timeout=150)
        assert lab.log(job).split()[-2:] == ["open", "step_1"]
        assert {"run/step_1", "run/open", "run/seen"} <= set(store.texts("lab"))
        wait_until(lambda: find_left(site, job) == [] and find_secret(site) == [], 60, "nothing to be left")

    def test_a_node_that_is_lost_while_its_data_is_sent(
        self, lab: Span, site: Site, store: TestStore, wait_until: WaitUntil
    ) -> None:
        first = "echo one > out/step_1; sleep 3; touch out/late"
        run = f"run: hostname; ls out; if [ -e out/late ]; then exit 0; fi; {first}\n"
        job = start(lab, CACHED + run)
        wait_until(lambda: "run/step_1" in store.texts("lab"), 60, "the first file to be sent")
        store.proxy.cut()
        lab.until(job, "COMPLETING", timeout=30)
        with without_node(site, lab.log(job).split()[0]):
            wait_until(lambda: len(lab.job(job)["tasks"][0]["attempts"]) == 2, 60, "the next attempt")
            store.proxy.mend()
            lab.until(job, "COMPLETED", timeout=120)
        assert [attempt["state"] for attempt in lab.job(job)["tasks"][0]["attempts"]] == ["NODE_FAIL", "COMPLETED"]
        assert lab.log(job).split()[-2:] == ["late", "step_1"]
        assert {"run/step_1", "run/late"} <= set(store.texts("lab"))
        assert find_left(site, job) == []


class TestUploads:
    """What happens to a large file while it goes up, by a store that takes some seconds for it."""

    def test_a_node_that_is_lost_in_the_middle(
        self, lab: Span, site: Site, store: TestStore, wait_until: WaitUntil
    ) -> None:
        write = "touch out/begun; sleep 2; head -c 40M /dev/urandom > out/large; sleep 600"
        run = f"run: hostname; if [ -e out/large ]; then sha256sum < out/large; exit 0; fi; {write}\n"
        job = start(lab, CACHED + run)
        wait_until(lambda: "run/begun" in store.texts("lab"), 60, "the first file to be sent")
        store.proxy.delay, before = 0.1, store.proxy.passed
        wait_until(lambda: store.proxy.passed - before > 5 << 20, 60, "the large one to be under way")
        with without_node(site, lab.log(job).split()[0]):
            wait_until(lambda: len(lab.job(job)["tasks"][0]["attempts"]) == 2, 60, "the next attempt")
            assert "run/large" not in store.texts("lab"), "it was sent before its node was lost"
            store.proxy.delay = 0.0
            lab.until(job, "COMPLETED", timeout=120)
        assert hashlib.sha256(store.texts("lab")["run/large"]).hexdigest() in lab.log(job)
        assert find_left(site, job) == []

    def test_a_file_that_changes_is_no_mixture(
        self, lab: Span, site: Site, store: TestStore, wait_until: WaitUntil
    ) -> None:
        change = "printf changed | dd of=out/a conv=notrunc bs=1 seek=3000000 2> /dev/null"
        write = "head -c 40M /dev/urandom > out/a; sha256sum < out/a"
        go = "/home/researcher/changed-go"
        run = f"touch out/begun; sleep 2; {write}; until [ -e {go} ]; do sleep 0.1; done; {change}; sha256sum < out/a"
        job = start(lab, CACHED + f"run: {run}\n")
        wait_until(lambda: "run/begun" in store.texts("lab"), 60, "the first file to be sent")
        store.proxy.delay, before = 0.1, store.proxy.passed
        wait_until(lambda: store.proxy.passed - before > 5 << 20, 60, "the large one to be under way")
        site.rig.run(["touch", go], user="root")
        lab.until(job, "COMPLETED", timeout=120)
        assert store.proxy.passed - before > 45 << 20, "it was not sent again"
        first, last = (line.split()[0] for line in lab.log(job).splitlines() if line.endswith("-"))
        assert first != last
        site.rig.run(["rm", go], user="root")
        assert hashlib.sha256(store.texts("lab")["run/a"]).hexdigest() == last


class TestRefusals:
    @pytest.mark.parametrize(
        ("text", "why"),
        [
            ("resources: {image_id: 'docker:busybox'}\n", "not mounted in images"),
        ],
    )
    def test_what_is_not_built_is_refused_with_its_line(self, lab: Span, text: str, why: str) -> None:
        mount = "file_mounts:\n  ./out: {source: s3://lab/run, mode: MOUNT_CACHED}\nrun: ls\n"
        done = lab.run("submit", "-", "-M", "rig", stdin=text + mount, check=False)
        assert done.returncode == 2
        assert why in done.stderr and ":3:" in done.stderr


class TestCredentials:
    def test_temporary_ones_are_renewed_under_a_running_job(
        self, lab: Span, site: Site, store: TestStore, wait_until: WaitUntil
    ) -> None:
        go = "/home/researcher/renewed-go"
        job = start(lab, CACHED + f"run: echo 1 > out/a; while [ ! -e {go} ]; do sleep 0.2; done; echo 2 > out/b\n")
        wait_until(lambda: store.texts("lab") == {"run/a": b"1\n"}, 60, "the first file to be sent")
        # Another daemon, which does not remember what was sent.
        lab.kill_daemon()
        assert lab.job(job)["state"] == "RUNNING"
        store.proxy.refused_key, before = "testing", store.proxy.refused
        site.rig.run(["touch", go], user="root")
        wait_until(lambda: store.proxy.refused > before, 30, "the store to refuse those that have expired")
        write_credentials(lab.folder, "renewed")
        lab.until(job, "COMPLETED", timeout=90)
        assert store.texts("lab") == {"run/a": b"1\n", "run/b": b"2\n"}
        site.rig.run(["rm", go], user="root")

    def test_they_go_where_slurm_kills_who_would_remove_them(
        self, lab: Span, site: Site, store: TestStore, wait_until: WaitUntil
    ) -> None:
        job = start(lab, CACHED + "run: echo 1 > out/a; sleep 300\n")
        wait_until(lambda: store.texts("lab") == {"run/a": b"1\n"}, 60, "the first file to be sent")
        assert len(find_secret(site)) == 1
        site.slurm("scancel", "--signal=KILL", "--full", native_of(lab, job))
        site.slurm("scancel", native_of(lab, job))
        lab.until(job, "CANCELLED", "FAILED", "NODE_FAIL", timeout=90)
        wait_until(lambda: find_secret(site) == [], 60, "the credentials to be removed")


class TestMounts:
    MOUNTED = "resources: {cpus: 1, memory: 200M}\nfile_mounts: {./data: {source: s3://lab/run, mode: MOUNT}}\n"
    READ = "sha256sum < data/large; echo $SLURMD_NODENAME > data/from-$SLURMD_NODENAME; ls data/"

    def test_the_same_job_reads_on_a_node_with_fuse_and_on_one_without(
        self, lab: Span, site: Site, store: TestStore, wait_until: WaitUntil
    ) -> None:
        content = os.urandom(3_000_000)
        store.open("lab").put("run/large", content)
        copied = "was brought here whole before the start: there is no /dev/fuse"
        for node, words in {"node1": "is read through the store", "node2": copied}.items():
            job = start(lab, f"{self.MOUNTED}slurm: {{nodelist: {node}}}\nrun: {self.READ}\n")
            lab.until(job, "COMPLETED", timeout=90)
            said = self._read_log(lab, job, wait_until, f"from-{node}")
            assert hashlib.sha256(content).hexdigest() in said
            assert f"s3://lab/run {words}" in said
            assert store.texts("lab")[f"run/from-{node}"] == f"{node}\n".encode()
        assert site.rig.run(["grep", "fuse.overspan", "/proc/mounts"], on="node1").rc == 1
        assert site.rig.run(["pgrep", "span-fuse"], on="node1").rc == 1

    def test_nodes_of_one_task_with_fuse_and_without_see_the_same(
        self, lab: Span, site: Site, store: TestStore, wait_until: WaitUntil
    ) -> None:
        content = os.urandom(3_000_000)
        store.open("lab").put("run/large", content)
        job = start(lab, f"num_nodes: 2\n{self.MOUNTED}slurm: {{nodelist: 'node1,node2'}}\nrun: {self.READ}\n")
        lab.until(job, "COMPLETED", timeout=90)
        said = self._read_log(lab, job, wait_until, "before the start: a node cannot mount the task's storage: ")
        assert hashlib.sha256(content).hexdigest() in said
        assert set(store.texts("lab")) == {"run/large", "run/from-node1", "run/from-node2"}

    def _read_log(self, lab: Span, job: int, wait_until: WaitUntil, words: str) -> str:
        return wait_until(lambda: lab.log(job) if words in lab.log(job) else "", 20, "the output")

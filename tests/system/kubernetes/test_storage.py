"""Storage in an object store in real pods: what jobs write is there at their end, and credentials nowhere else."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

import pytest
from tests.rigs.kube import PYTHON_IMAGE, SMALL_IMAGE, KubeRig
from tests.stores import SECRET, TestStore, configure_store, lend_bucket, run_store, write_credentials
from tests.system.kubernetes.conftest import KubeSpan
from tests.system.kubernetes.tolerations import SOON
from tests.system.watchers import find_own_address
from tests.waiting import WaitUntil

RESOURCES = "resources: {cpus: 0.1, memory: 100M%s}\n"
MOUNT = "file_mounts: {./out: {source: s3://lab/run, mode: MOUNT_CACHED}}\n"
CACHED = RESOURCES % "" + MOUNT


@pytest.fixture(scope="module", name="shared_store")
def share_store(kube_rig: KubeRig, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestStore]:
    """moto's server, where pods reach it."""
    with run_store(tmp_path_factory.mktemp("store"), find_own_address(kube_rig.find_node_address(1))) as store:
        yield store


@pytest.fixture
def store(shared_store: TestStore) -> Iterator[TestStore]:
    """The store with an empty bucket `lab`."""
    with lend_bucket(shared_store) as store:
        yield store


@pytest.fixture
def lab(kube: KubeSpan, kube_rig: KubeRig, kube_namespace: str, store: TestStore, tmp_path: Path) -> KubeSpan:
    """A daemon that knows the rig and the store."""
    kube.connect(kube_rig, kube_namespace, image=PYTHON_IMAGE)
    settings = json.loads(kube.config.read_text())
    settings["stores"] = configure_store(store, tmp_path)
    kube.config.write_text(json.dumps(settings))
    return kube


def only_pod(span: KubeSpan) -> dict[str, Any]:
    """The one pod of the namespace."""
    (pod,) = span.pods().values()
    return pod


def clear(store: TestStore) -> None:
    """Empty the bucket."""
    for stored in list(store.open("lab").list_objects("")):
        store.open("lab").delete(stored.key)


def make_claim(span: KubeSpan, folder: Path) -> str:
    """A claim of the namespace that is bound to a folder."""
    name = f"kept-{span.namespace}"
    common = {"accessModes": ["ReadWriteMany"], "storageClassName": ""}
    spec = {
        **common,
        "capacity": {"storage": "1Gi"},
        "hostPath": {"path": str(folder)},
        "claimRef": {"namespace": span.namespace, "name": name},
        "persistentVolumeReclaimPolicy": "Retain",
    }
    volume = {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}, "spec": spec}
    wanted = {**common, "resources": {"requests": {"storage": "1Gi"}}, "volumeName": name}
    claim = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name}, "spec": wanted}
    for made in (volume, claim):
        span.rig.apply(made, namespace=span.namespace)
    return name


class TestModes:
    def test_a_copy_and_what_is_written_at_once_before_the_end(self, lab: KubeSpan, store: TestStore) -> None:
        store.open("lab").put("data/a", b"hello")
        mounts = "{/in: s3://lab/data, /one: s3://lab/data/a, ~/out: {source: s3://lab/run, mode: MOUNT_CACHED}}"
        run = "set -e; cat /in/a /one; cp /in/a ~/out/a; head -c 20000000 /dev/urandom > ~/out/b; sha256sum < ~/out/b"
        job = lab.submit(f"resources: {{cpus: 0.1, memory: 100M}}\nfile_mounts: {mounts}\nrun: {run}; exit 0\n")
        lab.until(job, "COMPLETED", timeout=90)
        texts = store.texts("lab", "run/")
        assert texts["run/a"] == b"hello"
        said = lab.log(job)
        assert said.startswith("hellohello") and hashlib.sha256(texts["run/b"]).hexdigest() in said

    def test_the_next_attempt_begins_with_what_was_written(self, lab: KubeSpan, store: TestStore) -> None:
        run = "run: if [ -e out/step ]; then cat out/step; else echo first > out/step; exit 3; fi\n"
        job = lab.submit(RESOURCES % ", job_recovery: {max_restarts_on_errors: 1}" + MOUNT + run)
        lab.until(job, "COMPLETED", timeout=90)
        assert lab.log(job).strip() == "first"

    def test_the_secret_is_in_one_object_and_not_in_the_task(
        self, lab: KubeSpan, store: TestStore, wait_until: WaitUntil
    ) -> None:
        job = lab.submit(CACHED + "run: env > out/env; cat /proc/1/environ >> out/env; sleep 300\n")
        wait_until(lambda: "run/env" in store.texts("lab"), 60, "the first file to be sent while the job runs")
        assert SECRET.encode() not in store.texts("lab")["run/env"]
        assert SECRET not in json.dumps(only_pod(lab))
        assert SECRET not in lab.kubectl("get", "configmaps", "-o", "json")
        assert SECRET not in lab.look("show", str(job), "--sent")
        name = only_pod(lab)["metadata"]["name"]
        found = lab.kubectl(
            "exec", name, "-c", "main", "--", "sh", "-c", "ls /overspan; cat /overspan/data/stores/* || :"
        )
        assert "data" not in found.split() and SECRET not in found
        lab.run("scancel", str(job))
        lab.until(job, "CANCELLED", timeout=60)


SHARDS = """
num_nodes: 2
resources: {cpus: 0.1, memory: 100M}
file_mounts: {./out: {source: s3://lab/run, mode: MOUNT_CACHED}}
run: |
  mkdir -p out/step_1
  if [ -e out/step_1/.metadata ]; then ls out/step_1; exit 0; fi
  head -c 3000000 /dev/urandom > out/step_1/shard$OVERSPAN_NODE_INDEX
  # The barrier of this story: the second one is slow, and the first has heard of its end.
  [ $OVERSPAN_NODE_INDEX = 0 ] || { sleep 2; while :; do sleep 1; done; }
  sleep 4
  touch out/step_1/.metadata
  while :; do sleep 1; done
"""


def test_a_checkpoint_of_two_pods_is_whole_or_not_there_and_found_by_the_next_attempt(
    lab: KubeSpan, store: TestStore, wait_until: WaitUntil
) -> None:
    """DT10: a marker comes after the shards of all pods; a killed one costs an attempt, which has all of it."""
    job = lab.submit(SHARDS)
    seen: list[set[str]] = []

    def look() -> bool:
        seen.append({name.rpartition("/")[2] for name in store.texts("lab", "run/")})
        return ".metadata" in seen[-1]

    wait_until(look, 90, "the checkpoint in the store")
    assert all({"shard0", "shard1"} <= names for names in seen if ".metadata" in names)
    pod = next(name for name in lab.pods() if name.endswith("1-a0") or "-1-" in name)
    lab.kubectl("delete", "pod", pod, "--grace-period=0", "--force")
    lab.until(job, "COMPLETED", timeout=120)
    for node in (0, 1):
        assert lab.look("logs", str(job), "--node", str(node)).split()[-2:] == ["shard0", "shard1"]
    lab.until_empty()


TALKING = """
num_nodes: 2
resources: {cpus: 0.1, memory: 100M}
file_mounts: {./out: {source: s3://lab/run, mode: MOUNT_CACHED}}
run: |
  mkdir -p out/step_1
  echo a > out/step_1/shard$OVERSPAN_NODE_INDEX
  # The second pod keeps a file open, so it does not say that it is done.
  [ $OVERSPAN_NODE_INDEX = 0 ] || { exec 3> out/step_1/open; while :; do echo >&3; sleep 0.2; done; }
  sleep 1; touch out/step_1/.metadata
  while :; do sleep 1; done
"""


class TestKilledPods:
    def talk(self, lab: KubeSpan, store: TestStore, wait_until: WaitUntil) -> int:
        """A job whose movers have asked each other, and will not answer."""
        job = lab.submit(TALKING)
        wait_until(lambda: store.texts("lab", ".overspan-peers/"), 90, "a question in the store")
        return job

    def test_what_killed_pods_have_asked_each_other_goes_with_their_job(
        self, lab: KubeSpan, store: TestStore, wait_until: WaitUntil
    ) -> None:
        job = self.talk(lab, store, wait_until)
        lab.kubectl("delete", "pods", "--all", "--grace-period=0", "--force", "--wait=false")
        lab.run("scancel", str(job))
        lab.until(job, "CANCELLED", timeout=90)
        wait_until(lambda: not store.texts("lab", ".overspan-peers/"), 90, "the bucket without questions")
        assert set(store.texts("lab")) >= {"run/step_1/shard0", "run/step_1/shard1"}

    def test_a_store_that_is_away_when_the_job_ends_is_cleared_later(
        self, lab: KubeSpan, store: TestStore, wait_until: WaitUntil
    ) -> None:
        job = self.talk(lab, store, wait_until)
        store.proxy.cut()
        lab.run("scancel", str(job))
        lab.until(job, "COMPLETING", timeout=60)
        lab.run("scancel", "--no-flush", str(job))
        lab.until(job, "CANCELLED", timeout=60)
        lab.until_empty(60)
        assert store.texts("lab", ".overspan-peers/")
        lab.kill_daemon()
        store.proxy.mend()
        # The next daemon looks after it without a job there.
        lab.run("ping")
        wait_until(lambda: not store.texts("lab", ".overspan-peers/"), 90, "the bucket without questions")


class TestEnds:
    def test_a_cancel_waits_for_the_data_of_a_program_that_does_not_end(
        self, lab: KubeSpan, store: TestStore, wait_until: WaitUntil
    ) -> None:
        for trap in ("'sleep 0.2; echo last > out/last; exit 0' TERM", "'echo last > out/last' TERM"):
            clear(store)
            run = f"run: trap {trap}; touch out/begun; while :; do sleep 0.2; done\n"
            job = lab.submit(CACHED + "grace_period: 3\n" + run)
            wait_until(lambda: "run/begun" in store.texts("lab"), 60, "the first file to be sent")
            lab.run("scancel", str(job))
            lab.until(job, "CANCELLED", timeout=60)
            assert store.texts("lab")["run/last"] == b"last\n"

    def test_nothing_to_send_costs_no_time(self, lab: KubeSpan, store: TestStore) -> None:
        """DT05: from the program's end to the task's, beside a pod without storage and a bare interpreter.

        A kubelet tells an end up to a second late, which is no matter of the data.
        """
        bare: list[float] = []
        spans: dict[bool, list[float]] = {True: [], False: []}
        for number in range(6):
            at, writes = time.monotonic(), number % 2 == 0
            subprocess.run([sys.executable, "-c", "pass"], check=True)
            bare.append(time.monotonic() - at)
            mount = f"file_mounts: {{./out: {{source: s3://lab/run{number}, mode: MOUNT_CACHED}}}}\n" if writes else ""
            run = "run: mkdir -p out; echo 1 > out/a; sleep 5; python3 -c 'import time; print(time.time())'\n"
            job = lab.submit(RESOURCES % "" + mount + run)
            lab.until(job, "COMPLETED", timeout=90)
            lines = map(json.loads, (lab.state / "daemon.log").read_text().splitlines())
            told = next(float(line["at"]) for line in lines if line["message"] == f"job {job}: COMPLETED")
            spans[writes].append(told - float(lab.log(job)))
            assert store.texts("lab", f"run{number}/") == ({f"run{number}/a": b"1\n"} if writes else {})
        assert median(spans[True]) - median(spans[False]) < 100 * max(median(bare), 0.01)

    def test_a_cancel_that_waits_for_a_store_is_seen_and_may_be_given_up(
        self, lab: KubeSpan, store: TestStore, wait_until: WaitUntil
    ) -> None:
        job = lab.submit(CACHED + "run: touch out/begun; sleep 2; echo 1234567 > out/a; sleep 600\n")
        wait_until(lambda: "run/begun" in store.texts("lab"), 60, "the first file to be sent")
        store.proxy.cut()
        name = only_pod(lab)["metadata"]["name"]
        wait_until(lambda: "a" in lab.kubectl("exec", name, "-c", "main", "--", "ls", "/out").split(), 20, "the file")
        lab.run("scancel", str(job))
        wait_until(lambda: " left, until" in lab.look("show", str(job)), 40, "how much is left")
        assert lab.look("squeue", "-h", "-o", "%T %r").split() == ["COMPLETING", "Flushing"]
        lab.run("scancel", "--no-flush", str(job))
        lab.until(job, "CANCELLED", timeout=30)

    def test_a_pod_that_others_delete_sends_its_data_all_the_same(
        self, lab: KubeSpan, store: TestStore, wait_until: WaitUntil
    ) -> None:
        run = "run: trap 'echo last > out/last; exit 0' TERM; touch out/begun; while :; do sleep 0.2; done\n"
        lab.submit(CACHED + run)
        wait_until(lambda: "run/begun" in store.texts("lab"), 60, "the first file to be sent")
        lab.kubectl("delete", "pod", only_pod(lab)["metadata"]["name"], "--wait=false")
        wait_until(lambda: store.texts("lab").get("run/last") == b"last\n", 60, "the last file to be in the store")

    def test_a_daemon_that_is_killed_while_the_store_is_away(
        self, lab: KubeSpan, store: TestStore, wait_until: WaitUntil
    ) -> None:
        job = lab.submit(CACHED + "run: touch out/begun; sleep 4; echo 1234567 > out/a\n")
        wait_until(lambda: "run/begun" in store.texts("lab"), 60, "the first file to be sent")
        store.proxy.cut()
        lab.until(job, "COMPLETING")
        assert lab.look("squeue", "-h", "-o", "%T %r").split() == ["COMPLETING", "Flushing"]
        wait_until(lambda: " left, until" in lab.look("show", str(job)), 30, "how much is left")
        lab.kill_daemon()
        store.proxy.mend()
        lab.until(job, "COMPLETED", timeout=60)
        assert store.texts("lab")["run/a"] == b"1234567\n"

    def test_a_store_that_does_not_come_back_fails_the_job(
        self, lab: KubeSpan, store: TestStore, wait_until: WaitUntil
    ) -> None:
        job = lab.submit(CACHED + "flush: {timeout: 8}\nrun: touch out/begun; sleep 4; echo 1234567 > out/a\n")
        wait_until(lambda: "run/begun" in store.texts("lab"), 60, "the first file to be sent")
        store.proxy.cut()
        facts = lab.until(job, "FAILED", timeout=60)
        assert facts["reason"] == "FlushFailed"

    @pytest.mark.parametrize("kind", ["hostPath", "claim"])
    def test_what_a_job_could_not_send_stays_on_a_volume_and_is_sent_later(
        self, lab: KubeSpan, store: TestStore, tmp_path: Path, wait_until: WaitUntil, kind: str
    ) -> None:
        """DT08: the pod goes with all that is its own, and a pod where its volume is sends what it has left."""
        volume = tmp_path / "kept"
        volume.mkdir()
        settings = json.loads(lab.config.read_text())
        named: object = {"hostPath": {"path": str(volume)}} if kind == "hostPath" else make_claim(lab, volume)
        settings["clusters"]["kube"]["data_volume"] = named
        lab.config.write_text(json.dumps(settings))
        whole = lab.submit(CACHED + "run: echo 1 > out/whole\n")
        lab.until(whole, "COMPLETED", timeout=90)
        lab.until_empty(60)
        assert [path for path in volume.rglob("*") if path.is_file()] == []
        sum_of = "head -c 9000000 /dev/urandom > out/b; sha256sum < out/b"
        job = lab.submit(CACHED + f"flush: {{timeout: 8}}\nrun: touch out/begun; sleep 4; {sum_of}\n")
        wait_until(lambda: "run/begun" in store.texts("lab"), 60, "the first file to be sent")
        store.proxy.cut()
        assert lab.until(job, "FAILED", timeout=60)["reason"] == "FlushFailed"
        lab.until_empty(60)
        refused = lab.run("data", "rescue", str(job), check=False)
        assert refused.returncode != 0 and "Traceback" not in refused.stderr, refused.stderr
        store.proxy.mend()
        assert lab.run("data", "rescue", str(job)).stderr == "span: 1 file, 8.6 MiB sent\n"
        assert hashlib.sha256(store.texts("lab")["run/b"]).hexdigest() in lab.log(job)
        lab.until_empty(60)
        # That of the job which has sent all by itself stays, and is empty.
        assert [path for path in volume.iterdir() if path.name.endswith(f"-{job}")] == []
        assert [path for path in volume.rglob("*") if path.is_file()] == []
        again = lab.run("data", "rescue", str(job), check=False)
        assert f"job {job} has left no data on kube" in again.stderr
        if kind == "claim":
            lab.kubectl("delete", "pvc", str(named), "--wait=false")
            lab.rig.kubectl("delete", "pv", str(named), "--wait=false")

    @pytest.mark.parametrize("kind", ["hostPath", "claim"])
    def test_what_is_left_on_a_volume_is_listed_removed_by_hand_and_goes_after_its_time(
        self, lab: KubeSpan, store: TestStore, tmp_path: Path, wait_until: WaitUntil, kind: str
    ) -> None:
        volume = tmp_path / "kept"
        volume.mkdir()
        settings = json.loads(lab.config.read_text())
        named: object = {"hostPath": {"path": str(volume)}} if kind == "hostPath" else make_claim(lab, volume)
        settings["clusters"]["kube"] |= {"data_volume": named}
        lab.config.write_text(json.dumps(settings))
        run = "run: touch out/begun; sleep 4; echo 1234567 > out/a\n"
        text = f"name: writer\n{CACHED}flush: {{timeout: 4}}\n{run}"

        def leave(begun: str) -> int:
            job = lab.submit(text.replace("begun", begun))
            wait_until(lambda: f"run/{begun}" in store.texts("lab"), 60, "the first file to be sent")
            store.proxy.cut()
            lab.until(job, "FAILED", timeout=60)
            # As long as its pod is there the data may still be sent.
            lab.until_empty(60)
            store.proxy.mend()
            return job

        job = leave("begun")
        (row,) = json.loads(lab.look("data", "ls", "-M", "kube", "--json"))["unsent"]
        known = [row[key] for key in ("cluster", "job", "task", "files", "size", "state", "url")]
        assert known == ["kube", job, "writer", 1, 8, "left", "s3://lab/run"]
        if kind == "hostPath":
            assert f":{volume}/" in row["place"]
        assert lab.run("data", "rm", str(job)).stderr == "span: 1 file, 8 bytes removed from kube\n"
        assert list(volume.iterdir()) == [] and len(lab.look("data", "ls").splitlines()) == 1
        lab.until_empty(60)
        if kind == "hostPath":
            settings["clusters"]["kube"] |= {"data_keep": "10s"}
            lab.config.write_text(json.dumps(settings))
            lab.run("shutdown")
            job = leave("again")
            wait_until(lambda: list(volume.iterdir()) == [], 60, "it to be removed")
            said = f"what job {job} could not send was removed from kube after 0:10: 1 file, 8 bytes"
            wait_until(lambda: said in (lab.state / "daemon.log").read_text(), 10, "the log to say so")
        else:
            lab.kubectl("delete", "pvc", str(named), "--wait=false")
            lab.rig.kubectl("delete", "pv", str(named), "--wait=false")

    def test_a_killed_node_costs_an_attempt_and_not_the_time_of_its_data(
        self, lab: KubeSpan, store: TestStore, wait_until: WaitUntil
    ) -> None:
        settings = json.loads(lab.config.read_text())
        settings["clusters"]["kube"]["tolerations"] = SOON
        lab.config.write_text(json.dumps(settings))
        run = "run: if [ -e out/step ]; then cat out/step; else echo first > out/step; sleep 600; fi\n"
        job = lab.submit(CACHED + run)
        wait_until(lambda: "run/step" in store.texts("lab"), 60, "the first file to be sent")
        name = only_pod(lab)["metadata"]["name"]
        with lab.rig.without_node(lab.node_of(name)):
            lab.until(job, "COMPLETED", timeout=240)
            states = [attempt["state"] for attempt in lab.job(job)["tasks"][0]["attempts"]]
            assert states == ["NODE_FAIL", "COMPLETED"]
        assert lab.log(job).strip() == "first"
        lab.until_empty(120)


class TestRefusals:
    def test_an_image_without_python(self, lab: KubeSpan) -> None:
        text = f'resources: {{cpus: 0.1, image_id: "docker:{SMALL_IMAGE}"}}\n'
        job = lab.submit(text + "file_mounts: {/out: {source: s3://lab/run, mode: MOUNT_CACHED}}\nrun: ls\n")
        facts = lab.until(job, "FAILED", timeout=60)
        assert facts["reason"] == "SetupFailed"
        assert "the image has no python3" in lab.look("show", str(job))

    def test_a_bucket_that_is_not_there(self, lab: KubeSpan) -> None:
        job = lab.submit("resources: {cpus: 0.1}\nfile_mounts: {/in: s3://nowhere/x}\nrun: ls\n")
        lab.until(job, "FAILED", timeout=60)
        assert "nowhere" in lab.look("show", str(job))

    def test_what_is_not_built_is_refused_with_its_line(self, lab: KubeSpan) -> None:
        mount = "file_mounts:\n  /out: {source: s3://lab/run, mode: MOUNT_CACHED}\nrun: ls\n"
        text = f"name: g\nexecution: parallel\n---\nname: a\n{mount}---\nname: b\n{mount}"
        done = lab.run("submit", "-", stdin=text, check=False)
        assert done.returncode == 2
        assert "one task alone can write" in done.stderr and "stdin:11:9:" in done.stderr


class TestCredentials:
    def test_temporary_ones_are_renewed_under_a_running_pod(
        self, lab: KubeSpan, store: TestStore, wait_until: WaitUntil
    ) -> None:
        job = lab.submit(CACHED + "run: echo 1 > out/a; sleep 8; echo 2 > out/b; sleep 600\n")
        wait_until(lambda: store.texts("lab") == {"run/a": b"1\n"}, 60, "the first file to be sent")
        lab.kill_daemon()
        assert lab.job(job)["state"] == "RUNNING"
        store.proxy.refused_key, before = "testing", store.proxy.refused
        wait_until(lambda: store.proxy.refused > before, 60, "the store to refuse those that have expired")
        write_credentials(lab.folder, "renewed")
        # A kubelet looks at Secrets about once a minute.
        both = {"run/a": b"1\n", "run/b": b"2\n"}
        wait_until(lambda: store.texts("lab") == both, 180, "the second file to be sent")
        lab.run("scancel", str(job))
        lab.until(job, "CANCELLED", timeout=60)

    def test_a_pod_whose_program_has_ended_is_told(
        self, lab: KubeSpan, store: TestStore, wait_until: WaitUntil
    ) -> None:
        job = lab.submit(CACHED + "run: echo 1 > out/a; sleep 6; echo 2 > out/b\n")
        wait_until(lambda: store.texts("lab") == {"run/a": b"1\n"}, 60, "the first file to be sent")
        store.proxy.refused_key = "testing"
        wait_until(lambda: "ExpiredToken" in str(lab.job(job)), 60, "the reason to be shown")
        write_credentials(lab.folder, "renewed")
        lab.until(job, "COMPLETED", timeout=90)
        assert store.texts("lab") == {"run/a": b"1\n", "run/b": b"2\n"}


def test_a_content_is_kept_on_a_volume_for_the_next_pod(
    lab: KubeSpan, kube_rig: KubeRig, kube_namespace: str, store: TestStore, tmp_path: Path
) -> None:
    volume, known = tmp_path / "cache", json.loads(lab.config.read_text())["stores"]
    volume.mkdir()
    lab.connect(kube_rig, kube_namespace, image=PYTHON_IMAGE, data_cache={"hostPath": {"path": str(volume)}})
    lab.config.write_text(json.dumps({**json.loads(lab.config.read_text()), "stores": known}))
    store.open("lab").put("data/a", b"x" * (3 << 20))
    passed = []
    for _ in range(2):
        before = store.proxy.passed_back
        job = lab.submit(RESOURCES % "" + "file_mounts: {/in: s3://lab/data}\nrun: wc -c < /in/a\n")
        lab.until(job, "COMPLETED", timeout=90)
        assert lab.log(job).strip() == str(3 << 20)
        passed.append(store.proxy.passed_back - before)
    assert passed[0] > 3 << 20 > passed[1] * 10, passed

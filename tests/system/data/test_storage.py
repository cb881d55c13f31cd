"""Jobs whose storage is in an object store, on the local cluster: a real daemon, real processes, moto's server."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from datetime import datetime
from pathlib import Path
from statistics import median
from typing import Any

import pytest
import yaml
from tests.stores import SECRET, TestStore, write_credentials
from tests.system.conftest import Span
from tests.system.data.storage_jobs import CACHED, left_on_node, movers
from tests.waiting import WaitUntil


class TestModes:
    def test_a_copy_is_there_before_the_start(self, lab: Span, store: TestStore, wait_until: WaitUntil) -> None:
        store.open("lab").put("data/a", b"hello")
        job = lab.submit("file_mounts: {./data: s3://lab/data, ./one: s3://lab/data/a}\nrun: cat data/a one > seen\n")
        lab.until(job, "COMPLETED")
        assert (lab.folder / "seen").read_bytes() == b"hellohello"
        wait_until(lambda: not (lab.folder / "data").is_symlink(), 20, "the link to be removed")
        wait_until(lambda: left_on_node(lab, job) == {}, 20, "the mover to remove what is in the store")
        assert movers(lab) == []

    def test_a_mount_without_fuse_reads_and_writes_as_one_that_is_cached(self, lab: Span, store: TestStore) -> None:
        store.open("lab").put("data/a", b"hello")
        file = lab.folder / "mount.yaml"
        file.write_text("file_mounts: {./data: {source: s3://lab/data}}\nrun: cat data/a > seen; echo new > data/b\n")
        config = lab.config.read_text()
        lab.config.write_text(config.replace("kind: local,", "kind: local, data_fuse: false,"))
        done = lab.run("submit", str(file), "--parsable")
        assert "MOUNT of s3://lab/data is carried out as MOUNT_CACHED" in done.stderr
        lab.until(int(done.stdout), "COMPLETED")
        assert (lab.folder / "seen").read_bytes() == b"hello"
        assert store.texts("lab") == {"data/a": b"hello", "data/b": b"new\n"}

    def test_what_is_written_is_in_the_store_when_the_job_is_completed(
        self, lab: Span, store: TestStore, wait_until: WaitUntil
    ) -> None:
        job = lab.submit(CACHED + "run: |\n  set -e; echo one > out/a; mkdir out/b; echo two > out/b/c; exit 0\n")
        lab.until(job, "COMPLETED")
        assert store.texts("lab") == {"run/a": b"one\n", "run/b/c": b"two\n"}
        wait_until(lambda: left_on_node(lab, job) == {}, 20, "the mover to remove what is in the store")

    def test_a_large_file_written_just_before_the_end(self, lab: Span, store: TestStore) -> None:
        job = lab.submit(CACHED + "run: head -c 48M /dev/urandom > out/large; sha256sum < out/large > sum; exit 0\n")
        lab.until(job, "COMPLETED", timeout=60)
        import hashlib

        digest = hashlib.sha256(store.texts("lab")["run/large"]).hexdigest()
        assert (lab.folder / "sum").read_text().startswith(digest)

    def test_the_next_attempt_sees_what_was_published_before(self, lab: Span, store: TestStore) -> None:
        store.open("lab").put("run/earlier", b"0")
        run = "test -e out/mine && exit 0; cp out/earlier out/mine; exit 1"
        job = lab.submit(f"{CACHED}max_restarts_on_errors: 1\nbackoff: {{first: 0}}\nrun: {run}\n")
        lab.until(job, "COMPLETED")
        assert store.texts("lab") == {"run/earlier": b"0", "run/mine": b"0"}

    def test_tasks_of_a_group_share_the_folder_on_a_node(self, lab: Span, store: TestStore) -> None:
        writer = f"name: writer\n{CACHED}run: echo hello > out/a\n"
        reader = f"name: reader\nneeds: ok:writer\n{CACHED}run: cat out/a > out/b\n"
        job = lab.submit(f"name: g\nexecution: parallel\n---\n{writer}---\n{reader}")
        lab.until(job, "COMPLETED")
        assert store.texts("lab") == {"run/a": b"hello\n", "run/b": b"hello\n"}


class TestOrder:
    def test_checkpoints_appear_whole_and_in_the_order_of_their_completion(self, lab: Span, store: TestStore) -> None:
        run = (
            "for step in 1 2 3; do mkdir out/$step;"
            " for part in a b c; do head -c 100000 /dev/urandom > out/$step/$part; done;"
            " sleep 0.3; touch out/$step/.overspan-atomic; done"
        )
        job = lab.submit(f"{CACHED}run: {run}\n")
        seen: list[set[str]] = []
        while lab.job(job)["state"] not in ("COMPLETED", "FAILED"):
            keys = {stored.key for stored in store.open("lab").list_objects("")}
            if not seen or seen[-1] != keys:
                seen.append(keys)
        assert lab.job(job)["state"] == "COMPLETED"
        seen.append(set(store.texts("lab")))
        assert len(seen[-1]) == 12
        for keys in seen:
            whole = [step for step in "123" if f"run/{step}/.overspan-atomic" in keys]
            assert whole == list("123")[: len(whole)], keys
            assert all(f"run/{step}/{part}" in keys for step in whole for part in "abc"), keys


class TestEnds:
    def test_a_cancel_waits_for_the_data(self, lab: Span, store: TestStore, wait_until: WaitUntil) -> None:
        job = lab.submit(CACHED + "run: trap 'echo last > out/last; exit 0' TERM; touch out/begun; sleep 99 & wait\n")
        wait_until(lambda: "run/begun" in store.texts("lab"), 20, "the first file to be sent while the job runs")
        lab.run("scancel", str(job))
        lab.until(job, "CANCELLED")
        assert store.texts("lab")["run/last"] == b"last\n"

    def test_an_auxiliary_that_ends_with_its_group(self, lab: Span, store: TestStore) -> None:
        server = f"name: server\n{CACHED}run: trap 'echo last > out/last; exit 0' TERM; sleep 99 & wait\n"
        trainer = "name: trainer\nneeds: server\nrun: sleep 0.5\n"
        job = lab.submit(f"name: g\nexecution: parallel\nprimary_tasks: [trainer]\n---\n{trainer}---\n{server}")
        lab.until(job, "COMPLETED")
        assert store.texts("lab") == {"run/last": b"last\n"}

    def test_a_failure_keeps_its_code_and_its_data(self, lab: Span, store: TestStore) -> None:
        job = lab.submit(CACHED + "run: echo 1 > out/a; exit 7\n")
        assert lab.until(job, "FAILED")["exit_code"] == 7
        assert store.texts("lab") == {"run/a": b"1\n"}

    def test_with_nothing_left_to_send_the_end_is_quick(self, lab: Span, store: TestStore) -> None:
        job = lab.submit(CACHED + "run: sleep 0.5\n")
        lab.until(job, "COMPLETED")
        attempt = lab.job(job)["tasks"][0]["attempts"][0]
        rows = lab.look("timeline", str(job), "--json")
        assert attempt["ended_at"] - attempt["started_at"] < 5, rows


class TestFaults:
    def test_a_store_that_is_gone_for_a_while_costs_time_alone(
        self, lab: Span, store: TestStore, wait_until: WaitUntil
    ) -> None:
        job = lab.submit(CACHED + "run: echo 1 > out/a\n", "--hold")
        lab.run("release", str(job))
        store.proxy.cut()
        time.sleep(1)
        store.proxy.mend()
        lab.until(job, "RUNNING", "COMPLETING", "COMPLETED")
        lab.until(job, "COMPLETED")
        assert store.texts("lab") == {"run/a": b"1\n"}

    def test_one_that_is_gone_at_the_end_shows_what_is_left_and_comes_back(
        self, lab: Span, store: TestStore, wait_until: WaitUntil
    ) -> None:
        job = lab.submit(CACHED + "run: while [ ! -e go ]; do sleep 0.1; done; echo 1234567 > out/a\n")
        lab.until(job, "RUNNING")
        store.proxy.cut()
        (lab.folder / "go").touch()
        lab.until(job, "COMPLETING")
        assert lab.look("squeue", "-h", "-o", "%T %r").split() == ["COMPLETING", "Flushing"]
        shown = wait_until(lambda: _find(lab.look("show", str(job)), "does not answer"), 20, "show to say why")
        assert "waits for its data: 8 bytes left, until " in shown
        store.proxy.mend()
        lab.until(job, "COMPLETED")
        assert store.texts("lab") == {"run/a": b"1234567\n"}

    def test_a_store_that_does_not_come_back_fails_the_job_and_the_data_stays(
        self, lab: Span, store: TestStore
    ) -> None:
        text = CACHED + "flush: {timeout: 8}\nrun: while [ ! -e go ]; do sleep 0.1; done; echo 1234567 > out/a\n"
        job = lab.submit(text)
        lab.until(job, "RUNNING")
        store.proxy.cut()
        (lab.folder / "go").touch()
        found = lab.until(job, "FAILED")
        assert (found["reason"], found["exit_code"]) == ("FlushFailed", 0)
        detail = found["tasks"][0]["attempts"][0]["detail"]
        assert detail.startswith("8 bytes are not in the store: flush.timeout (0:08) is over: the store s3 ("), detail
        assert left_on_node(lab, job) == {"a": b"1234567\n"}
        assert lab.run("wait", str(job), check=False).returncode == 1

    def test_a_cancel_that_does_not_wait_for_the_data(self, lab: Span, store: TestStore) -> None:
        job = lab.submit(CACHED + "run: while [ ! -e go ]; do sleep 0.1; done; echo 1 > out/a\n")
        lab.until(job, "RUNNING")
        store.proxy.cut()
        (lab.folder / "go").touch()
        lab.until(job, "COMPLETING")
        lab.run("scancel", str(job))
        time.sleep(0.5)
        assert lab.job(job)["state"] == "COMPLETING"
        lab.run("scancel", "--no-flush", str(job))
        lab.until(job, "CANCELLED")
        assert left_on_node(lab, job) == {"a": b"1\n"}

    def test_a_mover_that_is_killed_is_started_again(self, lab: Span, store: TestStore, wait_until: WaitUntil) -> None:
        job = lab.submit(CACHED + "run: echo 1 > out/a; while [ ! -e go ]; do sleep 0.1; done; echo 2 > out/b\n")
        wait_until(lambda: "run/a" in store.texts("lab"), 20, "the first file to be sent")
        for pid in movers(lab):
            os.kill(pid, signal.SIGKILL)
        (lab.folder / "go").touch()
        lab.until(job, "COMPLETED")
        assert store.texts("lab") == {"run/a": b"1\n", "run/b": b"2\n"}

    def test_daemon_and_supervisor_may_be_killed_meanwhile(
        self, lab: Span, store: TestStore, wait_until: WaitUntil
    ) -> None:
        job = lab.submit(CACHED + "run: while [ ! -e go ]; do sleep 0.1; done; echo 1 > out/a\n")
        lab.until(job, "RUNNING")
        store.proxy.cut()
        (lab.folder / "go").touch()
        lab.until(job, "COMPLETING")
        supervisors = [int(p.parent.name) for p in Path("/proc").glob("[0-9]*/comm") if _is_supervisor(p, lab)]
        daemon = int(_pid(lab))
        for pid in (*supervisors, daemon):
            os.kill(pid, signal.SIGKILL)
        assert supervisors
        store.proxy.mend()
        lab.until(job, "COMPLETED")
        assert store.texts("lab") == {"run/a": b"1\n"}

    def test_two_jobs_write_to_one_bucket(self, lab: Span, store: TestStore) -> None:
        text = "file_mounts: {./%s: {source: s3://lab/run, mode: MOUNT_CACHED}}\nrun: |\n  %s\n"
        wait = "while [ ! -e both ]; do sleep 0.1; done"
        first = lab.submit(text % ("one", f"echo 1 > one/a; echo 1 > one/c; {wait}"))
        second = lab.submit(text % ("two", f"{wait}; echo 2 > two/b; echo 2 > two/c"))
        lab.until(first, "RUNNING")
        lab.until(second, "RUNNING")
        lab.wait_until(lambda: set(store.texts("lab")) == {"run/a", "run/c"}, 30, "the files of the first")
        (lab.folder / "both").touch()
        for job in (first, second):
            lab.until(job, "COMPLETED", timeout=60)
        # Neither removes what the other has sent, and of one name the last one counts.
        assert store.texts("lab") == {"run/a": b"1\n", "run/b": b"2\n", "run/c": b"2\n"}

    def test_credentials_that_expire_are_renewed(self, lab: Span, store: TestStore) -> None:
        # moto takes any key; what is seen here is that no job of it fails while the file is not there.
        file = lab.folder / "credentials"
        job = lab.submit(CACHED + "run: while [ ! -e go ]; do sleep 0.1; done; echo 1 > out/a\n")
        lab.until(job, "RUNNING")
        file.rename(lab.folder / "moved")
        (lab.folder / "go").touch()
        lab.until(job, "COMPLETING")
        time.sleep(1)
        (lab.folder / "moved").rename(file)
        lab.until(job, "COMPLETED")
        assert store.texts("lab") == {"run/a": b"1\n"}

    @pytest.mark.parametrize(
        ("mount", "reason", "words"),
        [
            ("./in: s3://nowhere/x", "SetupFailed", "NoSuchBucket"),
            ("./in: {source: s3://lab/run, mode: MOUNT_CACHED}\n  /proc/x: s3://lab/data", "JobLaunchFailure", "/proc"),
        ],
    )
    def test_what_cannot_be_mounted_fails_with_its_reason(
        self, lab: Span, store: TestStore, mount: str, reason: str, words: str
    ) -> None:
        store.open("lab").put("data/a", b"1")
        job = lab.submit(f"file_mounts:\n  {mount}\nrun: touch ran\n")
        found = lab.until(job, "FAILED")
        assert found["reason"] == reason
        assert words in found["tasks"][0]["attempts"][0]["detail"]
        assert not (lab.folder / "ran").exists()

    def test_a_job_is_cancelled_while_its_data_is_fetched(
        self, lab: Span, store: TestStore, wait_until: WaitUntil
    ) -> None:
        store.proxy.cut()
        job = lab.submit("file_mounts: {./in: s3://lab/run}\nrun: touch ran\n")
        lab.until(job, "CONFIGURING")
        lab.run("scancel", str(job))
        lab.until(job, "CANCELLED")
        wait_until(lambda: not movers(lab), 20, "the mover to end")


class TestSecrets:
    def test_no_file_of_a_run_and_no_answer_has_a_secret(self, lab: Span, store: TestStore) -> None:
        job = lab.submit(CACHED + "run: env > environment; echo 1 > out/a; sleep 1\n")
        lab.until(job, "RUNNING")
        lines = [path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline") if _readable(path)]
        lab.until(job, "COMPLETED")
        told = [lab.look("show", str(job), "--json"), lab.look("timeline", str(job)), lab.look("logs", str(job))]
        told.append((lab.folder / "environment").read_text())
        root = lab.state / "clusters/local"
        files = [path.read_bytes() for path in root.glob("runs/**/*") if path.is_file()]
        assert all(b"testing-secret" not in text for text in (*lines, *files, *(each.encode() for each in told)))

    def test_what_holds_credentials_is_the_users_alone(self, lab: Span, store: TestStore) -> None:
        settings = yaml.safe_load(lab.config.read_text())
        settings["stores"]["s3"]["credentials"] = {"environment": "LAB"}
        lab.config.write_text(yaml.safe_dump(settings))
        lab.environment.update(LAB_ACCESS_KEY_ID="testing", LAB_SECRET_ACCESS_KEY=SECRET)
        job = lab.submit(CACHED + "run: echo 1 > out/a\n")
        lab.until(job, "COMPLETED")
        file = lab.state / "clusters/local/stores/s3.json"
        assert file.stat().st_mode & 0o777 == 0o600
        assert store.texts("lab") == {"run/a": b"1\n"}


def _find(text: str, words: str) -> str:
    return text if words in text else ""


def _pid(span: Span) -> Any:
    import json

    return json.loads(span.look("ping", "--json"))["pid"]


def _is_supervisor(comm: Path, span: Span) -> bool:
    try:
        if comm.read_text().strip() != "span-supervisor"[:15]:
            return False
        links = [os.readlink(link) for link in (comm.parent / "fd").iterdir()]
    except OSError:
        return False
    return any(link.startswith(str(span.state)) for link in links)


def _readable(path: Path) -> bool:
    try:
        path.read_bytes()
    except OSError:
        return False
    return True


def test_nothing_to_send_costs_no_time_at_the_end(lab: Span, store: TestStore) -> None:
    """DT05: from the program's end to the task's, in the median, beside a bare interpreter (10 ms when quiet)."""
    bare, spans = [], []
    for number in range(3):
        at = time.monotonic()
        subprocess.run([sys.executable, "-c", "pass"], check=True)
        bare.append(time.monotonic() - at)
        mount = f"file_mounts: {{./out{number}: {{source: s3://lab/run{number}, mode: MOUNT_CACHED}}}}\n"
        job = lab.submit(mount + f"run: echo 1 > out{number}/a; sleep 3\n")
        lab.until(job, "COMPLETED", timeout=60)
        told = {row["cause"]: datetime.fromisoformat(row["at"]) for row in lab.timeline(job)}
        spans.append((told["Flushed"] - told["NodeEnded"]).total_seconds())
        assert store.texts("lab", f"run{number}/") == {f"run{number}/a": b"1\n"}
    assert median(spans) < 100 * max(median(bare), 0.01)


def test_temporary_credentials_are_renewed_under_a_running_job(
    lab: Span, store: TestStore, wait_until: WaitUntil
) -> None:
    job = lab.submit(CACHED + "run: echo 1 > out/a; while [ ! -e go ]; do sleep 0.2; done; echo 2 > out/b\n")
    wait_until(lambda: store.texts("lab") == {"run/a": b"1\n"}, 30, "the first file to be sent")
    store.proxy.refused_key, before = "testing", store.proxy.refused
    (lab.folder / "go").touch()
    wait_until(lambda: store.proxy.refused > before, 30, "the store to refuse those that have expired")
    wait_until(lambda: "ExpiredToken" in str(lab.job(job)), 30, "the reason to be shown")
    write_credentials(lab.folder, "renewed")
    lab.until(job, "COMPLETED", timeout=60)
    assert store.texts("lab") == {"run/a": b"1\n", "run/b": b"2\n"}

"""`span data` and `span storage`, and the rescue of what a job could not send."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import yaml
from tests.stores import TestStore
from tests.system.conftest import Span
from tests.system.data.storage_jobs import CACHED, left_on_node

from overspan.bridge.client import Client
from overspan.bridge.client.storage import TransferStep


class TestTransfers:
    def test_a_folder_goes_there_and_comes_back(self, lab: Span, store: TestStore) -> None:
        top = lab.folder / "corpus"
        (top / "in").mkdir(parents=True)
        (top / "in/large").write_bytes(os.urandom(9 << 20))
        (top / "small").write_bytes(b"hello")
        assert lab.run("data", "put", "corpus", "s3://lab/v1").stderr == "span: 2 files, 9.0 MiB\n"
        before = store.proxy.passed
        lab.run("data", "put", "corpus", "s3://lab/v1")
        assert store.proxy.passed - before < 100_000, "what is there is sent again"
        (lab.folder / "back").mkdir()
        lab.run("data", "get", "s3://lab/v1", "back")
        assert _contents(lab.folder / "back/v1") == _contents(top)

    def test_one_file(self, lab: Span, store: TestStore) -> None:
        (lab.folder / "a").write_bytes(b"1")
        lab.run("data", "put", "a", "s3://lab/into/")
        lab.run("data", "get", "s3://lab/into/a", "b")
        assert (lab.folder / "b").read_bytes() == b"1"

    def test_python_has_it_too(self, lab: Span, store: TestStore) -> None:
        (lab.folder / "a").write_bytes(b"12345")
        with Client(environment=lab.environment) as client:
            steps = list(client.storage.put(str(lab.folder / "a"), "s3://lab/a"))
            assert steps[-1] == TransferStep(1, 5, 1, 5)
            assert client.storage.measure("s3://lab") == (1, 5)
            assert [each["key"] for each in client.storage.list_objects("s3://lab")["objects"]] == ["a"]
            assert client.storage.remove("s3://lab/a") == 1

    def test_mistakes_are_told(self, lab: Span, store: TestStore) -> None:
        for words, message in {
            ("data", "put", "none", "s3://lab/x"): f"there is no {lab.folder}/none",
            ("data", "get", "s3://lab/none", "x"): "there is nothing at none",
            ("data", "get", "s3://nowhere/x", "x"): "NoSuchBucket",
            ("data", "put", "s3://lab/x", "x"): "`span data put` takes PATH URL",
            ("storage", "ls", "gs://lab"): "no entry of `stores` in the configuration reaches gs://lab",
            ("storage", "ls", "lab"): "'lab' is no URL of an object store",
            ("storage", "rm", "s3://lab"): "s3://lab is a whole bucket",
            ("data", "rescue", "99"): "no job 99",
        }.items():
            done = lab.run(*words, check=False)
            assert done.returncode != 0 and message in done.stderr, (words, done.stderr)


class TestListing:
    def test_levels_sizes_and_removal(self, lab: Span, store: TestStore) -> None:
        bucket = store.open("lab")
        for key in ("top", "a/1", "a/b/2", "ab"):
            bucket.put(key, b"x" * 10)
        listed = lab.run("storage", "ls", "s3://lab").stdout.splitlines()
        assert [line.split()[-1] for line in listed] == ["a/", "ab", "top"]
        found = json.loads(lab.run("storage", "ls", "-r", "s3://lab/a", "--json").stdout)
        assert [(each["key"], each["size"]) for each in found["objects"]] == [("a/1", 10), ("a/b/2", 10)]
        assert lab.run("storage", "du", "s3://lab/a").stdout == "20 bytes in 2 objects\n"
        refused = lab.run("storage", "rm", "s3://lab/a", check=False)
        assert "-r removes them" in refused.stderr
        assert lab.run("storage", "rm", "-r", "s3://lab/a").stderr == "span: 2 objects removed\n"
        assert set(store.texts("lab")) == {"ab", "top"}


class TestRescue:
    def test_what_a_job_could_not_send_is_sent_later(self, lab: Span, store: TestStore) -> None:
        run = "while [ ! -e go ]; do sleep 0.1; done; echo 1 > out/a; echo 2 > out/b"
        job = lab.submit(f"{CACHED}flush: {{timeout: 2}}\nrun: {run}\n")
        lab.until(job, "RUNNING")
        early = lab.run("data", "rescue", str(job), check=False)
        assert f"job {job} is RUNNING, and its data is sent by itself" in early.stderr
        store.proxy.cut()
        (lab.folder / "go").touch()
        lab.until(job, "FAILED")
        assert lab.run("data", "rescue", str(job), check=False).returncode != 0
        assert left_on_node(lab, job) == {"a": b"1\n", "b": b"2\n"}
        store.proxy.mend()
        time.sleep(1.1)
        store.open("lab").put("run/b", b"newer")
        done = lab.run("data", "rescue", str(job), check=False)
        assert done.returncode == 1
        assert done.stderr.splitlines() == [
            "span: 1 file, 2 bytes sent",
            "span: b: the store has a newer version, and this one stays on the node",
        ]
        assert store.texts("lab") == {"run/a": b"1\n", "run/b": b"newer"}
        store.open("lab").delete("run/b")
        lab.run("data", "rescue", str(job))
        assert store.texts("lab") == {"run/a": b"1\n", "run/b": b"2\n"}
        assert left_on_node(lab, job) == {}
        again = lab.run("data", "rescue", str(job), check=False)
        assert f"job {job} has left no data on local" in again.stderr


class TestUnsent:
    def leave(self, lab: Span, store: TestStore) -> int:
        """A job that could not send two files."""
        run = "run: touch out/begun; while [ ! -e go ]; do sleep 0.1; done; echo 1 > out/a; echo 22 > out/b\n"
        job = lab.submit(f"name: writer\n{CACHED}flush: {{timeout: 2}}\n{run}")
        lab.wait_until(lambda: "run/begun" in store.texts("lab"), 30, "the first file to be sent")
        store.proxy.cut()
        (lab.folder / "go").touch()
        lab.until(job, "FAILED")
        return job

    def test_what_jobs_have_left_is_listed_and_removed_by_hand(self, lab: Span, store: TestStore) -> None:
        job = self.leave(lab, store)
        (row,) = json.loads(lab.look("data", "ls", "--json"))["unsent"]
        known = {key: row[key] for key in ("cluster", "job", "task", "url", "files", "size", "state")}
        assert known == {
            "cluster": "local",
            "job": job,
            "task": "writer",
            "url": "s3://lab/run",
            "files": 2,
            "size": 5,
            "state": "left",
        }
        lines = [line.split() for line in lab.look("data", "ls", "-M", "local").splitlines()]
        assert lines[0] == ["CLUSTER", "JOB", "TASK", "SIZE", "FILES", "LAST", "WRITE", "STATE", "UNTIL", "URL"]
        assert lines[1][:3] == ["local", str(job), "writer"] and lines[1][-1] == "s3://lab/run"
        with Client(environment=lab.environment) as client:
            assert client.storage.list_unsent("local")["unsent"] == [row]
        assert lab.run("data", "rm", str(job)).stderr == "span: 2 files, 5 bytes removed from local\n"
        assert left_on_node(lab, job) == {} and len(lab.look("data", "ls").splitlines()) == 1
        again = lab.run("data", "rm", str(job), check=False)
        assert again.returncode != 0 and f"job {job} has left no data on local" in again.stderr
        store.proxy.mend()
        assert set(store.texts("lab")) == {"run/begun"}

    def test_it_goes_by_itself_after_its_time(self, lab: Span, store: TestStore) -> None:
        settings = yaml.safe_load(lab.config.read_text())
        settings["clusters"]["local"]["data_keep"] = "15s"
        lab.config.write_text(yaml.safe_dump(settings))
        job = self.leave(lab, store)
        assert set(left_on_node(lab, job)) >= {"a", "b"}
        lab.wait_until(lambda: not left_on_node(lab, job), 60, "it to be removed")
        # It is logged once the adapter has answered.
        said = f"what job {job} could not send was removed from local after 0:15: 2 files, 5 bytes, for s3://lab/run"
        lab.wait_until(lambda: said in (lab.state / "daemon.log").read_text(), 10, said)
        store.proxy.mend()

    def test_mistakes_are_told(self, lab: Span, store: TestStore) -> None:
        job = lab.submit("run: sleep 60\n")
        lab.until(job, "RUNNING")
        for words, message in {
            ("data", "ls", "x"): "`span data ls` takes no words",
            ("data", "ls", "-M", "nowhere"): "nowhere",
            ("data", "rm"): "`span data rm` takes JOB",
            ("data", "rm", "99"): "no job 99",
            ("data", "rm", "-M", "local", str(job)): "-M goes with `span data ls`",
            ("data", "rm", str(job)): f"job {job} is RUNNING, and its data is in use",
        }.items():
            done = lab.run(*words, check=False)
            assert done.returncode != 0 and message in done.stderr, (words, done.stderr)


def _contents(top: Path) -> dict[str, bytes]:
    return {str(path.relative_to(top)): path.read_bytes() for path in top.rglob("*") if path.is_file()}

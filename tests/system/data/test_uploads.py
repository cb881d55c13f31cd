"""Folders of the submitter's that go to a bucket before their job: a real daemon, moto's server."""

from __future__ import annotations

import http.server
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import yaml
from tests.stores import TestStore
from tests.system.conftest import LOCAL, Span
from tests.waiting import WaitUntil

from overspan.bridge.client import Client


@pytest.fixture
def folder(lab: Span) -> Path:
    """A folder to upload."""
    top = lab.folder / "assets"
    (top / "in").mkdir(parents=True)
    (top / "in/a").write_bytes(b"A")
    (top / "b").write_bytes(b"B")
    (top / "junk.tmp").write_bytes(b"no")
    (top / ".gitignore").write_text("*.tmp\n")
    (top / "link").symlink_to("b")
    return top


def submit(lab: Span, text: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    """Submit a job file of that text."""
    file = lab.folder / "job.yaml"
    file.write_text(text)
    return lab.run("submit", str(file), "--parsable", check=check)


def mount(bucket: str, target: str = "./data", **more: object) -> str:
    """A task's mount of a bucket to which `assets` goes."""
    storage = {"name": bucket, "source": "./assets", "store": "s3", "mode": "MOUNT_CACHED", **more}
    return yaml.safe_dump({"file_mounts": {target: storage}})


def has_bucket(store: TestStore, name: str) -> bool:
    """Whether the store has it."""
    return store.open(name).has_bucket()


class TestContents:
    def test_a_folder_is_in_a_bucket_that_was_not_there(self, lab: Span, store: TestStore, folder: Path) -> None:
        done = submit(lab, mount("fresh-one") + "run: cat data/in/a data/b > seen; echo new > data/c\n")
        assert "1 symbolic link left out: the bucket fresh-one holds files alone" in done.stderr
        lab.until(int(done.stdout), "COMPLETED")
        assert (lab.folder / "seen").read_bytes() == b"AB"
        sent = {"in/a": b"A", "b": b"B", ".gitignore": b"*.tmp\n", "c": b"new\n"}
        assert store.texts("fresh-one") == sent

    def test_only_what_differs_is_sent_again(self, lab: Span, store: TestStore, folder: Path) -> None:
        (folder / "large").write_bytes(os.urandom(9 << 20))
        text = mount("fresh-two", mode="COPY") + "run: cat data/b > seen\n"
        lab.until(int(submit(lab, text).stdout), "COMPLETED")
        (folder / "b").write_bytes(b"changed")
        before = store.proxy.passed
        lab.until(int(submit(lab, text).stdout), "COMPLETED")
        assert store.proxy.passed - before < 200_000, "what is there is sent again"
        assert (lab.folder / "seen").read_bytes() == b"changed"

    def test_several_sources_keep_their_names(self, lab: Span, store: TestStore, folder: Path) -> None:
        (lab.folder / "one.txt").write_bytes(b"1")
        done = submit(lab, mount("fresh-three", source=["./assets", "./one.txt"]) + "run: cat data/one.txt > seen\n")
        lab.until(int(done.stdout), "COMPLETED")
        assert set(store.texts("fresh-three")) == {"assets/in/a", "assets/b", "assets/.gitignore", "one.txt"}

    def test_python_sends_it_too(self, lab: Span, store: TestStore, folder: Path) -> None:
        storage = {"name": "fresh-four", "source": str(folder), "mode": "COPY"}
        with Client(environment=lab.environment) as client:
            job = client.submit({"file_mounts": {str(lab.folder / "data"): storage}, "run": "true"})
            assert job.wait(60).state == "COMPLETED"
        assert set(store.texts("fresh-four")) == {"in/a", "b", ".gitignore"}


class TestBuckets:
    def test_a_bucket_that_is_not_to_stay_goes_with_its_last_job(
        self, lab: Span, store: TestStore, folder: Path, wait_until: WaitUntil
    ) -> None:
        waiting = mount("passing", persistent=False) + "run: while [ ! -e go ]; do sleep 0.1; done\n"
        first = int(submit(lab, waiting).stdout)
        passing = mount("passing", "./other", persistent=False) + "run: cat other/b > seen\n"
        second = int(submit(lab, passing).stdout)
        lab.until(second, "COMPLETED")
        lab.run("shutdown")
        assert lab.run("ping").returncode == 0
        assert set(store.texts("passing")) >= {"b"}
        (lab.folder / "go").touch()
        lab.until(first, "COMPLETED")
        wait_until(lambda: not has_bucket(store, "passing"), 40, "the bucket to be removed")

    def test_a_bucket_that_was_there_stays(self, lab: Span, store: TestStore, folder: Path) -> None:
        store.open("lab").put("old", b"")
        job = int(submit(lab, mount("lab", persistent=False) + "run: test -e data/old\n").stdout)
        lab.until(job, "COMPLETED")
        assert not (lab.state / "buckets.json").exists()
        assert set(store.texts("lab")) >= {"old", "b"}


class TestFaults:
    def test_what_cannot_be_sent_is_refused(self, lab: Span, store: TestStore, folder: Path) -> None:
        run = "run: 'true'\n"
        for text, message in {
            mount("b-one", source="./none") + run: f"there is no {lab.folder}/none/ to upload",
            mount("b-one", source="./assets/b") + run: f"{lab.folder}/assets/b is no folder",
            mount("", name=None) + run: "write its `name`",
            mount("b-one", source=["./x/a", "./y/a"]) + run: "two sources are called a",
            mount("b-one", source=["s3://lab/a"]) + run: "is no file or folder with a name",
            mount("b-one", store="azure") + run: "have another protocol than S3",
        }.items():
            done = submit(lab, text, check=False)
            assert done.returncode and message in done.stderr and "job.yaml:" in done.stderr, (text, done.stderr)
        assert not has_bucket(store, "b-one")

    def test_a_store_that_is_away_takes_no_job_and_the_same_command_goes_on(
        self, lab: Span, store: TestStore, folder: Path
    ) -> None:
        store.proxy.cut()
        text = mount("away-one") + "run: cat data/b > seen\n"
        done = submit(lab, text, check=False)
        assert done.returncode and "does not answer" in done.stderr
        assert lab.run("squeue", "-h").stdout == ""
        store.proxy.mend()
        lab.until(int(submit(lab, text).stdout), "COMPLETED")
        assert (lab.folder / "seen").read_bytes() == b"B"

    def test_a_daemon_killed_meanwhile_is_told_and_the_same_command_goes_on(
        self, lab: Span, store: TestStore, folder: Path, wait_until: WaitUntil
    ) -> None:
        (folder / "large").write_bytes(os.urandom(40 << 20))
        store.proxy.delay = 0.02
        text = mount("killed-one", persistent=False) + "run: cat data/b > seen\n"
        file = lab.folder / "job.yaml"
        file.write_text(text)
        before = store.proxy.passed
        words = [str(Path(sys.executable).with_name("span")), "submit", str(file)]
        lab.run("ping")
        command = subprocess.Popen(words, env=lab.environment, cwd=lab.folder, stderr=subprocess.PIPE, text=True)
        wait_until(lambda: store.proxy.passed - before > 1 << 20, 30, "the upload to be under way")
        lab.kill_daemon()
        _, said = command.communicate(timeout=60)
        assert command.returncode and "the daemon went away in the middle of it" in said
        store.proxy.delay = 0.0
        lab.until(int(submit(lab, text).stdout), "COMPLETED", timeout=60)
        wait_until(lambda: not has_bucket(store, "killed-one"), 40, "the bucket to be removed")


class _Strange(http.server.BaseHTTPRequestHandler):
    """A store in which each bucket is another owner's, or, where nobody may ask, is seen when it is made."""

    protocol_version = "HTTP/1.1"
    seen = True

    def do_HEAD(self) -> None:
        self.send_response(403 if self.seen else 404)
        self.send_header("content-length", "0")
        self.end_headers()

    def do_PUT(self) -> None:
        body = b"<Error><Code>BucketAlreadyExists</Code><Message>Choose another name.</Message></Error>"
        self.send_response(409)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.mark.parametrize(("seen", "words"), [(True, "answers 403"), (False, "is another owner's")])
def test_another_owner_s_bucket_is_told(lab: Span, folder: Path, seen: bool, words: str) -> None:
    handler = type("Handler", (_Strange,), {"seen": seen})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        entry = {"endpoint": f"http://127.0.0.1:{server.server_port}"}
        lab.config.write_text(LOCAL + yaml.safe_dump({"stores": {"s3": entry}}))
        done = submit(lab, mount("taken") + "run: 'true'\n", check=False)
        assert done.returncode and words in done.stderr and "choose another `name`" in done.stderr, done.stderr
        assert lab.run("squeue", "-h").stdout == ""
        server.shutdown()

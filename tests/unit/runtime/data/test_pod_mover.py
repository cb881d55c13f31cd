"""The data mover of a pod, as its containers start it."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.stores import TestStore
from tests.waiting import wait_until

from overspan.bridge.model.documents import encode
from overspan.bridge.model.job import new_job
from overspan.bridge.model.spec import JobSpec, TaskSpec
from overspan.bridge.model.storage import MountMode, StorageMount
from overspan.bridge.runtime.core.run_directory import RunDirectory
from overspan.bridge.runtime.data.folder_state import SyncedFile
from overspan.bridge.runtime.data.mounts import place_mount
from overspan.bridge.runtime.data.mover import Mover
from overspan.bridge.runtime.data.requests import END, FETCH, FLUSH, DataAnswer, DataRequest, MoverFiles
from overspan.bridge.runtime.data.rescue import hold_alone
from overspan.bridge.runtime.data.stores import write_stores

MOUNT = StorageMount("/out", "s3://pods/run", MountMode.MOUNT_CACHED, "s3")
READ = replace(MOUNT, read_through=True)
READ_DOCUMENT = json.dumps({"job": 7, "task": "a", "mounts": [encode(READ)], "fuse": True})
DOCUMENT = json.dumps({"job": 7, "task": "a", "mounts": [encode(MOUNT)]})
PROGRAM = (
    "import sys; from overspan.bridge.runtime.data import pod_mover as module\n"
    "module.TERMINATION_LOG = sys.argv.pop(1)\n"
    "module.main(sys.argv[1:])\n"
)
"""With another file as the termination log, since this is no container."""


class Pod:
    """The folders of a pod."""

    def __init__(self, folder: Path, store: TestStore) -> None:
        self.root = folder / "data"
        self.root.mkdir()
        self.message = folder / "message"
        write_stores(str(self.root), [store.access("s3")])

    @property
    def files(self) -> Path:
        """What the task's container mounts."""
        return Path(place_mount(str(self.root), 7, MOUNT).files)

    def start(self, verb: str, document: str = DOCUMENT) -> subprocess.Popen[bytes]:
        """Start one of its containers."""
        words = [sys.executable, "-c", PROGRAM, str(self.message), verb, str(self.root), document]
        return subprocess.Popen(words, stdout=subprocess.PIPE)

    def end(self) -> None:
        """What the container does at TERM."""
        (self.root / "end").touch()


@pytest.fixture
def pod(whole: TestStore, tmp_path: Path) -> Iterator[Pod]:
    bucket = whole.make_bucket("pods")
    for stored in list(bucket.list_objects("")):
        bucket.delete(stored.key)
    yield Pod(tmp_path, whole)


def finish(process: subprocess.Popen[bytes]) -> tuple[int, bytes]:
    with process:
        output, _ = process.communicate(timeout=60)
        return process.returncode, output


def test_data_is_there_before_the_start_and_sent_at_the_end(pod: Pod, whole: TestStore) -> None:
    whole.open("pods").put("run/old", b"old")
    assert finish(pod.start("fetch"))[0] == 0
    assert (pod.files / "old").read_bytes() == b"old"
    sender = pod.start("send")
    (pod.files / "new").write_text("new")
    pod.end()
    assert finish(sender)[0] == 0
    assert whole.texts("pods") == {"run/old": b"old", "run/new": b"new"}
    assert json.loads(pod.message.read_text()) == {"error": "", "left": 0}


def test_a_rescue_of_an_earlier_launch_is_waited_for(pod: Pod, whole: TestStore) -> None:
    """As where it outlives its daemon, and the job was queued again: at its end it removes the folder."""
    whole.open("pods").put("run/old", b"old")
    (pod.root / "data/7").mkdir(parents=True)
    with hold_alone(str(pod.root), 7):
        fetcher = pod.start("fetch")
        assert fetcher.stdout is not None
        assert b"is being sent by `span data rescue`" in fetcher.stdout.readline()
        assert not pod.files.exists()
    assert finish(fetcher)[0] == 0
    assert (pod.files / "old").read_bytes() == b"old"


def test_a_sender_that_was_killed_goes_on(pod: Pod, whole: TestStore) -> None:
    assert finish(pod.start("fetch"))[0] == 0
    with pod.start("send") as first:
        first.kill()
    (pod.files / "new").write_text("new")
    pod.end()
    assert finish(pod.start("send"))[0] == 0
    assert whole.texts("pods") == {"run/new": b"new"}


def test_how_much_is_left_is_said_while_the_store_is_away(pod: Pod, whole: TestStore) -> None:
    assert finish(pod.start("fetch"))[0] == 0
    with pod.start("send") as sender:
        whole.proxy.cut()
        (pod.files / "new").write_text("1234567")
        pod.end()
        assert sender.stdout is not None
        told = (json.loads(line) for line in sender.stdout if line.startswith(b"{"))
        assert any(each["left"] == 7 for each in told)
        whole.proxy.mend()
        sender.communicate(timeout=60)
    assert whole.texts("pods") == {"run/new": b"1234567"}


def test_what_nobody_waits_for_is_given_up(pod: Pod, whole: TestStore) -> None:
    assert finish(pod.start("fetch"))[0] == 0
    sender = pod.start("send")
    (pod.files / "new").write_text("1234567")
    whole.proxy.cut()
    pod.end()
    (pod.root / "abandon").touch()
    assert finish(sender)[0] == 1
    assert json.loads(pod.message.read_text())["error"] == "the job no longer waits for it"


def test_an_empty_file_that_is_not_sent_stays(pod: Pod, whole: TestStore) -> None:
    """As the marker of a checkpoint, without which the rest of it is of no use: 0 bytes are left of it."""
    document = json.dumps({**json.loads(DOCUMENT), "kept": True})
    assert finish(pod.start("fetch", document))[0] == 0
    sender = pod.start("send", document)
    whole.proxy.refused_key = "testing"
    (pod.files / ".overspan-atomic").touch()
    pod.end()
    (pod.root / "abandon").touch()
    assert finish(sender)[0] == 1
    assert (pod.files / ".overspan-atomic").exists()


def test_a_folder_that_an_earlier_mover_has_sent_is_removed_at_the_end(pod: Pod, whole: TestStore) -> None:
    """It was killed between its answer and the end, which the next one hears of at once."""
    folder = place_mount(str(pod.root), 7, MOUNT)
    folder.make()
    sent, unsent = pod.files / "sent", pod.files / "unsent"
    for path in (sent, unsent):
        path.write_text("1")
    state = folder.open_state()
    directory = RunDirectory(str(pod.root), 0)
    files, spec = MoverFiles(directory), JobSpec("j", (TaskSpec("a", run="true", storage=(MOUNT,)),))
    files.make()
    fetch, flush = DataRequest(FETCH, "a"), DataRequest(FLUSH, "a")
    for request in (fetch, flush, DataRequest(END)):
        files.ask(request)
    for request in (fetch, flush):
        files.answer(DataAnswer(request))
    for path in (sent, unsent):
        state.put(path.name, SyncedFile(1, path.stat().st_mtime_ns, "etag"))
        whole.proxy.cut()
        write_stores(str(pod.root), [whole.access("s3")])
        Mover(directory, str(pod.root), new_job(7, spec, 0.0)).serve()
        assert unsent.exists() is (path is sent)
    assert not os.path.exists(folder.path)


def test_a_bucket_that_is_not_there(pod: Pod) -> None:
    nowhere = replace(MOUNT, url="s3://nowhere/x", mode=MountMode.COPY)
    document = json.dumps({"job": 7, "task": "a", "mounts": [encode(nowhere)]})
    assert finish(pod.start("fetch", document))[0] == 1
    assert "nowhere" in pod.message.read_text()


def test_a_pod_that_ends_before_its_data_has_come(pod: Pod, whole: TestStore) -> None:
    whole.proxy.cut()
    fetcher = pod.start("fetch")
    wait_until(lambda: (pod.root / "run/data.0/requests.jsonl").exists(), 30, "the request")
    pod.end()
    assert finish(fetcher)[0] == 128 + signal.SIGTERM


def test_a_secret_that_is_renewed_counts_from_then_on(pod: Pod, whole: TestStore) -> None:
    # As a kubelet does it: the files are links into a folder that a link names, which is replaced.
    stores = pod.root / "stores"
    (stores / "s3.json").rename(stores / "old.json")
    (stores / "..1").mkdir()
    (stores / "old.json").rename(stores / "..1/s3.json")
    (stores / "..data").symlink_to("..1")
    (stores / "s3.json").symlink_to("..data/s3.json")
    assert finish(pod.start("fetch"))[0] == 0
    sender = pod.start("send")
    (pod.files / "a").write_bytes(b"1")
    wait_until(lambda: whole.texts("pods") == {"run/a": b"1"}, 20, "the first file to be sent")
    whole.proxy.refused_key = "testing"
    (pod.files / "b").write_bytes(b"2")
    pod.end()
    told = whole.proxy.refused
    wait_until(lambda: whole.proxy.refused > told, 20, "the mover to be refused")
    write_stores(str(pod.root / "fresh"), [whole.access("s3", access_key="renewed")])
    (pod.root / "fresh/stores").rename(stores / "..2")
    (stores / "..new").symlink_to("..2")
    (stores / "..new").replace(stores / "..data")
    assert finish(sender)[0] == 0
    assert whole.texts("pods") == {"run/a": b"1", "run/b": b"2"}


class TestCache:
    COPY = StorageMount("/in", "s3://pods/in", MountMode.COPY, "s3")

    def _fetch(self, pod: Pod, cache: Path) -> tuple[int, bytes]:
        facts = {"job": 7, "task": "a", "mounts": [encode(self.COPY)], "cache": {"path": str(cache), "limit": None}}
        return finish(pod.start("fetch", json.dumps(facts)))

    def test_another_pod_has_the_content_of_the_volume(self, pod: Pod, whole: TestStore, tmp_path: Path) -> None:
        whole.open("pods").put("in/a", os.urandom(2 << 20))
        assert self._fetch(pod, tmp_path / "cache")[0] == 0
        before = whole.proxy.passed_back
        (tmp_path / "other").mkdir()
        other = Pod(tmp_path / "other", whole)
        assert self._fetch(other, tmp_path / "cache")[0] == 0
        assert whole.proxy.passed_back - before < 1 << 20, "the content came from the store again"
        files = [Path(place_mount(str(each.root), 7, self.COPY).files) / "a" for each in (pod, other)]
        assert files[0].read_bytes() == files[1].read_bytes()

    @pytest.mark.parametrize("place", ["file", "/proc/self"])
    def test_a_cache_that_cannot_be_written_is_not_used(
        self, pod: Pod, whole: TestStore, tmp_path: Path, place: str
    ) -> None:
        whole.open("pods").put("in/a", b"1")
        (tmp_path / "file").write_bytes(b"no folder")
        code, said = self._fetch(pod, tmp_path / "file" if place == "file" else Path(place))
        assert (code, b"is not used" in said) == (0, True), said
        assert (Path(place_mount(str(pod.root), 7, self.COPY).files) / "a").read_bytes() == b"1"


class TestMounts:
    """What a pod mounts itself, with the device of this machine."""

    def test_a_program_reads_through_the_store_with_the_server_of_another_container(
        self, pod: Pod, whole: TestStore, tmp_path: Path
    ) -> None:
        whole.open("pods").put("run/a", b"1")
        with pod.start("fetch", READ_DOCUMENT) as fetch:
            assert fetch.wait(60) == 0
        mounts = pod.root / "mounts"
        assert (mounts / "note").read_text() == "s3://pods/run is read through the store\n"
        assert list(pod.files.iterdir()) == []
        target = tmp_path / "target"
        target.mkdir()
        words = ["sh", "-c", 'cat "$0/a"; echo 2 > "$0/b"; cat "$0/b"', str(target)]
        entered = [sys.executable, "-c", PROGRAM, str(pod.message), "enter", str(mounts), json.dumps([str(target)])]
        with pod.start("serve", READ_DOCUMENT) as server:
            done = subprocess.run([*entered, "failed", *words], capture_output=True, text=True, timeout=60, check=False)
            assert (done.stdout, done.returncode) == ("12\n", 0), done.stderr
            # The mount has ended with the program, and the server with the mount.
            assert server.wait(60) == 0
        assert (pod.files / "b").read_text() == "2\n" and list(target.iterdir()) == []

    def test_a_pod_that_cannot_mount_has_all_of_it_brought_and_says_why(self, pod: Pod, whole: TestStore) -> None:
        whole.open("pods").put("run/a", b"1")
        limited = "from overspan.bridge.runtime.data import pod_mounts\n"
        limited += "pod_mounts._try_mount = lambda _: 'it is not allowed'\n" + PROGRAM
        words = [sys.executable, "-c", limited, str(pod.message), "fetch", str(pod.root), READ_DOCUMENT]
        assert subprocess.run(words, timeout=60, check=False).returncode == 0
        note = (pod.root / "mounts" / "note").read_text()
        assert note == "s3://pods/run was brought here whole before the start: it is not allowed\n"
        assert not (pod.root / "mounts" / "served").exists() and (pod.files / "a").read_bytes() == b"1"

    def test_a_program_whose_server_ends_before_it_serves_is_not_started(self, pod: Pod) -> None:
        mounts = pod.root / "mounts"
        mounts.mkdir()
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
            listener.bind(str(mounts / "server"))
            listener.listen(1)
            words = [sys.executable, "-c", PROGRAM, str(pod.message), "enter", str(mounts), "[]", "failed", "true"]
            with subprocess.Popen(words, stderr=subprocess.PIPE, text=True) as entering:
                listener.accept()[0].close()
                _, said = entering.communicate(timeout=60)
        assert "cannot be mounted" in said and pod.message.read_text() == "failed"

"""Buckets that tasks read through the store, on the local cluster: FUSE in the task's own mount namespace."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path

from tests.stores import TestStore
from tests.system.conftest import Span
from tests.system.processes import find
from tests.waiting import WaitUntil

MOUNTED = "file_mounts: {./data: {source: s3://lab/run, mode: MOUNT}}\n"


class TestReading:
    def test_files_are_read_through_the_store_and_nothing_is_brought(self, lab: Span, store: TestStore) -> None:
        bucket = store.open("lab")
        content = os.urandom(5_000_000)
        bucket.put("run/large", content)
        bucket.put("run/deep/er/a", b"hello")
        bucket.put("elsewhere", b"no")
        run = (
            "cat data/large > seen; cat data/deep/er/a >> seen; find data/ -type f | sort > names;"
            " grep data /proc/mounts > m; ls $(readlink data) > brought; du -sb data/ > size"
        )
        job = lab.submit(f"{MOUNTED}run: |\n  {run}\n")
        lab.until(job, "COMPLETED")
        assert "./data is s3://lab/run (MOUNT, mounted on " in lab.look("show", str(job))
        assert (lab.folder / "seen").read_bytes() == content + b"hello"
        assert (lab.folder / "names").read_text().split() == ["data/deep/er/a", "data/large"]
        assert "fuse.overspan" in (lab.folder / "m").read_text()

    def test_a_folder_of_many_files_is_listed_and_one_is_looked_up(self, lab: Span, store: TestStore) -> None:
        bucket = store.open("lab")
        for number in range(1500):
            bucket.put(f"run/f{number:05d}", b"%d" % number)
        run = (
            "ls data | wc -l > count; ls -l data/ | tail -1 > last; cat data/f00042 > one; ls data/none 2> none || true"
        )
        lab.until(lab.submit(f"{MOUNTED}run: {run}\n"), "COMPLETED", timeout=60)
        assert (lab.folder / "count").read_text().strip() == "1500"
        assert (lab.folder / "last").read_text().rstrip().endswith("f01499")
        assert (lab.folder / "one").read_text() == "42"
        assert "No such file" in (lab.folder / "none").read_text()

    def test_what_others_write_and_remove_is_seen(self, lab: Span, store: TestStore, wait_until: WaitUntil) -> None:
        bucket = store.open("lab")
        bucket.put("run/old", b"1")
        run = (
            "cat data/old; touch begun; until [ -e data/new ]; do sleep 0.2; done; cat data/new > seen;"
            " while [ -e data/old ]; do sleep 0.2; done"
        )
        job = lab.submit(f"{MOUNTED}run: {run}\n")
        wait_until(lambda: (lab.folder / "begun").exists(), 20, "the task to look")
        bucket.put("run/new", b"2")
        bucket.delete("run/old")
        lab.until(job, "COMPLETED", timeout=60)
        assert (lab.folder / "seen").read_text() == "2"


class TestWriting:
    def test_what_is_written_changed_renamed_and_removed_is_so_in_the_store(self, lab: Span, store: TestStore) -> None:
        bucket = store.open("lab")
        for name in ("kept", "changed", "removed", "moved", "folder/inside", "emptied/x"):
            bucket.put(f"run/{name}", b"old")
        run = """
  set -e
  here=$PWD
  cd data
  echo more >> changed
  rm removed emptied/x
  rmdir emptied
  mv moved there
  mkdir -p new/deep
  echo new > new/deep/a
  mv new renamed
  mv folder folder2
  echo x > temporary; rm temporary
  python3 -c "
  import tempfile, os, mmap
  with tempfile.TemporaryFile(dir='.') as file:
      file.write(b'abc'); file.flush(); assert os.fstat(file.fileno()).st_size == 3
      file.seek(0); assert file.read() == b'abc'
  with open('mapped', 'w+b') as file:
      file.truncate(8192)
      with mmap.mmap(file.fileno(), 8192) as memory: memory[:4] = b'mmap'
  "
  ! test -e removed; ! test -e moved; ! test -e emptied; ! test -e folder
  cat folder2/inside there > $here/seen
"""
        job = lab.submit(f"{MOUNTED}run: |{run}")
        lab.until(job, "COMPLETED", timeout=60)
        assert (lab.folder / "seen").read_text() == "oldold"
        texts = store.texts("lab")
        assert texts.pop("run/mapped") == b"mmap" + bytes(8188)
        assert texts == {
            "run/kept": b"old",
            "run/changed": b"oldmore\n",
            "run/there": b"old",
            "run/renamed/deep/a": b"new\n",
            "run/folder2/inside": b"old",
        }

    def test_the_next_attempt_sees_what_was_written_and_what_others_replaced(
        self, lab: Span, store: TestStore, wait_until: WaitUntil
    ) -> None:
        run = "test -e data/mine && { cat data/mine > seen; exit 0; }; echo 1 > data/mine; exit 1"
        job = lab.submit(f"{MOUNTED}max_restarts_on_errors: 1\nbackoff: {{first: 6}}\nrun: {run}\n")
        wait_until(lambda: "run/mine" in store.texts("lab"), 20, "the file to be sent")
        wait_until(lambda: lab.job(job)["state"] == "PENDING", 20, "the attempt to end")
        store.open("lab").put("run/mine", b"2\n")
        lab.until(job, "COMPLETED", timeout=60)
        assert (lab.folder / "seen").read_text() == "2\n"
        assert store.texts("lab") == {"run/mine": b"2\n"}

    def test_what_several_nodes_append_to_one_file_is_all_there(self, lab: Span, store: TestStore) -> None:
        run = 'for i in $(seq 50); do echo "$SKYPILOT_NODE_RANK $i" >> data/log; sleep 0.02; done'
        job = lab.submit(f"num_nodes: 2\n{MOUNTED}run: |\n  {run}\n")
        lab.until(job, "COMPLETED", timeout=60)
        lines = store.texts("lab")["run/log"].decode().splitlines()
        assert sorted(lines) == sorted(f"{node} {number}" for node in range(2) for number in range(1, 51))


class TestEnds:
    """Nothing of a mount outlives its job, and no program waits for one that is gone."""

    RUN = "cat data/a > seen; touch begun; while cat data/b > last 2> error; do sleep 0.1; done; cat error >&2"

    def test_a_server_that_is_killed_gives_an_error_and_leaves_nothing(
        self, lab: Span, store: TestStore, wait_until: WaitUntil
    ) -> None:
        job = self._begin(lab, store, wait_until)
        (server,) = find_servers(lab.state)
        os.kill(server, signal.SIGKILL)
        lab.until(job, "COMPLETED", timeout=60)
        # What waits when it is killed is told so by other words than what comes later.
        told = (lab.folder / "error").read_text()
        assert "Transport endpoint is not connected" in told or "Software caused connection abort" in told
        self._check_gone(lab, wait_until)

    def test_a_server_that_is_killed_ends_open_files_and_mapped_memory(
        self, lab: Span, store: TestStore, wait_until: WaitUntil
    ) -> None:
        store.open("lab").put("run/a", bytes(30_000_000))
        (lab.folder / "read.py").write_text(_READER)
        job = lab.submit(f"{MOUNTED}run: python3 read.py\n")
        wait_until(lambda: (lab.folder / "begun").exists(), 30, "the task to begin")
        (server,) = find_servers(lab.state)
        os.kill(server, signal.SIGKILL)
        (lab.folder / "go").touch()
        assert lab.until(job, "COMPLETED", "FAILED", timeout=60)["state"] == "COMPLETED", lab.log(job)
        told = (lab.folder / "told").read_text().split()
        assert told == [str(errno.ENOTCONN), str(int(signal.SIGBUS)), str(errno.ENOTCONN)]
        self._check_gone(lab, wait_until)

    def test_settings_that_change_leave_what_runs_as_it_is(
        self, lab: Span, store: TestStore, wait_until: WaitUntil
    ) -> None:
        store.open("lab").put("run/a", b"1")
        run = "cat data/a; touch begun; until [ -e go ]; do sleep 0.1; done; cat data/a > seen; echo 2 > data/b"
        job = lab.submit(f"{MOUNTED}run: {run}\n")
        wait_until(lambda: (lab.folder / "begun").exists(), 30, "the task to begin")
        lab.config.write_text(lab.config.read_text().replace("kind: local,", "kind: local, data_fuse: false,"))
        lab.run("shutdown")
        (lab.folder / "go").touch()
        lab.until(job, "COMPLETED", timeout=60)
        assert (lab.folder / "seen").read_text() == "1"
        assert store.texts("lab") == {"run/a": b"1", "run/b": b"2\n"}
        assert "(MOUNT, mounted on " in lab.look("show", str(job))

    def test_a_supervisor_that_is_killed_changes_nothing(
        self, lab: Span, store: TestStore, wait_until: WaitUntil
    ) -> None:
        job = self._begin(lab, store, wait_until)
        # What it has just forked may have its name for a moment.
        (supervisor,) = wait_until(lambda: one_of(find(lab.state, is_supervisor)), 20, "one supervisor")
        os.kill(supervisor, signal.SIGKILL)
        store.open("lab").delete("run/b")
        lab.until(job, "COMPLETED", timeout=60)
        # A file that was opened by what was known of it before may be read no more.
        told = (lab.folder / "error").read_text()
        assert "No such file" in told or "Stale file handle" in told, told
        self._check_gone(lab, wait_until)

    def test_a_task_that_is_killed_leaves_no_mount_and_no_process(
        self, lab: Span, store: TestStore, wait_until: WaitUntil
    ) -> None:
        job = self._begin(lab, store, wait_until)
        lab.run("scancel", "--signal=KILL", str(job))
        lab.until(job, "CANCELLED", "FAILED", timeout=60)
        self._check_gone(lab, wait_until)

    def test_a_program_that_waits_for_a_store_that_hangs_is_ended(
        self, lab: Span, store: TestStore, wait_until: WaitUntil
    ) -> None:
        store.open("lab").put("run/a", b"1")
        store.open("lab").put("run/large", bytes(3_000_000))
        store.proxy.delay = 0.0
        job = lab.submit(f"{MOUNTED}grace_period: 1\nrun: cat data/a; touch begun; sleep 1; cat data/large > large\n")
        wait_until(lambda: (lab.folder / "begun").exists(), 30, "the task to begin")
        store.proxy.delay = 120.0
        try:
            wait_until(lambda: (lab.folder / "large").exists(), 30, "the program to wait for the store")
            lab.run("scancel", "--no-flush", str(job))
            lab.until(job, "CANCELLED", timeout=30)
        finally:
            store.proxy.delay = 0.0
        self._check_gone(lab, wait_until)

    def _begin(self, lab: Span, store: TestStore, wait_until: WaitUntil) -> int:
        for name in "ab":
            store.open("lab").put(f"run/{name}", b"1")
        job = lab.submit(f"{MOUNTED}run: {self.RUN}\n")
        wait_until(lambda: (lab.folder / "begun").exists(), 30, "the task to begin")
        return job

    def _check_gone(self, lab: Span, wait_until: WaitUntil) -> None:
        wait_until(lambda: find_servers(lab.state) == [], 20, "the server to end")
        assert "fuse.overspan" not in Path("/proc/self/mounts").read_text()


_READER = """
import mmap, os, time
file = os.open("data/a", os.O_RDONLY)
memory = mmap.mmap(file, 0, access=mmap.ACCESS_READ)
memory[0]
open("begun", "w").close()
while not os.path.exists("go"):
    time.sleep(0.1)
told = []
try:
    os.pread(file, 4096, 25_000_000)
except OSError as error:
    told.append(error.errno)
if not (child := os.fork()):
    memory[20_000_000]
    os._exit(0)
told.append(os.WTERMSIG(os.waitpid(child, 0)[1]))
try:
    open("data/b", "w")
except OSError as error:
    told.append(error.errno)
with open("told", "w") as answer:
    print(*told, file=answer)
"""
"""Reads by a descriptor, from mapped memory in a child, and opens a file; tells what each has come to."""


def one_of(pids: list[int]) -> list[int]:
    """The only one; empty where there are several."""
    return pids if len(pids) == 1 else []


def is_supervisor(folder: Path) -> bool:
    """Whether this is a supervisor."""
    return (folder / "comm").read_bytes().strip() == b"span-supervisor"


def find_servers(root: Path) -> list[int]:
    """The servers of folders that are mounted from below a folder."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                words = (entry / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if b"fuse" in words and any(os.fsencode(root) in word for word in words[words.index(b"fuse") :]):
                found.append(int(entry.name))
    return found


# In a process of its own, whose namespace ends with it.
_HANGING = """
import json, os, signal, socket, subprocess, sys
from overspan.bridge.model.storage import MountMode, StorageMount, StoreAccess
from overspan.bridge.runtime.core.isolation import Isolation
from overspan.bridge.runtime.core.storage_mounts import FileServer
from overspan.bridge.runtime.data.mounts import place_mount
from overspan.bridge.runtime.data.stores import write_stores

root = sys.argv[1]
silent = socket.create_server(("127.0.0.1", 0))
address = f"http://127.0.0.1:{silent.getsockname()[1]}"
write_stores(root, [StoreAccess("s3", address, access_key="a", secret_key="b")])
folder = place_mount(root, 1, StorageMount("d", "s3://lab/run", MountMode.MOUNT, "s3"))
folder.make()
words = (sys.executable, "-m", "overspan.bridge.runtime", "fuse", root, json.dumps([folder.path]))
FileServer(words, ("OVERSPAN_NODE_KEY", "test")).serve([folder.files], Isolation())
reader = subprocess.Popen(["cat", f"{folder.files}/a"])
connection = silent.accept()
assert connection[0].recv(4) == b"HEAD"
reader.send_signal(signal.SIGCHLD)
try:
    reader.wait(0.5)
except subprocess.TimeoutExpired:
    pass
reader.kill()
print(reader.wait(20))
"""


def test_a_program_that_is_killed_while_the_store_hangs_is_gone_at_once(tmp_path: Path, wait_until: WaitUntil) -> None:
    words = [sys.executable, "-c", _HANGING, str(tmp_path)]
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    finally:
        for pid in find_servers(tmp_path):
            # One that does not let a program go holds it.
            os.kill(pid, signal.SIGKILL)
    assert (done.stdout, done.returncode) == ("-9\n", 0), done.stderr
    wait_until(lambda: find_servers(tmp_path) == [], 20, "the server to end")

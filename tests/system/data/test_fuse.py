"""Buckets that tasks read through the store, on the local cluster: FUSE in the task's own mount namespace."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from tests.stores import TestStore
from tests.system.conftest import Span
from tests.system.data.storage_jobs import left_on_node, movers
from tests.waiting import WaitUntil

from overspan.bridge.runtime.core.storage_mounts import probe_mounts

MOUNTED = "file_mounts: {./data: {source: s3://lab/run, mode: MOUNT}}\n"


class TestReading:
    def test_files_are_read_through_the_store_and_nothing_is_brought(self, lab: Span, store: TestStore) -> None:
        bucket = store.open("lab")
        content = os.urandom(5_000_000)
        bucket.put("run/large", content)
        bucket.put("run/deep/er/a", b"hello")
        bucket.put("elsewhere", b"no")
        run = "cat data/large > seen; cat data/deep/er/a >> seen; find data/ -type f | sort > names; grep data /proc/mounts > m"
        job = lab.submit(f"{MOUNTED}run: |\n  {run}\n")
        lab.until(job, "COMPLETED")
        assert (lab.folder / "seen").read_bytes() == content + b"hello"
        assert (lab.folder / "names").read_text().split() == ["data/deep/er/a", "data/large"]
        assert "fuse.overspan" in (lab.folder / "m").read_text()

    def test_a_folder_of_many_files_is_listed_and_one_is_looked_up(self, lab: Span, store: TestStore) -> None:
        bucket = store.open("lab")
        for number in range(1500):
            bucket.put(f"run/f{number:05d}", b"%d" % number)
        run = "ls data | wc -l > count; ls -l data | tail -1 > last; cat data/f00042 > one; ls data/none 2> none || true"
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
  cat folder2/inside there > ../seen
"""
        job = lab.submit(f"{MOUNTED}run: |{run}".replace('\n  "\n', '\n  "\n'))
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

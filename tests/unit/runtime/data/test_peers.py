"""Several nodes write one folder of a store: its markers are published when all of them have sent their files."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.stores import TestStore

from overspan.bridge.runtime.data.cached_folder import CachedFolder, Senders
from overspan.bridge.runtime.data.folder_state import FolderState
from overspan.bridge.runtime.data.peers import FOLDER, PATIENCE, PeerPlace, Peers, PeersLost, remove_sessions
from overspan.bridge.runtime.data.s3 import S3Store

MARKER = "step_1/.metadata"


class Node:
    """One node of the task, with its own folder and mover."""

    def __init__(self, path: Path, store: S3Store, senders: Senders, node: int) -> None:
        path.mkdir()
        self.path = path
        self.now = 0.0
        peers = Peers(store, PeerPlace("job-0", node, 2), "mount", lambda: self.now)
        state = FolderState(str(path.with_suffix(".jsonl")))
        self.folder = CachedFolder(str(path), store, "run", state, senders, peers=peers)

    def write(self, name: str, text: str = "x") -> None:
        path = self.path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        # Not in this very moment: what may be written anew within the same tick waits.
        os.utime(path, (time.time() - 0.1, time.time() - 0.1))

    def look(self, ended: bool = True) -> None:
        """One look of the uploader; what was written counts as quiet."""
        self.folder.send(self.folder.scan(), ended=ended)


@pytest.fixture
def nodes(whole: TestStore, tmp_path: Path) -> Iterator[tuple[Node, Node, Callable[[], set[str]]]]:
    """Two nodes, and what a reader sees."""
    bucket = whole.make_bucket("peers")
    for stored in list(bucket.list_objects("")):
        bucket.delete(stored.key)
    with ThreadPoolExecutor(4) as files, ThreadPoolExecutor(4) as parts:
        made = [Node(tmp_path / f"node{number}", bucket, Senders(files, parts, files), number) for number in range(2)]

        def see() -> set[str]:
            return {stored.key for stored in bucket.list_objects("run/")}

        yield made[0], made[1], see
    bucket.close()


Both = tuple[Node, Node, Callable[[], set[str]]]


def test_a_marker_waits_for_the_other_node_s_files(nodes: Both) -> None:
    first, second, see = nodes
    first.write("step_1/rank0")
    second.write("step_1/rank1")
    first.write(MARKER)
    first.look()
    first.look()
    assert see() == {"run/step_1/rank0"}
    second.look(ended=False)
    # It has seen the question, and its file is not quiet yet.
    first.look()
    assert f"run/{MARKER}" not in see()
    second.look()
    second.look()
    first.look()
    assert see() == {"run/step_1/rank0", "run/step_1/rank1", f"run/{MARKER}"}


def test_two_nodes_with_a_marker_each_do_not_wait_for_each_other(nodes: Both) -> None:
    first, second, see = nodes
    first.write("a/file")
    first.write("a/.metadata")
    second.write("b/file")
    second.write("b/.metadata")
    for _ in range(4):
        first.look()
        second.look()
    assert see() == {"run/a/file", "run/a/.metadata", "run/b/file", "run/b/.metadata"}


def test_a_node_that_has_ended_is_asked_nothing(nodes: Both) -> None:
    first, second, see = nodes
    second.write("step_1/rank1")
    second.look()
    second.look()
    first.write(MARKER)
    first.look()
    assert f"run/{MARKER}" in see()


def test_a_node_that_was_killed_keeps_the_marker_back_for_good(nodes: Both) -> None:
    first, _, see = nodes
    first.write(MARKER)
    first.look()
    first.now = PATIENCE + 1
    with pytest.raises(PeersLost, match=f"{MARKER} is not published: node 1 has not said"):
        first.look()
    assert see() == set()


def test_while_work_goes_on_nobody_gives_up(nodes: Both) -> None:
    first, _, see = nodes
    first.write(MARKER)
    for _ in range(3):
        first.look(ended=False)
        first.now += PATIENCE
    assert see() == set()


def test_the_last_one_leaves_nothing(nodes: Both, whole: TestStore) -> None:
    first, second, _ = nodes
    whole.open("peers").put(f"{FOLDER}job-9/mount/done.1", b"")
    first.write("step_1/rank0")
    first.write(MARKER)
    for _ in range(4):
        first.look()
        second.look()
    assert [stored.key for stored in whole.open("peers").list_objects(FOLDER)] == []


def test_what_a_launch_has_left_is_told_from_others(whole: TestStore) -> None:
    bucket = whole.make_bucket("left")
    others = ["span-1-10-0/mount/done.0", "span-1-1-2-0/mount/done.0"]
    for name in ("span-1-1-0/mount/done.0", "span-1-1-3/other/ask-x", *others):
        bucket.put(FOLDER + name, b"")
    bucket.put("run/a", b"")
    assert remove_sessions(bucket, "span-1-1") == 2
    assert sorted(stored.key for stored in bucket.list_objects("")) == sorted([*(FOLDER + n for n in others), "run/a"])


def test_a_marker_that_is_written_again_is_asked_for_again(nodes: Both) -> None:
    first, second, see = nodes
    first.write("latest", "step_1")
    for _ in range(3):
        first.look(ended=False)
        second.look(ended=False)
    second.write("step_2/rank1", "y" * 10)
    first.write("latest", json.dumps("step_2"))
    first.look()
    assert "run/step_2/rank1" not in see()
    for _ in range(3):
        second.look()
        first.look()
    assert {"run/step_2/rank1", "run/latest"} <= see()


def test_a_node_that_dies_after_it_has_said_so_keeps_no_marker(nodes: Both) -> None:
    """What it has said stays true: its files are there."""
    first, second, see = nodes
    for node, name in ((second, "step_1/rank1"), (first, MARKER)):
        node.write(name)
        # Quiet for long enough while programs run.
        os.utime(node.path / name, (time.time() - 5, time.time() - 5))
    second.look(ended=False)
    first.look(ended=False)
    assert see() == {"run/step_1/rank1"}
    # It says so, and is killed: nothing of it follows.
    second.look(ended=False)
    first.look()
    assert see() == {"run/step_1/rank1", f"run/{MARKER}"}


def test_a_node_that_dies_between_the_confirmations_and_its_marker_leaves_none(nodes: Both) -> None:
    first, second, see = nodes
    second.write("step_1/rank1")
    first.write(MARKER)
    first.look(ended=False)
    second.look()
    second.look()
    # `first` is killed here. No other node publishes what is its own, and the checkpoint is not whole.
    second.now = 2 * PATIENCE
    second.look()
    assert see() == {"run/step_1/rank1"}

"""The movers of the nodes that write one folder of a store agree when a marker may be published, by objects there.

    .overspan-peers/SESSION/MOUNT/ask-MARKER       a node wants to publish a marker
    .overspan-peers/SESSION/MOUNT/said-MARKER.N    node N has sent all that it had when it saw that
    .overspan-peers/SESSION/MOUNT/done.N           node N's work has ended, and all that it wrote is there but markers
    .overspan-peers/SESSION/MOUNT/over.N           the markers too

A marker is written when the nodes have agreed that all of them are done with what it speaks of, so what a node has when
it sees the question is enough. A session is one attempt, LAUNCH-ATTEMPT; the last node to be over removes its objects,
and those of attempts before it. Where a node was killed there is no last one: the side that ends the launch
calls `remove_sessions`.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Collection, Mapping
from typing import Callable, Optional

from overspan.bridge.model.records import NamedTuple
from overspan.bridge.runtime.data.object_store import ObjectStore

FOLDER = ".overspan-peers/"
"""The beginning of the keys, which no folder shows."""
PATIENCE = 60.0
"""Seconds for which an ended node waits for the others before it gives its markers up."""


class PeersLost(Exception):
    """Other nodes have not said for long that they are done; the text is a sentence."""


class PeerPlace(NamedTuple):
    """Which of the nodes of a session this is."""

    session: str
    node: int
    nodes: int


class Peers:
    """The other nodes that write a folder."""

    def __init__(
        self, store: ObjectStore, place: PeerPlace, mount: str, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._store = store
        self._place = place
        self._mount = mount
        self._prefix = f"{FOLDER}{place.session}/{mount}/"
        self._clock = clock
        self._keys: frozenset[str] = frozenset()
        self._asked: set[str] = set()
        self._pending: dict[str, Mapping[str, object]] = {}
        self._told: set[str] = set()
        self._waits_since: Optional[float] = None

    def look(self) -> None:
        """Learn what the others have said. Raises ObjectStoreError."""
        found = self._store.list_objects(self._prefix)
        self._keys = frozenset(stored.key[len(self._prefix) :] for stored in found)

    def answer(self, unsent: Mapping[str, object]) -> None:
        """Say of each marker of others when all is sent that was not when its question was seen.

        `unsent` are files without markers, each with what tells its versions apart. Raises ObjectStoreError.
        """
        for key in self._keys:
            mark = key[len("ask-") :]
            if not key.startswith("ask-") or mark in self._asked or self._name("said", mark) in self._told:
                continue
            pending = self._pending.setdefault(mark, dict(unsent))
            if not any(unsent.get(name) == version for name, version in pending.items()):
                self._tell(self._name("said", mark))
                del self._pending[mark]

    def agree(self, name: str, version: object, *, ended: bool) -> bool:
        """Whether all others have sent what a marker speaks of; they are asked where that is not known.

        Raises ObjectStoreError, and PeersLost where this node's work has `ended` and others say nothing for long.
        """
        mark = _name_mark(name, version)
        self._asked.add(mark)
        missing = [
            number
            for number in range(self._place.nodes)
            if number != self._place.node and not {f"said-{mark}.{number}", f"done.{number}"} & self._keys
        ]
        if not missing:
            self._waits_since = None
            return True
        self._tell(f"ask-{mark}")
        if ended:
            self._waits_since = self._clock() if self._waits_since is None else self._waits_since
            if self._clock() - self._waits_since > PATIENCE:
                who = ", ".join(map(str, missing))
                raise PeersLost(f"{name} is not published: node {who} has not said that all of its files are sent")
        return False

    def forget(self, name: str, version: object) -> None:
        """Remove the question for a marker that is published. Raises ObjectStoreError."""
        mark = _name_mark(name, version)
        for key in self._keys:
            if key == f"ask-{mark}" or key.startswith(f"said-{mark}."):
                self._store.delete(self._prefix + key)

    def end(self, unsent: Collection[str], markers: Collection[str]) -> None:
        """This node's work has ended: say so when no file of it is left, and again when no marker is.

        Raises ObjectStoreError.
        """
        if unsent:
            return
        self._tell(f"done.{self._place.node}")
        if markers:
            return
        self._tell(f"over.{self._place.node}")
        self.look()
        if all(f"over.{number}" in self._keys for number in range(self._place.nodes)):
            self._remove_all()

    def _remove_all(self) -> None:
        """Remove what this session and those of earlier attempts, whose nodes may have been killed, have left."""
        remove_sessions(self._store, self._place.session.rpartition("-")[0], self._mount)

    def _name(self, kind: str, mark: str) -> str:
        return f"{kind}-{mark}.{self._place.node}"

    def _tell(self, key: str) -> None:
        if key not in self._told:
            self._store.put(self._prefix + key, b"")
            self._told.add(key)


def remove_sessions(store: ObjectStore, launch: str, mount: str = "") -> int:
    """Remove what all sessions of a launch have left, of one mount or all; how many objects.

    Raises ObjectStoreError.
    """
    found = [stored.key for stored in store.list_objects(f"{FOLDER}{launch}-")]
    # Another launch's name may begin with this one's.
    mine = [key for key in found if key.split("/")[1].rpartition("-")[0] == launch]
    left = [key for key in mine if not mount or key.split("/")[2] == mount]
    for key in left:
        store.delete(key)
    return len(left)


def _name_mark(name: str, version: object) -> str:
    """What stands for one version of a marker in keys."""
    return hashlib.sha256(repr((name, version)).encode()).hexdigest()[:16]

"""The names that the kernel knows: nodes in a tree, by the numbers that it calls them by."""

from __future__ import annotations

import errno
import os
import threading
from typing import Optional

from overspan.bridge.runtime.data.fuse.protocol import ROOT


class FuseNode:
    """A file or folder that the kernel has asked for; `gone` when it was removed, and a program may have it open."""

    __slots__ = ("children", "gone", "lookups", "name", "number", "parent", "version")

    def __init__(self, number: int, name: str, parent: Optional[FuseNode]) -> None:
        self.number = number
        self.name = name
        self.parent = parent
        self.children: dict[str, FuseNode] = {}
        self.lookups = 0
        self.gone = False
        self.version: object = None
        """What told the content apart when it was opened last."""


class NodeTable:
    """All nodes; called by several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._root = FuseNode(ROOT, "", None)
        self._nodes: dict[int, FuseNode] = {ROOT: self._root}
        self._last = ROOT

    def find(self, number: int) -> FuseNode:
        """A node. Raises OSError for one that is not known."""
        try:
            return self._nodes[number]
        except KeyError:
            raise OSError(errno.ESTALE, os.strerror(errno.ESTALE)) from None

    def name_of(self, number: int, child: str = "") -> str:
        """The name below the folder of a node, or of a child of it. Raises OSError where it was removed."""
        with self._lock:
            node: Optional[FuseNode] = self.find(number)
            parts = [child] if child else []
            while node is not None and node.parent is not None:
                if node.gone:
                    raise OSError(errno.ENOENT, os.strerror(errno.ENOENT))
                parts.append(node.name)
                node = node.parent
            return "/".join(reversed(parts))

    def look_up(self, parent: int, name: str) -> int:
        """The number of a child, which the kernel knows once more."""
        with self._lock:
            folder = self.find(parent)
            node = folder.children.get(name)
            if node is None:
                self._last += 1
                node = FuseNode(self._last, name, folder)
                folder.children[name] = node
                self._nodes[node.number] = node
            node.lookups += 1
            return node.number

    def forget(self, number: int, count: int) -> None:
        """The kernel knows a node so many times less."""
        with self._lock:
            node = self._nodes.get(number)
            if node is None or node.parent is None:
                return
            node.lookups -= count
            self._drop(node)

    def remove(self, parent: int, name: str) -> None:
        """A child has no name any more."""
        with self._lock:
            node = self.find(parent).children.pop(name, None)
            if node is not None:
                node.gone = True

    def move(self, parent: int, name: str, new_parent: int, new_name: str) -> None:
        """A child has another name; what had that name has none."""
        with self._lock:
            node = self.find(parent).children.pop(name, None)
            target = self.find(new_parent)
            replaced = target.children.pop(new_name, None)
            if replaced is not None:
                replaced.gone = True
            if node is not None:
                node.parent, node.name = target, new_name
                target.children[new_name] = node

    def _drop(self, node: Optional[FuseNode]) -> None:
        while node is not None and node.parent is not None and node.lookups <= 0 and not node.children:
            self._nodes.pop(node.number, None)
            parent = node.parent
            if parent.children.get(node.name) is node:
                del parent.children[node.name]
            node = parent

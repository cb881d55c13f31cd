"""How object stores are reached from a node: a file for each store that its jobs use, beside the run directories.

ROOT/stores/NAME.json           endpoint, region, and credentials or the file that has them (0600)
ROOT/renewed/stores/NAME.json   the same, where the other cannot be replaced; the newer one counts
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from typing import Optional

from overspan.bridge.model.documents import decode, encode
from overspan.bridge.model.storage import StoreAccess
from overspan.bridge.runtime.data.credentials import CredentialsSource
from overspan.bridge.runtime.data.object_store import ObjectStoreError, StoreTrouble
from overspan.bridge.runtime.data.signature import Credentials

_FOLDER = "stores"


def name_store(root: str, name: str) -> str:
    """The file of one store."""
    return os.path.join(root, _FOLDER, f"{name}.json")


def remove_stores(root: str) -> None:
    """Remove the files of all stores."""
    folder = os.path.join(root, _FOLDER)
    try:
        for name in os.listdir(folder):
            os.unlink(os.path.join(folder, name))
        os.rmdir(folder)
    except OSError:
        pass


def write_stores(root: str, stores: Iterable[StoreAccess]) -> None:
    """Write the files of these stores, each in one step. Raises OSError."""
    folder = os.path.join(root, _FOLDER)
    os.makedirs(folder, mode=0o700, exist_ok=True)
    for access in stores:
        path = name_store(root, access.name)
        fresh = f"{path}.{os.urandom(8).hex()}"
        with open(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
            json.dump(encode(access), file)
        os.replace(fresh, path)


def read_store(root: str, name: str) -> StoreAccess:
    """How one store is reached. Raises ObjectStoreError."""
    path = name_store(root, name)
    try:
        with open(path, encoding="utf-8") as file:
            access: StoreAccess = decode(StoreAccess, json.load(file))
            return access
    except (OSError, ValueError, TypeError) as error:
        raise ObjectStoreError(StoreTrouble.DENIED, f"{path} does not say how the store is reached: {error}") from None


class StoreFile:
    """The credentials in the file of one store, which others may renew (`credentials.CredentialsReader`)."""

    def __init__(self, root: str, name: str) -> None:
        self._root, self._name = root, name
        self._mark: object = None
        self._source: Optional[CredentialsSource] = None

    def load(self) -> Optional[Credentials]:
        """The credentials as they are now; those that were read last where the file is gone or damaged.

        Raises ObjectStoreError.
        """
        mark, root = max(_look(self._root, self._name), _look(name_renewed(self._root), self._name))
        if (mark, root) != self._mark or self._source is None:
            try:
                self._source = CredentialsSource(read_store(root, self._name))
            except ObjectStoreError:
                if self._source is None:
                    raise
            self._mark = (mark, root)
        return self._source.load()

    def doubt(self) -> None:
        """Read it anew at the next call: on a network file system a change may not be seen before it is opened."""
        self._mark = None
        if self._source is not None:
            self._source.doubt()


def name_renewed(root: str) -> str:
    """The root of files that stand for those of another one."""
    return os.path.join(root, "renewed")


def _look(root: str, name: str) -> tuple[tuple[int, ...], str]:
    """What tells a version of a store's file from others, the newer one above; and its root."""
    try:
        status = os.stat(name_store(root, name))
    except OSError:
        return (), root
    return (status.st_mtime_ns, status.st_size, status.st_ino), root

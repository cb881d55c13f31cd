"""Users who may have something on a cluster, in a file of the daemon, so that a crash leaves nothing unknown."""

from __future__ import annotations

import contextlib
import logging
import os

log = logging.getLogger(__name__)


class Users:
    """Names, a line each, in `users` of the cluster's state folder; without a folder only in memory."""

    def __init__(self, folder: str) -> None:
        self._path = os.path.join(folder, "users") if folder else ""
        self._names = self._read()

    def names(self) -> frozenset[str]:
        """The names of all users."""
        return frozenset(self._names)

    def add(self, user: str) -> None:
        """Note a user before anything is submitted for them."""
        if user not in self._names:
            self._names.add(user)
            self._write()

    def drop(self, user: str) -> None:
        """Forget a user of whom nothing is left on the cluster."""
        if user in self._names:
            self._names.discard(user)
            self._write()

    def _read(self) -> set[str]:
        with contextlib.suppress(FileNotFoundError, NotADirectoryError), open(self._path, encoding="utf-8") as file:
            return set(filter(None, file.read().split("\n")))
        return set()

    def _write(self) -> None:
        if not self._path:
            return
        try:
            os.makedirs(os.path.dirname(self._path), mode=0o700, exist_ok=True)
            with open(f"{self._path}.new", "w", encoding="utf-8") as file:
                file.write("".join(f"{name}\n" for name in sorted(self._names)))
            os.replace(f"{self._path}.new", self._path)
        except OSError as error:
            # Not fatal: only after a crash, sets' native jobs and files of a new user may be left.
            log.warning("%s cannot be written: %s", self._path, error.strerror)

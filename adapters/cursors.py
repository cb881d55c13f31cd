"""The stored cursors of a cluster's launches, with what has changed of them since a reader looked last."""

from __future__ import annotations

from collections.abc import Callable


class Cursors(dict[str, str]):
    """Cursors by handle, of all launches that are watched. One reader may ask for the changes alone, and is woken."""

    def __init__(self) -> None:
        super().__init__()
        self._reader: object = None
        self._wake: Callable[[], None] | None = None
        self._moved: set[str] = set()

    def put(self, handle: str, cursor: str) -> None:
        """Note what is stored of a launch."""
        if self.get(handle) != cursor:
            self[handle] = cursor
            self._note(handle)

    def leave(self, handle: str) -> None:
        """A launch is watched no more."""
        if self.pop(handle, None) is not None:
            self._note(handle)

    def take_moved(self, reader: object, wake: Callable[[], None]) -> set[str]:
        """The handles whose cursors have come, changed or gone since the reader's last call; all at its first.

        `wake` is called when there are others.
        """
        moved, self._moved = self._moved, set()
        if reader is self._reader:
            return moved
        self._reader, self._wake = reader, wake
        return set(self)

    def _note(self, handle: str) -> None:
        if self._wake is not None:
            self._moved.add(handle)
            self._wake()

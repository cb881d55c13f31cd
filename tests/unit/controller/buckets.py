"""A bucket of an object store in memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from overspan.bridge.runtime.data.object_store import StoredObject


class Bucket:
    """A bucket in memory."""

    objects: dict[str, bytes]

    def list_objects(self, prefix: str, *, level: bool = False) -> Iterator[StoredObject]:
        for key, data in sorted(self.objects.items()):
            if key.startswith(prefix):
                yield StoredObject(key, len(data), "e", 1000.0)

    def open(self, key: str, offset: int = 0, etag: str = "") -> Any:
        data = self.objects[key]

        class Reader:
            def read(self, size: int) -> bytes:
                return data[:size]

            def close(self) -> None:
                """Nothing."""

        return Reader()

"""The buckets that were made for jobs which do not want them to stay (`persistent: false`), and their removal.

STATE/buckets.json    [{"store", "bucket", "made", "used", "touched"}, ...]

Only a bucket that was made here is ever removed: when the last live job that mounts it is over, or, if no job ever did,
when no files were sent to it for a while. A job that mounts it without `persistent: false` makes it stay.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, replace

from overspan.bridge.config.store_settings import StoreSettings, open_access
from overspan.bridge.controller.core.store_calls import run_call
from overspan.bridge.model.errors import OverspanError
from overspan.bridge.model.spec import JobSpec
from overspan.bridge.model.storage import is_web_url, parse_object_url
from overspan.bridge.runtime.data.s3 import S3Store

_log = logging.getLogger(__name__)

LOOK_SECONDS = 5.0
UNUSED_SECONDS = 600.0
"""How long a bucket that no job has mounted waits for one after files were sent to it."""
KEPT_SECONDS = 7 * 24 * 3600.0
"""How long a store is asked that does not let a bucket be removed."""
_ANSWER_SECONDS = 10.0
_LONGEST_PAUSE = 300.0

Bucket = tuple[str, str]
"""The entry of `stores`, and the bucket's name."""


@dataclass(frozen=True)
class MadeBucket:
    """A bucket to remove. `made`: the store has confirmed it; `used`: a job mounts it, or did."""

    store: str
    bucket: str
    touched: float
    made: bool = False
    used: bool = False

    @property
    def key(self) -> Bucket:
        """What tells it from others."""
        return self.store, self.bucket


def list_buckets(specs: Iterable[JobSpec]) -> dict[Bucket, bool]:
    """The buckets that jobs mount, and whether one of them wants it to stay."""
    found: dict[Bucket, bool] = {}
    for mount in (mount for spec in specs for task in spec.tasks for mount in task.storage):
        if mount.store and not is_web_url(mount.url):
            key = mount.store, parse_object_url(mount.url).bucket
            found[key] = found.get(key, False) or mount.persistent
    return found


class MadeBuckets:
    """Their record, in a file; and the loop that removes them."""

    def __init__(
        self,
        folder: str,
        stores: Mapping[str, StoreSettings],
        clock: Callable[[], float],
        live: Callable[[], Iterable[JobSpec]],
    ) -> None:
        self._path = os.path.join(folder, "buckets.json")
        self._stores = stores
        self._clock = clock
        self._live = live
        self._busy: dict[Bucket, int] = {}
        self._pauses: dict[Bucket, tuple[float, float]] = {}
        """When a removal that failed is tried again, and the pause after that."""
        self._known = {record.key: record for record in self._load()}
        self._removing: Bucket | None = None
        self._removed = asyncio.Event()

    async def hold(self, key: Bucket) -> None:
        """Keep a bucket from being removed until `release`; waits where that is under way."""
        while self._removing == key:
            self._removed.clear()
            await self._removed.wait()
        self._busy[key] = self._busy.get(key, 0) + 1

    def release(self, key: Bucket) -> None:
        """The counterpart of `hold`."""
        self._busy[key] -= 1
        if not self._busy[key]:
            del self._busy[key]
        if key in self._known:
            self._keep(replace(self._known[key], touched=self._clock()))

    def expect(self, key: Bucket) -> None:
        """A bucket is about to be made that is to be removed later."""
        self._keep(MadeBucket(*key, self._clock()))

    def confirm(self, key: Bucket) -> None:
        """The store has made it."""
        self._keep(replace(self._known[key], made=True))

    def forget(self, key: Bucket) -> None:
        """It is to stay, or is gone."""
        self._pauses.pop(key, None)
        if self._known.pop(key, None) is not None:
            self._write()

    def note_job(self, spec: JobSpec) -> None:
        """A job was submitted that mounts these."""
        for key, stays in list_buckets([spec]).items() if self._known else ():
            if key in self._known and stays:
                self.forget(key)
            elif key in self._known:
                self._keep(replace(self._known[key], used=True))

    async def run(self) -> None:
        """Remove what is to go, now and then, until cancelled."""
        while True:
            try:
                for record in self.list_due():
                    await self._remove(record)
            except Exception:
                _log.exception("buckets that were made for jobs")
            await asyncio.sleep(LOOK_SECONDS)

    def list_due(self) -> list[MadeBucket]:
        """The buckets to remove now."""
        if not self._known:
            return []
        mounted, now = list_buckets(self._live()), self._clock()
        return [record for record in self._known.values() if self._is_due(record, mounted, now)]

    def _is_due(self, record: MadeBucket, mounted: Collection[Bucket], now: float) -> bool:
        if record.key in mounted or record.key in self._busy or now < self._pauses.get(record.key, (0.0, 0.0))[0]:
            return False
        return record.used or now - record.touched > UNUSED_SECONDS

    async def _remove(self, record: MadeBucket) -> None:
        name, settings = f"{record.bucket} in the store {record.store}", self._stores.get(record.store)
        if not record.made or settings is None:
            # Unknown who made it, or no settings to reach it by.
            _log.warning("the bucket %s stays: it is not known to be made here, or its store is not", name)
            self.forget(record.key)
            return
        self._removing = record.key
        try:
            store = S3Store(open_access(record.store, settings, os.environ), record.bucket, patience=_ANSWER_SECONDS)
            await run_call(store, store.remove_bucket)
        except OverspanError as error:
            self._put_off(record, name, error)
        else:
            _log.info("the bucket %s was removed: no job needs it any more", name)
            self.forget(record.key)
        finally:
            self._removing = None
            self._removed.set()

    def _put_off(self, record: MadeBucket, name: str, error: OverspanError) -> None:
        now = self._clock()
        if now - record.touched > KEPT_SECONDS:
            _log.warning("the bucket %s stays: %s", name, error)
            self.forget(record.key)
            return
        pause = self._pauses.get(record.key, (0.0, LOOK_SECONDS))[1]
        self._pauses[record.key] = now + pause, min(pause * 2, _LONGEST_PAUSE)
        _log.info("the bucket %s is removed later: %s", name, error)

    # --- the file ----------------------------------------------------------------------------------------------------

    def _keep(self, record: MadeBucket) -> None:
        self._known[record.key] = record
        self._write()

    def _write(self) -> None:
        try:
            with open(f"{self._path}.new", "w", encoding="utf-8") as file:
                json.dump([asdict(record) for record in self._known.values()], file)
            os.replace(f"{self._path}.new", self._path)
        except OSError as error:
            _log.warning("the buckets that were made are known until the daemon's end alone: %s", error)

    def _load(self) -> list[MadeBucket]:
        """Of a damaged file nothing counts: what it spoke of stays."""
        try:
            with open(self._path, encoding="utf-8") as file:
                rows = json.load(file)
            return [
                MadeBucket(
                    str(row["store"]),
                    str(row["bucket"]),
                    float(row["touched"]),
                    row["made"] is True,
                    row["used"] is True,
                )
                for row in rows
            ]
        except FileNotFoundError:
            return []
        except (OSError, ValueError, LookupError, TypeError) as error:
            _log.warning("%s cannot be read, and the buckets that it names stay: %s", self._path, error)
            return []

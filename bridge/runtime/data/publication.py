"""The order in which files of a folder are sent to its store: that of their last writes, and markers last. Pure.

A reader elsewhere must never take a part of a checkpoint for the whole. It knows a whole one by a file that is written
last, so that file is sent when all that was written before it, in the same folder, is in the store. Which files are
such markers: those that training libraries write last (`checkpoint_readiness.py`), `.overspan-atomic`, and those that
the job file names. Where there is none, each file is sent by itself, in the order in which they were completed.

Small files of one series are the exception, and go several at once, since a request is mostly waiting. They
are new in the store, so that none is a pointer which is written again and again; their names are alike, so that none is
a list of the others; and they were written within a second. The last of them is sent when the rest is there. A name
that is one whole hash or digest says nothing of what is in the file, as where an OCI layout has manifests and layers
side by side: it is of no series. With anything else around the hash it is: `HASH.jpg` are images, and what one of them
says of others nobody can tell from its name.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

from overspan.bridge.model.checkpoints.readiness import ITERATION, LATEST, METADATA, TRAINER_STATE
from overspan.bridge.model.records import NamedTuple

ATOMIC = ".overspan-atomic"
"""A file that any program may write last into a folder, so that the folder is published whole."""
MARKERS = frozenset({METADATA, TRAINER_STATE, LATEST, ITERATION, ATOMIC})
_INDEX = re.compile(r".*\.safetensors\.index\.json")
SMALL = 1 << 20
"""The largest size in bytes of a file that is sent beside others of its series."""
SERIES_NANOSECONDS = 1_000_000_000
"""Files whose last writes are so far apart are sent in their order."""
_LONGEST_STEP = 256
"""Files of a series in one step, after which the uploader looks whether it is to go on."""
_NUMBER = re.compile("[0-9a-f]*[0-9][0-9a-f]*", re.IGNORECASE)
"""What differs in the names of a series: numbers, hashes, UUIDs."""
_HASH = re.compile("(?:(?:md5|sha[0-9]+|blake[0-9a-z]+)[-_:])?[0-9a-f]{30,}", re.IGNORECASE)
"""A hash, an MD5 at least, whose first two digits may be the name of its folder; or a digest (`sha256-...`)."""


class UnsentFile(NamedTuple):
    """A file that is not in the store as it is now. `settled`: no process writes to it."""

    name: str
    size: int
    written: int
    """Its last write, in nanoseconds since the epoch."""
    settled: bool
    new: bool = False
    """Whether the store has no version of it that was sent from here, or fetched."""


class SendStep(NamedTuple):
    """Files that are sent next, and have to be in the store before the next step; several of them in any order."""

    names: tuple[str, ...]
    rest: int = 0
    """How many steps right before it are the rest of its series, whose last file it is."""


def plan_steps(files: Iterable[UnsentFile], markers: Collection[str] = (), skew: int = 0) -> list[SendStep]:
    """The steps that can be taken now, in order. Files that are being written are left for later, and so is a marker
    that comes after one of them.

    `skew` is how far the clocks that the times are of may be apart, in nanoseconds: what was written so soon after a
    marker may have been written before it.
    """
    return _Planner(files, frozenset(markers), skew).plan()


def merge_steps(steps: Iterable[SendStep], markers: Collection[str] = ()) -> list[SendStep]:
    """The same for a folder at rest, where only markers have to come after the rest: what lies between two of them is
    one step, sent in any order.
    """
    merged: list[SendStep] = []
    for step in steps:
        marks = any(is_marker(name, markers) for name in step.names)
        if merged and not marks and not is_marker(merged[-1].names[-1], markers):
            merged[-1] = SendStep(merged[-1].names + step.names)
        else:
            merged.append(step)
    return merged


class _Planner:
    """Makes the steps of one look at a folder."""

    def __init__(self, files: Iterable[UnsentFile], markers: frozenset[str], skew: int) -> None:
        self._skew = skew
        self._files = sorted(files, key=lambda file: (file.written, file.name))
        self._named = markers
        # The inner one first: what two of them speak of is for that one.
        self._markers = sorted(filter(self._is_marker, self._files), key=_rank)
        self._steps: list[SendStep] = []
        self._done: set[str] = set()

    def plan(self) -> list[SendStep]:
        for place, file in enumerate(self._files):
            if file.name in self._done or not file.settled:
                continue
            if self._is_marker(file):
                self._send_marker(file)
                continue
            cover = next((marker for marker in self._markers if self._precedes(file, marker)), None)
            if cover is None:
                self._send_series(place)
            else:
                # What a marker will make visible may be sent in any order before it.
                self._send(*(each for each in self._files if self._is_due(each) and self._precedes(each, cover)))
                self._send_marker(cover)
        for marker in self._markers:
            self._send_marker(marker)
        return self._steps

    def _send(self, *files: UnsentFile, rest: int = 0) -> None:
        names = tuple(file.name for file in files)
        self._steps.append(SendStep(names, rest))
        self._done.update(names)

    def _send_series(self, place: int) -> None:
        """Send the file at a place in the order, and small ones of its series that come next: the last one apart."""
        first = self._files[place]
        series = [first]
        if _is_small(first):
            for file in self._files[place + 1 :]:
                if not (self._is_due(file) and _is_small(file) and _is_next(first, file)):
                    break
                if any(self._precedes(file, marker) for marker in self._markers):
                    break
                series.append(file)
        begins = range(0, len(series) - 1, _LONGEST_STEP)
        for begin in begins:
            self._send(*series[begin : min(begin + _LONGEST_STEP, len(series) - 1)])
        self._send(series[-1], rest=len(begins))

    def _send_marker(self, marker: UnsentFile) -> None:
        """Send a marker where all that it speaks of is sent."""
        waits = not marker.settled or marker.name in self._done
        if not waits and all(file.name in self._done or not self._precedes(file, marker) for file in self._files):
            self._send(marker)

    def _is_due(self, file: UnsentFile) -> bool:
        return file.settled and file.name not in self._done and not self._is_marker(file)

    def _is_marker(self, file: UnsentFile) -> bool:
        return is_marker(file.name, self._named)

    def _precedes(self, file: UnsentFile, marker: UnsentFile) -> bool:
        """Whether a file has to be in the store before a marker: it was written before, in the marker's folder.

        Of two markers, the one in the inner folder, or the earlier one, comes first.
        """
        if file.name == marker.name or not file.name.startswith(name_covered(marker.name)):
            return False
        if self._is_marker(file):
            return file.written <= marker.written and _rank(file) < _rank(marker)
        return file.written <= marker.written + self._skew


def _is_small(file: UnsentFile) -> bool:
    return file.new and file.size <= SMALL


def _is_next(first: UnsentFile, file: UnsentFile) -> bool:
    """Whether a file goes on with a series: its name is like the first one's, and it was written soon after that."""
    return file.written - first.written < SERIES_NANOSECONDS and _name_series(file.name) == _name_series(first.name)


def _name_series(name: str) -> str:
    folder, slash, last = name.rpartition("/")
    if _HASH.fullmatch(last):
        return name
    return folder + slash + _NUMBER.sub("#", last)


def name_covered(marker: str) -> str:
    """The folder that a marker speaks of, with a slash at its end; empty where that is the whole."""
    return marker[: marker.rfind("/") + 1]


def _rank(marker: UnsentFile) -> tuple[int, int, str]:
    return -marker.name.count("/"), marker.written, marker.name


def order_removals(names: Iterable[str], markers: Collection[str] = ()) -> list[str]:
    """The order in which removed files are removed from the store: markers first, so that no part seems whole."""
    return sorted(names, key=lambda name: (not is_marker(name, markers), name))


def is_marker(name: str, markers: Collection[str] = ()) -> bool:
    """Whether a file says that a folder is complete."""
    last = name.rpartition("/")[2]
    return last in MARKERS or last in markers or _INDEX.fullmatch(last) is not None

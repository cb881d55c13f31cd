"""What ended jobs could not send, where it lies: told and removed, by the daemon or by a program where that is.

The program's words are `ls` or `rm`, and its input is a line of JSON: [[JOB, PATTERN, RUN], ...]. A job's data is in
each folder that its pattern matches, which is removed with it where the pattern has a `*`. RUN is the job's run
directory (empty: none): where it is missing too, nothing is concluded. The answer is JSON too:
{"found": [...], "errors": {JOB: text}}; `rm` tells what it has removed.
"""

from __future__ import annotations

import glob
import json
import os
import shutil
import sys
from collections.abc import Iterable, Sequence
from typing import Any, Optional

from overspan.bridge.model.records import NamedTuple
from overspan.bridge.runtime.data.cached_folder import SeenFile, count_bytes, list_files
from overspan.bridge.runtime.data.folder_state import FolderState
from overspan.bridge.runtime.data.mounts import MountFolder, list_folders, name_folder
from overspan.bridge.runtime.data.rescue import hold_alone, is_held, read_newer, remove_pod_folder

LEFT, SENDING, NEWER, COPY, UNKNOWN = "left", "being sent", "newer in store", "copy", "unknown"
"""States: a rescue would send it; one does; one has left it, as the store has newer versions; it was fetched only to be
read; and nobody can tell what it is, because its description is damaged.
"""
_REMOVED = ".removed"
"""The ending of a folder that is being removed."""


class UnsentPlace(NamedTuple):
    """Where a job may have left data: its number, a pattern of folders, and its run directory where it has one."""

    job: int
    pattern: str
    run: str = ""


class UnsentData(NamedTuple):
    """What a job has left of one folder of a store: files and bytes, the last write to them, and its state."""

    job: int
    url: str
    store: str
    files: int
    size: int
    written_at: float
    state: str
    place: str


class UnsentListing(NamedTuple):
    """What was found or removed, and why that of other jobs could not be."""

    found: tuple[UnsentData, ...] = ()
    errors: tuple[tuple[int, str], ...] = ()


def list_unsent(root: str, job: int) -> list[UnsentData]:
    """What a job has left in a folder of jobs. Raises OSError."""
    top = name_folder(root, job)
    known = {folder.path: folder for folder in list_folders(root, job)}
    busy = is_held(root, job)
    found = []
    for name in sorted(_list(top)):
        path = os.path.join(top, name)
        if os.path.isdir(path):
            found.append(_describe(job, path, known.get(path), busy))
    return [each for each in found if each.files]


def _describe(job: int, path: str, folder: Optional[MountFolder], busy: bool) -> UnsentData:
    if folder is None:
        files = dict(list_files(path))
        return UnsentData(job, "", "", len(files), count_bytes(files), _find_last(files), UNKNOWN, path)
    files = _list_content(folder)
    state = COPY
    if folder.written:
        synced, newer = FolderState(os.path.join(path, "synced.jsonl")), set(read_newer(folder))
        files = {name: file for name, file in files.items() if not synced.is_synced(name, *file)}
        state = SENDING if busy else NEWER if newer and newer >= files.keys() else LEFT
    mount = folder.mount
    return UnsentData(job, mount.url, mount.store, len(files), count_bytes(files), _find_last(files), state, path)


def _list_content(folder: MountFolder) -> dict[str, SeenFile]:
    """The files of a mount, or the one that it is."""
    if os.path.isdir(folder.files):
        return dict(list_files(folder.files))
    try:
        status = os.stat(folder.files)
    except OSError:
        return {}
    return {"": SeenFile(status.st_size, status.st_mtime_ns)}


def _find_last(files: dict[str, SeenFile]) -> float:
    return max((file.written for file in files.values()), default=0) / 1e9


def remove_unsent(root: str, job: int) -> list[UnsentData]:
    """Remove all that a job has left in a folder of jobs; what that was. Raises OSError where a rescue sends it."""
    top = name_folder(root, job)
    # What was cut off in the middle goes first.
    _remove_tree(top + _REMOVED)
    if not os.path.isdir(top):
        return []
    with hold_alone(root, job):
        found = list_unsent(root, job)
        # In one step: a job that is queued again meanwhile finds all of it or nothing.
        os.rename(top, top + _REMOVED)
    _remove_tree(top + _REMOVED)
    return [each._replace(state=LEFT) if each.state == SENDING else each for each in found]


def _remove_tree(path: str) -> None:
    """Remove a folder if it is there, read-only folders in it too, as caches have them. Raises OSError."""
    for folder, _, _ in os.walk(path):
        try:
            os.chmod(folder, 0o700)
        except OSError:
            # Its removal says what is wrong.
            pass
    if os.path.isdir(path):
        shutil.rmtree(path)


def look(verb: str, places: Iterable[UnsentPlace]) -> UnsentListing:
    """Tell (`ls`) or remove (`rm`) what jobs have left in the folders that match their patterns.

    A job without data and without its run directory is an error: its file system may not be mounted, or is purged.
    """
    found: list[UnsentData] = []
    errors: dict[int, str] = {}
    for place in places:
        listing = _look_at(verb, place)
        found += listing.found
        errors.update(listing.errors)
        if place.run and not listing.found and not listing.errors and not os.path.isdir(place.run):
            errors[place.job] = (
                f"its run directory {place.run} is not there; is its file system mounted? "
                "(a site that purges it looks the same)"
            )
    return UnsentListing(tuple(found), tuple(errors.items()))


def _look_at(verb: str, place: UnsentPlace) -> UnsentListing:
    found: list[UnsentData] = []
    errors: dict[int, str] = {}
    for root in sorted(glob.glob(place.pattern)):
        try:
            found += (list_unsent if verb == "ls" else remove_unsent)(root, place.job)
            # A folder that is named in full is not a pod's, whatever its name has escaped in it.
            if verb == "rm" and place.pattern.endswith("/*/*"):
                remove_pod_folder(root)
        except OSError as error:
            errors[place.job] = str(error)
    return UnsentListing(tuple(found), tuple(errors.items()))


def _list(path: str) -> list[str]:
    try:
        return os.listdir(path)
    except FileNotFoundError:
        return []


def pack_places(places: Iterable[UnsentPlace]) -> bytes:
    """The input of the program."""
    return json.dumps(list(places)).encode() + b"\n"


def read_listing(document: Any) -> UnsentListing:
    """What the program has answered. Raises ValueError, LookupError and TypeError for another document."""
    found = tuple(UnsentData(*row) for row in document["found"])
    return UnsentListing(found, tuple((int(job), str(text)) for job, text in document["errors"]))


def main(words: Sequence[str]) -> int:
    """Do one of the two; gives the exit code."""
    (verb,) = words
    places = [UnsentPlace(*row) for row in json.loads(sys.stdin.readline())]
    print(json.dumps(look(verb, places)._asdict()))
    return 0

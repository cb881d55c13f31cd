"""Lists folders in which checkpoints appear: `python3 scan.py < REQUESTS` prints a JSON answer for each.

It imports nothing of Overspan, so that its text alone can be sent to where the folder is (ssh, kubectl exec) and run
there by Python 3.9 or newer. Requests and answers: `model/checkpoints/listings.py`.
"""

import errno
import json
import os
import re
import stat
import struct
import sys
from collections.abc import Mapping, Sequence
from typing import Any, BinaryIO, Callable, Optional

MAX_MARKER = 4096
MAX_FILES = 4096
MAX_CHECKPOINTS = 50_000
MAX_DEPTH = 6
MAX_OTHERS = 5
MAX_HEADER = 32 * 1024 * 1024
"""Bytes of a safetensors header, or of an index, that are read."""
BESIDE = ("latest", "latest_checkpointed_iteration.txt")
"""Small files in the watched folder that name its newest complete checkpoint."""
LEASE = ".overspan-lease"
"""End of a lease file's name; it begins with a dot and the checkpoint's name."""
ZIPS = (".pt", ".pth", ".ckpt", ".npz", ".zip", ".keras")
"""Files that are zip archives where they are written by torch.save, numpy.savez or Keras."""
INDEX = ".safetensors.index.json"
TRAINER_STATE = "trainer_state.json"
"""What Hugging Face's Trainer writes last; it has the log of the whole training, so it may be written in parts."""


def scan(request: Mapping[str, Any]) -> dict[str, Any]:
    """Look at one folder and keep its leases; the answer as JSON data."""
    path = request["path"]
    answer: dict[str, Any] = {"key": request["key"]}
    try:
        with os.scandir(path):
            pass
    except OSError as error:
        answer["missing"] = error.errno == errno.ENOENT
        answer["unreadable"] = "" if answer["missing"] else _say(error, path)
        return answer
    parts = [re.compile(part) for part in request["parts"]]
    settled = request["settled"] if isinstance(request["settled"], (set, frozenset)) else set(request["settled"])
    names: list[str] = []
    others: list[str] = []
    trouble = _find_names(path, "", parts, names, others)
    if trouble:
        answer["unreadable"] = trouble
        return answer
    answer["truncated"] = len(names) > MAX_CHECKPOINTS
    names = names[:MAX_CHECKPOINTS]
    looks = (_look(path, name, request["marker"]) for name in names if name not in settled)
    answer["found"] = [found for found in looks if found is not None]
    answer["gone"] = sorted(settled.difference(names)) if not answer["truncated"] else []
    answer["beside"] = _read_beside(path)
    answer["others"] = others[:MAX_OTHERS]
    folders = {os.path.dirname(name) for name in names}
    answer["unpinned"] = _keep_leases(path, request["pins"], request["owner"], folders)
    return answer


def _find_names(
    folder: str, prefix: str, parts: Sequence["re.Pattern[str]"], names: list[str], others: list[str]
) -> str:
    """Collect the names that fit, level by level; gives why the watched folder cannot be listed."""
    try:
        with os.scandir(folder) as entries:
            listed = sorted((entry.name, entry) for entry in entries)
    except OSError as error:
        return "" if prefix else _say(error, folder)
    part, deeper = parts[0], parts[1:]
    for name, entry in listed:
        if part.fullmatch(name) is None:
            if not prefix and not name.startswith(".") and name not in BESIDE and len(others) < MAX_OTHERS:
                others.append(name)
        elif not deeper:
            names.append(prefix + name)
        elif _is_folder(entry):
            _find_names(os.path.join(folder, name), prefix + name + "/", deeper, names, others)
        if len(names) > MAX_CHECKPOINTS:
            break
    return ""


def _is_folder(entry: "os.DirEntry[str]") -> bool:
    try:
        return entry.is_dir()
    except OSError:
        return False


def _look(path: str, name: str, marker: str) -> Optional[dict[str, Any]]:
    """What a checkpoint is made of; None where it went away meanwhile."""
    place = os.path.join(path, name)
    try:
        about = os.stat(place)
    except FileNotFoundError:
        return None
    except OSError as error:
        return {"name": name, "unreadable": _say(error, place)}
    found: dict[str, Any] = {"name": name, "folder": stat.S_ISDIR(about.st_mode), "time": about.st_mtime}
    if stat.S_ISDIR(about.st_mode):
        _look_into(place, found)
    elif stat.S_ISREG(about.st_mode):
        found["files"] = [["", about.st_size, _is_whole(place, about.st_size)]]
    else:
        found["unreadable"] = f"{place} is neither a folder nor a file"
    if marker:
        found["marker"] = _read_marker(path, name, marker)
    return found


def _look_into(place: str, found: dict[str, Any]) -> None:
    """Add the files below a checkpoint's folder, and the shards that its index names."""
    files: list[list[Any]] = []
    pending = [("", 0)]
    found["files"] = files
    while pending:
        below, depth = pending.pop()
        folder = os.path.join(place, below)
        try:
            with os.scandir(folder) as entries:
                listed = sorted((entry.name, entry) for entry in entries)
            for name, entry in listed:
                inner = os.path.join(below, name)
                about = entry.stat()
                if stat.S_ISDIR(about.st_mode):
                    if depth < MAX_DEPTH and not entry.is_symlink():
                        pending.append((inner, depth + 1))
                    continue
                if len(files) >= MAX_FILES:
                    found["truncated"] = True
                    return
                files.append([inner, about.st_size, _is_whole(os.path.join(folder, name), about.st_size)])
                if name.endswith(INDEX) and not below:
                    found["shards"] = _read_index(os.path.join(folder, name))
        except FileNotFoundError:
            # It is being written, or removed; the next look tells more.
            continue
        except OSError as error:
            found["unreadable"] = _say(error, folder)
            return
    files.sort()


def _read_marker(path: str, name: str, marker: str) -> Optional[list[Any]]:
    if "{name}" in marker:
        head, tail = os.path.split(name)
        place = os.path.join(path, head, marker.replace("{name}", tail))
    else:
        place = os.path.join(path, name, marker)
    try:
        with _open(place) as file:
            about = os.fstat(file.fileno())
            return [about.st_size, about.st_mtime_ns, file.read(MAX_MARKER).decode("utf-8", "backslashreplace")]
    except OSError:
        return None


def _read_beside(path: str) -> dict[str, str]:
    texts: dict[str, str] = {}
    for name in BESIDE:
        try:
            with _open(os.path.join(path, name)) as file:
                texts[name] = file.read(MAX_MARKER).decode("utf-8", "backslashreplace").strip()
        except OSError:
            continue
    return texts


def _read_index(place: str) -> Optional[list[str]]:
    """The files that a safetensors index names; None while it is not complete."""
    try:
        with _open(place) as file:
            text = file.read(MAX_HEADER)
        return sorted(set(map(str, json.loads(text)["weight_map"].values())))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def _is_whole(place: str, size: int) -> Optional[bool]:
    """Whether the file's own format says that it is complete; None where it cannot tell."""
    try:
        if place.endswith(".safetensors"):
            return _is_whole_safetensors(place, size)
        if place.endswith(ZIPS):
            return _is_whole_zip(place, size)
        if os.path.basename(place) == TRAINER_STATE:
            return _is_whole_json(place, size)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError):
        return False
    return None


def _is_whole_safetensors(place: str, size: int) -> Optional[bool]:
    """Its header (a length in 8 bytes, then JSON) tells where the last tensor ends, which is the file's end."""
    if size < 8:
        return False
    with _open(place) as file:
        length: int = struct.unpack("<Q", file.read(8))[0]
        if length > MAX_HEADER:
            return None
        header = json.loads(file.read(length))
    ends = [value["data_offsets"][1] for name, value in header.items() if name != "__metadata__"]
    return bool(size == 8 + length + max(ends, default=0))


def _is_whole_json(place: str, size: int) -> Optional[bool]:
    if size > MAX_HEADER:
        return None
    with _open(place) as file:
        return isinstance(json.loads(file.read()), dict)


def _is_whole_zip(place: str, size: int) -> Optional[bool]:
    """A zip archive ends with its directory's end record; what does not begin as one is another format."""
    with _open(place) as file:
        if file.read(4)[: min(4, size)] != b"PK\x03\x04"[: min(4, size)]:
            return None
        if size < 22:
            return False
        file.seek(size - 22)
        return file.read(4) == b"PK\x05\x06"


def _keep_leases(path: str, pins: Sequence[str], owner: str, folders: set[str]) -> str:
    """Have a lease file beside each pinned checkpoint and beside no other; gives why one cannot be written."""
    if not owner:
        return ""
    trouble = ""
    wanted = {os.path.join(os.path.dirname(name), "." + os.path.basename(name) + LEASE) for name in pins}
    text = json.dumps({"overspan": owner}) + "\n"
    for folder in folders | {os.path.dirname(name) for name in wanted}:
        try:
            listed = [name for name in os.listdir(os.path.join(path, folder)) if name.endswith(LEASE)]
        except OSError:
            continue
        for name in listed:
            lease = os.path.join(folder, name)
            if lease not in wanted and _read_text(os.path.join(path, lease)) == text:
                _try(os.unlink, os.path.join(path, lease))
    for lease in sorted(wanted):
        place = os.path.join(path, lease)
        if os.path.exists(place) or not os.path.exists(_pinned_by(place)):
            continue
        try:
            descriptor = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o644)
        except OSError as error:
            trouble = trouble or _say(error, place)
            continue
        with os.fdopen(descriptor, "w") as file:
            _try(file.write, text)
    return trouble


def _pinned_by(lease: str) -> str:
    """The checkpoint that a lease file pins."""
    folder, name = os.path.split(lease)
    return os.path.join(folder, name[1 : -len(LEASE)])


def _read_text(place: str) -> str:
    try:
        with _open(place) as file:
            return file.read(MAX_MARKER).decode("utf-8", "replace")
    except OSError:
        return ""


def _open(place: str) -> BinaryIO:
    """Open a file to read it; OSError for what is none, such as a pipe, whose reader may wait for ever."""
    descriptor = os.open(place, os.O_RDONLY | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "not a file", place)
    return os.fdopen(descriptor, "rb")


def _try(call: Callable[[str], Any], argument: str) -> None:
    try:
        call(argument)
    except OSError:
        pass


def _say(error: OSError, place: str) -> str:
    return f"{place}: {error.strerror or error}"


def main(words: Sequence[str]) -> int:
    """Answer the requests on stdin, a JSON list; the answers go to stdout in one line."""
    requests = json.loads(sys.stdin.buffer.read() if not words else words[0])
    answers = []
    for request in requests:
        try:
            answers.append(scan(request))
        except Exception as error:  # One folder's fault must not hide the others.
            answers.append({"key": request.get("key", ""), "unreadable": f"{type(error).__name__}: {error}"})
    # Escaped, so that names that are no UTF-8 survive.
    sys.stdout.write(json.dumps(answers) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

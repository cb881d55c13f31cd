"""One visit of mailboxes: leaves answers and the worker's program there, and takes requests along.

It imports nothing of Overspan, so that its text alone is the program: `python3 -c LOADER` beside the mailboxes, on a
login node or in a pod, for Python 3.9 or newer. It changes nothing by taking a request: one whose visit was cut off is
taken again, and the daemon knows by its name whether it has it.
"""

import base64
import errno
import json
import os
import stat
import time
from typing import Any, Optional

LANES = ("ask", "tell", "output")
PROGRAM, START = "worker.pyz", "start"
MOST_BYTES = 8 << 20
"""Bytes of requests that one visit takes along; the rest is for the next one."""
LARGEST = 64 << 20
"""Bytes of a request; a longer one is told as trouble. Workers write less than 8 MiB, but those of older versions all
that they could not tell before."""
LARGEST_TOLD = 2 * LARGEST
"""Bytes of a request in the answer of a visit, where quotes and backslashes count twice, and other letters up to six
times."""
LEAVE, READ = "leave", "read"
"""What of a visit met trouble: to leave answers or the program, or to read requests."""
LOOK_SECONDS = 0.05
"""Seconds between two looks of a visit that waits; at least REST times as long as a look takes."""
REST = 5.0
MOST_LETTERS = 500
"""Of a request's name and path, and of the words for a trouble."""
_HEAD = 4096


def visit(order: "dict[str, Any]") -> "dict[str, Any]":
    """Carry out an order, and wait up to `wait` seconds until there is something to tell.

    The order has mailboxes by key: `folder`, the names of requests that are `seen` by lane, `answers` by lane. The
    program is copied from the path `library` or is the text `program`; mailboxes that need it and get neither are told
    as `wants`. `found` has requests, `left` the keys of mailboxes that have their answers, `troubles` what could not be
    done: a key, `leave` or `read`, and why.
    """
    told: dict[str, Any] = {"found": [], "wants": [], "left": [], "troubles": []}
    for key, box in order["boxes"].items():
        try:
            _deliver(box)
            told["left"].append(key)
        except FileNotFoundError:
            # Its worker has not begun, or has ended.
            continue
        except OSError as error:
            _complain(told, key, LEAVE, box, error)
    until = time.monotonic() + float(order["wait"])
    while True:
        begun, left = time.monotonic(), MOST_BYTES
        for key, box in order["boxes"].items():
            if left > 0 and not any(trouble["key"] == key for trouble in told["troubles"]):
                left -= _look(key, box, order, told, left)
        now = time.monotonic()
        if told["found"] or told["wants"] or now >= until:
            return told
        time.sleep(min(max(LOOK_SECONDS, REST * (now - begun)), until - now))


def _complain(told: "dict[str, Any]", key: str, part: str, box: "dict[str, Any]", error: OSError) -> None:
    text = f"{box['folder']}: {error.strerror or error}"
    told["troubles"].append({"key": key, "part": part, "text": text[-MOST_LETTERS:]})


def _look(key: str, box: "dict[str, Any]", order: "dict[str, Any]", told: "dict[str, Any]", most: int) -> int:
    """What is new in one mailbox: how many bytes. No request is read after `most` bytes of others."""
    taken, part = 0, READ
    try:
        folder = _open_folder(box["folder"])
    except FileNotFoundError:
        return 0
    except OSError as error:
        _complain(told, key, READ, box, error)
        return 0
    try:
        if not _has(folder, START):
            part = LEAVE
            if not _bring_program(folder, order):
                told["wants"].append(key)
            part = READ
        for lane in LANES:
            if taken < most:
                taken += _take_request(folder, lane, key, box, told)
    except OSError as error:
        _complain(told, key, part, box, error)
    finally:
        os.close(folder)
    return taken


def _take_request(folder: int, lane: str, key: str, box: "dict[str, Any]", told: "dict[str, Any]") -> int:
    """Take along the request of a lane that is new: how many bytes. One that is too long keeps no other lane's."""
    try:
        found = _read_request(folder, lane, box["seen"].get(lane))
    except OSError as error:
        if error.errno != errno.EFBIG:
            raise
        _complain(told, key, READ, box, error)
        return 0
    if found is None:
        return 0
    told["found"].append({"key": key, "lane": lane, **found})
    return len(found["body"])


def _deliver(box: "dict[str, Any]") -> None:
    """Leave answers in one mailbox. Raises OSError."""
    if not box["answers"]:
        return
    folder = _open_folder(box["folder"])
    try:
        for lane, answer in box["answers"].items():
            body = answer["body"].encode()
            head = {"id": answer["id"], "status": answer["status"], "size": len(body)}
            _replace(folder, f"{lane}.answer", json.dumps(head).encode() + b"\n" + body)
    finally:
        os.close(folder)


def _bring_program(folder: int, order: "dict[str, Any]") -> bool:
    """Leave the worker's program, and then the command that its job waits for; False where it is not at hand."""
    data = b""
    if order.get("library"):
        try:
            with open(order["library"], "rb") as file:
                data = file.read()
        except OSError:
            pass
    if not data and order.get("program"):
        data = base64.b64decode(order["program"])
    if not data:
        return False
    _replace(folder, PROGRAM, data)
    _replace(folder, START, order["start"].encode())
    return True


def _open_folder(path: str) -> int:
    """The folder, which nobody else may write to. Raises OSError."""
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    status = os.fstat(folder)
    if status.st_uid != os.geteuid() or status.st_mode & 0o022:
        os.close(folder)
        raise PermissionError(1, "it is not this user's own folder with mode 0700")
    return folder


def _has(folder: int, name: str) -> bool:
    try:
        os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def _read_request(folder: int, lane: str, seen: Optional[str]) -> "Optional[dict[str, Any]]":
    """The request of a lane; None where there is none, or only the one that was seen. Raises OSError."""
    try:
        fd = os.open(f"{lane}.request", os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    except FileNotFoundError:
        return None
    with open(fd, "rb") as file:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid():
            return None
        if status.st_size > LARGEST:
            raise OSError(errno.EFBIG, _describe_size(lane, status.st_size))
        try:
            head = json.loads(file.readline(_HEAD))
            own, path, size = str(head["id"]), str(head["path"]), int(head["size"])
            if own == seen or max(len(own), len(path)) > MOST_LETTERS:
                return None
            body = file.read()
            text = body.decode()
        except (ValueError, LookupError, TypeError):
            # Written half, or by somebody else; the worker leaves another one.
            return None
    if len(body) != size:
        return None
    if len(json.dumps(text)) > LARGEST_TOLD:
        raise OSError(errno.EFBIG, _describe_size(lane, len(body)))
    return {"id": own, "path": path, "body": text}


def _describe_size(lane: str, size: int) -> str:
    return f"{lane}.request has {size} bytes, which is too much to take along: at most {LARGEST} are"


def _replace(folder: int, name: str, data: bytes) -> None:
    """Write a file as a whole; two visits at a time do not meet. Raises OSError."""
    fresh = f"{name}.{os.urandom(6).hex()}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        with open(os.open(fresh, flags, 0o600, dir_fd=folder), "wb") as file:
            file.write(data)
        os.replace(fresh, name, src_dir_fd=folder, dst_dir_fd=folder)
    except OSError:
        try:
            os.unlink(fresh, dir_fd=folder)
        except OSError:
            pass
        raise

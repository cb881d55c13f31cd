"""Mailboxes: how the daemon reaches workers of pools that cannot connect to it, by its own way to their cluster.

A worker leaves requests in a folder, and the daemon visits that: it runs a program there, whose text and orders come by
its input, so nothing is installed. What a cluster has to do for it is `Mailboxes`.
"""

from __future__ import annotations

import base64
import json
import shlex
import zlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar

from overspan.bridge.model.errors import Unreachable
from overspan.bridge.runtime.pool import mailbox_visit
from overspan.bridge.runtime.pool.mailbox_visit import LANES, LARGEST_TOLD, MOST_BYTES, MOST_LETTERS, PROGRAM

LOADER = """\
import base64, json, sys, zlib
if sys.version_info < (3, 9): print("it is Python %d.%d" % sys.version_info[:2], file=sys.stderr); sys.exit(127)
text, _, order = zlib.decompress(base64.b64decode(sys.stdin.buffer.readline())).decode().partition("\\0")
there = {"__name__": "mailbox_visit"}
exec(compile(text, "mailbox_visit.py", "exec"), there)
told = json.dumps(there["visit"](json.loads(order))).encode()
print(base64.b64encode(zlib.compress(told)).decode(), flush=True)
"""
"""Reads the visiting program and its order from one line of stdin, and prints one line with what it tells.

Its exit code is 127 where Python is too old, which is that of a shell without python3.
"""
NO_PYTHON = "none"
"""What a worker's job writes in place of the path of its python3."""
WORKER_START = f"""\
umask 077
d=$OVERSPAN_RUN_DIR/mailbox
mkdir -p "$d" && rm -f "$d"/*.request "$d"/*.answer "$d/start" "$d/python" || exit 1
python=$(command -v python3) || python={NO_PYTHON}
while (ls "$d") >/dev/null 2>&1; [ ! -s "$d/start" ]; do
  [ -s "$d/python" ] || {{ echo "$python" >"$d/python.new" && mv -f "$d/python.new" "$d/python"; }} 2>/dev/null
  sleep 0.2 2>/dev/null || sleep 1 || exit 1
done
exec /bin/sh "$d/start" "$d"
"""
"""What the job of such a worker runs: it waits until a visit has brought the program. What a process before it has
left there must not be taken for its own words. `python` has the python3 that it finds after its set-up; on a full disk
it is written when there is room. `ls` has NFS look anew; not every `sleep` knows parts of seconds."""
MOST_REPORT = LARGEST_TOLD + 8 * MOST_BYTES
"""Bytes of what a visit tells: of its last request, and of those before it, whose letters may each become six."""
NOTHING = base64.b64encode(zlib.compress(b'{"found":[],"wants":[],"left":[],"troubles":[]}')).decode()
"""What a visit tells that has found and left nothing."""


class Mailboxes(Protocol):
    """Runs a program of python3 where the mailboxes of workers are; `Traits.mailboxes` of a cluster that can."""

    way: str
    """How it is called where it is shown."""
    python: str
    """python3 as the worker's node knows it."""
    together: bool
    """Whether one run reaches the mailboxes of all workers there."""
    wait: float
    """Seconds for which a visit may wait for something new."""

    def find_folder(self, handle: str) -> str:
        """The mailbox of a worker, by its handle."""
        ...

    def find_library(self, handle: str) -> str:
        """A file there with the application of this version; empty where there is none."""
        ...

    async def run(self, handle: str, line: bytes, seconds: float) -> str:
        """Run `LOADER` with that line as its input, and give what it prints. Raises OverspanError."""
        ...


@dataclass
class MailboxOrder:
    """What a visit is to do in one mailbox: requests that are known by lane, answers by lane."""

    folder: str
    seen: Mapping[str, str] = field(default_factory=dict)
    answers: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


class MailboxRequest(NamedTuple):
    """What a worker has left: the key of its mailbox, which of its threads, the request's own name, and the message."""

    key: str
    lane: str
    id: str
    path: str
    body: str


class VisitTrouble(NamedTuple):
    """What a visit could not do in a mailbox: `part` is `leave` (answers, the program) or `read` (requests)."""

    key: str
    part: str
    text: str


_Record = TypeVar("_Record", MailboxRequest, VisitTrouble)


class VisitReport(NamedTuple):
    """What a visit has found: requests, mailboxes that need the program, those with their answers, and troubles."""

    found: Sequence[MailboxRequest] = ()
    wants: Sequence[str] = ()
    left: Collection[str] = frozenset()
    troubles: Sequence[VisitTrouble] = ()

    def find_trouble(self, key: str, *parts: str) -> str:
        """What could not be done in a mailbox, of these parts; empty for nothing."""
        return next((each.text for each in self.troubles if each.key == key and each.part in parts), "")


def pack_visit(boxes: Mapping[str, MailboxOrder], wait: float, python: str, library: str, program: bytes) -> bytes:
    """The line that LOADER reads. `program` is empty where no mailbox is known to need it."""
    words = (python, "-I", "-S")
    order: dict[str, Any] = {
        "wait": wait,
        "start": f'exec {shlex.join(words)} "$1/{PROGRAM}" worker mailbox "$1"\n',
        "boxes": {key: {"folder": box.folder, "seen": box.seen, "answers": box.answers} for key, box in boxes.items()},
    }
    order |= {"library": library} if library else {}
    order |= {"program": base64.b64encode(program).decode()} if program else {}
    return base64.b64encode(zlib.compress(_read_visitor() + b"\0" + json.dumps(order).encode())) + b"\n"


def read_report(text: str) -> VisitReport:
    """What a visit tells, which is the last line: a login shell may have written some before. Raises Unreachable.

    It may be some MiB: not for the event loop.
    """
    last = text.rstrip()
    last = last[last.rfind("\n") + 1 :].strip()
    try:
        told = json.loads(_unpack(last))
        found = [_read_record(MailboxRequest, each) for each in told["found"]]
        troubles = [_read_record(VisitTrouble, each) for each in told["troubles"]]
        wants, left = (_read_keys(told[name]) for name in ("wants", "left"))
        if any(request.lane not in LANES for request in found):
            raise ValueError("a request of an unknown lane")
        return VisitReport(found, wants, frozenset(left), troubles)
    except (ValueError, LookupError, TypeError, RecursionError, zlib.error) as error:
        raise Unreachable(
            f"a visit of mailboxes has told nothing that can be read ({error}): {last[-200:]!r}"
        ) from error


def _unpack(line: str) -> bytes:
    """The bytes of a line. Raises ValueError and zlib.error for none, or too many."""
    unpacking = zlib.decompressobj()
    data = unpacking.decompress(base64.b64decode(line, validate=True), MOST_REPORT)
    if not unpacking.eof:
        raise ValueError(f"it is cut, or longer than {MOST_REPORT >> 20} MiB")
    return data


def _read_record(kind: type[_Record], document: Any) -> _Record:
    """A record of texts. Raises ValueError, LookupError and TypeError for anything else."""
    most = {"body": MOST_REPORT}
    return kind(**{name: _read_text(document[name], most.get(name, MOST_LETTERS)) for name in kind._fields})


def _read_keys(value: Any) -> list[str]:
    if not isinstance(value, list):
        raise TypeError(f"{value!r:.40} is no list of mailboxes")
    return [_read_text(key) for key in value]


def _read_text(value: Any, most: int = MOST_LETTERS) -> str:
    if not isinstance(value, str) or len(value) > most:
        raise ValueError(f"no text of at most {most} letters")
    return value


@cache
def _read_visitor() -> bytes:
    return Path(mailbox_visit.__file__).read_bytes()

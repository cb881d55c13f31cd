"""The relay's end on the login node, detached: `relay RUN_DIR LAUNCH NATIVE PYTHON`, where the nodes share no folder.

It synchronises the supervisor's folder on the first node with the run directory here: one srun runs the other end
(`relay_node`), whose files come up; orders go down. The sizes of the files are its only state, so a relay that was
killed is simply started again. A lock allows one relay for a launch.
"""

from __future__ import annotations

import base64
import fcntl
import os
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import IO, Any

from overspan.bridge.runtime.slurm.bootstrap import entry_words, pack_application, select_sources
from overspan.bridge.runtime.slurm.channel import LineReader, encode_line
from overspan.bridge.runtime.slurm.placement import read_placement
from overspan.bridge.runtime.slurm.supervisor import log

ORDER_SECONDS = 0.25
LEAVE_SECONDS = 10.0
TRIES = 10
"""How often in a row a sender may not come up: the daemon starts another relay later."""
_LONGEST_PAUSE = 30.0
_READ_SIZE = 1 << 18
_NAMES = re.compile(r"(?:journal|streams)\.\d+\.jsonl|supervisor\.\d+\.log|logs/[^/.][^/]*")
_OVER = re.compile(r"[Ii]nvalid job id|already completing|[Jj]ob/step already|has expired|revoked")


def lock_name(launch: int) -> str:
    """The file that a relay of a launch locks."""
    return f"relay.{launch}.lock"


def taken_name(launch: int) -> str:
    """The file that tells that everything of a launch is here."""
    return f"taken.{launch}"


class LoginFiles:
    """The run directory on the login node."""

    def __init__(self, path: str, launch: int) -> None:
        self._path = path
        self._launch = launch
        self._streams = f"streams.{launch}.jsonl"
        os.makedirs(os.path.join(path, "logs"), mode=0o700, exist_ok=True)

    def is_hetjob(self) -> bool:
        """Whether the launch is placed on several components. OSError, ValueError without a placement."""
        return len(read_placement(os.path.join(self._path, f"placement.{self._launch}.json")).components) > 1

    def measure(self) -> dict[str, int]:
        """The size of each file that is here, by its name in the supervisor's folder."""
        names = [f"journal.{self._launch}.jsonl", self._streams, f"supervisor.{self._launch}.log"]
        names += [f"logs/{name}" for name in os.listdir(os.path.join(self._path, "logs"))]
        return {name: os.stat(path).st_size for name in names if os.path.exists(path := os.path.join(self._path, name))}

    def write(self, name: str, offset: int, data: bytes) -> None:
        """Put bytes of a file at their place. ValueError for one that is none of a supervisor's."""
        if not _NAMES.fullmatch(name):
            raise ValueError(f"{name!r} is no file of a supervisor")
        fd = os.open(os.path.join(self._path, name), os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            while data:
                written = os.pwrite(fd, data, offset)
                data, offset = data[written:], offset + written
        finally:
            os.close(fd)
        if name == self._streams:
            self._merge()

    def _merge(self) -> None:
        """Add what is new to the list of all launches."""
        with open(os.path.join(self._path, self._streams), "rb") as file:
            own = [line for line in file.read().splitlines(keepends=True) if line.endswith(b"\n")]
        with open(os.path.join(self._path, "streams.jsonl"), "ab+") as file:
            file.seek(0)
            known = set(file.read().splitlines(keepends=True))
            file.write(b"".join(line for line in own if line not in known))

    def read_orders(self, offset: int) -> bytes:
        """The orders behind an offset; none where there is no file yet."""
        try:
            with open(os.path.join(self._path, f"orders.{self._launch}.jsonl"), "rb") as file:
                file.seek(offset)
                return file.read(_READ_SIZE)
        except FileNotFoundError:
            return b""

    def conclude(self) -> None:
        """Have it on the disk, and leave the mark that everything is here."""
        for name in self.measure():
            fd = os.open(os.path.join(self._path, name), os.O_RDONLY | os.O_CLOEXEC)
            try:
                os.fsync(fd)
            finally:
                os.close(fd)
        os.close(os.open(os.path.join(self._path, taken_name(self._launch)), os.O_WRONLY | os.O_CREAT, 0o600))


class RelayLink:
    """One srun and what comes through it."""

    def __init__(self, store: LoginFiles, words: Sequence[str], greeting: bytes) -> None:
        """Start it; OSError where there is no srun."""
        self._store = store
        self._lines = LineReader()
        self._orders = -1
        self.came_up = self.taken = False
        self.said = b""
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(list(words), stdin=pipe, stdout=pipe, stderr=pipe, bufsize=0)
        assert self._process.stdin and self._process.stdout and self._process.stderr
        self._input: IO[bytes] = self._process.stdin
        self._output, self._errors = self._process.stdout.fileno(), self._process.stderr.fileno()
        self._unsent = greeting + encode_line({"have": store.measure()})
        os.set_blocking(self._input.fileno(), False)

    def serve(self) -> None:
        """Pass everything on until the srun ends, or all is here."""
        opened = [self._output, self._errors]
        try:
            while opened and not self.taken:
                self._send()
                ready = select.select(opened, [], [], 0.02 if self._unsent else ORDER_SECONDS)[0]
                for fd in ready:
                    data = os.read(fd, _READ_SIZE)
                    if not data:
                        opened.remove(fd)
                    elif fd == self._errors:
                        self.said = (self.said + data)[-4096:]
                    else:
                        for message in self._lines.feed(data):
                            self._take(message)
                self._pass_orders()
        finally:
            self._leave()

    def _take(self, message: dict[str, Any]) -> None:
        if "ready" in message:
            self.came_up, self._orders = True, int(message["ready"]["orders"])
        elif "part" in message:
            part = message["part"]
            self._store.write(str(part["file"]), int(part["offset"]), base64.b64decode(part["data"]))
        elif "over" in message:
            self._store.conclude()
            self._unsent += encode_line({"taken": {}})
            self.taken = True

    def _pass_orders(self) -> None:
        while self._orders >= 0 and (data := self._store.read_orders(self._orders)):
            document = {"offset": self._orders, "data": base64.b64encode(data).decode()}
            self._unsent += encode_line({"orders": document})
            self._orders += len(data)

    def _send(self) -> None:
        try:
            while self._unsent:
                self._unsent = self._unsent[os.write(self._input.fileno(), self._unsent) :]
        except BlockingIOError:
            return
        except OSError:
            self._unsent = b""

    def _leave(self) -> None:
        """Send what is left, and give the srun time to end."""
        deadline = time.monotonic() + LEAVE_SECONDS
        while self._unsent and self._process.poll() is None and time.monotonic() < deadline:
            self._send()
            time.sleep(0.02)
        self._input.close()
        try:
            self._process.wait(max(1.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            self._process.terminate()
        for stream in (self._process.stdout, self._process.stderr):
            if stream is not None:
                stream.close()


def step_words(native: str, launch: int, python: str, hetjob: bool) -> list[str]:
    """The srun that starts a sender; it takes nothing from the job's other steps."""
    group = ["--het-group=0"] if hetjob else []
    where = ("--overlap", "--nodes=1", "--ntasks=1", "--relative=0", "--mem=0", "--gres=none", "--job-name=relay")
    return ["srun", f"--jobid={native}", "--quiet", *group, *where, *entry_words(python, "sender", native, str(launch))]


def relay(store: LoginFiles, words: Sequence[str], greeting: bytes) -> int:
    """Keep a link until everything is here or the job is over; gives the exit status."""
    failures = 0
    while failures < TRIES:
        link = RelayLink(store, words, greeting)
        link.serve()
        if link.taken:
            return 0
        said = link.said.decode("utf-8", "replace").strip()
        log(f"the link has ended: {said or 'no word why'}")
        if _OVER.search(said):
            return 0
        failures = 0 if link.came_up else failures + 1
        time.sleep(min(2.0**failures, _LONGEST_PAUSE))
    return 1


def main(words: Sequence[str]) -> int:
    """Relay one launch; 0 also where another relay is at it, or all is here already."""
    path, launch, native, python = words
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)
    os.umask(0o077)
    with open(os.path.join(path, lock_name(int(launch))), "ab") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return 0
        if os.path.exists(os.path.join(path, taken_name(int(launch)))):
            return 0
        with open(sys.argv[0], "rb") as file:
            greeting = pack_application(select_sources(file.read()))
        try:
            store = LoginFiles(path, int(launch))
            return relay(store, step_words(native, int(launch), python, store.is_hetjob()), greeting)
        except (OSError, ValueError) as error:
            log(f"cannot relay: {error}")
            return 1

"""The relay's end on the login node: `relay RUN_DIR LAUNCH NATIVE PYTHON [PART]`, where the nodes share no folder.

It links the supervisor's folder on the first node with the run directory here (`file_links`): one srun runs the other
end (`relay_node`). A lock allows one relay for a supervisor.
"""

from __future__ import annotations

import fcntl
import os
import re
import select
import signal
import sys
import time
from collections.abc import Sequence
from typing import Any

from overspan.bridge.runtime.core.run_directory import RunDirectory
from overspan.bridge.runtime.slurm.bootstrap import entry_words, pack_application, select_sources
from overspan.bridge.runtime.slurm.channel import encode_line
from overspan.bridge.runtime.slurm.file_links import FileLink, list_names, measure_file
from overspan.bridge.runtime.slurm.member_locations import locations_path
from overspan.bridge.runtime.slurm.placement import read_placement
from overspan.bridge.runtime.slurm.run_files import lock_orders
from overspan.bridge.runtime.slurm.srun import Srun
from overspan.bridge.runtime.slurm.supervisor import log

ORDER_SECONDS = 0.25
LEAVE_SECONDS = 10.0
TRIES = 10
"""How often in a row a sender may not come up: the daemon starts another relay later."""
_LONGEST_PAUSE = 30.0
_OVER = re.compile(r"[Ii]nvalid job id|already completing|[Jj]ob/step already|has expired|revoked")


def note_written(directory: RunDirectory, name: str) -> None:
    """Add what is new in a supervisor's own list of streams, or of places, to the list of all that came before it."""
    path = os.path.join(directory.path, name)
    task = os.path.basename(os.path.dirname(directory.own))
    lists = {
        directory.file("streams.jsonl"): directory.streams,
        directory.file("seats.jsonl"): locations_path(directory.path, task, directory.launch),
    }
    if path not in lists:
        return
    with open(path, "rb") as file:
        own = [line for line in file.read().splitlines(keepends=True) if line.endswith(b"\n")]
    with open(lists[path], "ab+") as file:
        file.seek(0)
        known = set(file.read().splitlines(keepends=True))
        file.write(b"".join(line for line in own if line not in known))


def close_orders(directory: RunDirectory, size: int) -> bool:
    """Have orders refused from now on; False where there are more than so many bytes of them, or one is written."""
    path = directory.file("orders.jsonl")
    with lock_orders(path) as locked:
        if not locked or measure_file(path) != size:
            return False
        open(directory.file("closed"), "ab").close()
        return True


def conclude(directory: RunDirectory) -> None:
    """Have everything on the disk, and leave the mark that it is here."""
    for name in list_names(directory, True):
        path = os.path.join(directory.path, name)
        if os.path.exists(path):
            with open(path, "rb") as file:
                os.fsync(file.fileno())
    open(directory.file("taken"), "ab").close()


class RelayLink:
    """One srun, and the login node's end of the link through it."""

    def __init__(self, directory: RunDirectory, words: Sequence[str], greeting: bytes) -> None:
        """Start it; OSError where there is no srun."""
        self._directory = directory
        self._poller = select.poll()
        self._srun = Srun(words, os.environ, self._poller, 0o077)
        self._link = FileLink(directory, False, self._say)
        self._closing = -1
        self.came_up = self.taken = False
        self._srun.send(greeting)
        self._link.greet()

    @property
    def said(self) -> str:
        """The last words of srun's own."""
        return "; ".join(self._srun.said)

    def serve(self) -> None:
        """Pass everything on until the srun ends, or all is here."""
        try:
            while self._srun.status is None and not self.taken:
                self._poll(ORDER_SECONDS)
                messages, self._srun.messages = self._srun.messages, []
                for message in messages:
                    self._take(message)
                if self._closing >= 0 and close_orders(self._directory, self._closing):
                    self._closing = -1
                self._link.send_news()
        finally:
            self._leave()

    def _poll(self, seconds: float) -> None:
        for fd, _ in self._poller.poll(seconds * 1000):
            self._srun.handle(fd)

    def _say(self, message: dict[str, Any]) -> None:
        self._srun.send(encode_line(message))

    def _take(self, message: dict[str, Any]) -> None:
        note_written(self._directory, self._link.take(message))
        if "have" in message:
            self.came_up = True
        elif "closing" in message:
            self._closing = int(message["closing"]["orders"])
        elif "over" in message:
            conclude(self._directory)
            self._say({"taken": {}})
            self.taken = True

    def _leave(self) -> None:
        """Send what is left, and give the srun time to end."""
        deadline = time.monotonic() + LEAVE_SECONDS
        while self._srun.status is None and time.monotonic() < deadline:
            if not self._srun.behind:
                self._srun.close_input()
            self._poll(0.1)
        if self._srun.status is None:
            self._srun.signal(signal.SIGTERM)
        self._srun.release()


def step_words(native: str, words: Sequence[str], python: str, hetjob: bool) -> list[str]:
    """The srun that starts a sender; it takes nothing from the job's other steps."""
    group = ["--het-group=0"] if hetjob else []
    where = ("--overlap", "--nodes=1", "--ntasks=1", "--relative=0", "--mem=0", "--gres=none", "--job-name=relay")
    sender = entry_words(python, "sender", native, *words)
    return ["srun", f"--jobid={native}", "--quiet", *group, *where, *sender]


def relay(directory: RunDirectory, words: Sequence[str], greeting: bytes) -> int:
    """Keep a link until everything is here or the job is over; gives the exit status."""
    failures = 0
    while failures < TRIES:
        link = RelayLink(directory, words, greeting)
        link.serve()
        if link.taken:
            return 0
        log(f"the link has ended: {link.said or 'no word why'}")
        if _OVER.search(link.said):
            return 0
        failures = 0 if link.came_up else failures + 1
        time.sleep(min(2.0**failures, _LONGEST_PAUSE))
    return 1


def main(words: Sequence[str]) -> int:
    """Relay one launch; 0 also where another relay is at it, or all is here already."""
    path, launch, native, python, *part = words
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)
    os.umask(0o077)
    directory = RunDirectory(path, int(launch), *part)
    with open(directory.file("relay.lock"), "ab") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return 0
        if os.path.exists(directory.file("taken")):
            return 0
        with open(sys.argv[0], "rb") as file:
            greeting = pack_application(select_sources(file.read()))
        try:
            hetjob = len(read_placement(directory.file("placement.json")).components) > 1
            return relay(directory, step_words(native, (launch, *part), python, hetjob), greeting)
        except (OSError, ValueError) as error:
            log(f"cannot relay: {error}")
            return 1

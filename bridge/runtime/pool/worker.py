"""The worker of a pool: one poll loop for all launches that it holds.

    worker socket PATH | worker access FILE | worker mailbox FOLDER

It is the main program of a job, after that job's set-up. Each lease is supervised as a launch of the local cluster is;
plans and orders come from the daemon, journals go to it, and what they said is kept until the daemon has stored it.
When it ends, the processes of its launches end with it, so nothing that it held can go on elsewhere and here at once.
"""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Sequence
from typing import Any, Optional

from overspan.bridge.model.causes import Cause
from overspan.bridge.model.deciders import Decider
from overspan.bridge.model.events import Cancel, Granted, LaunchLost, event_to_document
from overspan.bridge.model.job import Job
from overspan.bridge.runtime.core import kernel
from overspan.bridge.runtime.core.live_processes import end_live_processes
from overspan.bridge.runtime.core.node_runs import NodeRuns
from overspan.bridge.runtime.core.run_directory import FORMAT, RunDirectory, RunPlan
from overspan.bridge.runtime.core.shim_control import EndWatch, Shim, reap_all
from overspan.bridge.runtime.core.shortages import is_shortage
from overspan.bridge.runtime.core.supervised_launch import Services, SupervisedLaunch
from overspan.bridge.runtime.local.nodes import LocalNodeRuns, NodeRunSettings, isolate_launch
from overspan.bridge.runtime.pool.connection import DaemonAddress, WorkerAddress
from overspan.bridge.runtime.pool.exchanges import END_LINE, Exchanges
from overspan.bridge.runtime.pool.mailbox import MAILBOX, MailboxAddress
from overspan.bridge.runtime.pool.outputs import OutputCopies
from overspan.bridge.runtime.pool.private_folder import PrivateFolder
from overspan.bridge.runtime.pool.slots import Slots
from overspan.bridge.runtime.pool.unshared import move_here

COMM = "span-worker"
MARK = "mark"
LOOK_SECONDS = 1.0
MOST_BYTES = 1 << 20
"""Bytes of a journal in one message."""
SHORT_PAUSE = 0.5
GIVE_UP_SECONDS = 60.0
"""How long a damaged launch is tried; then its processes are ended, and it is told as lost."""
END_SECONDS = 30.0
"""How long a worker that is to end waits for the processes of its launches."""
_STEPS = "steps"
_GRANT = json.dumps({"format": FORMAT, "at": 0.0, "members": [], "isolation": "env"})
_NODE_ENDED = b'"NodeEnded"'


class LeasedLaunch:
    """A launch that this worker has a lease of; `launch` is None where it is over, or waits to be opened."""

    def __init__(self, directory: RunDirectory) -> None:
        self.directory = directory
        self.launch: Optional[SupervisedLaunch] = None
        self.due: Optional[float] = 0.0
        self.sent = 0
        self.orders = 0
        self.tokens: set[str] = set()
        self.failing_since: Optional[float] = None
        """Since when it cannot be gone on with; it is opened again from its journal."""
        self.last_words = b""
        """What is told of a launch that was given up, in place of the rest of its journal."""
        self._last_at = 0
        self.over = False
        """Whether all of it has ended, and its journal is whole."""
        self.dropped = False
        """Whether the daemon has taken the lease back: it is ended and told no more."""

    def read_journal(self) -> bytes:
        """What the journal has got since the last call, a message's worth of it."""
        if self.last_words:
            # The daemon may know less of it than it was sent.
            self._last_at = min(self._last_at, self.sent)
            return self.last_words[self.sent - self._last_at :]
        try:
            with open(self.directory.file("journal.jsonl"), "rb") as file:
                file.seek(self.sent)
                data = file.read(MOST_BYTES)
        except OSError:
            return b""
        return data[: data.rfind(b"\n") + 1]

    def give_up(self, now: float, why: str) -> None:
        """Tell it as lost. Nothing of it runs any more."""
        lost = LaunchLost(now, self.directory.launch, Cause.NODE.value, why)
        self.last_words = json.dumps(event_to_document(lost)).encode() + b"\n" + END_LINE
        self._last_at, self.over = self.sent, True

    def add_orders(self, lines: Sequence[Any]) -> None:
        """Write orders to the file that the launch reads, each once. Raises OSError."""
        fresh = [line for line in lines if int(line["seq"]) > self.orders]
        if not fresh:
            return
        text = "".join(json.dumps(line) + "\n" for line in fresh if line["token"] not in self.tokens)
        with open(
            os.open(self.directory.file("orders.jsonl"), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "a"
        ) as file:
            file.write(text)
        self.tokens.update(str(line["token"]) for line in fresh)
        self.orders = int(fresh[-1]["seq"])
        self.due = 0.0


class Worker:
    """All launches that this process holds."""

    def __init__(self, address: WorkerAddress, job: int, slots: Slots, private: PrivateFolder) -> None:
        self._slots = slots
        self._poller = select.poll()
        self._ends = EndWatch(self._poller)
        self._wakeup, self._wakeup_in = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._poller.register(self._wakeup, select.POLLIN)
        self._held: dict[str, LeasedLaunch] = {}
        self._looked_at = 0.0
        self._folder = ""
        """Where outputs are kept: the daemon's folder, or one of this node."""
        self._private = private
        self._leaving = False
        self._services = Services(_refuse_grant, self._open_nodes, lambda name: None)
        self._address = address
        self._name = {"job": job, "word": os.urandom(6).hex()}
        self._exchanges = Exchanges(address, self._name, self.wake)
        self._copies: Optional[OutputCopies] = None
        """Where the daemon's folder is not seen here."""

    def wake(self, *_: object) -> None:
        """Have the loop look at once."""
        try:
            os.write(self._wakeup_in, b"!")
        except BlockingIOError:
            pass

    def leave(self, *_: object) -> None:
        """The job is being ended: say nothing more, since what ends now has not ended by itself."""
        self._leaving = True
        self.wake()

    def serve(self) -> int:
        """Run until the daemon or the cluster wants no more of it."""
        self._exchanges.start()
        ready: list[int] = []
        while not self._leaving and not self._exchanges.dismissed:
            now = time.time()
            for answer in self._exchanges.take():
                self._carry_out(answer, now)
            self._advance(self._ends.ended(ready), now)
            self._tell()
            ready = [fd for fd, _ in self._poller.poll(self._timeout(time.time()) * 1000)]
            if self._wakeup in ready:
                _drain(self._wakeup)
        self._exchanges.stop()
        self._end_all()
        if self._copies is not None:
            self._copies.stop()
        self._private.remove()
        self._slots.close()
        return 0

    # --- what the daemon says -----------------------------------------------------------------------------------------

    def _carry_out(self, answer: dict[str, Any], now: float) -> None:
        if not self._folder:
            self._choose_folder(str(answer["root"]))
        for handle, plan in answer["leases"].items():
            if handle not in self._held:
                try:
                    self._begin(handle, plan)
                except OSError as error:
                    self._complain(f"launch {handle} cannot begin yet: {error}")
        for handle, lines in answer["orders"].items():
            if handle in self._held:
                try:
                    self._held[handle].add_orders(lines)
                except OSError as error:
                    self._complain(f"orders for launch {handle} cannot be written yet: {error}")
        for handle, place in answer["places"].items():
            if handle in self._held:
                self._held[handle].sent = int(place)
        for handle in answer["drop"]:
            self._drop(handle, now)

    def _choose_folder(self, root: str) -> None:
        """Keep outputs in the daemon's folder where it is seen here, else in one of this node."""
        try:
            with open(os.path.join(root, MARK), encoding="ascii") as file:
                self._exchanges.say_mark(file.read())
            self._folder = root
        except (OSError, ValueError):
            self._folder = self._private.open_disk()
            self._copies = OutputCopies(self._address, self._name, self.wake)
            self._copies.start()

    def _begin(self, handle: str, plan: dict[str, Any]) -> None:
        """Take a lease: write its plan, and begin with the next round. Raises OSError."""
        job, _, launch = handle.partition(".")
        path = os.path.join(self._folder, "runs", job)
        os.makedirs(path, mode=0o700, exist_ok=True)
        directory = RunDirectory(self._private.make(handle), int(launch), outputs=path)
        document = {"format": FORMAT, **plan, "job": _map_devices(plan["job"]), "decider": Decider.SUPERVISOR.value}
        if self._copies is not None:
            document["job"] = move_here(document["job"], path, os.environ, os.getcwd())
            # What is told there leads to the daemon's socket.
            document["environment"] = {}
            self._copies.follow(handle, directory)
        _link_steps(directory)
        _write(directory.file("plan.json"), json.dumps(document))
        _write(directory.file("grant.json"), _GRANT)
        self._held[handle] = LeasedLaunch(directory)

    def _drop(self, handle: str, now: float) -> None:
        held = self._held.get(handle)
        if held is None or held.dropped:
            return
        held.dropped = True
        if not held.over:
            if held.launch is None:
                self._open(handle, held, now)
            if held.launch is None:
                # Tried again with the next answer, until it is given up.
                held.dropped = False
                return
            held.launch.obey(f"drop-{handle}", Cancel(now, by="pool", grace=0))
            held.due = now
        else:
            self._forget(handle)

    def _forget(self, handle: str) -> None:
        """Remove what the daemon has or does not want: all but the output."""
        held = self._held.pop(handle)
        if self._copies is not None:
            self._copies.forget(handle)
        shutil.rmtree(held.directory.path, ignore_errors=True)
        if not any(other.directory.outputs == held.directory.outputs for other in self._held.values()):
            _unlink(os.path.join(held.directory.outputs, _STEPS))

    # --- launches -----------------------------------------------------------------------------------------------------

    def _advance(self, ended: list[Shim], now: float) -> None:
        look = not 0 <= now - self._looked_at < LOOK_SECONDS
        if look:
            self._looked_at = now
        by_folder: dict[str, list[Shim]] = {}
        self._slots.take_back(ended)
        for shim in ended:
            by_folder.setdefault(shim.directory, []).append(shim)
        for handle, held in list(self._held.items()):
            if held.launch is None and not held.over and (look or held.failing_since is None):
                self._open(handle, held, now)
            run = held.launch
            if run is None:
                continue
            shims = by_folder.get(run.nodes_folder, [])
            if shims or look or (held.due is not None and held.due <= now):
                try:
                    run.advance(shims, now)
                    held.due, held.failing_since = run.wake_at(now), None
                except Exception as error:
                    # An error in one launch must not end the others.
                    self._fail(handle, held, error, now)
                    continue
            if run.done:
                run.close()
                held.launch, held.over = None, True
                if held.dropped:
                    self._forget(handle)
        if not self._held:
            reap_all()

    def _open(self, handle: str, held: LeasedLaunch, now: float) -> None:
        """Begin with a launch, or go on with it from its journal."""
        try:
            held.launch = SupervisedLaunch(held.directory, self._services, now)
            held.due = now
        except Exception as error:
            self._fail(handle, held, error, now)

    def _fail(self, handle: str, held: LeasedLaunch, error: Exception, now: float) -> None:
        """Say once why a launch cannot be gone on with; it is opened again with the next look, but not for ever.

        What this node lacks for a while is waited for.
        """
        if held.launch is not None:
            held.launch.close()
            held.launch = None
        if held.failing_since is None:
            print(f"span: error: launch {handle}: {error!r}; trying again", file=sys.stderr, flush=True)
            held.failing_since = now
        if is_shortage(error):
            held.failing_since = now
        late = now - held.failing_since > GIVE_UP_SECONDS
        # None of it may run when it begins elsewhere.
        if late and not end_live_processes(held.directory.path, signal.SIGKILL, set()):
            held.give_up(now, f"the worker cannot go on with it: {error!r}")

    def _complain(self, text: str) -> None:
        """Say what cannot be written, and wait a moment: the daemon's next answer has it again."""
        print(f"span: error: {text}", file=sys.stderr, flush=True)
        time.sleep(SHORT_PAUSE)

    def _tell(self) -> None:
        """Tell the daemon what the journals have got."""
        if self._leaving:
            return
        news = {}
        for handle, held in self._held.items():
            data = b"" if held.dropped else self._hold_back(handle, held.read_journal())
            if data:
                news[handle] = (held.sent, data)
                held.sent += len(data)
        state = {handle: (held.sent, held.orders) for handle, held in self._held.items() if not held.dropped}
        self._exchanges.give(state, news)

    def _hold_back(self, handle: str, data: bytes) -> bytes:
        """What of a journal may be told: the end of a node run comes after all that it has printed."""
        place = data.find(_NODE_ENDED)
        if self._copies is None or place < 0 or self._copies.catch_up(handle):
            return data
        return data[: data.rfind(b"\n", 0, place) + 1]

    def _timeout(self, now: float) -> float:
        """Seconds until the next look."""
        waits = [LOOK_SECONDS]
        if self._ends.timeout is not None:
            waits.append(self._ends.timeout)
        waits += [max(0.001, held.due - now) for held in self._held.values() if held.launch and held.due is not None]
        return min(waits)

    def _open_nodes(self, directory: RunDirectory, plan: RunPlan, job: Job) -> NodeRuns:
        isolation = isolate_launch(directory, job, self._slots.probe)
        slots, watch = self._slots, self._ends.add
        return LocalNodeRuns(
            NodeRunSettings(directory, plan.cluster, isolation, plan.environment, slots.spawn, watch, slots.retire)
        )

    def _end_all(self) -> None:
        """End what still runs, since the daemon gives it to others."""
        now = time.time()
        for handle in list(self._held):
            self._drop(handle, now)
        ready: list[int] = []
        while self._held and time.time() < now + END_SECONDS:
            self._looked_at = 0.0
            self._advance(self._ends.ended(ready), time.time())
            ready = [fd for fd, _ in self._poller.poll(100)]


def _refuse_grant(directory: RunDirectory) -> Granted:
    raise ValueError(f"{directory.file('plan.json')} is of a launch that was not granted")


def _map_devices(job: dict[str, Any]) -> dict[str, Any]:
    """The job with its devices by the numbers that they have on this node: the daemon counts those of this worker."""
    own = [name for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name.isdigit()]
    if not own:
        return job
    places = [
        {**place, "gpus": [int(own[index]) for index in place.get("gpus", ()) if index < len(own)]}
        for place in job.get("placements", ())
    ]
    return {**job, "placements": places}


def _link_steps(directory: RunDirectory) -> None:
    """Have the job's steps found by its number too, as clients do that clear their environment."""
    place = os.path.join(directory.outputs, _STEPS)
    _unlink(place)
    try:
        os.symlink(os.path.join(directory.path, _STEPS), place)
    except OSError:
        # The environment of the job names them.
        pass


def _write(path: str, text: str) -> None:
    """Write a file in place: no reader opens it before this returns. Raises OSError."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        data = memoryview(text.encode())
        while data:
            data = data[os.write(fd, data) :]
    finally:
        os.close(fd)


def _unlink(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:
        pass


def _drain(fd: int) -> None:
    try:
        while os.read(fd, 65536):
            pass
    except BlockingIOError:
        pass


def main(words: Sequence[str]) -> int:
    """Serve a pool as the worker that this job is."""
    os.umask(0o077)
    kernel.set_comm(COMM)
    try:
        kernel.set_subreaper()
    except OSError:
        # Without it, what a job leaves behind outlives it until this job ends.
        pass
    slots, private = Slots(), PrivateFolder()
    kind, place = words
    address: WorkerAddress = MailboxAddress(place) if kind == MAILBOX else DaemonAddress(kind, place)
    worker = Worker(address, int(os.environ["OVERSPAN_JOB_ID"]), slots, private)
    signal.signal(signal.SIGTERM, worker.leave)
    signal.signal(signal.SIGINT, worker.leave)
    try:
        private.keep_program()
        return worker.serve()
    except Exception:
        print(f"span: error: the worker failed: {traceback.format_exc()}", file=sys.stderr)
        return 70
    finally:
        if kind == MAILBOX:
            shutil.rmtree(place, ignore_errors=True)

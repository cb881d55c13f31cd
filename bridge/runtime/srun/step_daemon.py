"""The step daemon: waits on one node of an allocation for srun, and forks a runner for each step.

    stepd RUN_DIRECTORY TASK NODE ADDRESS [hold]

It listens at the member's address and says where in the run directory. With `hold` it stands in the place of a batch
script, and ends with the client that holds the allocation: with the exit code that it sends, or when it is gone.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import sys
import time
from collections.abc import Sequence
from typing import NoReturn, Optional

from overspan.bridge.runtime.core import kernel
from overspan.bridge.runtime.core.allocation import Endpoint, announce, read_key
from overspan.bridge.runtime.srun import channel as wire
from overspan.bridge.runtime.srun.channel import AuthenticationError, Channel, Frame, keep_alive, welcome
from overspan.bridge.runtime.srun.step_runner import ALL_SIGNALS, run_node

_COMM = "span-stepd"
_GREETING_SECONDS = 10.0
_FIRST_FRAME_SECONDS = 30.0
_HOLD_SECONDS = 60.0
_MOST_CHILDREN = 1024
_KILL_SECONDS = 0.05


def main(words: Sequence[str]) -> int:
    """Serve one node; gives the exit code."""
    run_dir, task, index, address, *rest = words
    folder = os.path.join(run_dir, "steps")
    daemon = open_daemon(Endpoint(address, 0), read_key(folder), held="hold" in rest)
    announce(folder, task, int(index), daemon.endpoint)
    return daemon.serve()


def open_daemon(endpoint: Endpoint, key: bytes, *, held: bool = False) -> StepDaemon:
    """Have this process listen for steps; port 0 is any. Raises OSError."""
    signal.pthread_sigmask(signal.SIG_SETMASK, ALL_SIGNALS)
    kernel.set_comm(_COMM)
    try:
        kernel.set_subreaper()
    except OSError:
        pass
    family = socket.AF_INET6 if ":" in endpoint.address else socket.AF_INET
    return StepDaemon(socket.create_server(endpoint, family=family, backlog=128), key, held)


class StepDaemon:
    """The runners of one node, and the client that holds the allocation."""

    def __init__(self, listener: socket.socket, key: bytes, held: bool) -> None:
        listener.setblocking(False)
        self._listener = listener
        self._key = key
        self._held = held
        self.endpoint = Endpoint(*listener.getsockname()[:2])
        """Where it listens."""
        self._holder = 0
        self._hold_by = time.monotonic() + _HOLD_SECONDS
        self._children: set[int] = set()
        self._ending = False
        self._code: Optional[int] = None
        self._signals = kernel.open_signalfd(frozenset(map(int, (signal.SIGCHLD, signal.SIGTERM))))
        # The children report holds and releases here, one line each.
        self._news, self._tell = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)

    def serve(self) -> int:
        """Wait for steps until told to end; a TERM lets the steps have their grace period first."""
        poller = select.poll()
        for fd in (self._listener.fileno(), self._signals, self._news):
            poller.register(fd, select.POLLIN)
        while self._code is None and not (self._ending and not self._children):
            for fd, _ in poller.poll(1000):
                if fd == self._listener.fileno():
                    self._accept()
                elif fd == self._news:
                    self._read_news()
                else:
                    self._handle_signals()
            if self._held and not self._holder and time.monotonic() > self._hold_by:
                print("span: the client of this allocation never came", file=sys.stderr)
                self._code = 1
        return self._code or 0

    def _accept(self) -> None:
        try:
            connection, _ = self._listener.accept()
        except OSError:
            return
        if self._ending or len(self._children) >= _MOST_CHILDREN:
            connection.close()
            return
        pid = os.fork()
        if pid == 0:
            self._listener.close()
            self._serve_client(connection)
        self._children.add(pid)
        connection.close()

    def _serve_client(self, connection: socket.socket) -> NoReturn:
        try:
            os.setsid()
            keep_alive(connection)
            channel = welcome(connection, self._key, _GREETING_SECONDS)
            frame = first_frame(channel)
            if frame is not None and frame.kind == wire.RUN:
                run_node(channel, frame)
            elif frame is not None and frame.kind == wire.HOLD:
                self._hold_allocation(channel)
        except (AuthenticationError, OSError) as error:
            print(f"span: a client of the step daemon was turned away: {error}", file=sys.stderr, flush=True)
        finally:
            os._exit(0)

    def _hold_allocation(self, channel: Channel) -> None:
        """In the child: tell the daemon who holds, and how the hold ends."""
        self._report(f"hold {os.getpid()}")
        channel.send(wire.STARTED)
        self._report(f"release {os.getpid()} {await_release(channel)}")

    def _report(self, line: str) -> None:
        os.write(self._tell, line.encode() + b"\n")

    def _read_news(self) -> None:
        try:
            text = os.read(self._news, 4096).decode()
        except BlockingIOError:
            return
        for line in text.splitlines():
            words = line.split()
            if words[0] == "hold" and self._held and not self._holder:
                self._holder = int(words[1])
            elif words[0] == "release" and int(words[1]) == self._holder:
                if words[2] == "lost":
                    print("span: the client of this allocation is gone", file=sys.stderr)
                self._code = 1 if words[2] == "lost" else int(words[2])

    def _handle_signals(self) -> None:
        for info in kernel.read_signalfd(self._signals):
            if info.number == signal.SIGTERM:
                # What holds the allocation is no step.
                self._ending = True
                if self._holder:
                    os.kill(self._holder, signal.SIGKILL)
        strays = False
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                break
            if pid == 0:
                break
            if pid in self._children:
                self._children.discard(pid)
                strays = strays or os.WIFSIGNALED(status)
                if pid == self._holder and not self._ending:
                    # It may have said how it ends just before.
                    self._read_news()
                    self._code = 1 if self._code is None else self._code
        if strays:
            self._end_strays()

    def _end_strays(self) -> None:
        """A runner was killed: what it had started came to this process."""
        deadline = time.monotonic() + 10.0
        while time.monotonic() < deadline:
            strays = [pid for pid in kernel.read_children(os.getpid()) if pid not in self._children]
            if not strays:
                return
            for pid in strays:
                kernel.signal_tree(pid, signal.SIGKILL)
                os.kill(pid, signal.SIGKILL)
            time.sleep(_KILL_SECONDS)
            for pid in strays:
                try:
                    os.waitpid(pid, os.WNOHANG)
                except ChildProcessError:
                    pass


def await_release(channel: Channel) -> str:
    """The exit code with which a client lets its allocation go; `lost` where it went without a word."""
    frames = channel.take_unread()
    while True:
        for frame in frames:
            if frame.kind == wire.RELEASE:
                return str(int(frame.body))
        if channel.closed:
            return "lost"
        select.select([channel], [], [])
        frames = channel.receive()


def first_frame(channel: Channel) -> Optional[Frame]:
    """What a client wants; None where it does not say so in time. What it said besides is kept."""
    deadline = time.monotonic() + _FIRST_FRAME_SECONDS
    while not channel.closed and time.monotonic() < deadline:
        select.select([channel], [], [], 1.0)
        frames = channel.receive()
        if frames:
            # Srun waits for an answer before it says more than RUN, but input may follow at once.
            channel.unread(frames[1:])
            return frames[0]
    return None

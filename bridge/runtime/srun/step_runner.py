"""The runner of one step on one node: starts its ranks, relays their streams, and leaves no process behind.

It is a process of its own, forked from srun for srun's node and from the step daemon for the others, and speaks to
srun over a channel. When the channel closes, everything below is killed.
"""

from __future__ import annotations

import json
import os
import select
import signal
import time
import traceback
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn, Optional

from overspan.bridge.runtime.core import kernel
from overspan.bridge.runtime.core.shim_control import STEP_COMM
from overspan.bridge.runtime.srun import channel as wire
from overspan.bridge.runtime.srun.channel import AuthenticationError, Channel, Frame
from overspan.bridge.runtime.srun.rank_process import RankProcess, start_rank

ALL_SIGNALS = frozenset(int(number) for number in signal.valid_signals())
_READ_SIZE = 1 << 16
_MOST_WAITING = 1 << 20
_KILL_SECONDS = 0.02
_LAST_SECONDS = 30.0
# What a rank leaves behind may write for ever; a pipe holds one such read.
_LAST_READS = 16


def run_node(channel: Channel, first: Optional[Frame]) -> NoReturn:
    """Serve a channel to its end; to be called in a process that was forked for it."""
    status = 1
    try:
        kernel.set_comm(STEP_COMM)
        try:
            kernel.set_subreaper()
        except OSError:
            pass  # only what a rank leaves behind may then outlive the step
        signal.pthread_sigmask(signal.SIG_SETMASK, ALL_SIGNALS)
        Runner(channel).serve(first)
        status = 0
    except Exception:
        traceback.print_exc()
    finally:
        os._exit(status)


class Runner:
    """The ranks of one node."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._signals = kernel.open_signalfd(frozenset({int(signal.SIGCHLD)}))
        self._poller = select.poll()
        self._ranks: dict[int, RankProcess] = {}
        self._sources: dict[int, tuple[RankProcess, bytes]] = {}
        self._sinks: dict[int, RankProcess] = {}
        self._watched: dict[int, int] = {}
        self._credit = 0
        self._begun = False

    def serve(self, first: Optional[Frame]) -> None:
        """Run the step's part to its end."""
        if first is not None:
            self._obey(first)
            for frame in self._channel.take_unread():
                self._obey(frame)
        try:
            while not self._channel.closed and not self._finished():
                self._turn()
        except AuthenticationError:
            pass
        finally:
            self._kill_all()
        self._drain()
        self._channel.send(wire.DONE)
        deadline = time.monotonic() + _LAST_SECONDS
        while self._channel.waiting and not self._channel.closed and time.monotonic() < deadline:
            select.select([], [self._channel], [], 1.0)
            self._channel.flush()

    def _finished(self) -> bool:
        return self._begun and all(rank.status is not None for rank in self._ranks.values())

    def _turn(self) -> None:
        self._watch()
        for fd, _ in self._poller.poll(10_000):
            if fd == self._channel.fileno():
                self._channel.flush()
                for frame in self._channel.receive():
                    self._obey(frame)
                if self._channel.closed:
                    return
            elif fd == self._signals:
                kernel.read_signalfd(self._signals)
            else:
                # A terminal is both.
                if fd in self._sources:
                    self._read(fd)
                if fd in self._sinks and self._sinks[fd].pending:
                    self._write(fd)
        self._reap()

    def _watch(self) -> None:
        """Tell poll what is of interest now."""
        wanted = {self._channel.fileno(): select.POLLIN, self._signals: select.POLLIN}
        if self._channel.waiting:
            wanted[self._channel.fileno()] |= select.POLLOUT
        if self._channel.waiting < _MOST_WAITING:
            wanted.update((fd, select.POLLIN) for fd in self._sources)
        for fd, rank in self._sinks.items():
            if rank.pending:
                wanted[fd] = wanted.get(fd, 0) | select.POLLOUT
        for fd in self._watched.keys() - wanted.keys():
            self._poller.unregister(fd)
        for fd, events in wanted.items():
            if self._watched.get(fd) != events:
                self._poller.register(fd, events)
        self._watched = wanted

    # --- srun's words ------------------------------------------------------------------------------------------------

    def _obey(self, frame: Frame) -> None:
        if frame.kind == wire.RUN and not self._begun:
            self._begin(json.loads(frame.body))
        elif frame.kind == wire.INPUT:
            self._take_input(*wire.unpack_rank(frame.body))
        elif frame.kind == wire.SIGNAL:
            number = int(frame.body)
            kernel.signal_tree(os.getpid(), number)
            if number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
                kernel.signal_tree(os.getpid(), signal.SIGCONT)
        elif frame.kind == wire.WINDOW:
            rows, columns = map(int, frame.body.split())
            for rank in self._ranks.values():
                rank.resize(rows, columns)

    def _begin(self, request: Mapping[str, Any]) -> None:
        self._begun = True
        node = node_variables(request.get("own", ()))
        for row in request["ranks"]:
            environment = {**request["environment"], **row["environment"], **node}
            rank = start_rank(request, row, environment)
            self._ranks[rank.number] = rank
            for fd, kind in ((rank.stdout, wire.OUTPUT), (rank.stderr, wire.ERROR)):
                if fd >= 0:
                    self._sources[fd] = (rank, kind)
            if rank.stdin >= 0:
                self._sinks[rank.stdin] = rank
        pids = {str(rank.number): rank.pid for rank in self._ranks.values()}
        self._channel.send(wire.STARTED, json.dumps(pids).encode())

    def _take_input(self, number: int, data: bytes) -> None:
        if number == wire.EVERY_RANK:
            chosen = list(self._ranks.values())
        else:
            chosen = [self._ranks[number]] if number in self._ranks else []
        for rank in chosen:
            if rank.stdin < 0:
                continue
            if data:
                rank.pending += data
            else:
                rank.ending = True
            self._write(rank.stdin)
        # A rank that takes no more must not hold back the others; what it left unread is lost with it.
        self._tell_taken(len(data))

    def _tell_taken(self, count: int) -> None:
        self._credit += count
        behind = max((len(rank.pending) for rank in self._sinks.values()), default=0)
        if self._credit > behind:
            self._channel.send(wire.TAKEN, b"%d" % (self._credit - behind))
            self._credit = behind

    # --- the ranks' bytes --------------------------------------------------------------------------------------------

    def _read(self, fd: int) -> bool:
        """Pass on what a rank wrote; False at its end, or when there is nothing now."""
        rank, kind = self._sources[fd]
        try:
            data = os.read(fd, _READ_SIZE)
        except BlockingIOError:
            return False
        except OSError:
            data = b""  # a terminal whose last user is gone gives EIO
        if data:
            self._channel.send(kind, wire.pack_rank(rank.number, data))
            return True
        del self._sources[fd]
        if not rank.terminal:
            self._forget(fd)
            os.close(fd)
        return False

    def _write(self, fd: int) -> None:
        rank = self._sinks.get(fd)
        if rank is None:
            return
        try:
            while rank.pending:
                del rank.pending[: os.write(fd, rank.pending[:_READ_SIZE])]
        except BlockingIOError:
            pass
        except OSError:
            rank.pending.clear()
            rank.ending = True
        if rank.ending and not rank.pending:
            self._close_input(rank)
        self._tell_taken(0)

    def _close_input(self, rank: RankProcess) -> None:
        fd, rank.ending = rank.stdin, False
        if rank.terminal:
            # The end of file of a terminal is a character.
            rank.pending += b"\x04"
            return
        rank.stdin = -1
        del self._sinks[fd]
        self._forget(fd)
        os.close(fd)

    def _forget(self, fd: int) -> None:
        if self._watched.pop(fd, None) is not None:
            self._poller.unregister(fd)

    # --- the ranks' ends ---------------------------------------------------------------------------------------------

    def _reap(self) -> None:
        by_pid = {rank.pid: rank for rank in self._ranks.values()}
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            rank = by_pid.get(pid)
            if rank is not None:
                self._end(rank, status)

    def _end(self, rank: RankProcess, status: int) -> None:
        rank.status = status
        for fd in (rank.stdout, rank.stderr):
            for _ in range(_LAST_READS):
                if fd not in self._sources or not self._read(fd):
                    break
        self._channel.send(wire.ENDED, wire.pack_rank(rank.number, b"%d" % status))

    def _kill_all(self) -> None:
        """Kill until nothing is left below."""
        deadline = time.monotonic() + _LAST_SECONDS
        poller = select.poll()
        poller.register(self._signals, select.POLLIN)
        while time.monotonic() < deadline:
            self._reap()
            if not kernel.read_children(os.getpid()):
                return
            kernel.signal_tree(os.getpid(), signal.SIGKILL)
            poller.poll(_KILL_SECONDS * 1000)
            kernel.read_signalfd(self._signals)

    def _drain(self) -> None:
        """Pass on what the killed have written."""
        for fd in list(self._sources):
            while not self._channel.closed and fd in self._sources and self._read(fd):
                pass


_NODE_NAMES = ("OVERSPAN_NODE_KEY", "HOSTNAME", "NSS_WRAPPER_HOSTS", "NSS_WRAPPER_HOSTNAME")


def node_variables(own: Sequence[str] = ()) -> dict[str, str]:
    """What only this node knows: the mark of its processes, how its names are given, and what `own` names."""
    result = {name: os.environ[name] for name in (*_NODE_NAMES, *own) if name in os.environ}
    if "NSS_WRAPPER_HOSTS" in result and "LD_PRELOAD" in os.environ:
        result["LD_PRELOAD"] = os.environ["LD_PRELOAD"]
    return result

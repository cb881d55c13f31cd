"""srun's connections to the nodes of a step: a forked runner for its own node, step daemons for the others."""

from __future__ import annotations

import os
import select
import signal
import socket
import time
from collections.abc import Collection, Sequence
from typing import Optional

from overspan.bridge.runtime.core.allocation import AllocatedNode, Allocation, find_endpoint, is_over, read_key
from overspan.bridge.runtime.core.kernel import join_namespaces, read_children, set_subreaper, signal_tree
from overspan.bridge.runtime.core.shim_control import NODE_KEY, name_node
from overspan.bridge.runtime.srun.batch_process import BatchProcess
from overspan.bridge.runtime.srun.channel import AuthenticationError, Channel, greet, keep_alive
from overspan.bridge.runtime.srun.step_runner import run_node

_CONNECT_SECONDS = 30.0
_GREETING_SECONDS = 10.0
_CLEAR_SECONDS = 5.0
_PAUSE = 0.02


class ConnectionFailure(Exception):
    """A node of the step cannot be reached."""


def open_connections(
    allocation: Allocation, nodes: Sequence[AllocatedNode], own: Sequence[AllocatedNode], joined: Optional[BatchProcess]
) -> list[Channel]:
    """A channel for each node, in order; `joined` is what runs on the own node where srun is outside of it.

    Raises ConnectionFailure.
    """
    channels: dict[AllocatedNode, Channel] = {}
    try:
        set_subreaper()
    except OSError:
        pass  # what a killed runner leaves behind then lives until the job's end
    for node in nodes:
        # Forked before there are connections that a fork could keep open.
        if node in own:
            channels[node] = _fork_runner(joined)
    try:
        for node in nodes:
            if node not in channels:
                channels[node] = connect_node(allocation, node)
    except ConnectionFailure:
        for channel in channels.values():
            channel.close()
        raise
    return [channels[node] for node in nodes]


def _fork_runner(joined: Optional[BatchProcess]) -> Channel:
    mine, theirs = socket.socketpair()
    pid = os.fork()
    if pid == 0:
        try:
            os.setsid()
            mine.close()
            null = os.open(os.devnull, os.O_RDWR)
            for number in (0, 1, 2):
                os.dup2(null, number)
            if joined is not None:
                os.environ[NODE_KEY] = name_node(joined.directory, joined.key)
                join_namespaces(joined.pid)
            run_node(Channel(theirs), None)
        finally:
            os._exit(1)
    theirs.close()
    return Channel(mine)


def connect_node(allocation: Allocation, node: AllocatedNode) -> Channel:
    """Connect to a node's step daemon, which may not listen yet. Raises ConnectionFailure."""
    deadline = time.monotonic() + _CONNECT_SECONDS
    while True:
        try:
            return _try_connect(allocation, node)
        except (OSError, AuthenticationError) as error:
            if time.monotonic() > deadline or is_over(allocation.folder):
                raise ConnectionFailure(f"Communication connection failure: {node.name}: {error}") from None
        select.select([], [], [], _PAUSE)


def _try_connect(allocation: Allocation, node: AllocatedNode) -> Channel:
    endpoint = find_endpoint(allocation.folder, node)
    if endpoint is None:
        raise ConnectionRefusedError("its step daemon has not started")
    connection = socket.create_connection(endpoint, _GREETING_SECONDS)
    try:
        keep_alive(connection)
        return greet(connection, read_key(allocation.folder), _GREETING_SECONDS)
    except BaseException:
        connection.close()
        raise


def end_children(spared: Collection[int]) -> None:
    """Kill and reap all children of this process except the spared ones, which are older than the step.

    A runner that was killed leaves its ranks' children here.
    """
    deadline = time.monotonic() + _CLEAR_SECONDS
    while time.monotonic() < deadline:
        children = [pid for pid in read_children(os.getpid()) if pid not in spared]
        if not children:
            return
        for pid in children:
            signal_tree(pid, signal.SIGKILL)
            os.kill(pid, signal.SIGKILL)
        for pid in children:
            try:
                os.waitpid(pid, os.WNOHANG)
            except ChildProcessError:
                pass
        select.select([], [], [], _PAUSE)

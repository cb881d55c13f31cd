"""SSH in this process, by paramiko: for machines without the OpenSSH programs. Loaded only where it is configured.

Known hosts, agents, keys, and Host, HostName, User, Port, IdentityFile and ProxyJump of the configuration count.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import os
import socket
import time
from typing import Any

from overspan.adapters.slurm.transports.attempts import Attempts
from overspan.adapters.slurm.transports.openssh import (
    ALIVE_SECONDS,
    ALIVE_TIMES,
    CONNECT_SECONDS,
    MAX_SESSIONS,
    OPEN_SECONDS,
    Address,
)
from overspan.adapters.slurm.transports.programs import INTERPRETER
from overspan.adapters.slurm.transports.shell import Raw, Shell
from overspan.bridge.model.errors import InvalidRequest, Unreachable

_PART = 1 << 16


class ParamikoSsh(Shell):
    """Commands over one connection of paramiko's, opened on demand and again with backoff."""

    def __init__(self, address: Address, path: str = "") -> None:
        super().__init__(path)
        try:
            self._paramiko: Any = importlib.import_module("paramiko")
        except ImportError:
            raise InvalidRequest(
                "`transport: paramiko` needs the package paramiko", remedy="pip install 'overspan[ssh]'"
            ) from None
        self._address = address
        self._clients: list[Any] = []
        self._sessions = asyncio.Semaphore(MAX_SESSIONS)
        self._opening = asyncio.Lock()
        self._attempts = Attempts()

    async def carry(self, program: bytes, timeout: float) -> Raw:
        """Have sh at the other end run the program."""
        async with self._sessions:
            async with self._opening:
                if not self._alive():
                    await self._open()
            return await asyncio.to_thread(self._carry, program, timeout)

    async def close(self) -> None:
        """End the connection."""
        await asyncio.to_thread(self._drop)

    def _alive(self) -> bool:
        transport = self._clients[-1].get_transport() if self._clients else None
        return transport is not None and bool(transport.is_active())

    async def _open(self) -> None:
        self._attempts.check()
        try:
            await asyncio.to_thread(self._connect)
        except (OSError, EOFError, self._paramiko.SSHException) as error:
            trouble = f"{self._address.host}: {error or type(error).__name__}"
            self._attempts.fail(trouble)
            await asyncio.to_thread(self._drop)
            raise Unreachable(trouble) from error
        self._attempts.succeed()

    def _connect(self) -> None:
        self._drop()
        configuration = self._read_configuration()
        self._clients.append(self._connect_to(configuration, self._address, None))

    def _connect_to(self, configuration: Any, address: Address, through: Any) -> Any:
        found = configuration.lookup(address.host)
        host, port = found.get("hostname", address.host), address.port or int(found.get("port", 22))
        jumps = [jump for jump in found.get("proxyjump", "").split(",") if jump and jump != "none"]
        for jump in jumps if through is None else []:
            through = self._connect_to(configuration, read_jump(jump), through)
            self._clients.append(through)
        client = self._paramiko.SSHClient()
        client.load_system_host_keys()
        for file in found.get("userknownhostsfile", "").split():
            if os.path.exists(os.path.expanduser(file)):
                client.load_host_keys(os.path.expanduser(file))
        if found.get("stricthostkeychecking", "") in ("no", "accept-new"):
            client.set_missing_host_key_policy(self._paramiko.AutoAddPolicy())
        sock = self._make_socket(through, host, port)
        client.connect(
            host,
            port,
            username=address.user or found.get("user"),
            key_filename=[os.path.expanduser(file) for file in found.get("identityfile", [])] or None,
            sock=sock,
            timeout=CONNECT_SECONDS,
            banner_timeout=OPEN_SECONDS,
            auth_timeout=OPEN_SECONDS,
        )
        client.get_transport().set_keepalive(ALIVE_SECONDS)
        return client

    @staticmethod
    def _make_socket(through: Any, host: str, port: int) -> Any:
        if through is not None:
            return through.get_transport().open_channel("direct-tcpip", (host, port), ("", 0))
        sock = socket.create_connection((host, port), CONNECT_SECONDS)
        if hasattr(socket, "TCP_USER_TIMEOUT"):
            # Keepalives of paramiko's want no answer: the kernel ends a connection where nothing is acknowledged.
            milliseconds = 1000 * ALIVE_SECONDS * ALIVE_TIMES
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, milliseconds)
        # Small packets that wait for each other cost 40 ms a command.
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return sock

    def _read_configuration(self) -> Any:
        configuration = self._paramiko.SSHConfig()
        file = self._address.config or os.path.expanduser("~/.ssh/config")
        with contextlib.suppress(FileNotFoundError), open(file, encoding="utf-8") as stream:
            configuration.parse(stream)
        return configuration

    def _drop(self) -> None:
        while self._clients:
            self._clients.pop().close()

    def _carry(self, program: bytes, timeout: float) -> Raw:
        out, err = bytearray(), bytearray()
        deadline = time.monotonic() + timeout
        try:
            channel = self._clients[-1].get_transport().open_session(timeout=timeout)
        except (OSError, EOFError, self._paramiko.SSHException, IndexError, AttributeError) as error:
            raise Unreachable(f"{self._address.host}: {error or 'the connection is gone'}") from error
        try:
            channel.settimeout(timeout)
            channel.exec_command(f"exec {INTERPRETER}")
            trouble = self._exchange(channel, program, (out, err), deadline)
        except (OSError, EOFError, self._paramiko.SSHException) as error:
            trouble = f"{self._address.host}: {error or type(error).__name__}"
        finally:
            channel.close()
        return Raw(bytes(out), bytes(err), trouble)

    def _exchange(self, channel: Any, program: bytes, into: tuple[bytearray, bytearray], deadline: float) -> str:
        """Write and read at the same time, so that neither side waits for the other; what went wrong, if anything."""
        left = memoryview(program)
        out, err = into
        while time.monotonic() < deadline:
            # Asked before the streams are read: nothing comes behind the end.
            over = channel.closed or (channel.exit_status_ready() and channel.eof_received)
            moved = False
            if left and channel.send_ready():
                left = left[channel.send(left[:_PART]) :]
                moved = True
                if not left:
                    channel.shutdown_write()
            while channel.recv_ready():
                out += channel.recv(_PART)
                moved = True
            while channel.recv_stderr_ready():
                err += channel.recv_stderr(_PART)
                moved = True
            if over:
                ended = channel.exit_status_ready() and channel.recv_exit_status() >= 0
                return "" if ended else f"{self._address.host}: the connection went away"
            if not moved:
                channel.status_event.wait(0.005)
        return f"{self._address.host}: no answer in time"


def read_jump(text: str) -> Address:
    """One hop of ProxyJump: [user@]host[:port]."""
    user, _, rest = text.strip().rpartition("@")
    host, _, port = rest.partition(":")
    return Address(host, user, int(port or 0))

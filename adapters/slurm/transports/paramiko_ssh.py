"""Transport over paramiko, for machines without the OpenSSH programs. The package is loaded only if it is configured.

Uses known hosts, agents, keys, and Host, HostName, User, Port, IdentityFile and ProxyJump of the ssh configuration.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import os
import socket
import threading
import time
from typing import Any

from overspan.adapters.slurm.transports.openssh import (
    ALIVE_SECONDS,
    ALIVE_TIMES,
    CONNECT_SECONDS,
    MAX_SESSIONS,
    OPEN_SECONDS,
    Address,
)
from overspan.adapters.slurm.transports.programs import INTERPRETER
from overspan.adapters.slurm.transports.reconnection import ReconnectDelay, Sessions, SharedOpening
from overspan.adapters.slurm.transports.shell import Raw, Shell
from overspan.bridge.model.errors import InvalidRequest, Unreachable

QUIET_SECONDS = 2.0
"""Seconds without output after which a program that has ended is no longer read from."""
_PART = 1 << 16


class ParamikoSsh(Shell):
    """Runs commands over one connection of paramiko, opened on demand, and again with back-off."""

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
        self._opening = SharedOpening(self._ensure_open)
        self._sessions = Sessions(MAX_SESSIONS, address.host, self._opening)
        self._attempts = ReconnectDelay()

    async def carry(self, program: bytes, timeout: float) -> Raw:
        """Have sh at the other end run the program."""
        deadline = time.monotonic() + timeout
        await self._sessions.enter(timeout)
        try:
            return await self._carry(_Exchange(self._address.host, program, deadline, timeout))
        finally:
            self._sessions.leave()

    async def _carry(self, exchange: _Exchange) -> Raw:
        """Run an exchange on a thread of its own, which is abandoned at its deadline."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[Raw] = loop.create_future()

        def conclude(result: Raw | Exception) -> None:
            if done.done():
                return
            if isinstance(result, Raw):
                done.set_result(result)
            else:
                done.set_exception(result)

        def work() -> None:
            result: Raw | Exception
            try:
                result = self._exchange(exchange)
            except Exception as error:
                result = error
            with contextlib.suppress(RuntimeError):
                # The event loop may have been closed by now.
                loop.call_soon_threadsafe(conclude, result)

        threading.Thread(target=work, name=f"ssh {self._address.host}", daemon=True).start()
        try:
            async with asyncio.timeout(max(0.0, exchange.deadline - time.monotonic())):
                return await done
        except TimeoutError:
            return Raw(bytes(exchange.out), bytes(exchange.err), exchange.late)
        finally:
            if done.cancelled():
                exchange.stop()

    def retry(self) -> None:
        """Skip the back-off: the next call connects at once."""
        self._attempts.retry()

    async def close(self) -> None:
        """End the connection."""
        await self._opening.close()
        await asyncio.to_thread(self._drop)

    async def _ensure_open(self) -> None:
        if not self._alive():
            await self._open()

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
            return through.get_transport().open_channel("direct-tcpip", (host, port), ("", 0), timeout=OPEN_SECONDS)
        sock = socket.create_connection((host, port), CONNECT_SECONDS)
        if hasattr(socket, "TCP_USER_TIMEOUT"):
            # paramiko's keepalives ask for no answer, so the kernel has to end a connection without acknowledgements.
            milliseconds = 1000 * ALIVE_SECONDS * ALIVE_TIMES
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, milliseconds)
        # With Nagle's algorithm small packets wait for each other, which costs 40 ms a command.
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

    def _exchange(self, exchange: _Exchange) -> Raw:
        seconds = max(0.0, exchange.deadline - time.monotonic())
        try:
            channel = self._clients[-1].get_transport().open_session(timeout=seconds)
        except (OSError, EOFError, self._paramiko.SSHException, IndexError, AttributeError) as error:
            raise Unreachable(f"{self._address.host}: {error or 'the connection is gone'}") from error
        try:
            trouble = exchange.run(channel)
        except (OSError, EOFError, self._paramiko.SSHException) as error:
            trouble = f"{self._address.host}: {error or type(error).__name__}"
        finally:
            channel.close()
        return Raw(bytes(exchange.out), bytes(exchange.err), trouble)


class _Exchange:
    """One program over one channel, until it ends or is stopped."""

    def __init__(self, host: str, program: bytes, deadline: float, timeout: float) -> None:
        self.out, self.err = bytearray(), bytearray()
        self.deadline = deadline
        self.late = f"{host}: no answer within {timeout:g} s"
        self._host = host
        self._left = memoryview(program)
        self._channel: Any = None
        self._stopped = False

    def stop(self) -> None:
        """Close the channel, on a thread of its own, because closing blocks on a link that hangs."""
        self._stopped = True
        if self._channel is not None:
            threading.Thread(target=self._channel.close, daemon=True).start()

    def run(self, channel: Any) -> str:
        """Write and read concurrently, so that neither side blocks the other. Returns the error; empty if none."""
        self._channel = channel
        channel.settimeout(max(0.0, self.deadline - time.monotonic()))
        if self._stopped:
            return self.late
        channel.exec_command(f"exec {INTERPRETER}")
        quiet = time.monotonic()
        while time.monotonic() < self.deadline and not self._stopped:
            # Checked before the streams are read, so that the read after the end gets everything.
            over = channel.closed or (channel.exit_status_ready() and channel.eof_received)
            moved = self._move(channel)
            quiet = time.monotonic() if moved or not channel.exit_status_ready() else quiet
            # A background process of the program may keep the channel open.
            if over or time.monotonic() - quiet >= QUIET_SECONDS:
                ended = channel.exit_status_ready() and channel.recv_exit_status() >= 0
                return "" if ended else f"{self._host}: the connection went away"
            if not moved:
                channel.status_event.wait(0.005)
        return self.late

    def _move(self, channel: Any) -> bool:
        """Transfer what is ready; whether there was any."""
        moved = False
        if self._left and channel.send_ready():
            self._left = self._left[channel.send(self._left[:_PART]) :]
            moved = True
            if not self._left:
                channel.shutdown_write()
        while channel.recv_ready():
            self.out += channel.recv(_PART)
            moved = True
        while channel.recv_stderr_ready():
            self.err += channel.recv_stderr(_PART)
            moved = True
        return moved


def read_jump(text: str) -> Address:
    """One hop of ProxyJump: [user@]host[:port]."""
    user, _, rest = text.strip().rpartition("@")
    host, _, port = rest.partition(":")
    return Address(host, user, int(port or 0))

"""Transport over the OpenSSH programs, with one master connection a cluster and the user's own ssh configuration.

ssh(1), ssh_config(5): ControlMaster, ControlPath, ControlPersist, BatchMode. Only `span login` may ask questions.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import stat
import tempfile
import time
from dataclasses import dataclass
from hashlib import sha256

from overspan.adapters.slurm.transports.processes import Ended, feed_process
from overspan.adapters.slurm.transports.programs import INTERPRETER
from overspan.adapters.slurm.transports.reconnection import ReconnectDelay, Sessions, SharedOpening
from overspan.adapters.slurm.transports.shell import Raw, Shell
from overspan.bridge.model.errors import Denied, Unreachable

MAX_SESSIONS = 4
"""Concurrent commands over one connection; servers allow 10 by default (sshd_config(5), MaxSessions)."""
OPEN_SECONDS = 30.0
"""Seconds for opening a connection, with jump hosts and authentication."""
CONNECT_SECONDS = 10
"""Seconds for one TCP connection (ssh_config(5), ConnectTimeout)."""
ALIVE_SECONDS, ALIVE_TIMES = 5, 3
"""Seconds between keepalives, and after how many unanswered ones the connection counts as lost."""
LOGIN_SECONDS = 15
"""Seconds between keepalives of a connection by `span login`: longer, because only a user can open it again."""
_LOST = 255
_NOT_BEGUN = re.compile(
    rb"Control socket|mux_client_\w+: (session|master)|Connection (refused|timed out)|Could not resolve|"
    rb"Permission denied|Host key|Connection closed by UNKNOWN|Broken pipe|master is dead|kex_exchange"
)


@dataclass(frozen=True)
class Address:
    """A host of the user's ssh configuration; `options` are further words for ssh, `config` its -F file."""

    host: str
    user: str = ""
    port: int = 0
    config: str = ""
    options: tuple[str, ...] = ()


class OpenSsh(Shell):
    """Runs commands by ssh over a master connection, which is opened on demand, and again with back-off."""

    def __init__(self, cluster: str, address: Address, path: str = "", folder: str = "") -> None:
        super().__init__(path)
        self._address = address
        self._folder = folder or find_folder()
        self._socket = socket_path(self._folder, cluster, address)
        self._opening = SharedOpening(self._ensure_master)
        self._sessions = Sessions(MAX_SESSIONS, address.host, self._opening)
        self._known_open = False
        self._opened = False
        self._attempts = ReconnectDelay()

    async def carry(self, program: bytes, timeout: float) -> Raw:
        """Have sh at the other end run the program."""
        words = self._command_words()
        began = time.monotonic()
        await self._sessions.enter(timeout)
        try:
            left = max(0.0, timeout - (time.monotonic() - began))
            ended = await self._start([*words, f"exec {INTERPRETER}"], program, left)
        finally:
            self._sessions.leave()
        if ended.code is None:
            return Raw(ended.out, ended.err, f"{self._address.host}: no answer within {timeout:g} s")
        if ended.code == _LOST:
            self._known_open = False
            said = _last_line(ended.err)
            if not ended.out and _NOT_BEGUN.search(ended.err):
                raise Unreachable(f"{self._address.host}: {said or 'the connection is gone'}")
            return Raw(ended.out, ended.err, f"{self._address.host}: {said or 'the connection went away'}")
        return Raw(ended.out, ended.err)

    def retry(self) -> None:
        """Skip the back-off: the next call connects at once."""
        self._attempts.retry()

    async def close(self) -> None:
        """End the master that this process opened; one opened by `span login` stays."""
        await self._opening.close()
        if self._opened:
            self._opened = self._known_open = False
            await self._start(self.control_words("exit"), b"", OPEN_SECONDS)

    async def invite(self) -> tuple[bool, list[str]]:
        """Whether the master is open, and if not the command that opens it on a terminal."""
        if await self._answers():
            return True, []
        make_folder(self._folder)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._socket)
        return False, self.login_words()

    def login_words(self) -> list[str]:
        """The command that opens the master on a terminal and may ask for passwords and codes."""
        options = ["-o", "ControlMaster=yes", "-o", "ControlPersist=yes", "-o", "BatchMode=no"]
        return [*self._ssh(batch=False), *options, "-fNT", "--", self._address.host]

    def control_words(self, request: str) -> list[str]:
        """The command that sends the master a request (ssh(1), -O): check, exit."""
        return [*self._ssh(), "-O", request, self._address.host]

    def terminal_words(self, command: str, terminal: bool, alone: bool = False) -> list[str]:
        """The ssh command that runs `command` on the user's terminal, over the master if it is open.

        `alone` makes a connection of its own, because a server limits the commands of one connection, and the daemon
        needs some of them.
        """
        options = ["-o", "ControlMaster=no", "-o", "LogLevel=ERROR", "-t" if terminal else "-T"]
        return [*self._ssh(batch=False, alone=alone), *options, "--", self._address.host, command]

    async def stream_words(self, command: str) -> list[str]:
        """The ssh command that runs `command` over the master, which is opened, with the caller's own streams.

        Raises Unreachable.
        """
        await self._opening.wait()
        return [*self._command_words(), command]

    def _command_words(self) -> list[str]:
        # ProxyCommand=false makes ssh fail if the master is gone: a new connection might need a one-time code.
        return [*self._ssh(), "-o", "ControlMaster=no", "-o", "ProxyCommand=false", "-T", "--", self._address.host]

    async def _ensure_master(self) -> None:
        if self._known_open and os.path.exists(self._socket):
            return
        self._known_open = False
        if await self._answers():
            self._known_open = True
            return
        self._attempts.check()
        await self._open()

    async def _answers(self) -> bool:
        ended = await self._start(self.control_words("check"), b"", OPEN_SECONDS)
        return ended.code == 0

    async def _open(self) -> None:
        """Open the master. Its stderr goes to a file, because the master keeps it open for as long as it lives."""
        make_folder(self._folder)
        with contextlib.suppress(FileNotFoundError):
            # A killed master leaves its socket, with which ssh would connect without sharing.
            os.unlink(self._socket)
        options = ["-o", "ControlMaster=yes", "-o", "ControlPersist=600", "-o", f"ConnectTimeout={CONNECT_SECONDS}"]
        words = [*self._ssh(), *options, "-fNT", "--", self._address.host]
        with tempfile.TemporaryFile() as said:
            code = await _wait_for(words, said.fileno())
            said.seek(0)
            text = said.read()
        if code == 0:
            self._known_open = self._opened = True
            self._attempts.succeed()
            return
        trouble = f"{self._address.host}: {_last_line(text) or 'ssh cannot connect'}"
        self._attempts.fail(trouble)
        raise Unreachable(trouble, remedy="`span login` opens the connection where a code or password is asked")

    def _ssh(self, batch: bool = True, alone: bool = False) -> list[str]:
        address = self._address
        words = ["ssh", *(["-F", address.config] if address.config else []), *address.options]
        alive = ALIVE_SECONDS if batch else LOGIN_SECONDS
        words += ["-o", f"ControlPath={'none' if alone else self._socket}"]
        words += ["-o", f"ServerAliveInterval={alive}", "-o", f"ServerAliveCountMax={ALIVE_TIMES}"]
        words += ["-o", "BatchMode=yes"] if batch else []
        words += ["-l", address.user] if address.user else []
        return words + (["-p", str(address.port)] if address.port else [])

    async def _start(self, words: list[str], stdin: bytes, timeout: float) -> Ended:
        try:
            return await feed_process(words, stdin, timeout)
        except OSError as error:
            raise Unreachable(
                f"ssh cannot be started: {error.strerror}", remedy="install the OpenSSH client"
            ) from error


async def _wait_for(words: list[str], stderr: int) -> int | None:
    """The exit code of a program that leaves a child running; None if it took too long."""
    null = asyncio.subprocess.DEVNULL
    try:
        process = await asyncio.create_subprocess_exec(
            *words, stdin=null, stdout=null, stderr=stderr, start_new_session=True
        )
    except OSError as error:
        raise Unreachable(f"ssh cannot be started: {error.strerror}", remedy="install the OpenSSH client") from error
    try:
        async with asyncio.timeout(OPEN_SECONDS):
            return await process.wait()
    except TimeoutError:
        return None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


def find_folder() -> str:
    """The folder of control sockets: a short path, on a local disk, the same for every process of the user."""
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    return f"{runtime}/overspan" if runtime else f"/tmp/overspan-{os.getuid()}"


def make_folder(folder: str) -> None:
    """Make the folder of control sockets, 0700. Raises Denied if another user owns it or may enter it."""
    os.makedirs(folder, 0o700, exist_ok=True)
    status = os.lstat(folder)
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o077:
        raise Denied(f"{folder} is not this user's own folder with mode 0700", remedy="remove it or mend its mode")


def socket_path(folder: str, cluster: str, address: Address) -> str:
    """The control socket of a cluster. The path is short: at most 107 bytes (unix(7)), and ssh appends 17 to it."""
    name = sha256("\0".join((cluster, address.host, address.user, str(address.port), address.config)).encode())
    return f"{folder}/{name.hexdigest()[:16]}"


def _last_line(data: bytes) -> str:
    lines = [line.strip() for line in data.decode("utf-8", "replace").splitlines() if line.strip()]
    return lines[-1].removeprefix("ssh: ") if lines else ""

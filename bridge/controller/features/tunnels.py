"""Tunnels: a port on the cluster by which jobs reach a daemon that takes no connection from there, as behind NAT.

The daemon's own connection to the cluster (ssh, kubectl's exec) carries them. The far end listens at the port of
`daemon_address` on the cluster's side. The near end is a process of this machine that connects to the daemon's port for
jobs. What they carry is TLS between the job and the daemon. A tunnel that breaks is opened again with back-off.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Mapping
from pathlib import Path

from overspan.adapters.abilities import Finding
from overspan.bridge.config.settings import ClusterSettings
from overspan.bridge.controller.core.clusters import Clusters
from overspan.bridge.lifecycle.retries import backoff_delay
from overspan.bridge.model.errors import OverspanError, Unreachable
from overspan.bridge.model.spec import Backoff
from overspan.bridge.runtime.reach import tunnel

log = logging.getLogger(__name__)

AGAIN = Backoff(first=1.0, factor=2.0, limit=60.0, jitter=0.2)
END_SECONDS = 5.0
"""How long a process of a tunnel may take to end by itself."""
_OPEN = b"open\n"
# One line without a quote that a login shell of any kind would read otherwise. Byte by byte: what follows the text is
# the tunnel's.
_LOADER = 'import os;exec(compile(b"".join(os.read(0,1) for _ in range({size})),"tunnel","exec"))'


class Tunnels:
    """The tunnels of the clusters that ask for one. `port` is the daemon's port for jobs; None where none listens."""

    def __init__(
        self, clusters: Clusters, settings: Mapping[str, ClusterSettings], port: int | None, *, shared: bool
    ) -> None:
        self._clusters = clusters
        self._addresses = {name: each.daemon_address for name, each in settings.items() if each.daemon_tunnel}
        self._target = port
        self._shared = shared
        self._troubles = dict.fromkeys(self._addresses, "it is not open yet")
        """Why a tunnel is not open; empty while it is."""
        self._keeping: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Open them, and keep them open."""
        for name in self._addresses:
            trouble = self._find_obstacle(name)
            if trouble:
                log.error("cluster %s: no tunnel for jobs: %s", name, trouble, extra={"cluster": name})
                self._troubles[name] = trouble
            else:
                self._keeping.append(asyncio.ensure_future(self._keep(name)))

    async def close(self) -> None:
        """End them; jobs do not reach the daemon until the next one opens them again."""
        for task in self._keeping:
            task.cancel()
        await asyncio.gather(*self._keeping, return_exceptions=True)

    def check(self, name: str) -> list[Finding]:
        """What to tell of the cluster's tunnel; nothing where none is asked for."""
        if name not in self._addresses:
            return []
        trouble = self._troubles[name]
        seen = trouble or f"{self._addresses[name]} leads to this daemon"
        remedy = "the daemon opens it again by itself; look into daemon.log" if trouble else ""
        return [Finding("tunnel for jobs", not trouble, seen, remedy)]

    def _find_obstacle(self, name: str) -> str:
        if self._shared:
            return "a shared daemon has no connection of its own to a cluster; give jobs its address"
        if self._target is None:
            return "the daemon's port for jobs is not open"
        try:
            open_there = self._clusters.get(name).open().traits.remote_python
        except OverspanError as error:
            return error.line
        return "" if open_there else "the cluster has no connection that could carry it, as `transport: ssh` is"

    async def _keep(self, name: str) -> None:
        failures = 0
        while True:
            opened = False
            try:
                opened, why = await self._hold(name)
            except OverspanError as error:
                why = error.line
            except OSError as error:
                why = f"it cannot be started: {error.strerror or error}"
            except Exception:
                # The loop must go on: jobs that run know no other way.
                log.exception("cluster %s: the tunnel for jobs", name, extra={"cluster": name})
                why = "it was not opened; look into daemon.log"
            failures = 1 if opened else failures + 1
            if why != self._troubles[name]:
                log.warning("cluster %s: the tunnel for jobs: %s", name, why, extra={"cluster": name})
            self._troubles[name] = why
            await asyncio.sleep(backoff_delay(AGAIN, failures - 1, f"{name}.{failures}"))

    async def _hold(self, name: str) -> tuple[bool, str]:
        """Open a tunnel and wait for its end: whether it was open, and why it ended. Raises Unreachable, OSError."""
        remote_python = self._clusters.get(name).open().traits.remote_python
        if remote_python is None:
            raise Unreachable("the cluster has no tunnel any more")
        text = Path(tunnel.__file__).read_bytes()
        loader = _LOADER.format(size=len(text))
        address = self._addresses[name]
        words = await remote_python(("-c", loader, "listen", address.rpartition(":")[2]), address)
        async with contextlib.AsyncExitStack() as undo:
            out, back, owned = pipes = (_TunnelPipe(), _TunnelPipe(), _TunnelPipe())
            for pipe in pipes:
                undo.callback(pipe.close)
            far = await asyncio.create_subprocess_exec(
                *words, stdin=out.read, stdout=back.write, stderr=PIPE, start_new_session=True
            )
            undo.push_async_callback(_end, far)
            # It fits into an empty pipe, and comes before all frames.
            os.write(out.write, text)
            connect = (tunnel.__file__, "connect", str(self._target), str(owned.read))
            near = await asyncio.create_subprocess_exec(
                sys.executable, "-I", *connect,
                stdin=back.read, stdout=out.write, stderr=PIPE, pass_fds=(owned.read,), start_new_session=True,
            )  # fmt: skip
            undo.push_async_callback(_end, near)
            out.close()
            back.close()
            return await self._follow(name, far, near)

    async def _follow(self, name: str, far: Process, near: Process) -> tuple[bool, str]:
        assert near.stderr is not None and far.stderr is not None
        # Both are read to their ends: a full pipe would hold a process up.
        said = asyncio.ensure_future(far.stderr.read())
        opened, why = False, ""
        try:
            async for line in near.stderr:
                if line == _OPEN:
                    opened = True
                    self._troubles[name] = ""
                    log.info("cluster %s: jobs reach the daemon by a tunnel", name, extra={"cluster": name})
                else:
                    why = line.decode("utf-8", "replace").strip()
            async with asyncio.timeout(END_SECONDS):
                told = [line for line in (await said).decode("utf-8", "replace").splitlines() if _tells(line)]
        except TimeoutError:
            told = []
        finally:
            said.cancel()
        return opened, (told[-1] if told else "") or why or "it has ended"


def _tells(line: str) -> bool:
    """Whether a line says more than kubectl's own last one."""
    return bool(line.strip()) and not line.startswith("command terminated with exit code")


class _TunnelPipe:
    """A pipe whose ends are closed once."""

    def __init__(self) -> None:
        self.read, self.write = os.pipe()
        self._open = True

    def close(self) -> None:
        """Close both ends here; processes that have them keep them."""
        if self._open:
            self._open = False
            os.close(self.read)
            os.close(self.write)


async def _end(process: Process) -> None:
    """Kill a process that is not over, and wait for it."""
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
    await process.wait()

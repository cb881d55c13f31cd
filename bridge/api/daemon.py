"""The daemon's process: folders, lease, store, controller, socket; in this order, and back.

Started by the client on first use, or by hand with `span daemon`. Heavy modules are imported once the lease is held, so
that a second daemon says so at once.
"""

from __future__ import annotations

import argparse
import asyncio
import ctypes
import gc
import logging
import os
import signal
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from overspan.adapters.installed import check_kind, has_volumes
from overspan.bridge.api.log_records import FORMATTERS, TEXT, start_records
from overspan.bridge.config.command_wrappers import ensure_wrappers
from overspan.bridge.config.disk_space import find_shortage, is_full, keep_reserve, release_reserve
from overspan.bridge.config.paths import (
    Paths,
    find_paths,
    find_shared_paths,
    list_missing,
    make_folders,
    make_shared_folders,
)
from overspan.bridge.config.settings import Kinds, Settings, load_settings
from overspan.bridge.model.errors import Conflict, Denied, ExitCode, OverspanError, StoreFailed
from overspan.bridge.store.lease import (
    BEAT,
    STALE,
    Lease,
    holds,
    identify,
    read_lease,
    release_lease,
    renew_lease,
    take_lease,
)

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from overspan.bridge.api.job_listener import JobPort, JobServer
    from overspan.bridge.api.server import UnixServer
    from overspan.bridge.controller.controller import Controller
    from overspan.bridge.store.store import Store

log = logging.getLogger(__name__)

# Of mallopt(3).
_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8
CLOCK_SECONDS = 2.0
"""Seconds between two looks whether the machine's clock was set; until then no part of the daemon sees it."""
_SPARE = 128 << 10
"""Bytes at the heap's end that are kept, and from which on a block is a mapping of its own: glibc's first values."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the daemon until it is told to end; the exit code. What is wrong is one line on stderr."""
    parser = argparse.ArgumentParser(prog="span daemon", description="Run the daemon.")
    parser.add_argument("--foreground", action="store_true", help="also write messages to stderr")
    parser.add_argument("--log-format", choices=sorted(FORMATTERS), default=TEXT, help="of the messages on stderr")
    parser.add_argument("--shared", action="store_true", help="serve all users of this machine; for root")
    options = parser.parse_args(arguments)
    foreground = options.log_format if options.foreground else ""
    try:
        if not options.foreground:
            # The folder it was started in may go away, or be one that should be unmounted.
            os.chdir("/")
        if options.shared:
            run_shared_daemon(find_shared_paths(os.environ), foreground)
        else:
            run_daemon(find_paths(os.environ), foreground)
    except OverspanError as error:
        if logging.getLogger().handlers:
            log.error("%s", error)
        print(f"span: error: {error.line}", file=sys.stderr)
        return ExitCode.FAILED
    except KeyboardInterrupt:
        return ExitCode.INTERRUPTED
    return ExitCode.OK


def run_daemon(paths: Paths, foreground: str = "") -> None:
    """Be the daemon of that state folder, with messages on stderr in the format `foreground`, if any.

    Raises OverspanError when it cannot start, Conflict when there is one.
    """
    os.umask(0o077)
    make_folders(paths)
    _run(paths, foreground, shared=False)


def run_shared_daemon(paths: Paths, foreground: str = "") -> None:
    """Be the daemon of all users of this machine. Raises as run_daemon does, and Denied for who is not root."""
    os.umask(0o077)
    if os.geteuid() != 0:
        raise Denied(
            "a shared daemon does each user's work in that user's name, which only root can",
            remedy="let a service of root's start it; `span daemon` alone is your own daemon",
        )
    # Processes that are started in a user's name inherit this directory; none may start in another user's folder.
    os.chdir("/")
    make_shared_folders(paths)
    _run(paths, foreground, shared=True)


def _run(paths: Paths, foreground: str, shared: bool) -> None:
    _share_arena()
    settings = load_settings(paths.config, paths.site_config, Kinds(check_kind, has_volumes))
    place = _Deployment(paths, settings, shared)
    try:
        _run_with_lease(place, foreground)
    except (StoreFailed, OSError) as error:
        shortage = find_shortage(paths.state) if isinstance(error, StoreFailed) or is_full(error) else None
        if shortage is None:
            raise
        raise shortage from error


def _run_with_lease(place: _Deployment, foreground: str) -> None:
    paths = place.paths
    lease_path = os.path.join(paths.state, "daemon.lease")
    before, me = read_lease(lease_path), identify(paths.socket)
    # Where another daemon runs, this one does not start.
    reserve_used = not holds(before, me, time.time()) and release_reserve(paths.state)
    lease = take_lease(lease_path, me, time.time())
    # What is made before the daemon listens lives as long as the process, all but a little.
    gc.disable()
    try:
        start_records(paths.log, foreground)
        log.info("%s", _word_lease(lease, before))
        for name, path in list_missing(os.environ, paths):
            log.warning("%s names %s, which is not there: it says nothing", name, path)
        if reserve_used:
            log.warning("the disk of the state folder is full: the daemon starts from its reserve; make room there")
        from overspan.bridge.store.store import Store

        store = Store.open(os.path.join(paths.state, "overspan.db"))
        try:
            asyncio.run(_serve(place, store, (lease_path, lease)))
        finally:
            store.close()
    finally:
        gc.enable()
        _give_back(lease_path, lease)
    log.info("the daemon has ended; jobs go on")


def _give_back(path: str, lease: Lease) -> None:
    """Release the lease. Where it cannot be written, the end of this process frees it on this host."""
    try:
        release_lease(path, lease, time.time())
    except OverspanError as error:
        log.warning("the lease cannot be given back, other hosts wait %.0f s for it: %s", STALE, error.line)


@dataclass(frozen=True)
class _Deployment:
    """Where the daemon is, its settings, and whether all users share it."""

    paths: Paths
    settings: Settings
    shared: bool


async def _serve(place: _Deployment, store: Store, held: tuple[str, Lease]) -> None:
    from overspan.bridge.api.app import build_app
    from overspan.bridge.api.authorization import Authenticator, JobAuthenticator, PeerAuthenticator
    from overspan.bridge.api.server import UnixServer, bind_socket, remove_socket
    from overspan.bridge.controller.controller import Controller, ControllerParts
    from overspan.bridge.controller.core.clock import DaemonClock
    from overspan.bridge.controller.core.timers import LoopTimers
    from overspan.bridge.controller.submission.parsing import read

    paths, settings, shared = place.paths, place.settings, place.shared
    job_port = _open_job_port(settings, paths.state)
    environment = {"SPAN_SERVER": paths.socket} if shared else _work_environment(paths, os.environ)
    clock = DaemonClock()
    timers = LoopTimers(clock)
    parts = ControllerParts(
        store, settings, paths.state, timers, clock, read,
        environment=environment, access=job_port.access if job_port else None, personal=shared,
        take_jump=clock.take_jump,
    )  # fmt: skip
    authenticator = PeerAuthenticator(settings.server.operators) if shared else Authenticator()
    controller = await Controller.open(parts)
    try:

        def stop() -> None:
            # First the streams and long polls, which would keep the server.
            controller.end_waits()
            server.stop()
            if jobs is not None:
                jobs.stop()

        if job_port is not None:
            authenticator = JobAuthenticator(authenticator, job_port.access, controller)
        app = build_app(controller, stop, authenticator)
        server = UnixServer(app)
        jobs = _make_job_server(app, job_port)
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop)
        listener = bind_socket(paths.socket, 0o666 if shared else 0o600)
        inode = os.lstat(paths.socket).st_ino
        beating = asyncio.ensure_future(_beat(*held, server))
        watching = asyncio.ensure_future(_watch_clock(controller))
        try:
            _freeze()
            log.info("listening on %s, pid %d", paths.socket, os.getpid())
            await _serve_all(server, listener, jobs, job_port)
        finally:
            remove_socket(paths.socket, inode)
            beating.cancel()
            watching.cancel()
    finally:
        await controller.close()


def _open_job_port(settings: Settings, folder: str) -> JobPort | None:
    """The port for jobs; None where no cluster has `daemon_address`, and then its modules are not imported."""
    if not any(cluster.daemon_address for cluster in settings.clusters.values()):
        return None
    from overspan.bridge.api.job_listener import open_job_port

    return open_job_port(settings, folder)


def _make_job_server(app: ASGIApp, port: JobPort | None) -> JobServer | None:
    if port is None:
        return None
    from overspan.bridge.api.job_listener import JobServer

    return JobServer(app, port)


async def _serve_all(server: UnixServer, listener: socket.socket, jobs: JobServer | None, port: JobPort | None) -> None:
    """Serve commands, and jobs where there is a port for them, until both are stopped."""
    serving = [server.serve([listener])]
    if jobs is not None and port is not None:
        serving.append(jobs.serve([port.listener]))
    await asyncio.gather(*serving)


def _work_environment(paths: Paths, own: Mapping[str, str]) -> dict[str, str]:
    """What the work is given so that `span`, and Slurm's commands under their own names, reach this daemon."""
    variables = {name: own[name] for name in ("SPAN_RUNTIME_DIR", "SPAN_CONFIG", "SPAN_SITE_CONFIG") if name in own}
    variables["SPAN_STATE_DIR"] = paths.state
    try:
        variables["OVERSPAN_SHIMS"] = ensure_wrappers(paths.state)
    except (OSError, OverspanError) as error:
        log.warning("jobs do not have Slurm's commands on PATH: %s", error)
    return variables


async def _beat(path: str, lease: Lease, server: UnixServer) -> None:
    """Keep the lease, and the reserve for a start on a full disk; end when another daemon has the lease."""
    while True:
        await asyncio.to_thread(keep_reserve, os.path.dirname(path))
        await asyncio.sleep(BEAT)
        try:
            lease = await asyncio.to_thread(renew_lease, path, lease, time.time())
        except Conflict as error:
            log.error("the lease is lost: %s", error)
            server.stop()
            return
        except OverspanError as error:
            log.warning("the lease cannot be renewed: %s", error)


def _word_lease(lease: Lease, before: Lease | None) -> str:
    """Whose place this daemon has taken."""
    text = f"lease {lease.number} is taken by pid {lease.holder.pid} on {lease.holder.host}"
    if before is None:
        return text
    how = "gave back" if before.released else "never gave back, and holds no more,"
    return f"{text}; pid {before.holder.pid} on {before.holder.host} {how} lease {before.number}"


async def _watch_clock(controller: Controller) -> None:
    """See whether the machine's clock was set."""
    while True:
        await asyncio.sleep(CLOCK_SECONDS)
        try:
            await controller.apply_clock_jump()
        except Exception:
            log.exception("looking at the machine's clock")


def _share_arena() -> None:
    """Have all threads share one heap, and give what is free at its end back to the system.

    glibc gives threads heaps of their own, each as large as its busiest moment. Other C libraries have no such setting.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return
    mallopt(_ARENA_MAX, 1)
    mallopt(_TRIM_THRESHOLD, _SPARE)
    mallopt(_MMAP_THRESHOLD, _SPARE)


def _freeze() -> None:
    """Spare the collector what lives as long as the process: modules, and the jobs that were loaded.

    They are not collected before: that would take as long as loading them, for the little that is rubbish.
    """
    gc.freeze()
    gc.enable()

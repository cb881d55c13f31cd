"""A Docker engine for the rigs: the one that runs, else one that is started here and stopped again."""

from __future__ import annotations

import contextlib
import importlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

START_SECONDS = 240
STOP_SECONDS = 120
TIMEOUT = 600


class RigMissing(Exception):
    """This machine cannot run a rig; the text says why and what to do."""


def word_silence(rules: str) -> str:
    """Why containers get no packets from each other, from what `iptables -S FORWARD` prints, and a way out.

    Packets of a bridge go through that chain where net.bridge.bridge-nf-call-iptables is 1, and an engine that is
    started here sets no rules. A machine whose own Docker network was ever up has the policy DROP.
    """
    if "-P FORWARD DROP" in rules.splitlines():
        cause = "the FORWARD chain of iptables has the policy DROP"
        return f"{cause}: `iptables -P FORWARD ACCEPT`, or start Docker's own engine, which has rules for its networks"
    return "look at the firewall's rules for bridges (`iptables -S FORWARD`, `nft list ruleset`)"


def list_forward_rules() -> str:
    """The rules for packets that are passed on; empty where they cannot be read."""
    try:
        done = subprocess.run(["iptables", "-S", "FORWARD"], capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout


def is_required(rig: str) -> bool:
    """Whether OVERSPAN_REQUIRE_RIGS, a list separated by commas, names a rig: `slurm`, `kube`."""
    return rig in os.environ.get("OVERSPAN_REQUIRE_RIGS", "").split(",")


@contextlib.contextmanager
def open_engine() -> Iterator[Any]:
    """Give a `docker.DockerClient`; an engine that had to be started ends with the context, and its files go.

    Raises RigMissing where there is no engine and none can be started.
    """
    try:
        docker: Any = importlib.import_module("docker")
    except ImportError as error:
        raise RigMissing("the Python package docker is not installed (pip install docker)") from error
    running = _running_engine(docker)
    if running is not None:
        try:
            yield running
        finally:
            running.close()
        return
    with _own_engine(docker) as started:
        yield started


def _running_engine(docker: Any) -> Any | None:
    host = os.environ.get("DOCKER_HOST") or "unix:///var/run/docker.sock"
    if host.startswith("unix://"):
        return docker.from_env(timeout=TIMEOUT) if _answers(host.removeprefix("unix://")) else None
    with contextlib.suppress(docker.errors.DockerException):
        return docker.from_env(timeout=TIMEOUT)
    return None


def _answers(path: str) -> bool:
    """Whether an engine answers at a unix socket; a client that finds none would leave its own socket open."""
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(10)
        connection.connect(path)
        connection.sendall(b"GET /_ping HTTP/1.0\r\n\r\n")
        return b" 200 " in connection.recv(64)
    return False


@contextlib.contextmanager
def _own_engine(docker: Any) -> Iterator[Any]:
    if os.geteuid() != 0:
        raise RigMissing("no Docker engine runs, and only root can start one")
    if shutil.which("dockerd") is None:
        raise RigMissing("no Docker engine runs and there is no dockerd (Debian: docker.io)")
    folder = Path(tempfile.mkdtemp(prefix="span-engine-"))
    process = None
    try:
        process = _start(folder)
        _await_engine(process, folder)
        client = docker.DockerClient(base_url=f"unix://{folder}/docker.sock", timeout=TIMEOUT)
        try:
            yield client
        finally:
            client.close()
    finally:
        if process is not None:
            _stop(process)
        _remove(folder)


def _start(folder: Path) -> subprocess.Popen[bytes]:
    # No default bridge, firewall rules or forwarding: nothing of the machine's own network is changed.
    command = ["dockerd", "--data-root", f"{folder}/data", "--exec-root", f"{folder}/exec", "--bridge", "none"]
    command += [
        "--host",
        f"unix://{folder}/docker.sock",
        "--pidfile",
        f"{folder}/pid",
        "--config-file",
        f"{folder}/none",
    ]
    command += ["--iptables=false", "--ip6tables=false", "--ip-forward=false", "--ip-masq=false"]
    (folder / "none").write_text("{}")
    with open(folder / "log", "wb") as log:
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)


def _await_engine(process: subprocess.Popen[bytes], folder: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while not _answers(f"{folder}/docker.sock"):
        if process.poll() is not None or time.monotonic() > deadline:
            last = (folder / "log").read_text(errors="replace").strip().splitlines()[-1:]
            raise RigMissing(f"dockerd does not start here: {' '.join(last)}")
        time.sleep(0.1)


def _stop(process: subprocess.Popen[bytes]) -> None:
    """End dockerd, and containerd with it: dockerd ends its own children when asked to."""
    process.terminate()
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _remove(folder: Path) -> None:
    deadline = time.monotonic() + STOP_SECONDS
    while folder.exists():
        mounts = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()]
        for mount in sorted((name for name in mounts if name.startswith(f"{folder}/")), reverse=True):
            subprocess.run(["umount", "--lazy", mount], check=False)
        try:
            shutil.rmtree(folder)
        except OSError:
            # What is still being ended may write there until it is gone.
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)

"""A real Slurm in containers: one controller with accounting, and nodes with addresses of their own."""

from __future__ import annotations

import contextlib
import fcntl
import importlib
import io
import json
import os
import secrets
import tarfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from tests.rigs.engine import RigMissing, list_forward_rules, open_engine, word_silence
from tests.rigs.images import ensure_image

CONTEXT = Path(__file__).parents[2] / "containers" / "slurm-test"
READY_SECONDS = 240
SILENT = 7
# Nothing listens at that port: whoever gets packets is refused at once.
PROBE = f"""\
import socket, sys
try:
    socket.create_connection((sys.argv[1], 1), 10).close()
except ConnectionRefusedError:
    pass
except OSError:
    sys.exit({SILENT})
"""
# Runs one request inside a container; the SDK's own exec has no end of input.
RUNNER = """\
import base64, json, os, pwd, subprocess, sys
request = json.load(open(sys.argv[1]))
os.unlink(sys.argv[1])
account = pwd.getpwnam(request["user"])
base = {"PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", "LANG": "C.UTF-8",
        "HOME": account.pw_dir, "USER": account.pw_name, "LOGNAME": account.pw_name, "SHELL": account.pw_shell}
done = subprocess.run(request["argv"], input=base64.b64decode(request["stdin"]), capture_output=True,
    cwd=request["cwd"] or account.pw_dir, env={**base, **request["env"]},
    user=account.pw_uid, group=account.pw_gid, extra_groups=[])
json.dump([done.returncode, *(base64.b64encode(text).decode() for text in (done.stdout, done.stderr))], sys.stdout)
"""


@dataclass(frozen=True)
class Variant:
    """One kind of site, as data.

    `lines` replaces lines of slurm.conf: from how a line begins to the whole new line, which is added where there is
    none; an empty one removes it. `files` are written as they are; what begins with `#!` may be executed. `nodes` is
    how many nodes run; `closed` names those with the engine's own seccomp profile, which forbids user namespaces.
    `fuse` names those with a /dev/fuse that all may open, if this machine has one.
    Without `shared_home` each machine has homes of its own. `memory` is a folder of this machine's memory controller
    (cgroup v1), which nodes have as theirs.
    """

    name: str = "default"
    lines: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    nodes: int = 3
    closed: frozenset[str] = frozenset({"node3"})
    fuse: frozenset[str] = frozenset({"node1"})
    shared_home: bool = True
    memory: str = ""


class Done(NamedTuple):
    """What one command in the rig left."""

    rc: int
    stdout: str
    stderr: str


def render_lines(text: str, changes: Mapping[str, str]) -> str:
    """slurm.conf with the changed lines of a variant."""
    lines = text.splitlines()
    for begin, line in changes.items():
        found = [index for index, old in enumerate(lines) if old.lower().startswith(begin.lower())]
        place, length = (found[0], 1) if found else (len(lines), 0)
        lines[place : place + length] = [line] if line else []
    return "\n".join(lines) + "\n"


def render_nodes(text: str, nodes: int) -> str:
    """slurm.conf without the nodes that do not run: a controller that starts waits for the address of each, in turn."""
    for last in range(nodes + 1, 4):
        text = text.replace(f"node[1-{last}]", f"node[1-{nodes}]" if nodes > 1 else "node1")
    return text


class SlurmRig:
    """A running cluster; `run` is how tests reach it. `home` is where this machine has the containers' /home."""

    def __init__(self, client: Any, containers: Mapping[str, Any], variant: Variant, home: str = "") -> None:
        self.client = client
        self.home = home
        self.containers = containers
        self.variant = variant

    def run(
        self,
        argv: Sequence[str],
        stdin: str | bytes = b"",
        env: Mapping[str, str] | None = None,
        cwd: str = "",
        user: str = "researcher",
        on: str = "ctl",
    ) -> Done:
        """Run a command as a user on one machine of the rig and wait for it."""
        base64: Any = importlib.import_module("base64")
        text = stdin.encode() if isinstance(stdin, str) else stdin
        request = {"argv": list(argv), "stdin": base64.b64encode(text).decode(), "env": dict(env or {})}
        name = f"request-{secrets.token_hex(6)}.json"
        self.put(f"/run/{name}", json.dumps({**request, "cwd": cwd, "user": user}), on=on)
        code, (out, err) = self.containers[on].exec_run(["python3", "/run/runner.py", f"/run/{name}"], demux=True)
        if code != 0:
            raise AssertionError(f"{on}: {argv[0]}: {(err or b'').decode(errors='replace').strip()}")
        rc, *streams = json.loads(out)
        stdout, stderr = (base64.b64decode(stream).decode(errors="replace") for stream in streams)
        return Done(rc, stdout, stderr)

    def put(self, path: str, text: str, on: str = "ctl") -> None:
        """Write a file, owned by root."""
        _put(self.containers[on], path, text)

    def log(self, on: str = "ctl") -> str:
        """What the daemons of one machine have said."""
        logs: bytes = self.containers[on].logs()
        return logs.decode(errors="replace") + self.run(["sh", "-c", "cat /var/log/slurm/*"], user="root", on=on).stdout


@contextlib.contextmanager
def open_rig(variant: Variant | None = None) -> Iterator[SlurmRig]:
    """Bring a cluster up and take everything of it down again. Raises RigMissing where it cannot run."""
    variant = variant or Variant()
    with open_engine() as client, contextlib.ExitStack() as undo:
        tag, brought = ensure_image(client, CONTEXT, "slurm-test")
        if brought:
            undo.callback(client.images.remove, tag)
        token = f"span-{secrets.token_hex(4)}"
        network = _create_network(client, f"{token}-net")
        undo.callback(network.remove)
        volume = client.volumes.create(f"{token}-home")
        undo.callback(volume.remove, force=True)
        containers = {}
        for name in ("ctl", *(f"node{index + 1}" for index in range(variant.nodes))):
            containers[name] = _create(client, tag, token, name, variant)
            undo.callback(containers[name].remove, force=True, v=True)
        for container in containers.values():
            container.start()
        rig = SlurmRig(client, containers, variant, str(volume.attrs["Mountpoint"]))
        check_packets(containers["node1"], list_forward_rules)
        _await_ready(rig)
        yield rig


def _create_network(client: Any, name: str) -> Any:
    """A network of the rig's own. Engines that choose a subnet at the same moment would choose the same one."""
    with open(CONTEXT / "slurm.conf", "rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return client.networks.create(name, driver="bridge", internal=True)


def _create(client: Any, tag: str, token: str, name: str, variant: Variant) -> Any:
    docker: Any = importlib.import_module("docker")
    network = f"{token}-net"
    volumes = {f"{token}-home": {"bind": "/home", "mode": "rw"}} if variant.shared_home else {}
    if variant.memory and name != "ctl":
        volumes[variant.memory] = {"bind": "/sys/fs/cgroup/memory", "mode": "rw"}
    devices = ["/dev/fuse:/dev/fuse:rwm"] if name in variant.fuse and os.path.exists("/dev/fuse") else []
    open_profile = [] if name in variant.closed else ["seccomp=unconfined"]
    container = client.containers.create(
        tag,
        "controller" if name == "ctl" else "node",
        name=f"{token}-{name}",
        hostname=name,
        security_opt=open_profile,
        devices=devices,
        network=network,
        networking_config={network: docker.types.EndpointConfig(client.api._version, aliases=[name])},
        volumes=volumes,
        # Names that nobody here has are answered at once: the network leads nowhere.
        dns=["127.0.0.1"],
        dns_opt=["timeout:1", "attempts:1"],
    )
    conf = render_nodes((CONTEXT / "slurm.conf").read_text(), variant.nodes)
    _put(container, "/etc/slurm/slurm.conf", render_lines(conf, variant.lines))
    for path, text in variant.files.items():
        _put(container, path, text)
    _put(container, "/run/runner.py", RUNNER)
    return container


def _put(container: Any, path: str, text: str) -> None:
    data = text.encode()
    entry = tarfile.TarInfo(path.rpartition("/")[2])
    entry.size, entry.mtime = len(data), int(time.time())
    entry.mode = 0o755 if text.startswith("#!") else 0o644
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        archive.addfile(entry, io.BytesIO(data))
    container.put_archive(path.rpartition("/")[0] or "/", packed.getvalue())


def check_packets(node: Any, list_rules: Callable[[], str]) -> None:
    """Raise RigMissing where a node gets no answer from the controller's machine: a refusal is one."""
    code, _ = node.exec_run(["python3", "-c", PROBE, "ctl"])
    if code == SILENT:
        raise RigMissing(f"the rig's containers get no packets from each other: {word_silence(list_rules())}")


def _await_ready(rig: SlurmRig) -> None:
    deadline = time.monotonic() + READY_SECONDS
    while time.monotonic() < deadline:
        for name, container in rig.containers.items():
            container.reload()
            if container.status == "exited":
                raise RigMissing(f"{name} of the Slurm rig ended: {container.logs(tail=5).decode(errors='replace')}")
        code, out = rig.containers["ctl"].exec_run(["sinfo", "-h", "-N", "-o", "%N %T"])
        if code == 0 and len({line for line in out.splitlines() if line.endswith(b" idle")}) == rig.variant.nodes:
            return
        time.sleep(0.1)
    raise RigMissing(f"the Slurm rig is not ready within {READY_SECONDS} s: {rig.log()[-2000:]}")

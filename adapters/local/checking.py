"""The probes of `span check` on this machine. Each finding has a remedy."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
from dataclasses import dataclass

from overspan.adapters.abilities import Finding
from overspan.adapters.local.queue.capacity import Capacity, list_gpus, measure_capacity
from overspan.adapters.local.settings import Settings
from overspan.bridge.model.resources import MILLI
from overspan.bridge.model.sizes import format_memory
from overspan.bridge.runtime.zip_application import build_archive

_TIMEOUT = 20
_OLDEST = (3, 9)
_MIN_FREE_MIB = 512
_NETWORK = ("nfs", "nfs4", "cifs", "smb3", "lustre", "gpfs", "beegfs", "fuse.sshfs", "9p", "ceph")
# Run by the supervisor's own interpreter, from its own archive.
_PROBE = """
import json, sys
sys.path.insert(0, sys.argv[1])
from overspan.bridge.runtime.core.isolation import probe
from overspan.bridge.runtime.core.storage_mounts import probe_mounts
mounts = probe_mounts("/tmp")
print(json.dumps({"version": list(sys.version_info[:3]), "probe": list(probe()), "mounts": mounts}))
"""


@dataclass(frozen=True)
class _Answer:
    """The answer of the supervisor's interpreter; `error` is set if it did not run."""

    version: tuple[int, ...] = ()
    method: str = ""
    reason: str = ""
    library: str = ""
    mounts: str = ""
    """Why no folder can be mounted; empty where one can."""
    error: str = ""


def check_machine(root: str, settings: Settings) -> list[Finding]:
    """Probe everything that jobs need here. Blocks for some seconds."""
    findings = [*_check_folder(root)]
    answer = _ask_python(root, settings.python)
    findings += [_check_python(settings, answer), *_check_names(settings, answer), _check_loopback()]
    findings += _check_mounts(answer) if settings.data_fuse else []
    findings += [*_check_capacity(measure_capacity(settings, root), settings), _check_cgroup()]
    return findings


def _check_folder(root: str) -> list[Finding]:
    try:
        os.makedirs(root, 0o700, exist_ok=True)
        probe = f"{root}/check.{os.getpid()}"
        with open(os.open(probe, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="ascii") as file:
            file.write("x" * 4096)
            file.flush()
            os.fsync(file.fileno())
        os.unlink(probe)
    except OSError as error:
        remedy = "free space, mend its rights, or set SPAN_STATE_DIR to another folder"
        return [Finding("state folder", False, f"{root}: {error.strerror}", remedy)]
    kind = find_file_system(root, _read("/proc/self/mounts"))
    free = shutil.disk_usage(root).free >> 20
    network = kind in _NETWORK
    remedy = "works, but each write is slow; set SPAN_STATE_DIR to a local disk" if network else ""
    return [
        Finding("state folder", True, f"{root} on {kind or 'an unknown file system'}", remedy),
        Finding(
            "free disk",
            free >= _MIN_FREE_MIB,
            f"{format_memory(free)} free",
            "" if free >= _MIN_FREE_MIB else "free space: a full disk refuses jobs and keeps their results waiting",
        ),
    ]


def find_file_system(path: str, mounts: str) -> str:
    """The type of the file system of a path, by /proc/self/mounts (proc(5)); '' if it is not listed."""
    found, best = "", -1
    real = os.path.realpath(path)
    for line in mounts.splitlines():
        fields = line.split()
        if len(fields) < 3:
            continue
        point = fields[1].encode().decode("unicode_escape")
        inside = real == point or real.startswith(point.rstrip("/") + "/")
        # Of several mounts on one point, the last one hides the others.
        if inside and len(point) >= best:
            found, best = fields[2], len(point)
    return found


def _ask_python(root: str, python: str) -> _Answer:
    try:
        archive = build_archive(f"{root}/cache")
        done = subprocess.run(
            [python, "-I", "-S", "-c", _PROBE, archive], capture_output=True, text=True, timeout=_TIMEOUT, check=False
        )
        answer = json.loads(done.stdout) if done.returncode == 0 else None
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        return _Answer(error=str(error))
    if answer is None:
        lines = done.stderr.strip().splitlines()
        return _Answer(error=lines[-1] if lines else f"exit code {done.returncode}")
    method, reason, library = answer["probe"]
    return _Answer(tuple(answer["version"]), method, reason, library, answer["mounts"])


def _check_python(settings: Settings, answer: _Answer) -> Finding:
    version = ".".join(map(str, answer.version))
    works = answer.version >= _OLDEST
    seen = f"{settings.python}: {answer.error or version}"
    return Finding("supervisor's python", works, seen, "" if works else "set `python` to a Python 3.9 or newer")


def _check_names(settings: Settings, answer: _Answer) -> list[Finding]:
    if not answer.method:
        return []
    forced = settings.names != "auto" and settings.names != answer.method
    method = settings.names if forced else answer.method
    named = {
        "namespace": "every program finds members by name",
        "nss_wrapper": "programs that use the C library find members by name; static ones do not",
        "env": "no names: members find each other by the addresses in OVERSPAN_*_ADDRS",
    }[method]
    remedy = "" if method == "namespace" else "allow user namespaces, or install nss_wrapper (libnss-wrapper)"
    spaces = answer.method == "namespace"
    wrapper = answer.library or ("not needed" if spaces else "not installed")
    return [
        Finding("names", method != "env", f"{method}: {named}", "set `names` to auto" if forced else remedy),
        Finding(
            "user namespaces",
            spaces,
            "work" if spaces else answer.reason,
            "" if spaces else "ask for user.max_user_namespaces and kernel.unprivileged_userns_clone to be set",
        ),
        Finding("nss_wrapper", spaces or bool(answer.library), wrapper),
    ]


def _check_mounts(answer: _Answer) -> list[Finding]:
    """Show whether MOUNT reads through the store; it works in any case, by a copy where it does not."""
    if not answer.method:
        return []
    if not answer.mounts:
        return [Finding("MOUNT", True, "buckets are read through the store")]
    remedy = "to read large ones without a copy, make /dev/fuse 0666 and allow user namespaces"
    return [Finding("MOUNT", True, f"buckets are copied before the start: {answer.mounts}", remedy)]


def _check_loopback() -> Finding:
    """Try two listeners on one port, each on its own address, as two nodes of a task have."""
    try:
        with socket.create_server(("127.201.3.4", 0)) as first:
            port = first.getsockname()[1]
            with socket.create_server(("127.201.3.5", port)), socket.create_connection(("127.201.3.4", port), 2):
                pass
    except OSError as error:
        return Finding("loopback addresses", False, str(error), "bring the interface lo up with 127.0.0.1/8")
    seen = "each node has its own; a program must bind its node's name, since 0.0.0.0 takes the port for all"
    return Finding("loopback addresses", True, seen)


def _check_capacity(capacity: Capacity, settings: Settings) -> list[Finding]:
    known = capacity.cpu_milli > 0 and capacity.memory_mib > 0
    seen = f"{capacity.cpu_milli / MILLI:g} CPUs, {format_memory(capacity.memory_mib)} memory"
    gpus = ", ".join(sorted({f"{capacity.gpus.count(kind)} {kind or 'of any kind'}" for kind in capacity.gpus}))
    remedy = "" if gpus else "if there are some, set `gpus`, such as A100:8"
    found = Finding("GPUs", True, gpus or "none", remedy)
    if settings.gpus is None and list_gpus() is None:
        words, restart = f"counted as when it last answered: {gpus or 'none'}", " and start the daemon again"
        if not capacity.gpus_known:
            words, restart = "it has never told any; jobs with GPUs wait, and it is asked each minute", ""
        remedy = f"mend the driver{restart}, or set `gpus`, such as A100:8"
        found = Finding("GPUs", False, f"nvidia-smi fails or hangs; {words}", remedy)
    return [Finding("CPUs and memory", known, seen, "" if known else "set `cpus` and `memory`"), found]


def _check_cgroup() -> Finding:
    """Show whether the kernel would allow cgroup limits. They are only booked, not enforced."""
    text = _read("/proc/self/cgroup").strip().splitlines()
    unified = [line[3:] for line in text if line.startswith("0::")]
    path = "/sys/fs/cgroup" + unified[0] if unified else ""
    writable = bool(path) and os.access(path, os.W_OK)
    seen = "limits are booked, not enforced" + ("" if unified else "; cgroup v2 is not mounted")
    return Finding("cgroup", True, seen + (f"; {path} is writable" if writable else ""))


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""

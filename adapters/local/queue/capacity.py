"""The capacity of this machine: CPUs, memory, GPUs."""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
import threading

from overspan.adapters.bookings import Capacity as Capacity
from overspan.adapters.local.files.launch_files import read_document, write_document
from overspan.adapters.local.settings import Settings
from overspan.bridge.model.resources import MILLI, to_milli
from overspan.bridge.model.sizes import KIB_PER_MIB

_log = logging.getLogger(__name__)

_CGROUP = "/sys/fs/cgroup"
_NVIDIA_TIMEOUT = 10
_NO_DEVICES = 6
"""nvidia-smi's exit code where no device was found (nvidia-smi(1))."""


def measure_capacity(settings: Settings, root: str) -> Capacity:
    """The capacity in the settings; what they do not set is measured. May take seconds for GPUs.

    While nvidia-smi fails, as it does until a new driver is loaded, the GPUs are those that `keep_gpus` kept: jobs that
    wait for them would be refused else. Where it has kept none, they are unknown.
    """
    gpus = _find_gpus(root) if settings.gpus is None else settings.gpus
    return Capacity(
        count_cpus() if settings.cpus is None else to_milli(settings.cpus),
        count_memory() if settings.memory is None else settings.memory,
        gpus or (),
        gpus is not None,
    )


def keep_gpus(root: str, gpus: tuple[str, ...]) -> None:
    """Keep the GPUs for a time when nvidia-smi fails. Raises OSError."""
    if gpus != _read_gpus(root):
        write_document(_name_gpus(root), {"gpus": gpus})


def _find_gpus(root: str) -> tuple[str, ...] | None:
    found = list_gpus()
    if found is not None:
        return found
    kept = _read_gpus(root)
    if kept is not None:
        _log.warning("nvidia-smi fails or hangs: GPUs are counted as before, %d", len(kept))
    return kept


def _read_gpus(root: str) -> tuple[str, ...] | None:
    """The GPUs that were kept; None where no record of them can be read."""
    try:
        kept = (read_document(_name_gpus(root)) or {}).get("gpus")
    except OSError:
        return None
    return tuple(kept) if isinstance(kept, list) and all(isinstance(kind, str) for kind in kept) else None


def _name_gpus(root: str) -> str:
    return f"{root}/gpus.json"


def count_cpus() -> int:
    """Thousandths of CPUs that this process may use: its affinity, or its cgroup's quota if that is less."""
    milli = len(os.sched_getaffinity(0)) * MILLI
    quota = parse_quota(_read(f"{_CGROUP}/cpu.max"))
    return milli if quota is None else max(1, min(milli, quota))


def count_memory() -> int:
    """MiB of the machine, or of its cgroup if that is less."""
    total = parse_meminfo(_read("/proc/meminfo"))
    limit = _read(f"{_CGROUP}/memory.max").strip()
    return min(total, int(limit) >> 20) if limit.isdigit() else total


def parse_quota(text: str) -> int | None:
    """Read cgroup v2's cpu.max, `QUOTA PERIOD` in microseconds, as thousandths of CPUs; None for no limit."""
    words = text.split()
    if len(words) != 2 or not words[0].isdigit() or not int(words[1]):
        return None
    return int(words[0]) * MILLI // int(words[1])


def parse_meminfo(text: str) -> int:
    """Read MemTotal of /proc/meminfo as MiB; 0 if it is missing."""
    for line in text.splitlines():
        name, _, rest = line.partition(":")
        if name == "MemTotal":
            return int(rest.split()[0]) // KIB_PER_MIB
    return 0


def list_gpus() -> tuple[str, ...] | None:
    """The kind of each NVIDIA GPU in nvidia-smi's order; none without nvidia-smi, None where it fails or hangs."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return ()
    words, null = [program, "--query-gpu=name", "--format=csv,noheader"], subprocess.DEVNULL
    try:
        process = subprocess.Popen(words, stdin=null, stdout=subprocess.PIPE, stderr=null, text=True)
    except OSError:
        return None
    try:
        answer, _ = process.communicate(timeout=_NVIDIA_TIMEOUT)
    except subprocess.TimeoutExpired:
        process.kill()
        # One that hangs in the driver outlives its kill, and the cluster does not wait for it.
        threading.Thread(target=process.communicate, name="nvidia-smi", daemon=True).start()
        return None
    if process.returncode == _NO_DEVICES:
        return ()
    return parse_gpu_names(answer) if process.returncode == 0 else None


def parse_gpu_names(text: str) -> tuple[str, ...]:
    """Read nvidia-smi's names, one a line, as kinds that job files use: `NVIDIA A100-SXM4-80GB` is A100-SXM4-80GB."""
    names = (line.strip() for line in text.splitlines())
    return tuple("-".join(name.removeprefix("NVIDIA ").split()) for name in names if name)


def _read(path: str) -> str:
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            return file.read()
    except OSError:
        return ""

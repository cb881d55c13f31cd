"""Environments with unmodified clients from PyPI, made once and kept outside the checkout."""

from __future__ import annotations

import fcntl
import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

VERSIONS = {
    "submitit": ("submitit==1.5.4",),
    "psij": ("psij-python==0.9.11",),
    "snakemake": (
        "snakemake==9.27.1",
        "snakemake-executor-plugin-slurm==2.8.0",
        "snakemake-executor-plugin-slurm-jobstep==0.6.1",
    ),
    "torchx": ("torchx==0.7.0",),
    "parsl": ("parsl==2026.10.26",),
    "dask": ("dask-jobqueue==0.9.0", "distributed==2026.8.0"),
    # A stand-in for S3 that many projects test with. In an environment of its own: it wants another python-dateutil.
    "moto": ("moto[server,s3]==5.2.5",),
}


def install(client: str) -> Path:
    """The `bin` folder of an environment with a client; the test is skipped where it cannot be made.

    Kept under the user's cache folder by a hash of versions and interpreter, so that only the first run installs.
    """
    wanted = VERSIONS[client]
    mark = hashlib.sha256(repr((wanted, sys.version_info[:3])).encode()).hexdigest()[:16]
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = cache / "overspan" / f"clients-{mark}"
    folder.parent.mkdir(parents=True, exist_ok=True)
    ready = folder / ".ready"
    with open(f"{folder}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not ready.exists():
            _make(folder, wanted)
            ready.touch()
    return folder / "bin"


def _make(folder: Path, wanted: tuple[str, ...]) -> None:
    pip = [str(folder / "bin" / "pip"), "install", "--quiet", "--disable-pip-version-check", "setuptools<81", *wanted]
    for command in ([sys.executable, "-m", "venv", "--clear", str(folder)], pip):
        done = subprocess.run(command, capture_output=True, text=True, timeout=600)
        if done.returncode:
            pytest.skip(f"{' '.join(wanted)} cannot be installed here: {done.stderr.strip()[-200:]}")

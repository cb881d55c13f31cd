"""The version that the corpus was recorded from: built once from its commit, and kept in the user's cache."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import NamedTuple

COMMIT = "b3e3736881c545fb3fc67acfd54336971913072c"
SLURM_COMMIT = "e315a4068fc08145bf7c8279e408a97336b6a1a8"
"""Where the fake Slurm is taken from: the old version had none, and a later one may need code that it does not have."""
ROOT = Path(__file__).parents[2]
BUILD_SECONDS = 600


class CannotBuild(Exception):
    """The old version cannot be had here; says why."""


class OldVersion(NamedTuple):
    """Its commands, and the tests' own stand-ins that fit it."""

    python: Path
    span: Path
    stand_ins: Path
    """What goes on the path of its interpreter for `tests.fakes`."""


def find_cache() -> Path:
    """Where it is kept."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base, "overspan", "upgrade")


def build_old_version() -> OldVersion:
    """Make it where it is not there yet; raises CannotBuild. Takes a minute, and needs git and a package index."""
    folder = find_cache() / f"{COMMIT[:12]}-{SLURM_COMMIT[:12]}-py{sys.version_info[0]}.{sys.version_info[1]}"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "ready").exists():
            for name in ("source", "stand-ins", "environment"):
                shutil.rmtree(folder / name, ignore_errors=True)
            _build(folder)
            (folder / "ready").touch()
    programs = folder / "environment" / "bin"
    return OldVersion(programs / "python", programs / "span", folder / "stand-ins")


def _build(folder: Path) -> None:
    _unpack(COMMIT, (), folder / "source")
    _unpack(COMMIT, ("tests",), folder / "stand-ins")
    listed = _run("git", "-C", str(ROOT), "ls-tree", "--name-only", SLURM_COMMIT, "tests/fakes/").decode().split()
    _unpack(SLURM_COMMIT, [path for path in listed if "/slurm_" in path], folder / "stand-ins")
    environment = folder / "environment"
    _run(sys.executable, "-m", "venv", str(environment))
    pip = (str(environment / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
    # A wheel is built of it and installed, as users do.
    _run(*pip, f"{folder / 'source'}[kubernetes]")


def _unpack(commit: str, paths: list[str] | tuple[str, ...], folder: Path) -> None:
    """Write the files of a commit; `paths` empty for all."""
    folder.mkdir(exist_ok=True)
    archive = folder.with_suffix(".tar")
    archive.write_bytes(_run("git", "-C", str(ROOT), "archive", "--format=tar", commit, *paths))
    with tarfile.open(archive) as file:
        file.extractall(folder, filter="data")
    archive.unlink()


def _run(*words: str) -> bytes:
    try:
        done = subprocess.run(words, capture_output=True, timeout=BUILD_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CannotBuild(f"{words[0]}: {error}") from None
    if done.returncode:
        said = (done.stderr or done.stdout).decode(errors="replace").strip().splitlines()
        raise CannotBuild(f"{Path(words[0]).name}: {said[-1] if said else done.returncode}")
    return done.stdout

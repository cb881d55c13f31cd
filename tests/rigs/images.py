"""The rigs' image: built once for the same inputs, kept as a tar outside the checkout."""

from __future__ import annotations

import hashlib
import importlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tests.rigs.engine import RigMissing

SUITE = "bookworm"
BASE_PACKAGES = "ca-certificates,iproute2,procps"
BUILD_SECONDS = 900
_PULLED = f"debian:{SUITE}-slim"


def cache_folder() -> Path:
    """The folder of the tars: $XDG_CACHE_HOME/overspan/rigs, or the same below ~/.cache."""
    root = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(root) / "overspan" / "rigs"


def context_hash(folder: Path) -> str:
    """A short name for everything that goes into the image."""
    text = hashlib.sha256(f"{SUITE} {BASE_PACKAGES}".encode())
    for file in build_files(folder):
        text.update(f"\0{file.name}\0".encode() + file.read_bytes())
    return text.hexdigest()[:16]


def build_files(folder: Path) -> list[Path]:
    """The files of the build context; documentation and the compose file are not among them."""
    return sorted(file for file in folder.iterdir() if file.suffix in (".conf", ".sh") or file.name == "Dockerfile")


def ensure_image(client: Any, folder: Path, name: str) -> tuple[str, bool]:
    """Have the image of the build context `folder` in the engine: (tag, whether it was brought in by this call).

    From the engine itself, else from the cache, else built (and cached). Raises RigMissing where it cannot be built.
    """
    tag = f"overspan/{name}:{context_hash(folder)}"
    if client.images.list(name=tag):
        return tag, False
    tar = cache_folder() / f"{name}-{context_hash(folder)}.tar"
    if tar.exists():
        with open(tar, "rb") as stream:
            client.images.load(stream)
        return tag, True
    base = _ensure_base(client)
    try:
        _build(client, folder, tag, base)
    finally:
        if base != _PULLED:
            client.api.remove_image(base, noprune=True)
    _keep(client.images.get(tag).save(named=True), tar, older=f"{name}-*.tar")
    return tag, True


def _ensure_base(client: Any) -> str:
    """A Debian base: the engine's, else one made with debootstrap; only who cannot run that asks an image registry."""
    if client.images.list(name=_PULLED):
        return _PULLED
    if shutil.which("debootstrap") is None or os.geteuid() != 0:
        return _pull(client)
    tar = cache_folder() / f"base-{SUITE}-{hashlib.sha256(BASE_PACKAGES.encode()).hexdigest()[:16]}.tar"
    if not tar.exists():
        _debootstrap(tar)
    tag = f"overspan/base:{tar.stem.rpartition('-')[2]}"
    repository, _, version = tag.partition(":")
    client.api.import_image_from_file(str(tar), repository=repository, tag=version)
    return tag


def _pull(client: Any) -> str:
    try:
        client.images.pull(_PULLED)
    except Exception as error:
        raise RigMissing(
            f"no base image: debootstrap needs root and its package, and a pull failed: {error}"
        ) from error
    return _PULLED


def _debootstrap(tar: Path) -> None:
    folder = Path(tempfile.mkdtemp(prefix="span-base-"))
    try:
        command = ["debootstrap", "--variant=minbase", f"--include={BASE_PACKAGES}", SUITE, str(folder / "root")]
        done = subprocess.run(command, capture_output=True, text=True, timeout=BUILD_SECONDS, check=False)
        if done.returncode != 0:
            last = (done.stdout + done.stderr).strip().splitlines()[-1:]
            raise RigMissing(f"debootstrap failed: {' '.join(last)}")
        for waste in ("var/cache/apt/archives", "var/lib/apt/lists"):
            shutil.rmtree(folder / "root" / waste)
            (folder / "root" / waste / "partial").mkdir(parents=True)
        made = folder / "base.tar"
        subprocess.run(["tar", "-C", str(folder / "root"), "-cf", str(made), "."], check=True, timeout=BUILD_SECONDS)
        with open(made, "rb") as stream:
            _keep(iter(lambda: stream.read(1 << 20), b""), tar, older="base-*.tar")
    finally:
        shutil.rmtree(folder)


def _build(client: Any, folder: Path, tag: str, base: str) -> None:
    build_errors: Any = importlib.import_module("docker").errors
    try:
        # The host's network: apt must reach its mirror, and the engine may have no bridge.
        client.images.build(
            path=str(folder), tag=tag, buildargs={"BASE": base}, network_mode="host", rm=True, timeout=BUILD_SECONDS
        )
    except (build_errors.BuildError, build_errors.APIError) as error:
        raise RigMissing(f"the image does not build: {error}") from error


def _keep(chunks: Iterable[bytes], tar: Path, older: str) -> None:
    """Write a cache file as a whole or not at all; what it replaces goes."""
    tar.parent.mkdir(parents=True, exist_ok=True)
    part = tar.with_suffix(f".{os.getpid()}.part")
    try:
        with open(part, "wb") as stream:
            for chunk in chunks:
                stream.write(chunk)
        part.rename(tar)
        # Another process may have kept the same, and removes what is older too.
        for old in tar.parent.glob(older):
            if old != tar:
                old.unlink(missing_ok=True)
    finally:
        part.unlink(missing_ok=True)

"""MinIO for tests: compiled once from its Go module by `python -m tests.minio`, and kept outside the checkout.

A store of real use, which checks signatures, conditions and parts as moto's server does not.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.stores import SECRET, TestStore, await_store

VERSION = "v0.0.0-20260212201848-7aac2a2c5b7c"
BUILD_SECONDS = 3600


def find_program() -> Path:
    """Where it is kept."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "overspan" / f"minio-{VERSION}" / "minio"


def compile_program() -> str:
    """Compile it unless that was done; why it cannot be had here, empty where it can."""
    program, go = find_program(), shutil.which("go")
    if program.exists():
        return ""
    if go is None:
        return "there is no go here to compile MinIO with"
    folder = program.parent
    folder.mkdir(parents=True, exist_ok=True)
    words = [go, "install", "-p", "2", f"github.com/minio/minio@{VERSION}"]
    environment = {**os.environ, "GOBIN": str(folder)}
    done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=BUILD_SECONDS, cwd=folder)
    return f"MinIO cannot be compiled here: {done.stderr.strip()[-300:]}" if done.returncode else ""


@contextlib.contextmanager
def run_minio(folder: Path) -> Iterator[TestStore]:
    """Its server on a free port; the test is skipped where `make minio` has not compiled it."""
    program = find_program()
    if not program.exists():
        pytest.skip("MinIO is not compiled here: `make minio`")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    environment = {
        **os.environ,
        "MINIO_ROOT_USER": "testing",
        "MINIO_ROOT_PASSWORD": SECRET,
        "MINIO_BROWSER": "off",
        "MINIO_UPDATE": "off",
    }
    words = [str(program), "server", "--quiet", "--address", f"127.0.0.1:{port}", str(folder / "disk")]
    with open(folder / "minio.log", "w") as log:
        server = subprocess.Popen(words, stdout=log, stderr=log, env=environment)
    store = TestStore(port, "127.0.0.1")
    try:
        await_store(store, server, folder / "minio.log")
        yield store
    finally:
        store.close()
        server.terminate()
        server.wait(20)


if __name__ == "__main__":
    sys.exit(compile_program() or 0)

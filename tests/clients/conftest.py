"""A private daemon, and a folder with Slurm's names on PATH, for clients that know nothing of Overspan."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.clients.installed import install
from tests.system.conftest import Span, span

__all__ = ["span"]

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def run_client(span: Span, tmp_path: Path) -> Run:
    """Run a program of a client's environment: name of the client, program, words."""
    shims = span.run("alias", "--folder").stdout.strip()
    home = tmp_path / "home"
    home.mkdir()

    def run(client: str, program: str, *words: str, timeout: int = 600) -> subprocess.CompletedProcess[str]:
        binaries = install(client)
        environment = {
            **span.environment,
            "PATH": os.pathsep.join([shims, str(binaries), span.environment["PATH"]]),
            "HOME": str(home),
            "XDG_CACHE_HOME": str(home / "cache"),
        }
        done = subprocess.run(
            [str(binaries / program), *words],
            capture_output=True,
            text=True,
            timeout=timeout,
            cwd=tmp_path,
            env=environment,
            stdin=subprocess.DEVNULL,
        )
        told = f"{done.stdout[-4000:]}\n{done.stderr[-4000:]}\n{span.run('sacct', check=False).stdout}"
        assert done.returncode == 0, f"{client}: {program} {' '.join(words)}: {done.returncode}\n{told}"
        return done

    return run

"""A private daemon, and a folder with Slurm's names on PATH, for clients that know nothing of Overspan."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.clients.installed import install
from tests.rigs.kube import KubeRig
from tests.rigs.plugin import kube_namespace, kube_rig
from tests.system.conftest import Span, span
from tests.system.kubernetes.conftest import KubeSpan, kube

__all__ = ["kube", "kube_namespace", "kube_rig", "span"]

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def run_client(span: Span, tmp_path: Path) -> Run:
    """Run a program of a client's environment: name of the client, program, words."""
    return make_client(span, tmp_path)


@pytest.fixture
def run_in_pods(kube: KubeSpan, kube_rig: KubeRig, kube_namespace: str, tmp_path: Path) -> Callable[[str], Run]:
    """The same for a named client whose jobs are pods, which have all of this machine's folders that it needs."""

    def share(client: str) -> Run:
        own = [sys.base_prefix, str(install(client).parent), str(tmp_path)]
        folders = dict.fromkeys(["/usr", "/etc/alternatives", *own])
        volumes = {
            f"v{number}": {"hostPath": {"path": folder}, "path": folder, "shared": True}
            for number, folder in enumerate(folders)
            if folder == "/usr" or not folder.startswith("/usr/")
        }
        kube.connect(kube_rig, kube_namespace, cpus=0.1, volumes=volumes, environment="full")
        return make_client(kube, tmp_path)

    return share


def make_client(span: Span, tmp_path: Path) -> Run:
    """What runs a client's programs on a daemon."""
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

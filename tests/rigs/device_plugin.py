"""A device plugin for a node of the Kubernetes rig: it gives pods that ask for its resource /dev/fuse, and no right."""

from __future__ import annotations

import contextlib
import hashlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

from tests.rigs.kube import KubeRig
from tests.waiting import wait_until

RESOURCE = "example.com/fuse"
_SOURCE = Path(__file__).parents[2] / "containers" / "kube-test" / "device-plugin"
_BUILD_SECONDS = 900
_COUNT = 8


def _build() -> Path:
    """The program, compiled once for each state of its source."""
    parts = [(_SOURCE / name).read_bytes() for name in ("main.go", "go.mod", "go.sum")]
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "overspan" / "rigs"
    program = cache / f"device-plugin-{hashlib.sha256(b''.join(parts)).hexdigest()[:16]}"
    if not program.exists():
        made = program.with_name(f"{program.name}.{os.getpid()}")
        path = f"{os.environ['PATH']}:/usr/local/go/bin"
        environment = {**os.environ, "PATH": path, "CGO_ENABLED": "0", "GOFLAGS": "-trimpath"}
        words = ["go", "build", "-o", str(made), "."]
        subprocess.run(words, cwd=_SOURCE, env=environment, check=True, timeout=_BUILD_SECONDS)
        made.rename(program)
    return program


@contextlib.contextmanager
def offer_fuse(rig: KubeRig, node: int) -> Iterator[None]:
    """Have a node give its pods the device while the context lasts."""
    folder = rig.state / f"node{node}" / "lib" / "kubelet" / "device-plugins"
    words = [str(_build()), str(folder), RESOURCE, str(_COUNT)]
    with subprocess.Popen(words, stdout=subprocess.DEVNULL) as process:
        try:
            path = f"/api/v1/nodes/node{node}"
            given = {"n": "0"}

            def look() -> bool:
                given["n"] = rig.call("GET", path).body["status"]["allocatable"].get(RESOURCE, "0")
                return given["n"] == str(_COUNT)

            wait_until(look, 60, "the node to offer the device")
            yield
        finally:
            process.kill()

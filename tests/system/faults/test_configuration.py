"""The configuration changes under running work on this machine: nothing is ended, nothing runs twice, all is said.

Row CS07 of docs/acceptance.md.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.system.conftest import Span


def configure(span: Span, **clusters: Any) -> None:
    """Write the configuration, and end the daemon: the next one reads it."""
    span.run("shutdown", check=False)
    given = {"local": {"kind": "local", "cpus": 8}, **clusters}
    span.config.write_text(json.dumps({"default_cluster": "local", "clusters": given}))


def box(folder: Path, name: str) -> dict[str, Any]:
    return {"kind": "local", "cpus": 8, "root": str(folder / name)}


def submit(span: Span, cluster: str, command: str) -> int:
    done = span.run("sbatch", "--parsable", "-M", cluster, "--wrap", command)
    return int(done.stdout.partition(";")[0])


def run_there(span: Span, runs: Path) -> int:
    """A job on `box` that runs until its gate is there, and counts how often it was started."""
    number = submit(span, "box", f"echo x >>{runs}; until [ -e {runs}.gate ]; do sleep 0.05; done")
    span.until(number, "RUNNING")
    span.wait_until(runs.exists, 20, "the first line")
    return number


def test_a_local_cluster_is_renamed_removed_and_pointed_elsewhere_under_running_work(
    span: Span, tmp_path: Path
) -> None:
    runs = tmp_path / "runs"
    configure(span, box=box(tmp_path, "a"))
    number = run_there(span, runs)
    for others, words in (
        ({"crate": box(tmp_path, "a")}, "does not name the cluster box"),
        ({}, "does not name the cluster box"),
        ({"box": box(tmp_path, "b")}, "jobs of box are at local"),
    ):
        configure(span, **others)
        # Another job comes and goes on what is configured.
        for name in ("local", *others):
            if name != "box":
                span.until(submit(span, name, "true"), "COMPLETED")
        assert span.job(number)["state"] == "RUNNING"
        checked = span.run("check", "box", check=False)
        assert checked.returncode == 1
        ping = span.run("ping", check=False)
        assert ping.returncode == 1
        for text in (ping.stdout, checked.stdout, span.run("clusters").stdout, span.run("show", str(number)).stdout):
            assert words in " ".join(text.split()), text
    good = span.config.read_text()
    span.run("shutdown")
    span.config.write_text(good.replace(":", " [", 1))
    broken = span.run("squeue", check=False)
    assert broken.returncode != 0 and str(span.config) in broken.stderr
    configure(span, box=box(tmp_path, "a"))
    assert span.run("ping").returncode == 0
    assert runs.read_text() == "x\n"
    Path(f"{runs}.gate").touch()
    span.until(number, "COMPLETED")
    assert runs.read_text() == "x\n"

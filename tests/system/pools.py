"""Pools of a daemon under test: made by `span pool`, looked at, and their workers as processes."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

Span = Any


def apply(span: Span, name: str, text: str) -> dict[str, Any]:
    """Make a pool, or change it."""
    file = span.folder / f"{name}.yaml"
    file.write_text(text)
    pool: dict[str, Any] = json.loads(span.run("pool", "apply", "-p", name, str(file), "--json").stdout)["pool"]
    return pool


def show(span: Span, name: str) -> dict[str, Any]:
    """The pool as it is now; empty where there is none."""
    found = json.loads(span.look("pool", "show", name, "--json", check=False) or "{}")
    pool: dict[str, Any] = found["pools"][0] if "pools" in found else {}
    return pool


def list_ready(span: Span, name: str) -> list[str]:
    """The workers that are ready."""
    return [worker["name"] for worker in show(span, name).get("workers", ()) if worker["state"] == "READY"]


def await_ready(span: Span, name: str, count: int) -> list[str]:
    """Wait until so many workers are ready."""
    span.wait_until(lambda: len(list_ready(span, name)) == count, 20, f"{count} workers of {name}")
    return list_ready(span, name)


def node_of(span: Span, ref: int | str) -> str:
    """The worker that a job was on."""
    line = span.look("sacct", "-X", "-n", "-P", "-j", str(ref), "-o", "NodeList")
    return str(line).strip()


def find_worker(span: Span, job: int) -> int:
    """The process of a worker, by its job."""
    for name in os.listdir("/proc"):
        try:
            if name.isdigit() and Path(f"/proc/{name}/comm").read_text().strip() == "span-worker":
                variables = Path(f"/proc/{name}/environ").read_bytes().split(b"\0")
                if {b"OVERSPAN_JOB_ID=%d" % job, b"SPAN_STATE_DIR=%s" % str(span.state).encode()} <= set(variables):
                    return int(name)
        except OSError:
            continue
    raise AssertionError(f"job {job} has no worker")

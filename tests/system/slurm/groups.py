"""Groups on the rig by a daemon outside: their files, and what to wait for."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import yaml
from tests.system.conftest import Span
from tests.system.slurm.conftest import Site
from tests.waiting import WaitUntil

SERVE = "trap 'date +term=%s.%N; exit 0' TERM; echo up; while :; do sleep 0.05; done"


SMALL = {"cpus": 1, "memory": "100M"}


def group(tasks: dict[str, dict[str, Any]], **header: Any) -> str:
    """A job group's YAML from plain data, each task small."""
    documents = [{"name": "g", "execution": "parallel", **header}]
    documents += [{"name": name, "resources": SMALL, **task} for name, task in tasks.items()]
    return str(yaml.safe_dump_all(documents, sort_keys=False))


def connect(site: Site, folder: Path, wait_until: WaitUntil) -> Span:
    """The commands of an installation that knows the rig."""
    span = Span(folder, wait_until)
    settings = {"kind": "slurm", "tick": 0.5, **site.access.settings}
    span.config.write_text(json.dumps({"clusters": {"rig": settings}}))
    return span


def start(span: Span, text: str) -> int:
    return span.submit(text, "-M", "rig")


def native_of(span: Span, job: int | str) -> str:
    found = span.wait_until(lambda: span.job(job).get("native_id"), 20, "a native id")
    return str(found)


def until_said(span: Span, job: int | str, task: str, text: str) -> None:
    span.wait_until(lambda: text in span.log(job, task), 20, f"{task} to say {text}")


def until_kept(span: Span, site: Site, native: str, fields: str, rows: set[str]) -> None:
    """Wait for what Slurm's accounting says, which is told late."""
    ask = ("sacct", "-nXPj", native, "-o", fields)
    span.wait_until(lambda: set(site.slurm(*ask).split()) == rows, 20, f"the accounting to have {rows}")


def check_delay(tasks: dict[str, dict[str, Any]], ended: float, term: float, unseen: float) -> None:
    """The server had its TERM a second after the trainer's end, and both ends are those of then.

    `ended` and `term` are what the programs wrote; nobody knew of either before `unseen`.
    """
    assert 0.9 < term - ended < 30
    assert ended <= tasks["trainer"]["ended_at"] <= term - 0.9
    assert term <= tasks["server"]["ended_at"] <= unseen


def read_time(text: str, name: str) -> float:
    """A point in time that a task has written."""
    found = re.search(rf"{name}=(\d+\.\d+)", text)
    assert found, text
    return float(found[1])

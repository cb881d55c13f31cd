"""`Client.map`: `span map` for Python, over a file or over lines that are at hand."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

from overspan.bridge.client.line_map import BATCH, EACH, SERVE, MapOrder, map_lines
from overspan.bridge.model.errors import InvalidRequest

if TYPE_CHECKING:
    from overspan.bridge.client.client import Client


class MapOptions(TypedDict, total=False):
    """What a map can be given. `job` has keys of a job file for each job of the pool: resources, time.

    `out` is the folder that keeps what is done, so that the same call goes on with the rest.
    """

    out: str
    batch: int
    serve: bool
    chunk: int
    job: Mapping[str, Any]
    retry_failed: bool


def run_map(
    client: Client, command: str, lines: Iterable[str] | os.PathLike[str], pool: str, options: MapOptions
) -> list[str | None]:
    """Run a map; the results in order. Without a folder nothing is kept, unless the lines are a file's."""
    given = None if isinstance(lines, os.PathLike) else lines
    if given is None or options.get("out"):
        return _run(client, command, lines, pool, options, options.get("out", ""))
    with tempfile.TemporaryDirectory(prefix="span-map-") as folder:
        return _run(client, command, lines, pool, options, folder)


def _run(
    client: Client, command: str, lines: Iterable[str] | os.PathLike[str], pool: str, options: MapOptions, out: str
) -> list[str | None]:
    if options.get("serve") and options.get("batch"):
        raise InvalidRequest("`serve` and `batch` exclude each other")
    if isinstance(lines, os.PathLike):
        over, given = Path(lines), None
        folder = Path(out) if out else over.with_name(f"{over.name}.map")
    else:
        folder, given = Path(out), lines
        over = folder / "lines.txt"
    mode = SERVE if options.get("serve") else BATCH if options.get("batch") else EACH
    size, job = options.get("batch") or 1, {"resources": {"cpus": 1}, **options.get("job", {})}
    order = MapOrder(
        command, over, folder, pool, mode, size, options.get("chunk", 0), job, options.get("retry_failed", False)
    )
    return map_lines(client, order, given)

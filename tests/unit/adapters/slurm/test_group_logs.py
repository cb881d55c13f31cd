"""Logs of groups, read from afar: what part of a file is whose, and when it grew."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from overspan.adapters.contract import LogRequest
from overspan.adapters.slurm.files.logs import GroupLogs
from overspan.adapters.slurm.groups.handles import GroupHandle, GroupPart
from overspan.adapters.slurm.transports.local import LocalTransport


@pytest.mark.parametrize(
    ("attempt", "data", "marks"),
    [(0, b"one\n", ((5.0, 2), (6.0, 4))), (1, b"two\n", ((7.0, 4),)), (None, b"two\n", ((7.0, 4),))],
)
def test_each_attempt_has_its_part_and_its_times(
    tmp_path: Path, attempt: int | None, data: bytes, marks: tuple[tuple[float, int], ...]
) -> None:
    log = tmp_path / "o"
    log.write_bytes(b"one\ntwo\n")
    rows = [
        {"task": "a", "node": 0, "attempt": number, "run": 0, "stream": "output", "path": str(log), "start": 4 * number}
        for number in range(2)
    ]
    (tmp_path / "streams.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    sizes = [{"at": 5.0, "sizes": {"o": 2}}, {"at": 6.0, "sizes": {"o": 4}}, {"at": 7.0, "sizes": {"o": 8}}]
    handle = GroupHandle(7, 0, 30, str(tmp_path), (GroupPart(42),))

    async def facts() -> None:
        logs = GroupLogs(LocalTransport())
        request = LogRequest("", "a", attempt=attempt, times=True)
        assert (await logs.read(handle, request)).marks is None
        (tmp_path / "times.jsonl").write_text("".join(json.dumps(row) + "\n" for row in sizes) + "torn")
        part = await logs.read(handle, request)
        assert (part.data, part.marks) == (data, marks)

    asyncio.run(facts())

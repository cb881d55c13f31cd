"""Steps of srun in native jobs, from sacct's answer and from squeue's; the texts are those of Slurm 22.05."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from unittest.mock import AsyncMock

import pytest
from tests.unit.adapters.slurm.links import SITE
from tests.unit.adapters.slurm.samples import read_script

from overspan.adapters.abilities import Step
from overspan.adapters.slurm import steps as module
from overspan.adapters.slurm.handles import make_handle
from overspan.adapters.slurm.listings import FIELD_END, RECORD_END
from overspan.adapters.slurm.questions import Questions
from overspan.adapters.slurm.steps import Steps
from overspan.adapters.slurm.transports.channel import NO_VARIABLES, Done
from overspan.adapters.slurm.transports.local import LocalTransport
from overspan.bridge.model.errors import Unreachable

JOB = read_script("#!/bin/sh\n")
HANDLE = str(make_handle(JOB, 7))
LINE = "srun -n2 --mem=20 -J first sh -c exit 3"


def row(*fields: str) -> str:
    return "".join(f"{field}{FIELD_END}" for field in fields) + "\n"


def told(state: str = "RUNNING", end: str = "Unknown") -> str:
    return (
        row("7", state, "0:0", "100", end, "", "2", "node[1-2]", "s.sh", "sbatch s.sh")
        + row("7.batch", state, "0:0", "100", end, "1", "1", "node1", "batch", "")
        + row("7.extern", state, "0:0", "100", end, "1", "1", "node1", "extern", "")
        + row("7.0", "FAILED", "3:0", "101", "102", "2", "2", "node[1-2]", "first", LINE)
        + row("7.1", state, "0:0", "101", end, "1", "1", "node2", "sleep", "srun sleep 6")
        + row("7.2", "CANCELLED by 1000", "0:9", "101", "103", "2", "2", "node[1-2]", "third", "srun x")
        + row("3_[5-9]", "PENDING", "0:0", "Unknown", "Unknown", "", "1", "", "array", "")
        + row("3_4.0", "CANCELLED", "0:15", "101", "104", "1", "1", "node1", "own", "srun y")
    )


class Answers(LocalTransport):
    """Answers each command of Slurm's with a text, or not at all."""

    def __init__(self, texts: Mapping[str, str | None]) -> None:
        super().__init__("")
        self.texts = texts
        self.asked: list[str] = []

    async def run(
        self,
        argv: Sequence[str],
        stdin: bytes = b"",
        environment: Mapping[str, str] = NO_VARIABLES,
        timeout: float = 60.0,
    ) -> Done:
        name = next(word for word in argv if word in ("sacct", "squeue"))
        self.asked.append(name)
        text = self.texts[name]
        if text is None:
            await asyncio.sleep(60)
        return (
            Done(1, b"", b"sacct: error: Problem talking to the database") if not text else Done(0, text.encode(), b"")
        )


def open_steps(texts: Mapping[str, str | None], config: Mapping[str, str] = SITE.config) -> tuple[Steps, Answers]:
    transport = Answers(texts)
    questions = Questions(transport, 10)
    questions.site = AsyncMock(return_value=replace(SITE, config=config))  # type: ignore[method-assign]
    return Steps(questions, lambda handle: ()), transport


def find(steps: Steps, *handles: str) -> list[Step]:
    return asyncio.run(steps.find(handles))


def test_what_srun_ran_is_told_and_nothing_else() -> None:
    steps, _ = open_steps({"sacct": told()})
    first, second, third = find(steps, HANDLE, "g.9.7.0.30./r/runs/7")
    assert [step.number for step in (first, second, third)] == [0, 1, 2]
    assert (first.exit_code, first.ended_at, first.running, first.nodes, first.ntasks) == (3, 102.0, False, (0, 1), 2)
    assert (first.handle, first.task, first.name, first.command) == (HANDLE, JOB.tasks[0].name, "first", LINE)
    assert (second.running, second.ended_at, second.nodes) == (True, None, (1,))
    assert (third.cancelled, third.signal, third.exit_code) == (True, 9, 0)


def test_elements_are_told_apart_and_a_signal_of_its_own_is_no_cancel() -> None:
    element = str(replace(make_handle(JOB, 3), index=4, array=3))
    steps, _ = open_steps({"sacct": told()})
    (step,) = find(steps, element)
    assert (step.handle, step.signal, step.cancelled) == (element, 15, False)


def test_what_has_ended_is_asked_for_once() -> None:
    steps, transport = open_steps({"sacct": told("COMPLETED", "110")})
    assert len(find(steps, HANDLE)) == 3 == len(find(steps, HANDLE))
    assert transport.asked == ["sacct"]
    steps, transport = open_steps({"sacct": told()})
    assert len(find(steps, HANDLE)) == 3 == len(find(steps, HANDLE))
    assert transport.asked == ["sacct", "sacct"]


RUNNING = (("7.1", "3", "101", "node2", "sleep"), ("7.batch", "1", "100", "node1", "batch"))


@pytest.mark.parametrize("accounting", [True, False])
def test_without_the_accounting_those_that_run_are_told(accounting: bool) -> None:
    text = "".join(FIELD_END.join(fields) + f"{RECORD_END}\n" for fields in RUNNING)
    config = SITE.config if accounting else {**SITE.config, "AccountingStorageType": "accounting_storage/none"}
    steps, transport = open_steps({"sacct": "", "squeue": text}, config)
    (step,) = find(steps, HANDLE)
    assert (step.number, step.running, step.started_at, step.name, step.cpus) == (1, True, 101.0, "sleep", 3)
    assert transport.asked == (["sacct", "squeue"] if accounting else ["squeue"])


def test_nobody_waits_long_for_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SECONDS", 0.01)
    steps, _ = open_steps({"sacct": None})
    with pytest.raises(Unreachable, match="has not told its steps"):
        find(steps, HANDLE)


def test_nothing_is_asked_about_groups() -> None:
    steps, transport = open_steps({})
    assert find(steps, "g.9.7.0.30./r/runs/7") == [] and transport.asked == []

"""Steps of srun in native jobs, from sacct's answer and from squeue's; the texts are those of Slurm 22.05."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tests.fakes.slurm_transport import Trouble
from tests.fakes.slurm_world import SlurmWorld
from tests.unit.adapters.slurm.samples import read_script

from overspan.adapters.abilities import Step
from overspan.adapters.slurm.commands.job_steps import JobSteps
from overspan.adapters.slurm.commands.listings import FIELD_END, RECORD_END
from overspan.adapters.slurm.commands.queries import Queries
from overspan.adapters.slurm.handles import make_handle
from overspan.adapters.slurm.transports.transport import Done
from overspan.bridge.model.errors import Unreachable

JOB = read_script("#!/bin/sh\n")
HANDLE = str(make_handle(JOB, 7))
LINE = "srun -n2 --mem=20 -J first sh -c exit 3"


def row(*fields: str) -> str:
    return "".join(f"{field}{FIELD_END}" for field in fields) + "\n"


def told(state: str = "RUNNING", end: str = "Unknown", step_end: str = "") -> str:
    return (
        row("7", state, "0:0", "100", end, "", "2", "node[1-2]", "s.sh", "sbatch s.sh")
        + row("7.batch", state, "0:0", "100", end, "1", "1", "node1", "batch", "")
        + row("7.extern", state, "0:0", "100", end, "1", "1", "node1", "extern", "")
        + row("7.0", "FAILED", "3:0", "101", "102", "2", "2", "node[1-2]", "first", LINE)
        + row(
            "7.1",
            "RUNNING" if step_end else state,
            "0:0",
            "101",
            step_end or end,
            "1",
            "1",
            "node2",
            "sleep",
            "srun sleep 6",
        )
        + row("7.2", "CANCELLED by 1000", "0:9", "101", "103", "2", "2", "node[1-2]", "third", "srun x")
        + row("3_[5-9]", "PENDING", "0:0", "Unknown", "Unknown", "", "1", "", "array", "")
        + row("3_4.0", "CANCELLED", "0:15", "101", "104", "1", "1", "node1", "own", "srun y")
    )


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SlurmWorld:
    return SlurmWorld(tmp_path, monkeypatch)


class Asking:
    """Steps that are asked of the fake Slurm, whose commands say these texts."""

    def __init__(self, world: SlurmWorld, **texts: str) -> None:
        self.world = world
        self.steps = JobSteps(Queries(world.transport, 10), lambda handle: ())
        for name, text in texts.items():
            world.transport.fail(name, Done(0, text.encode(), b""))

    def find(self, *handles: str, times: int = 1) -> list[Step]:
        found: list[Step] = []

        async def story() -> None:
            for _ in range(times):
                found[:] = await self.steps.find(handles)

        self.world.play(story())
        return found

    @property
    def asked(self) -> list[str]:
        return [word for words in self.world.transport.asked for word in words if word in ("sacct", "squeue")]


def test_what_srun_ran_is_told_and_nothing_else(world: SlurmWorld) -> None:
    first, second, third = Asking(world, sacct=told()).find(HANDLE, "g.9.7.0.30./r/runs/7")
    assert [step.number for step in (first, second, third)] == [0, 1, 2]
    assert (first.exit_code, first.ended_at, first.running, first.nodes, first.ntasks) == (3, 102.0, False, (0, 1), 2)
    assert (first.handle, first.task, first.name, first.command) == (HANDLE, JOB.tasks[0].name, "first", LINE)
    assert (second.running, second.ended_at, second.nodes) == (True, None, (1,))
    assert (third.cancelled, third.signal, third.exit_code) == (True, 9, 0)


def test_elements_are_told_apart_and_a_signal_of_its_own_is_no_cancel(world: SlurmWorld) -> None:
    element = str(replace(make_handle(JOB, 3), index=4, array=3))
    (step,) = Asking(world, sacct=told()).find(element)
    assert (step.handle, step.signal, step.cancelled) == (element, 15, False)


@pytest.mark.parametrize(
    ("text", "asked"), [(told("COMPLETED", "110"), 1), (told("CANCELLED", "110", "Unknown"), 2), (told(), 2)]
)
def test_what_has_ended_is_asked_for_once(world: SlurmWorld, text: str, asked: int) -> None:
    """The accounting may hear of a job's end before those of its steps."""
    asking = Asking(world, sacct=text)
    assert len(asking.find(HANDLE, times=2)) == 3
    assert asking.asked == ["sacct"] * asked


RUNNING = (("7.1", "3", "101", "node2", "sleep"), ("7.batch", "1", "100", "node1", "batch"))


@pytest.mark.parametrize("accounting", [True, False])
def test_without_the_accounting_those_that_run_are_told(world: SlurmWorld, accounting: bool) -> None:
    world.slurm.site.accounting = accounting
    world.transport.fail("sacct", Done(1, b"", b"sacct: error: Problem talking to the database"))
    asking = Asking(world, squeue="".join(FIELD_END.join(fields) + f"{RECORD_END}\n" for fields in RUNNING))
    (step,) = asking.find(HANDLE)
    assert (step.number, step.running, step.started_at, step.name, step.cpus) == (1, True, 101.0, "sleep", 3)
    assert asking.asked == (["sacct", "squeue"] if accounting else ["squeue"])


def test_nobody_waits_long_for_steps(world: SlurmWorld) -> None:
    world.transport.fail("sacct", Trouble.HANGS)
    with pytest.raises(Unreachable, match="has not listed its steps"):
        Asking(world).find(HANDLE)
    assert world.loop.time() < 10


def test_nothing_is_asked_about_groups(world: SlurmWorld) -> None:
    asking = Asking(world)
    assert asking.find("g.9.7.0.30./r/runs/7") == [] and asking.asked == []

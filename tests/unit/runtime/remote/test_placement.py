"""Which node each member gets, and the words of its srun."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from overspan.bridge.model.causes import Cause
from overspan.bridge.model.job import Ending, Job, new_job
from overspan.bridge.model.spec import JobSpec, TaskSpec
from overspan.bridge.model.states import State
from overspan.bridge.runtime.slurm.placement import (
    GrantedComponent,
    NodeSlot,
    PlacedStep,
    PlacementFile,
    assign_slots,
    find_spare,
    make_grant,
    read_components,
    read_placement,
    srun_words,
)

JOB = new_job(7, JobSpec("rl", (TaskSpec("train", num_nodes=2), TaskSpec("serve")), group=True), 1.0)
STEPS = (PlacedStep("train", 0, (1, 0), (0, 1), ("--exact",)), PlacedStep("serve", 1, (0,), (0,), ("--gres=none",)))
COMPONENTS = (GrantedComponent("40", ("a1", "a2")), GrantedComponent("41", ("b1",)))


def test_the_file_is_read_as_it_was_written(tmp_path: Path) -> None:
    steps = [{**step._asdict(), "later": 1} for step in STEPS]
    document = {"format": 1, "token": "t", "components": [{"nodes": 2}, {"nodes": 1}], "steps": steps}
    path = tmp_path / "placement.0.json"
    path.write_text(json.dumps(document))
    assert read_placement(str(path)) == PlacementFile("t", (2, 1), STEPS)


@pytest.mark.parametrize(
    "change",
    [
        {"format": 2},
        {"components": [{}]},
        {"steps": [{"task": "a", "component": 0, "members": [0, 1], "nodes": [0], "options": []}]},
    ],
)
def test_another_format_and_what_does_not_fit_are_refused(tmp_path: Path, change: dict[str, object]) -> None:
    path = tmp_path / "placement.0.json"
    path.write_text(json.dumps({"format": 1, "components": [], "steps": [], **change}))
    with pytest.raises(ValueError):
        read_placement(str(path))


def test_components_of_an_ordinary_job_and_of_a_hetjob() -> None:
    plain = {"SLURM_JOB_ID": "40", "SLURM_JOB_NODELIST": "n[08-10]"}
    assert read_components(plain) == (GrantedComponent("40", ("n08", "n09", "n10")),)
    hetjob = {
        **plain,
        "SLURM_HET_SIZE": "2",
        "SLURM_JOB_ID_HET_GROUP_0": "40",
        "SLURM_JOB_NODELIST_HET_GROUP_0": "a[1-2]",
        "SLURM_JOB_ID_HET_GROUP_1": "41",
        "SLURM_JOB_NODELIST_HET_GROUP_1": "b1",
    }
    assert read_components(hetjob) == COMPONENTS


def test_members_sit_where_the_plan_says() -> None:
    slots = assign_slots(JOB, PlacementFile("t", (2, 1), STEPS), COMPONENTS)
    assert slots == {
        ("train", 0): NodeSlot(0, "a2", ("--exact",)),
        ("train", 1): NodeSlot(0, "a1", ("--exact",)),
        ("serve", 0): NodeSlot(1, "b1", ("--gres=none",)),
    }
    granted = make_grant(JOB, slots, lambda node: f"10.0.0.{node[1]}", 5.0)
    assert granted.members == (
        ("train", 0, "a2", "10.0.0.2", ()),
        ("train", 1, "a1", "10.0.0.1", ()),
        ("serve", 0, "b1", "10.0.0.1", ()),
    )


@pytest.mark.parametrize(
    ("placement", "words"),
    [
        (PlacementFile("t", (2, 2), STEPS), "Slurm gave"),
        (PlacementFile("t", (2, 1), STEPS[:1]), "serve-0"),
        (PlacementFile("t", (2, 1), (*STEPS, PlacedStep("odd", 0, (0,), (0,), ()))), "odd-0"),
    ],
)
def test_what_does_not_fit_the_allocation_or_the_job_is_refused(placement: PlacementFile, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        assign_slots(JOB, placement, COMPONENTS)


def test_the_words_of_srun() -> None:
    slot = NodeSlot(1, "b1", ("--exact", "--gres=none"))
    program = ("python3", "pyz", "node")
    plain = ("srun", "--nodes=1", "--ntasks=1", "--nodelist=b1", "--exact", "--gres=none", *program)
    assert srun_words(slot, 1, program) == plain
    assert srun_words(slot, 2, program) == ("srun", "--het-group=1", *plain[1:])


SPREAD = {("train", 0): NodeSlot(0, "a1", ()), ("train", 1): NodeSlot(1, "b1", ()), ("serve", 0): NodeSlot(2, "c1", ())}


class TestSpareComponents:
    def over(self, *names: str) -> Job:
        tasks = [
            replace(task, state=State.COMPLETED, ended_at=10.0) if task.name in names else task for task in JOB.tasks
        ]
        return replace(JOB, tasks=tuple(tasks))

    def test_only_when_all_tasks_there_have_ended_a_while_ago(self) -> None:
        assert find_spare(self.over(), SPREAD, 20.0, 1.0) == set()
        assert find_spare(self.over("serve"), SPREAD, 10.5, 1.0) == set()
        assert find_spare(self.over("serve"), SPREAD, 11.0, 1.0) == {2}

    def test_the_first_stays_for_it_has_the_supervisor(self) -> None:
        assert find_spare(self.over("train"), SPREAD, 20.0, 1.0) == {1}

    def test_none_while_a_failed_job_is_looked_at_nor_after_its_end(self) -> None:
        job = self.over("serve")
        held = replace(job, ending=Ending(Cause.PRIMARY_FAILED, 10.0, State.FAILED, hold_until=99.0))
        assert find_spare(held, SPREAD, 20.0, 1.0) == set()
        assert find_spare(replace(job, state=State.FAILED), SPREAD, 20.0, 1.0) == set()

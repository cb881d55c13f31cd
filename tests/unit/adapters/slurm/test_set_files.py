"""A set as native jobs: which groups are sets, their scripts, limits and files."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from tests.unit.adapters.slurm.links import SITE
from tests.unit.adapters.slurm.samples import NOW, check_golden, read_file, read_script

from overspan.adapters.contract import Launch, Order
from overspan.adapters.slurm.files.application import name_archive
from overspan.adapters.slurm.groups.packing import NodeSize
from overspan.adapters.slurm.groups.parts import find_obstacle, is_set, list_members, member_of, narrow, split_token
from overspan.adapters.slurm.groups.placement import plan_group
from overspan.adapters.slurm.groups.rendering import read_launch_file
from overspan.adapters.slurm.rendering.forms import find_mount_obstacle, is_group
from overspan.adapters.slurm.rendering.renderer import Rendered, Renderer, name_run
from overspan.adapters.slurm.rendering.script import find_token
from overspan.adapters.slurm.settings import Settings
from overspan.bridge.model.errors import InvalidRequest
from overspan.bridge.model.events import Launch as LaunchEvent

TEXT = (
    "name: g\nexecution: parallel\nrestart: task\nprimary_tasks: [trainer]\ntermination_delay: 10s\n---\n"
    "name: trainer\nnum_nodes: 2\ntime: 1h\nresources: {cpus: 4, memory: 8}\nslurm: {partition: gpu}\n"
    "secrets: {KEY: s3cret}\nrun: t\n---\n"
    "name: server\nresources: {cpus: 2, memory: 4}\nrun: s\n"
)
SET = read_file(TEXT, 42)
LAUNCH = Launch("inst-42-0", SET, {"SPAN_ADDRESS": "/run/span.sock"})
RENDERER = Renderer(Settings(), "/r", "rig")


def files_of(rendered: Rendered) -> dict[str, bytes]:
    return {file.path: file.data for file in rendered.files}


@pytest.mark.parametrize(
    ("header", "task", "wanted"),
    [
        ("restart: task\n", "", True),
        ("", "restart: task\n", True),
        ("restart: group\n", "", False),
        ("", "", False),
        ("", "restart: node\n", False),
    ],
)
def test_a_set_is_asked_for(header: str, task: str, wanted: bool) -> None:
    text = f"name: g\nexecution: parallel\n{header}---\nname: a\n{task}run: x\n---\nname: b\nrun: y\n"
    assert is_set(read_file(text)) is wanted


def test_a_task_alone_is_no_set() -> None:
    assert not is_set(read_file("name: a\nnum_nodes: 2\nrestart: task\nrun: x\n"))


def test_a_set_mounts_no_object_stores() -> None:
    """Not even where Slurm has no heterogeneous jobs and the group becomes one only then."""
    mounted = TEXT.replace("run: s\n", "file_mounts: {./out: {source: s3://lab/run, mode: MOUNT_CACHED}}\nrun: s\n")
    job = read_file(mounted)
    assert "restart: task" in find_mount_obstacle(job.spec)
    with pytest.raises(InvalidRequest, match="mounts object stores"):
        list_members(Launch("inst-7-0", job))
    one = read_file(mounted.replace("restart: task\n", ""))
    assert find_mount_obstacle(one.spec) == ""


@pytest.mark.parametrize(
    ("text", "obstacle"),
    [
        ("name: a\nrun: x\n", ""),
        (TEXT.replace("restart: task\n", ""), ""),
        (TEXT.replace("run: s\n", "share: trainer\nrun: s\n"), "share nodes"),
    ],
)
def test_a_job_that_races_is_a_set_where_it_can_be(text: str, obstacle: str) -> None:
    job = read_file(text)
    assert obstacle in find_obstacle(job) and bool(obstacle) is bool(find_obstacle(job))
    racing = replace(job, racers=("a", "b"))
    assert is_group(racing) and is_set(racing)
    if not obstacle:
        assert [member.task for member in list_members(Launch("inst-7-0", racing))] == [t.name for t in job.spec.tasks]


def test_a_batch_script_does_not_race() -> None:
    assert "batch script" in find_obstacle(read_script("#!/bin/sh\nsrun hostname\n"))


def test_the_plan_shows_every_job() -> None:
    check_golden("set.txt", RENDERER.plan(SET, as_set=True).replace(name_archive(), "supervisor-1.pyz"))


def test_jobs_are_held_and_have_tokens_of_their_own() -> None:
    for member in list_members(LAUNCH):
        rendered = RENDERER.render(member, SITE)
        assert b"#SBATCH --hold\n" in rendered.call.stdin
        comment = next(word for word in rendered.call.argv if word.startswith("--comment="))
        assert split_token(find_token(comment.partition("=")[2])) == ("inst-42-0", member.task, 0)
        assert name_run(member) == "inst-42"
        assert not rendered.release
    assert split_token("inst-42-0") is None


def test_files_are_in_folders_of_their_own() -> None:
    trainer, _ = list_members(LAUNCH)
    files = files_of(RENDERER.render(trainer, SITE))
    folder = "/r/runs/inst-42/members/trainer"
    assert set(files) == {f"{folder}/0/plan.0.json", f"{folder}/0/placement.0.json", f"{folder}/launch.0.json"}
    placement = json.loads(files[f"{folder}/0/placement.0.json"])
    assert [step["task"] for step in placement["steps"]] == ["trainer"]
    assert placement["token"] == trainer.token == json.loads(files[f"{folder}/0/plan.0.json"])["token"]
    assert read_launch_file(files[f"{folder}/launch.0.json"]) == (SET, {"SPAN_ADDRESS": "/run/span.sock"}, "")


def test_a_replacement_has_its_order_and_waits_for_nobody() -> None:
    order = Order("tok", "m.x", LaunchEvent(NOW, "server", 3))
    replacement = member_of(LAUNCH, "server", 3, order)
    rendered = RENDERER.render(replacement, SITE)
    assert b"--hold" not in rendered.call.stdin
    files = files_of(rendered)
    (line,) = files["/r/runs/inst-42/members/server/3/orders.0.jsonl"].splitlines()
    assert json.loads(line) == {
        "seq": 1,
        "event": {"event": "Launch", "at": NOW, "task": "server", "attempt": 3},
        "token": "tok",
    }
    # What began the set stays as it is.
    assert "/r/runs/inst-42/members/server/launch.0.json" not in files


def test_a_job_lasts_as_long_as_its_task_may() -> None:
    sizes = (NodeSize("", 8, 32_000, count=2),)
    (server,) = plan_group(narrow(SET, "server"), sizes).components
    # The trainer's hour and grace, the delay, its own grace, and a minute for starts and ends.
    assert server.time == 3600 + 30 + 10 + 30 + 60
    assert len(server.bins) == 1
    # The nodes of a failed job are kept once.
    kept = read_file(TEXT.replace("termination_delay: 10s", "termination_delay: 10s\nhold_on_failure: 5m"), 42)
    assert plan_group(narrow(kept, "server"), sizes).components[0].time == (server.time or 0) + 300


def test_nodes_of_another_job_cannot_be_shared() -> None:
    text = "name: g\nexecution: parallel\nrestart: task\n---\nname: a\nrun: x\n---\nname: b\nshare: a\nrun: y\n"
    with pytest.raises(InvalidRequest, match="shares the nodes of 'a'"):
        list_members(Launch("t", read_file(text)))


def test_the_plan_says_which_jobs_come_at_their_turn() -> None:
    job = read_file(
        "name: g\nexecution: parallel\nrestart: task\nprimary_tasks: [train, judge]\n---\nname: server\nrun: s\n---\n"
        "name: train\nrun: t\n---\nname: judge\nneeds: [ok:train]\nrun: j\n"
    )
    text = RENDERER.plan(job, as_set=True)
    assert "a set of 2 jobs, submitted held and released together\n" in text
    assert "# task train:\n" in text and "# task judge, submitted at its turn:\n" in text

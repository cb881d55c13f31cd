"""A cluster whose nodes share no folder: settings, what is refused, where jobs run, how output is read."""

from __future__ import annotations

import base64
import json
import os
import random
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from tests.fakes.slurm_jobs import Behaviour, Request
from tests.fakes.slurm_shell import SRUN
from tests.fakes.slurm_transport import Trouble
from tests.fakes.slurm_world import SlurmWorld
from tests.unit.adapters.slurm.links import SITE
from tests.unit.adapters.slurm.samples import read_file, read_script
from tests.waiting import wait_until

from overspan.adapters.contract import Accepted, ClusterConfig, Decider, Launch, Node, Order
from overspan.adapters.slurm.commands.queries import Queries
from overspan.adapters.slurm.groups.handles import GroupCursor, GroupHandle, GroupPart, PartCursor
from overspan.adapters.slurm.groups.parts import list_members, member_of
from overspan.adapters.slurm.groups.projection import GroupView, PartView, project_group
from overspan.adapters.slurm.observation.journals import JournalPage
from overspan.adapters.slurm.observation.outcomes import NativeOutcome, Phase
from overspan.adapters.slurm.observation.projection import NativeView
from overspan.adapters.slurm.rendering.images import FOLDER, HOSTS
from overspan.adapters.slurm.rendering.renderer import ClusterFacts, Renderer
from overspan.adapters.slurm.settings import Settings, read_settings
from overspan.adapters.slurm.submission import submitter as submission
from overspan.adapters.slurm.transports.transport import Call, Done
from overspan.adapters.slurm.unshared.groups import LOG
from overspan.adapters.slurm.unshared.inline_files import InlineFiles, encode_inline
from overspan.adapters.slurm.unshared.jobs import read_there, refuse_unshared
from overspan.adapters.slurm.unshared.relays import render_starts
from overspan.adapters.slurm.unshared.staging import InlinePacker
from overspan.bridge.model import events
from overspan.bridge.model.causes import Cause
from overspan.bridge.model.errors import Conflict, InvalidRequest, NotFound, Rejected, Unreachable
from overspan.bridge.model.events import LaunchLost, NodeEnded
from overspan.bridge.model.job import Job
from overspan.bridge.runtime.slurm.bootstrap import take_documents
from overspan.bridge.runtime.slurm.node_staging import FOLDER_PLACEHOLDER
from overspan.bridge.runtime.slurm.relay_node import OVER, TAKEN, find_folder

GROUP = "name: g\nexecution: parallel\n---\nname: a\nrun: x\n---\nname: b\nrun: x\nsecrets: {KEY: s3cret}\n"
NODES = (Node("localhost", "main", "idle", 8, 0, 8000, 0),)
RENDERER = Renderer(Settings(shared=False, shared_root=False), "/r", "rig")


def test_without_a_shared_root_jobs_do_not_see_this_machines_files() -> None:
    assert not read_settings(ClusterConfig("c", "slurm", {"shared_root": False})).shared
    with pytest.raises(InvalidRequest, match="with `shared: true`"):
        read_settings(ClusterConfig("c", "slurm", {"shared_root": False, "shared": True}))


def test_what_needs_a_shared_folder_is_refused_with_a_remedy() -> None:
    with pytest.raises(Rejected, match="a volume by its name") as caught:
        RENDERER.render(Launch("i-7-0", read_file(f"{GROUP}volumes: {{/data: kept}}\n")), SITE)
    assert "set `root`" in caught.value.remedy


def test_what_slurm_carries_is_not_refused() -> None:
    refuse_unshared(read_file("name: t\nenvs: {A: b}\nrun: x\n"))
    refuse_unshared(read_script("#!/bin/sh\n"))


def test_a_task_runs_and_writes_where_every_node_has_a_folder() -> None:
    launch = Launch("i-7-0", read_file("name: t\nrun: x\n"))
    script = RENDERER.render(launch, SITE).call.stdin.decode()
    assert "#SBATCH --chdir=/tmp\n" in script and "/r/runs" not in script
    assert RENDERER.paths(launch, 42, SITE)[0] == "/tmp/slurm-42.out"


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SlurmWorld:
    """A world where job 1 runs and job 2 has ended."""
    world = SlurmWorld(tmp_path, monkeypatch)
    world.transport.behave = lambda job: Behaviour(None if job.id == 1 else 1.0)
    for _ in range(2):
        world.slurm.submit([Request(script="#!/bin/sh")])
    world.slurm.catch_up(world.now() + 5)
    return world


def test_output_is_read_beside_the_job(world: SlurmWorld) -> None:
    file = world.folder / "slurm-1.out"
    file.write_text("0123456789")

    async def story() -> None:
        piece = await read_there(world.transport, "1", str(file), 3, 4)
        assert (piece.data, piece.size) == (b"3456", 10)

    world.play(story())


@pytest.mark.parametrize(
    ("native", "trouble", "kind", "words"),
    [
        ("1", None, NotFound, "there is no file /nowhere/x"),
        ("2", None, Conflict, "/nowhere/x"),
        ("3", None, Conflict, "/nowhere/x"),
        ("1", Trouble.REFUSED, Unreachable, "Unable to contact"),
    ],
)
def test_what_cannot_be_read_is_told_in_words(
    world: SlurmWorld, native: str, trouble: Trouble | None, kind: type[Exception], words: str
) -> None:
    if trouble is not None:
        world.transport.fail("srun", trouble)

    async def story() -> None:
        with pytest.raises(kind, match=words):
            await read_there(world.transport, native, "/nowhere/x", 0, 10)

    world.play(story())


def test_a_group_carries_its_application_in_the_script_and_its_plan_in_variables() -> None:
    launch = Launch("i-7-0", read_file(GROUP))
    rendered = RENDERER.render(launch, SITE)
    script = rendered.call.stdin.decode()
    assert "#SBATCH --chdir=/tmp\n" in script and f"#SBATCH --output={LOG}\n" in script
    assert len(script) < 1 << 20 and "s3cret" not in script and "s3cret" not in " ".join(rendered.call.argv)
    variables = dict(rendered.call.environment)
    carried = take_documents(variables)
    assert not variables
    assert carried == {file.path.rpartition("/")[2]: file.data for file in rendered.files}
    assert b"s3cret" in carried["plan.0.json"] and list(carried) == ["plan.0.json", "placement.0.json"]


def test_files_of_a_group_stand_behind_its_application(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("x" * 999)
    job, inline = InlinePacker(1 << 20).pack(read_file(f"{GROUP}file_mounts: {{here/data: {tmp_path}/data}}\n"))
    rendered = RENDERER.render(Launch("i-7-0", job), ClusterFacts(SITE, inline=inline))
    script = rendered.call.stdin.decode()
    assert inline is not None and script.endswith(f"\n{encode_inline(inline)}OVERSPAN_APPLICATION\n")
    text = script.partition("<<'OVERSPAN_APPLICATION'\n")[2]
    rest = text[10 + int(text[:10]) :].removesuffix("OVERSPAN_APPLICATION\n")
    assert base64.b64decode("".join(rest.split())) == inline.data
    plan = json.loads(take_documents(dict(rendered.call.environment))["plan.0.json"])
    mover, other = plan["job"]["spec"]["tasks"][1], plan["job"]["spec"]["tasks"][0]
    assert (mover["workdir"], mover["file_mounts"]) == (
        f"{FOLDER_PLACEHOLDER}/work",
        {"here/data": f"{FOLDER_PLACEHOLDER}/files/0/data"},
    )
    assert not other.get("file_mounts") and FOLDER_PLACEHOLDER not in json.dumps(other)


SHOW = "cat data shown/data; echo more >>data; pwd"


def test_members_of_a_group_have_copies_of_their_own(tmp_path: Path) -> None:
    project = tmp_path / "it's mine"
    project.mkdir()
    (project / "data").write_text("all of it\n")
    files = f'workdir: "{project}"\nfile_mounts: {{shown: "{project}"}}\nrun: {SHOW}\n'
    text = f"name: g\nexecution: parallel\n---\nname: a\n{files}---\nname: b\n{files}---\nname: c\nrun: ls; pwd\n"
    job, inline = InlinePacker(1 << 20).pack(replace_directory(read_file(text), str(project)))
    renderer = Renderer(RENDERER.settings.model_copy(update={"python": sys.executable}), "/r", "rig")
    call = renderer.render(Launch("i-7-0", job), ClusterFacts(SITE, NODES, inline=inline)).call
    (tmp_path / "script").write_bytes(call.stdin)
    (tmp_path / "srun").write_text(SRUN)
    (tmp_path / "srun").chmod(0o700)
    native = str(20_000_000 + os.getpid())
    own = {"SLURM_JOB_ID": native, "SLURM_JOB_NODELIST": "localhost", "SLURMD_NODENAME": "localhost"}
    environment = {**own, "PATH": f"{tmp_path}:{os.environ['PATH']}", **call.environment}
    with subprocess.Popen(["bash", str(tmp_path / "script")], env=environment, cwd=tmp_path) as leader:
        try:
            folder = Path(wait_until(lambda: find_folder(native, ("/tmp",)), 30, "the supervisor's folder"))
            wait_until(lambda: (folder / OVER).exists(), 60, "the end")
            logs = {name: (folder / "logs" / f"{name}.0.0.0.out").read_text().splitlines() for name in "abc"}
            (folder / TAKEN).touch()
            assert leader.wait(120) == 0
        finally:
            leader.terminate()
    for name in "ab":
        *shown, place = logs[name]
        assert shown == ["all of it", "all of it"] and place.endswith("/files/0/it's mine")
        assert not Path(place).exists()
    assert logs["a"][-1] != logs["b"][-1] and logs["c"][-1] == "/tmp"


def replace_directory(job: Job, directory: str) -> Job:
    """The job as one that was submitted from there."""
    return replace(job, spec=replace(job.spec, origin=replace(job.spec.origin, directory=directory)))


def test_many_scripts_with_files_go_over_several_round_trips(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(submission, "BATCH_BYTES", 1)
    world = SlurmWorld(tmp_path, monkeypatch)
    trips: list[int] = []
    run_all = world.transport.run_all

    async def count(calls: Sequence[Call], timeout: float = 60.0) -> list[Done | None]:
        trips.append(sum(call.argv[0] == "sbatch" for call in calls))
        return await run_all(calls, timeout)

    monkeypatch.setattr(world.transport, "run_all", count)
    launches = [
        Launch(f"i-{number}-0", read_file(f"name: t\nworkdir: {tmp_path}\nrun: x\n", number)) for number in (1, 2, 3)
    ]

    async def story() -> None:
        answers = await submission.Submitter(Queries(world.transport, 10), RENDERER, 0.0).submit(launches)
        assert [type(answers[launch.token]) for launch in launches] == [Accepted] * 3
        assert [sbatches for sbatches in trips if sbatches] == [1, 1, 1]

    world.play(story())


def test_the_script_of_a_group_starts_the_application_that_it_carries(tmp_path: Path) -> None:
    script = RENDERER.render(Launch("i-7-0", read_file(GROUP)), SITE).call.stdin
    # Without its variables there is nothing to run, which its supervisor is there to say.
    words = ["bash", "-s"]
    done = subprocess.run(words, input=script, capture_output=True, env={"PATH": os.environ["PATH"]}, timeout=60)
    assert done.returncode == 70 and b"the plan has not come with the batch script" in done.stderr


def test_a_trial_and_a_plan_carry_nothing() -> None:
    launch = Launch("i-7-0", read_file(GROUP))
    trial = RENDERER.render(launch, SITE, test_only=True).call
    assert len(trial.stdin) < 4096 and not trial.environment
    plan = RENDERER.plan(launch.job)
    assert "s3cret" not in plan and len(plan) < 8192
    assert "# the supervisor's application is appended to the script" in plan and "-c <unpack> node" in plan


@pytest.mark.parametrize("runtime", ["pyxis", "apptainer"])
def test_an_image_shows_what_its_node_has(runtime: str) -> None:
    renderer = Renderer(RENDERER.settings.model_copy(update={"containers": runtime}), "/r", "rig")
    launch = Launch("i-7-0", read_file(f"{GROUP}resources: {{image_id: docker:debian}}\nready: {{file: up}}\n"))
    rendered = renderer.render(launch, SITE)
    placement = json.loads(next(file.data for file in rendered.files if "placement" in file.path))
    words = " ".join(next(step["image"] for step in placement["steps"] if step["task"] == "b"))
    assert "/tmp:/tmp" in words and f"{FOLDER}:{FOLDER}" in words and f"{HOSTS}:/etc/hosts" in words
    assert "/r/runs" not in words
    assert "<folder>:<folder>" in renderer.plan(launch.job)


def test_a_plan_that_cannot_travel_is_refused() -> None:
    noise = base64.b64encode(random.Random(1).randbytes(2 << 20)).decode()
    with pytest.raises(Rejected, match="cannot travel"):
        RENDERER.render(Launch("i-7-0", read_file(GROUP.replace("run: x", f"run: '{noise}'", 1))), SITE)


def test_a_native_job_of_a_set_carries_what_it_needs_and_no_more() -> None:
    inline = InlineFiles(b"packed")
    first, _ = list_members(Launch("i-7-0", read_file(GROUP.replace("parallel", "parallel\nrestart: task"))))
    rendered = RENDERER.render(first, ClusterFacts(SITE, inline=inline))
    assert "unshared /r/runs/i-7 0 a 0" in rendered.call.stdin.decode() and LOG in rendered.call.stdin.decode()
    carried = take_documents(dict(rendered.call.environment))
    assert sorted(carried) == ["members/a/0/placement.0.json", "members/a/0/plan.0.json"]
    assert json.loads(carried["members/a/0/plan.0.json"])["decider"] == "daemon"
    # A replacement is made of what stays on the login node.
    kept = {file.path.removeprefix("/r/runs/i-7/"): file.data for file in rendered.files}
    assert kept["members/a/inline.0.tar.gz"] == b"packed" and "members/a/launch.0.json" in kept
    order = Order("tok", "", events.Launch(1.0, "b", 0))
    later = member_of(Launch("i-7-0", first.job), "b", 0, order, first.task)
    again = RENDERER.render(later, ClusterFacts(SITE, inline=inline))
    assert later.kept == "a" and not any("inline" in file.path for file in again.files)


HANDLE = GroupHandle(7, 0, 30, "/r/runs/i-7", (GroupPart(42),))
ENDED = NativeView(NativeOutcome(Phase.ENDED, Cause.SUCCESS), "None", ("n1",), 1.0, 9.0, None, 20.0)


@pytest.mark.parametrize(
    ("outcome", "unshared", "cause", "words"),
    [
        (NativeOutcome(Phase.ENDED, Cause.SUCCESS), True, "success", "exit code 0; its record stayed on the node"),
        (
            NativeOutcome(Phase.ENDED, Cause.EXIT, exit_code=3),
            True,
            "exit",
            "exit code 3; its record stayed on the node",
        ),
        (NativeOutcome(Phase.ENDED, Cause.SUCCESS), False, "launch", "the supervisor ended with exit code 0"),
        (NativeOutcome(Phase.ENDED, Cause.TIME), True, "time", ""),
    ],
)
def test_an_end_of_which_no_record_came_is_slurms(
    outcome: NativeOutcome, unshared: bool, cause: str, words: str
) -> None:
    observed = PartView(replace(ENDED, outcome=outcome), JournalPage(0, (), 0, False, 30.0), unshared=unshared)
    told = project_group(HANDLE, GroupView({"": observed}), HANDLE.begin())
    (lost,) = told.events
    assert isinstance(lost, LaunchLost) and lost.cause == cause and words in lost.detail and told.cursor.over


@pytest.mark.parametrize(
    ("code", "unshared", "told"),
    [(0, True, (0, 0, "")), (3, True, (3, 0, "")), (0, False, (0, 9, "node")), (70, True, (0, 9, "node"))],
)
def test_a_task_of_which_no_record_came_ended_as_its_supervisor(
    code: int, unshared: bool, told: tuple[int, int, str]
) -> None:
    handle = GroupHandle(7, 0, 30, "/r/runs/i-7", (GroupPart(42, "a", 1),), Decider.DAEMON)
    cursor = GroupCursor((PartCursor(42, "a", attempt=0, open=((0, 0),)),), granted=True)
    outcome = NativeOutcome(Phase.ENDED, Cause.EXIT if code else Cause.SUCCESS, exit_code=code)
    observed = PartView(replace(ENDED, outcome=outcome), JournalPage(0, (), 0, False, 30.0), unshared=unshared)
    (ended,) = project_group(handle, GroupView({"a": observed}), cursor).events
    assert isinstance(ended, NodeEnded) and (ended.exit_code, ended.signal, ended.cause) == told


class TestRelays:
    def test_a_relay_is_started_once_until_all_is_there(self, tmp_path: Path) -> None:
        run, calls_file = tmp_path / "run", tmp_path / "calls"
        run.mkdir()
        python = tmp_path / "python"
        # It holds the lock as a relay does, for as long as the test wants.
        python.write_text(
            f'#!/bin/sh\necho "$*" >>{calls_file}\nexec 9>>{run}/relay.0.lock; flock 9 && cat {tmp_path}/end\n'
        )
        python.chmod(0o700)
        os.mkfifo(tmp_path / "end")
        settings = Settings(shared=False, shared_root=False, python=str(python))
        handle = replace(HANDLE.list_jobs()[0], folder=str(run))
        program = render_starts([handle, replace(handle, folder=f"{tmp_path}/missing")], settings, "/r")

        def start() -> list[str]:
            subprocess.run(["sh"], input=program, text=True, check=True, timeout=60)
            # The shell makes the file before it has the words for it.
            wait_until(lambda: calls_file.exists() and calls_file.read_text().endswith("\n"), 10, "a call")
            return calls_file.read_text().splitlines()

        calls = start()
        assert len(calls) == 1 and calls[0].endswith(f"relay {run} 0 42 {python}")
        wait_until(lambda: subprocess.run(["flock", "-n", run / "relay.0.lock", "true"]).returncode, 10, "the lock")
        assert start() == calls
        (tmp_path / "end").write_text("")
        wait_until(lambda: not subprocess.run(["flock", "-n", run / "relay.0.lock", "true"]).returncode, 10, "its end")
        (run / "taken.0").touch()
        assert start() == calls
        assert not (tmp_path / "missing").exists()

    def test_a_relay_of_a_part_has_the_run_directory_and_the_part(self) -> None:
        handle = replace(HANDLE.list_jobs()[0], folder="/r/runs/i-7/members/a/2")
        program = render_starts([handle], Settings(shared=False, shared_root=False), "/r")
        assert "relay /r/runs/i-7 0 42 python3 members/a/2" in program
        assert "/r/runs/i-7/members/a/2 taken.0 relay.0.lock" in program

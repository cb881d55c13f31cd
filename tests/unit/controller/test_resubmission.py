"""Resubmission with changes: what becomes of a spec, what is refused, and what the new job tells."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from tests.unit.controller.fakes import START, Bench, FakeCluster, end, play, start_job, until

from overspan.adapters.slurm.rendering.script import RenderContext, render_job
from overspan.bridge.config.settings import ClusterSettings, Settings
from overspan.bridge.controller.orders.requests import Update
from overspan.bridge.controller.submission.present_values import list_values
from overspan.bridge.controller.submission.resubmission import ResubmitRequest
from overspan.bridge.controller.submission.spec_changes import change_spec, sort_changes
from overspan.bridge.controller.submission.submitter import ParsedSubmission, Submitted
from overspan.bridge.model.documents import decode, encode
from overspan.bridge.model.errors import Conflict, InvalidRequest, NotFound, Rejected
from overspan.bridge.model.ids import parse_array
from overspan.bridge.model.job import new_job
from overspan.bridge.model.options.resubmit import RESUBMIT_OPTIONS
from overspan.bridge.model.options.sbatch import BY_NAME
from overspan.bridge.model.spec import Dependency, DependencyKind, JobNeed, JobSpec
from overspan.bridge.readers.submission import JOB_FILE, SCRIPT, Submission, read_submission

KINDS = {"local": "local", "leo": "slurm", "kube": "kubernetes"}
FILE = """\
name: fit
time: 1h
resources: {cpus: 4, memory: 8, accelerators: "H100:2"}
envs: {SEED: "7"}
secrets: {KEY: hush}
run: python fit.py
"""
GROUP = """\
name: rl
execution: parallel
cluster: leo
---
name: trainer
time: 1h
resources: {cpus: 4, memory: 8}
run: train
---
name: rollout
num_nodes: 2
resources: {cpus: 2}
run: roll
"""


def read_file(text: str = FILE) -> JobSpec:
    """A job file as the daemon reads it."""
    return read_submission(Submission(JOB_FILE, text, "fit.yaml", directory="/home/ana"), KINDS, START)


def read_script(*words: str, lines: str = "") -> JobSpec:
    """A batch script with these options on its command line and these lines of its own."""
    argv = (*words, "fit.sh")
    text = f"#!/bin/bash\n{lines}python fit.py\n"
    submission = Submission(SCRIPT, text, "fit.sh", argv=argv, command=("sbatch", *argv), directory="/home/ana")
    return read_submission(submission, KINDS, START)


def change(spec: JobSpec, changes: Mapping[str, str]) -> JobSpec:
    """The spec with changes."""
    return change_spec(spec, sort_changes(spec, changes), START)


def render(spec: JobSpec) -> list[str]:
    """The sbatch command of a batch script, without what each submission has."""
    argv = render_job(new_job(1, spec, START), RenderContext("token")).argv
    return [word for word in argv[2:] if not word.startswith(("--comment", "--chdir", "--job-name"))]


# --- the table --------------------------------------------------------------------------------------------------------


def test_every_option_is_one_of_sbatch_and_can_be_changed() -> None:
    values = {
        "hold": "",
        "begin": "now+1hour",
        "dependency": "afterok:7",
        "mem": "1G",
        "mem-per-cpu": "1G",
        "gres": "gpu:1",
        "time": "2h",
    }
    numbers = {"cpus-per-task", "nodes", "ntasks", "ntasks-per-node", "gpus-per-node", "gpus", "gpus-per-task", "nice"}
    for option in RESUBMIT_OPTIONS:
        assert option.name in BY_NAME
        value = values.get(option.name, "3" if option.name in numbers | {"priority"} else "name")
        for spec in (read_file(), read_script()):
            assert change(spec, {option.name: value}) != spec, option.name


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"time": "2h"}, {"time": 7200}),
        ({"time": "90"}, {"time": 5400}),
        ({"time": "UNLIMITED"}, {"time": None}),
        ({"nodes": "3"}, {"num_nodes": 3}),
    ],
)
def test_a_task_takes_a_change_and_keeps_the_rest(changes: dict[str, str], expected: dict[str, Any]) -> None:
    spec = read_file()
    assert change(spec, changes) == replace(spec, tasks=(replace(spec.tasks[0], **expected),))


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"mem": "32G"}, {"memory_mib": 32768}),
        ({"mem-per-cpu": "2G"}, {"memory_mib": None, "memory_mib_per_cpu": 2048}),
        ({"cpus-per-task": "8"}, {"cpus": 8.0}),
        ({"cpus-per-task": "0.5"}, {"cpus": 0.5}),
    ],
)
def test_resources_of_a_job_file(changes: dict[str, str], expected: dict[str, Any]) -> None:
    spec = read_file()
    assert change(spec, changes).tasks[0].resources == replace(spec.tasks[0].resources, **expected)


def test_gpus_are_those_of_a_node_however_they_are_asked_for() -> None:
    two = change(read_file(), {"nodes": "2"})
    assert [str(each) for each in change(two, {"gpus": "8"}).tasks[0].resources.gpus] == ["4"]
    assert [str(each) for each in change(two, {"gpus-per-node": "A100:4"}).tasks[0].resources.gpus] == ["A100:4"]
    other = change(two, {"gres": "shard:1"}).tasks[0].resources
    assert [str(each) for each in (*other.gpus, *other.gres)] == ["H100:2", "shard:1"]
    assert change(two, {"gpus": "0"}).tasks[0].resources.gpus == ()


def test_nodes_and_cpus_follow_from_processes_as_with_sbatch() -> None:
    spec = read_script("-n8", "--ntasks-per-node=4", "-c2", "--mem=4G")
    task = change(spec, {"ntasks": "16"}).tasks[0]
    assert (task.num_nodes, task.ntasks, task.resources.cpus) == (4, 16, 8.0)
    task = change(spec, {"cpus-per-task": "4"}).tasks[0]
    assert (task.num_nodes, task.cpus_per_task, task.resources.cpus, task.resources.memory_mib) == (2, 4, 16.0, 4096)
    more = change(read_script("-c2", "--mincpus=8"), {"cpus-per-task": "4"}).tasks[0]
    assert more.resources.cpus == 8.0
    noted = change(read_script("-n1"), {"nodes": "4"})
    assert noted.tasks[0].num_nodes == 1 and "can't run 1 processes on 4 nodes" in noted.notes[-1]


def test_a_group_names_its_task_but_for_the_time() -> None:
    spec = read_file(GROUP)
    trainer, rollout = change(spec, {"time": "3h", "rollout.time": "2h", "trainer.mem": "64G"}).tasks
    assert (trainer.time, trainer.resources.memory_mib, rollout.time) == (10800, 65536, 7200)
    assert rollout == replace(spec.tasks[1], time=7200)
    assert change(spec, {"qos": "high"}) == replace(spec, qos="high")
    told = sort_changes(spec, {"time": "3h", "rollout.mem": "1G", "qos": "high"}).list_words()
    assert told == ("--time=3h", "--qos=high", "rollout:--mem=1G")


REFUSED: tuple[tuple[str, dict[str, str], str], ...] = (
    (FILE, {"mem": "lots"}, "Invalid --mem specification"),
    (FILE, {"time": "soon"}, "--time: 'soon' is not a wall time"),
    (FILE, {"nodes": "x"}, '"x" is not a valid node count'),
    (FILE, {"cpus-per-task": "0"}, 'Invalid numeric value "0" for --cpus-per-task'),
    (FILE, {"cpus-per-task": "0.x"}, "--cpus-per-task: '0.x' is not a number of CPUs"),
    (FILE, {"mem": "1G", "mem-per-cpu": "1G"}, "mutually exclusive"),
    (FILE, {"gpus": "many things"}, "Invalid generic resource"),
    (FILE, {"partition": ""}, "--partition needs a value"),
    (FILE, {"wrap": "ls"}, "--wrap cannot be changed by a resubmission"),
    (FILE, {"tiem": "1h"}, "did you mean 'time'"),
    (FILE, {"other.mem": "1G"}, "the job has no task 'other'"),
    (FILE, {"job-name": "a b"}, "--job-name: the name 'a b' has ' ' in it"),
    (FILE, {"begin": "whenever"}, "Invalid --begin specification"),
    (FILE, {"dependency": "sometime"}, "Job dependency problem"),
    (FILE, {"nice": "-5"}, "Invalid --nice value"),
    (FILE, {"clusters": ","}, "--clusters names no cluster"),
    (GROUP, {"mem": "1G"}, "--mem is of one task, and the job has several"),
    (GROUP, {"trainer.partition": "gpu"}, "--partition is of the whole job"),
    (GROUP, {"trainr.mem": "1G"}, "did you mean 'trainer'"),
)


@pytest.mark.parametrize(("text", "changes", "words"), REFUSED, ids=[str(row[1]) for row in REFUSED])
def test_what_is_refused_is_told_without_the_name_of_another_command(
    text: str, changes: dict[str, str], words: str
) -> None:
    with pytest.raises(InvalidRequest) as caught:
        change(read_file(text), changes)
    assert words in str(caught.value) and "sbatch:" not in caught.value.message
    if "several" in words:
        assert "trainer, rollout" in caught.value.remedy


def test_alternatives_take_the_change_too() -> None:
    text = (
        "name: x\nresources:\n  any_of:\n  - {infra: slurm/leo, memory: 8}\n  - {infra: kube, memory: 9}\nrun: 'true'\n"
    )
    spec = read_file(text)
    assert len(spec.candidates) == 2
    changed = change(spec, {"mem": "32G", "partition": "big"})
    assert [each.demands[0].resources.memory_mib for each in changed.candidates] == [32768, 32768]
    assert {each.partition for each in changed.candidates} == {"big"}
    there = change(spec, {"clusters": "kube"})
    assert [each.cluster for each in there.candidates] == ["kube"] and there.clusters == ("kube",)
    assert change(spec, {"clusters": "local"}).candidates == ()


def test_native_options_do_not_overrule_a_change() -> None:
    text = "name: x\ncluster: leo\nslurm: {time: 5, partition: old}\nresources: {memory: 8}\nrun: 'true'\n"
    changed = change(read_file(text), {"time": "2h", "partition": "new", "exclude": "n[1-2]", "mem-per-cpu": "1G"})
    script = render_job(new_job(1, changed, START), RenderContext("token")).script
    for line in ("--time=2:00:00", "--partition=new", "--exclude=n[1-2]", "--mem-per-cpu=1"):
        assert f"#SBATCH {line}" in script.replace('"', ""), script
    assert "--time=5" not in script and "old" not in script and "--mem=" not in script


# --- batch scripts on Slurm -------------------------------------------------------------------------------------------


def test_a_script_is_given_to_slurm_with_the_changes_on_its_command_line() -> None:
    spec = read_script("--mem-per-cpu=1G", "-t", "5", "-p", "old", lines="#SBATCH -c 2\n")
    changed = change(spec, {"time": "2h", "mem": "32G", "cpus-per-task": "8", "exclude": "n1"})
    assert sorted(render(changed)) == [
        "--cpus-per-task=8",
        "--exclude=n1",
        "--mem=32G",
        "--partition=old",
        "--time=2:00:00",
    ]
    again = change(changed, {"mem-per-cpu": "4G", "partition": "new"})
    assert {"--mem-per-cpu=4G", "--partition=new", "--time=2:00:00"} < set(render(again))
    assert not [word for word in render(again) if word.startswith("--mem=")]
    assert decode(JobSpec, encode(again)) == again


def test_a_script_asks_for_its_gpus_in_one_way() -> None:
    spec = read_script(lines="#SBATCH --gres=gpu:2,shard:1\n")
    with pytest.raises(InvalidRequest, match="asks for its GPUs by --gres=gpu:2,shard:1"):
        change(spec, {"gpus": "4"})
    changed = change(spec, {"gres": "gpu:4"})
    assert render(changed) == ["--gres=gpu:4"] and list_values(changed, "leo")["gres"] == "gpu:4"
    typed = change(read_script("--gres=gpu:2,shard:1"), {"gpus": "4"})
    assert render(typed) == ["--gres=shard:1", "--gpus=4"]
    assert {"gres", "gpus"} & list_values(typed, "leo").keys() == {"gpus"}


def test_the_components_of_a_script_keep_their_sizes() -> None:
    spec = read_script(lines="#SBATCH -n1\n#SBATCH hetjob\n#SBATCH -n2\n")
    with pytest.raises(InvalidRequest, match="components of a heterogeneous batch script"):
        change(spec, {"het-1.mem": "4G"})
    assert change(spec, {"qos": "high"}).script_options == {"qos": "high"}


# --- present values ---------------------------------------------------------------------------------------------------


def test_the_present_values_can_be_given_back_and_change_nothing() -> None:
    assert list_values(read_file(), "leo") == {
        "time": "1:00:00",
        "mem": "8G",
        "cpus-per-task": "4",
        "nodes": "1",
        "gpus-per-node": "H100:2",
        "partition": "",
        "account": "",
        "qos": "",
        "clusters": "leo",
        "job-name": "fit",
        "comment": "",
    }
    group = list_values(read_file(GROUP), "leo")
    assert list(group)[:4] == ["trainer.time", "trainer.mem", "trainer.cpus-per-task", "trainer.nodes"]
    assert group["rollout.time"] == "UNLIMITED" and group["rollout.mem"] == ""
    for spec in (read_file(), read_file(GROUP), read_script("-n8", "-c2", "--mem-per-cpu=1G", "-t5", "-Cfast")):
        values = {key: value for key, value in list_values(spec, "leo").items() if value and key != "clusters"}
        again = change(spec, values)
        assert list_values(again, "leo") == list_values(spec, "leo")
        assert [task.resources.need() for task in again.tasks] == [task.resources.need() for task in spec.tasks]


# --- the daemon -------------------------------------------------------------------------------------------------------


async def resubmit(bench: Bench, ref: str, failed: bool = False, token: str = "", **changes: str) -> Submitted:
    """Submit again; `_` in a name stands for `-`."""
    named = {name.replace("__", ".").replace("_", "-"): value for name, value in changes.items()}
    return await bench.controller.resubmit(ResubmitRequest(ref, failed, named, token))


def test_the_new_job_tells_which_it_was_and_what_changed() -> None:
    async def scene(bench: Bench) -> None:
        await start_job(bench)
        bench.cluster.tell("1.0", *end(bench.job(), bench.clock.now))
        await until(lambda: bench.state() == "COMPLETED")
        again = await resubmit(bench, "1", time="2h", job_name="more")
        assert (again.id, again.name) == (2, "more")
        rows = await bench.controller.timeline("2")
        assert rows[0].text == "submitted again from job 1 with --time=2h --job-name=more"
        assert bench.job(2).spec.tasks[0].time == 7200
        third = await resubmit(bench, "2")
        assert (await bench.controller.timeline(str(third.id)))[0].text == "submitted again from job 2"
        assert bench.job(3).spec.tasks == bench.job(2).spec.tasks

    play(scene)


def test_a_refused_change_writes_nothing() -> None:
    async def scene(bench: Bench) -> None:
        await bench.submit("a b")
        before = bench.repository.transactions
        with pytest.raises(InvalidRequest, match="the job has several"):
            await resubmit(bench, "1", mem="1G")
        with pytest.raises(NotFound, match="no cluster 'moon'"):
            await resubmit(bench, "1", clusters="moon")
        with pytest.raises(InvalidRequest, match="one task of job 1"):
            await resubmit(bench, "1.a", time="1h")
        bench.cluster.impossible = "Requested node configuration is not available"
        with pytest.raises(Rejected, match=r"^Requested node configuration"):
            await resubmit(bench, "1", a__mem="900G")
        assert bench.repository.transactions == before and len(bench.repository.jobs) == 1

    play(scene)


def test_a_repeated_token_is_one_job_whatever_was_changed() -> None:
    async def scene(bench: Bench) -> None:
        await bench.submit()
        first = await resubmit(bench, "1", token="0a1b", time="2h")
        assert await resubmit(bench, "1", token="0a1b", time="2h") == first
        assert len(bench.repository.jobs) == 2

    play(scene)


def test_what_was_updated_since_is_kept_and_what_was_waited_for_is_not() -> None:
    async def scene(bench: Bench) -> None:
        await bench.submit("one begin=500", hold=True)
        values = {"time_limit": 7200, "comment": "mine", "name": "other", "nice": 5}
        await bench.controller.orders.update("1", Update(values, "me"))
        assert (await bench.controller.list_resubmit_values("1"))["time"] == "2:00:00"
        spec = bench.job((await resubmit(bench, "1")).id).spec
        assert (spec.tasks[0].time, spec.comment, spec.name, spec.nice) == (7200, "mine", "other", 5)
        assert (spec.begin, spec.hold) == (None, False)
        later = bench.job((await resubmit(bench, "1", begin="now+1hour", hold="")).id)
        assert later.spec.begin == START + 3600 and later.held

    play(scene)


def test_elements_take_the_change_and_are_named() -> None:
    async def scene(bench: Bench) -> None:
        await bench.submit("one array=0-9%2")
        again = await resubmit(bench, "1_[4,7]", time="2h")
        spec = bench.job(again.id).spec
        assert spec.array == parse_array("4,7%2") and spec.tasks[0].time == 7200
        assert (await bench.controller.timeline(str(again.id)))[0].text.endswith("from job 1_[4,7] with --time=2h")
        with pytest.raises(Conflict, match="no element of 1 has failed"):
            await resubmit(bench, "1", failed=True, time="2h")

    play(scene)


def test_another_cluster_has_partitions_of_its_own() -> None:
    settings = Settings(clusters={"leo": ClusterSettings(kind="slurm")})

    def prepare(bench: Bench) -> None:
        bench.settings = settings
        bench.others["leo"] = FakeCluster("leo")

    async def scene(bench: Bench) -> None:
        await bench.submit()
        assert bench.job().spec.partition == "local"
        again = await resubmit(bench, "1", clusters="leo")
        assert again.cluster == "leo" and bench.job(again.id).spec.partition == ""
        assert "the partition local is left out: it was one of local's" in again.notes
        there = await resubmit(bench, "1", clusters="leo", partition="gpu", exclude="n1")
        assert bench.job(there.id).spec.partition == "gpu" and "without effect outside Slurm" not in " ".join(
            there.notes
        )
        here = await resubmit(bench, "1", exclude="n1")
        assert "without effect outside Slurm: --exclude" in here.notes

    play(scene, prepare=prepare)


def test_a_script_leaves_behind_on_slurm_what_its_lines_wait_for() -> None:
    dependency = Dependency((JobNeed(DependencyKind.AFTEROK, 7),))
    spec = read_script("--begin=now+1hour", "--array=0-9", lines="#SBATCH -d afterok:7\n")
    assert spec.dependency == dependency

    async def scene(bench: Bench) -> None:
        bench.controller.submitter.reader = lambda *given: ParsedSubmission(spec)
        await bench.submit()
        again = bench.job((await resubmit(bench, "1_[2,4]")).id).spec
        assert again.script_options == {"begin": "now", "dependency": "", "array": "2,4"}
        assert set(render(again)) == {"--begin=now", "--dependency=", "--array=2,4"}

    play(scene)

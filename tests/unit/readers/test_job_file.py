"""Job files: what is read."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from tests.unit.readers.job_files import DATA, LOCAL, read, read_data, refusal

from overspan.bridge.model.documents import decode, encode
from overspan.bridge.model.errors import InvalidRequest
from overspan.bridge.model.evaluations import CheckpointSelection, Select, StopRule, StopWhen
from overspan.bridge.model.ids import parse_array
from overspan.bridge.model.job import list_stages
from overspan.bridge.model.schedule import Schedule
from overspan.bridge.model.spec import (
    Backoff,
    Dependency,
    DependencyKind,
    JobNeed,
    JobSpec,
    Need,
    NeedKind,
    OnFailure,
    Ready,
    ReadyKind,
    RestartScope,
    SignalBefore,
    Start,
)
from overspan.bridge.model.storage import MountMode, StorageMount
from overspan.bridge.readers.job_file import read_job_file
from overspan.bridge.readers.read_context import ReadContext

GROUP = "name: g\nexecution: parallel\n"
A = "---\nname: a\nrun: x\n"
B = "---\nname: b\nrun: x\n"


def test_a_group_of_five() -> None:
    job = read_data("five_tasks.yaml", replace(LOCAL, cluster="local"))
    assert (job.name, job.group, job.clusters, job.start) == ("policy-loop", True, ("local",), Start.TOGETHER)
    assert [task.name for task in job.tasks] == ["prompt-source", "sampler", "scorer", "memory-bank", "learner"]
    assert [task.primary for task in job.tasks] == [False, False, False, False, True]
    assert [task.termination_delay for task in job.tasks] == [20, 20, 20, 60, 0]
    learner = job.task("learner")
    assert learner.num_nodes == 2
    assert [str(choice) for choice in learner.resources.gpus] == ["H100:8", "A100:8"]
    bank = job.task("memory-bank").resources
    assert (bank.cpus, bank.cpus_at_least, bank.memory_mib, bank.memory_at_least) == (4.0, True, 32768, True)
    assert job.task("sampler").env == {"MODEL": "tiny"}
    assert "${MODEL}" in job.task("sampler").run
    assert job.notes == ("kubernetes in the file is ignored: --cluster local was given",)
    assert not job.later


def test_infra_names_the_only_cluster_of_its_kind() -> None:
    job = read_data("five_tasks.yaml")
    assert job.clusters == ("gpu-cloud",)
    assert {task.cluster for task in job.tasks} == {""}


def test_a_pipeline_runs_in_order() -> None:
    job = read_data("pipeline.yaml")
    assert (job.name, job.group, job.start) == ("two-steps", False, Start.INDEPENDENT)
    assert job.task("judge").needs == (Need("fit", NeedKind.OK),)
    assert all(task.primary for task in job.tasks)
    assert len([note for note in job.notes if "use_spot" in note]) == 3
    headless = read("---\nname: a\nrun: x\n---\nname: b\nrun: y\n")
    assert (headless.name, headless.task("b").needs) == ("job", (Need("a", NeedKind.OK),))
    serial = read("name: p\nexecution: serial\n" + A + B)
    assert not serial.group
    assert [list_stages(spec) for spec in (job, headless, serial)] == [(("fit",), ("judge",)), *2 * [(("a",), ("b",))]]
    assert list_stages(read("name: p\nstart: together\n" + A + B)) == ()


@pytest.mark.parametrize(
    ("header", "start", "stages"),
    [
        ("", Start.TURNS, (("a",), ("b",))),
        ("start: turns\n", Start.TURNS, (("a",), ("b",))),
        ("inter_connection: false\n", Start.INDEPENDENT, (("a",), ("b",))),
        ("start: together\n", Start.TOGETHER, ()),
        ("inter_connection: false\nstart: together\n", Start.TOGETHER, ()),
    ],
)
def test_tasks_of_a_group_take_turns_unless_together_is_written(header: str, start: Start, stages: object) -> None:
    job = read(GROUP + header + A + B + "needs: ok:a\n")
    assert (job.start, list_stages(job)) == (start, stages)


def test_a_group_without_turns_starts_together() -> None:
    for needs in ("", "needs: started:a\n"):
        assert {read(GROUP + header + A + B + needs).start for header in ("", "start: turns\n")} == {Start.TOGETHER}


def test_one_document_is_a_job() -> None:
    job = read_data("single.yaml", replace(LOCAL, env={"API_KEY": "k", "MORE": "1"}))
    (task,) = job.tasks
    assert (job.name, task.name, job.group) == ("answers", "answers", False)
    assert task.env == {"API_KEY": "k", "MORE": "1"}
    assert task.workdir == "/home/u/answers"
    assert task.retry.max_restarts_on_errors == 3
    assert read("run: x\n").name == "job"
    assert read("run: x\n", replace(LOCAL, name="other")).name == "other"


def test_own_keys() -> None:
    job = read_data("own_keys.yaml")
    assert job.name == "everything-{id}"
    assert (job.start, job.start_timeout, job.restart) == (Start.TOGETHER, 600, RestartScope.TASK)
    assert (job.priority, job.hold, job.hold_on_failure) == (7, True, 600)
    assert job.begin == LOCAL.now + 3600
    assert (job.account, job.native["slurm"]["exclusive"]) == ("lab", "")
    assert job.native["kubernetes"] == {"spec": {"serviceAccountName": "x"}}
    needs = (JobNeed(DependencyKind.AFTEROK, 12), JobNeed(DependencyKind.AFTERANY, 13))
    assert job.dependency == Dependency(needs)
    (quality,) = job.on_checkpoint
    assert (quality.name, quality.path, quality.task) == ("quality", "/home/u/work/ckpt", "trainer")
    assert quality.select == CheckpointSelection(Select.EVERY, every=2)
    assert job.stop_when == StopWhen(StopRule.SCORE, "quality", score=0.9)
    trainer, server, prepare = job.tasks
    assert (trainer.time, trainer.grace_period, trainer.signal) == (7200, 10, SignalBefore("USR1", 30, True))
    assert trainer.retry.recover_on_exit_codes == (42, 43)
    assert (trainer.retry.max_restarts_on_errors, trainer.retry.max_recoveries, trainer.retry.max_restarts) == (2, 5, 6)
    assert trainer.retry.backoff == Backoff(0.5, 3.0, 60.0, 0.0)
    assert trainer.restart is RestartScope.GROUP
    assert trainer.needs == (Need("server", NeedKind.READY), Need("prepare", NeedKind.OK))
    assert (server.share, server.on_failure, server.notice_signal) == ("trainer", OnFailure.FAIL_GROUP, "USR2")
    assert server.ports == ("8000", "9000-9010")
    assert server.ready == Ready(ReadyKind.HTTP, "8000/health", 1.0)
    assert server.termination_delay == 90
    assert prepare.spread


def test_a_need_alone_waits_for_ready_where_there_is_one() -> None:
    text = GROUP + A + "ready: {tcp: 80}\n" + B + "needs: a\n---\nname: c\nneeds: [b, 'ready:a', 'afterany:b']\n"
    job = read(text)
    assert job.task("b").needs == (Need("a", NeedKind.READY),)
    assert job.task("c").needs == (Need("b"), Need("a", NeedKind.READY), Need("b", NeedKind.ENDED))


def test_every_task_is_primary_unless_some_are_named() -> None:
    for line in ("", "primary_tasks: []\n", "primary_tasks:\n"):
        assert all(task.primary for task in read(GROUP + line + A + B).tasks)
    job = read(GROUP + "primary_tasks: [b, b]\ntermination_delay: 5\n" + A + B)
    assert [(task.primary, task.termination_delay) for task in job.tasks] == [(False, 5), (True, 0)]


@pytest.mark.parametrize(
    ("written", "seconds"), [("30s", 30), ("5", 5), ("2m", 120), ("1h", 3600), ("1d", 86400), ("1w", 604800), ("0", 0)]
)
def test_delays(written: str, seconds: int) -> None:
    job = read(GROUP + f"primary_tasks: [a]\ntermination_delay: {written}\n" + A + B)
    assert job.task("b").termination_delay == seconds


def test_time_is_never_a_number_of_base_sixty() -> None:
    assert read("time: 12:00\nrun: x\n").tasks[0].time == 720
    assert read("time: 1:30:00\nrun: x\n").tasks[0].time == 5400
    assert read("time: 90\nrun: x\n").tasks[0].time == 5400
    assert read("time: 90s\nrun: x\n").tasks[0].time == 90
    assert read("time: UNLIMITED\nrun: x\n").tasks[0].time is None


def test_networking_off_starts_independently() -> None:
    job = read(GROUP + "inter_connection: false\n" + A + B)
    assert (job.inter_connection, job.start) == (False, Start.INDEPENDENT)
    assert read(GROUP + "inter_connection: false\nstart: together\n" + A + B).start is Start.TOGETHER


def test_priorities_of_a_group_agree() -> None:
    one = "resources: {priority: 5}\n"
    assert read(GROUP + A + one + B).priority == 5
    assert "several priorities: 5, 6" in refusal(GROUP + A + one + B + "resources: {priority: 6}\n")
    assert "several priorities" in refusal(GROUP + "priority: 7\n" + A + one)


def test_variables_fill_paths_and_images_only() -> None:
    job = read(
        "envs: {D: data, V: 2}\nworkdir: $D/w\nvolumes: {'/m/${D}': vol-$D}\nfile_mounts: {/x: '${D}/in', /y: $OTHER}\n"
        "resources: {image_id: 'docker:repo/$D:${V}', labels: {a: $D}}\nrun: echo $D\n"
    )
    (task,) = job.tasks
    assert (task.workdir, task.volumes) == ("/home/u/work/data/w", {"/m/data": "vol-data"})
    assert task.file_mounts == {"/x": "/home/u/work/data/in", "/y": "/home/u/work/$OTHER"}
    assert (task.image, task.labels, task.run) == ("repo/data:2", {"a": "$D"}, "echo $D")
    assert task.env == {"D": "data", "V": "2"}


def test_secrets_stay_apart_and_out_of_public_view() -> None:
    job = read("secrets: [TOKEN]\nrun: x\n", replace(LOCAL, secrets={"TOKEN": "hush"}))
    assert job.tasks[0].secrets == {"TOKEN": "hush"}
    assert job.public().tasks[0].secrets == {"TOKEN": "***"}
    assert not job.tasks[0].env


@pytest.mark.parametrize(
    ("infra", "clusters", "partition"),
    [
        ("kubernetes", ("gpu-cloud",), ""),
        ("k8s/gpu-cloud", ("gpu-cloud",), ""),
        ("slurm", ("hpc",), ""),
        ("slurm/hpc/fast", ("hpc",), "fast"),
        ("slurm/*/fast", ("hpc",), "fast"),
        ("hpc/fast", ("hpc",), "fast"),
        ("local", ("local",), ""),
        ("'*'", (), ""),
    ],
)
def test_infra_to_clusters(infra: str, clusters: tuple[str, ...], partition: str) -> None:
    job = read(f"resources: {{infra: {infra}}}\nrun: x\n")
    assert (job.clusters, job.partition) == (clusters, partition)


SPELLINGS: list[tuple[str, str, tuple[str, ...], str]] = [
    ("cloud: kubernetes", "infra: kubernetes", ("gpu-cloud",), ""),
    ("cloud: Kubernetes", "infra: Kubernetes", ("gpu-cloud",), ""),
    ("cloud: k8s", "infra: k8s", ("gpu-cloud",), ""),
    ("cloud: kubernetes, region: gpu-cloud", "infra: kubernetes/gpu-cloud", ("gpu-cloud",), ""),
    ("cloud: kubernetes, region: '*'", "infra: 'kubernetes/*'", ("gpu-cloud",), ""),
    ("cloud: kubernetes, region: null, zone: null", "infra: kubernetes/", ("gpu-cloud",), ""),
    ("cloud: kubernetes, region: arn/of/it", "infra: kubernetes/arn/of/it", ("arn/of/it",), ""),
    ("cloud: slurm", "infra: slurm", ("hpc",), ""),
    ("cloud: Slurm, region: hpc", "infra: SLURM/hpc", ("hpc",), ""),
    ("cloud: slurm, region: hpc, zone: fast", "infra: slurm/hpc/fast", ("hpc",), "fast"),
    ("cloud: slurm, zone: fast", "infra: 'slurm/*/fast'", ("hpc",), "fast"),
    ("cloud: slurm, region: hpc, zone: '*'", "infra: 'slurm/hpc/*'", ("hpc",), ""),
    ("cloud: hpc, region: fast", "infra: hpc/fast", ("hpc",), "fast"),
    ("cloud: local", "infra: local", ("local",), ""),
    ("cloud: '*'", "infra: '*'", (), ""),
    ("cloud: null", "infra: null", (), ""),
    ("cloud: kubernetes, any_of: [{region: gpu-cloud}]", "infra: kubernetes/gpu-cloud", ("gpu-cloud",), ""),
    ("infra: slurm, any_of: [{region: hpc, zone: fast}]", "infra: slurm/hpc/fast", ("hpc",), "fast"),
    ("infra: aws/us-east-1, any_of: [{cloud: slurm}]", "infra: slurm", ("hpc",), ""),
    ("cloud: aws, region: us-east-1, ordered: [{infra: slurm/hpc}]", "infra: slurm/hpc", ("hpc",), ""),
]


@pytest.mark.parametrize(("older", "present", "clusters", "partition"), SPELLINGS, ids=[row[0] for row in SPELLINGS])
def test_older_spellings_of_infra_mean_the_same(
    older: str, present: str, clusters: tuple[str, ...], partition: str
) -> None:
    known = {**(LOCAL.clusters or {}), **({"arn/of/it": "kubernetes"} if "arn" in older else {})}
    for written in (older, present):
        job = read(f"resources: {{{written}}}\nrun: x\n", replace(LOCAL, clusters=known))
        assert (job.clusters, job.partition, job.notes) == (clusters, partition, ()), written


@pytest.mark.parametrize(
    ("written", "note"),
    [
        ("region: us-east-1", "job.yaml:1:21: */us-east-1 has no effect: it names no cloud"),
        ("infra: '*/us-east-1'", "job.yaml:1:20: */us-east-1 has no effect: it names no cloud"),
        ("cloud: kubernetes, zone: b", "job.yaml:1:20: the zone b has no effect: only Slurm has zones"),
    ],
)
def test_places_that_mean_nothing_here_are_told(written: str, note: str) -> None:
    (told,) = read(f"resources: {{{written}}}\nrun: x\n").notes
    assert told.startswith(note)


def test_tasks_on_different_clusters() -> None:
    job = read(GROUP + A + "cluster: hpc\n" + B + "resources: {infra: kubernetes}\n---\nname: c\n")
    assert job.clusters == ()
    assert [task.cluster for task in job.tasks] == ["hpc", "gpu-cloud", ""]
    same = read(GROUP + "cluster: [hpc, local]\nfailover_after: 5m\n" + A + B)
    assert (same.clusters, same.failover_after) == (("hpc", "local"), 300)
    told = read(GROUP + "cluster: hpc\n" + A + B, replace(LOCAL, cluster="local,hpc"))
    assert (told.clusters, told.notes) == (("local", "hpc"), ())


def test_another_cloud_runs_where_the_command_line_says() -> None:
    job = read("resources: {infra: aws/us-east-1}\nrun: x\n", replace(LOCAL, cluster="local"))
    assert (job.clusters, job.notes) == (
        ("local",),
        ("aws/us-east-1 in the file is ignored: --cluster local was given",),
    )
    assert "no cluster named 'lokal'; did you mean 'local'?" in refusal("run: x\n", replace(LOCAL, cluster="lokal"))
    assert "no cluster named 'lokal'" in refusal("run: x\n", replace(LOCAL, cluster="local,lokal"))


def test_several_clusters_of_a_kind_have_to_be_named() -> None:
    context = replace(LOCAL, clusters={"one": "kubernetes", "two": "kubernetes"})
    assert "several kubernetes clusters: one, two" in refusal("resources: {infra: k8s}\nrun: x\n", context)
    assert "no slurm cluster is configured" in refusal("resources: {infra: slurm}\nrun: x\n", context)


def test_alternatives_of_resources() -> None:
    job = read(
        "resources:\n  cpus: 8\n  ordered:\n    - {accelerators: 'H100:8', infra: slurm}\n"
        "    - {gpus: 'A100:8', infra: kubernetes}\n    - {accelerators: 'T4', cpus: 2}\nrun: x\n"
    )
    assert job.clusters == ("hpc", "gpu-cloud")
    assert asked(job) == [
        ("hpc", 8, ["H100:8"]),
        ("gpu-cloud", 8, ["A100:8"]),
        ("hpc", 2, ["T4:1"]),
        ("gpu-cloud", 2, ["T4:1"]),
    ]
    assert job.tasks[0].resources == job.candidates[0].demands[0].resources


def asked(job: JobSpec) -> list[tuple[str, float | None, list[str]]]:
    """Cluster, CPUs and GPUs of each candidate of a job with one task."""
    found = []
    for candidate in job.candidates:
        (demand,) = candidate.demands
        found.append((candidate.cluster, demand.resources.cpus, [str(gpus) for gpus in demand.resources.gpus]))
    return found


def test_each_alternative_keeps_its_place() -> None:
    job = read(
        "resources:\n  ordered:\n    - {infra: local, accelerators: 'A100:8'}\n"
        "    - {infra: slurm/hpc/p1, accelerators: 'H100:8'}\nrun: x\n"
    )
    assert asked(job) == [("local", None, ["A100:8"]), ("hpc", None, ["H100:8"])]
    assert [candidate.partition for candidate in job.candidates] == ["", "p1"]
    assert job.partition == "" and job.take(job.candidates[1]).partition == "p1"
    assert job.take(job.candidates[1]).tasks[0].native == {"slurm": {"partition": "p1"}}


def test_alternatives_of_one_place_that_differ_in_gpus_alone_are_one() -> None:
    job = read("resources: {infra: slurm, any_of: [{accelerators: 'A100:8'}, {accelerators: 'H100:4'}]}\nrun: x\n")
    assert (job.candidates, job.clusters) == ((), ("hpc",))
    assert [str(gpus) for gpus in job.tasks[0].resources.gpus] == ["A100:8", "H100:4"]


def test_several_alternatives_on_one_cluster_without_a_place() -> None:
    job = read("resources: {any_of: [{cpus: 64}, {cpus: 8, memory: 4}]}\nrun: x\n")
    assert asked(job) == [("", 64, []), ("", 8, [])] and job.clusters == ()


def test_alternatives_of_a_group_are_combined_on_each_cluster() -> None:
    ways = "resources: {any_of: [{infra: local, cpus: 1}, {infra: slurm, cpus: 2}, {infra: slurm, cpus: 3}]}\n"
    job = read(GROUP + A + ways + B + ways)
    found = [(one.cluster, [demand.resources.cpus for demand in one.demands]) for one in job.candidates]
    assert found == [("local", [1, 1]), ("hpc", [2, 2]), ("hpc", [2, 3]), ("hpc", [3, 2]), ("hpc", [3, 3])]


def test_a_cluster_of_the_command_line_takes_the_alternatives_that_name_it() -> None:
    text = "resources: {any_of: [{infra: local, cpus: 1}, {infra: slurm/hpc/p1, cpus: 2}]}\nrun: x\n"
    job = read(text, replace(LOCAL, cluster="hpc"))
    assert (job.clusters, job.tasks[0].resources.cpus, job.candidates, job.partition) == (("hpc",), 2, (), "p1")
    other = read(text, replace(LOCAL, cluster="gpu-cloud"))
    assert asked(other) == [("gpu-cloud", 1, []), ("gpu-cloud", 2, [])]


def test_data_in_the_cloud_is_left_for_later() -> None:
    job = read_data("pool.yaml")
    assert job.later["pool"] == {"min_workers": 0, "max_workers": 4}
    assert job.tasks[0].storage == (StorageMount("/data", "s3://some-bucket", MountMode.MOUNT),)
    job = read(
        "name: a\nworkdir: {url: u}\nevent_callback: echo\nfile_mounts: {/x: 'https://b'}\nvolumes: {/y: {size: 1Gi}}\n"
    )
    assert set(job.later) == {"a.workdir", "a.event_callback", "a.file_mounts", "a.volumes"}
    text = "array: '[3,0-9:2]%4'\ncron: 0 3 * * mon\nneeds: 4\npool: warm\nrun: x\n"
    assert "there is no pool named 'warm'" in refusal(text)
    job = read(text, replace(LOCAL, clusters={**(LOCAL.clusters or {}), "warm": "pool"}))
    assert job.array == parse_array("0,2,3,4,6,8%4")
    assert job.cron == Schedule("0 3 * * mon") and job.clusters == ("warm",)


def test_a_file_of_a_web_server_is_a_copy() -> None:
    job = read("file_mounts: {/x: 'https://a/b?c', /y: {source: 'https://a/d', mode: COPY}}\nrun: x\n")
    assert job.tasks[0].storage == (
        StorageMount("/x", "https://a/b?c", MountMode.COPY),
        StorageMount("/y", "https://a/d", MountMode.COPY),
    )
    for mode in ("", ", mode: MOUNT_CACHED"):
        text = refusal(f"file_mounts:\n  /x: {{source: 'https://a/b'{mode}}}\nrun: x\n")
        assert "a file of a web server is read: it has the mode COPY" in text


def test_native_options_come_together() -> None:
    job = read(
        "resources: {priority_class: high, infra: slurm/hpc/fast}\n"
        "config:\n  slurm: {sbatch_options: {constraint: a&b}, provision_timeout: 3}\n"
        "  kubernetes: {pod_config: {spec: {hostIPC: true}}}\n"
        "slurm: [--exclusive, -q high, '--mail-type=END,FAIL']\n"
        "kubernetes: {spec: {nodeName: n}}\nrun: x\n"
    )
    (task,) = job.tasks
    assert task.native["slurm"] == {
        "constraint": "a&b",
        "exclusive": "",
        "qos": "high",
        "mail-type": "END,FAIL",
        "partition": "fast",
    }
    assert task.native["kubernetes"] == {"spec": {"priorityClassName": "high", "hostIPC": True, "nodeName": "n"}}
    assert (job.qos, job.partition) == ("high", "fast")
    assert any("provision_timeout has no effect" in note for note in job.notes)


def test_keys_of_cloud_machines_are_noted() -> None:
    job = read(
        "resources: {disk_size: 100, instance_type: m5, autostop: 5, image_id: ami-1, job_recovery: FAILOVER}\n"
        "inputs: {x: 1}\napi_server_access: true\nrun: x\n"
    )
    assert len(job.notes) == 7
    assert job.notes[0] == "job.yaml:1:13: disk_size has no effect: it belongs to cloud machines"


def test_anchors_and_a_leading_line() -> None:
    job = read_data("anchors.yaml")
    assert (job.task("main").time, job.task("main").resources.memory_mib) == (720, 4096)
    assert job.task("server").needs == (Need("main"),)
    merged = read("envs: &e {A: 1}\nconfig: {docker: *e}\nrun: x\n")
    assert merged.tasks[0].env == {"A": "1"}


SET: list[tuple[tuple[str, ...], Any]] = [
    (("b.resources.cpus=0.1",), lambda job: job.task("b").resources.cpus == 0.1),
    (("*.num_nodes=3", "a.num_nodes=1"), lambda job: [task.num_nodes for task in job.tasks] == [1, 3]),
    (("termination_delay=7s", "primary_tasks=[a]"), lambda job: job.task("b").termination_delay == 7),
    (("b.time=12:00",), lambda job: job.task("b").time == 720),
    (("b.run=",), lambda job: job.task("b").run == ""),
    (("slurm.account=lab",), lambda job: job.account == "lab"),
]


@pytest.mark.parametrize(("overrides", "check"), SET, ids=[str(overrides)[:40] for overrides, _ in SET])
def test_overrides(overrides: tuple[str, ...], check: Any) -> None:
    assert check(read(GROUP + A + B, replace(LOCAL, overrides=overrides)))


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("c.num_nodes=1", "--set c.num_nodes=1: no task is named 'c'"),
        ("b.num_nodes", "an override is PATH=VALUE"),
        ("b=1", "an override of a task needs a key"),
        ("b..x=1", "an override is PATH=VALUE"),
        ("b" + ".x" * 2000 + "=1", "an override is PATH=VALUE"),
        ("b.num_nodes=0", "0 is out of range"),
        ("b.run.x=1", "so it has no key 'x'"),
        ("b.nodes=[", "not YAML"),
        ("nme=x", "unknown key 'nme'"),
    ],
)
def test_bad_overrides(override: str, message: str) -> None:
    assert message in refusal(GROUP + A + B, replace(LOCAL, overrides=(override,)))


def test_overrides_of_a_single_job() -> None:
    job = read("resources: {cpus: 4}\nrun: x\n", replace(LOCAL, overrides=("resources.cpus=1", "time=2m")))
    assert (job.tasks[0].resources.cpus, job.tasks[0].time) == (1, 120)


@pytest.mark.parametrize("name", sorted(path.name for path in DATA.glob("*.yaml")))
def test_specs_survive_a_document(name: str) -> None:
    job = read_data(name, replace(LOCAL, env={"API_KEY": "k"}))
    assert decode(JobSpec, json.loads(json.dumps(encode(job)))) == job


def test_a_deadline_and_what_an_impossible_need_does() -> None:
    context = ReadContext(directory="/work", now=1_800_000_000.0)
    text = "name: j\nrun: 'true'\ndeadline: now+2hours\nkill_on_invalid_dep: true\n"
    job = read_job_file(text, "j.yaml", context=context)
    assert (job.deadline, job.kill_on_invalid_dep) == (1_800_007_200.0, True)
    with pytest.raises(InvalidRequest, match="the deadline is over"):
        read_job_file("name: j\nrun: 'true'\ndeadline: 2001-01-01\n", "j.yaml", context=context)

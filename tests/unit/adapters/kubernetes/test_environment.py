"""The variables of pods: those that tasks find everywhere, as far as they are known before the start."""

from __future__ import annotations

import base64
from dataclasses import replace
from typing import Any

import pytest
from tests.unit.adapters.kubernetes.samples import (
    EXAMPLES,
    configure,
    main_of,
    make_launch,
    read_file,
    render_job,
    variables_of,
)

from overspan.adapters.kubernetes.launches.gang import GangBackend
from overspan.adapters.kubernetes.manifests.environment import NODE_VARIABLES, place_members
from overspan.adapters.kubernetes.manifests.launch_plans import PodSelection, read_plan, relocate, write_plan
from overspan.adapters.kubernetes.manifests.numbered_texts import number_text
from overspan.adapters.kubernetes.manifests.rendering import Objects, plan_launch, render, render_pods
from overspan.adapters.kubernetes.manifests.scripts import PROGRAM_VARIABLE, WORK
from overspan.adapters.kubernetes.observation.records import TASK
from overspan.bridge.model.errors import InvalidRequest
from overspan.bridge.runtime.core.environment import NodeRunContext, build_environment

URL = "https://span.example.com:8443"
GROUP = """\
name: My_Group
execution: parallel
primary_tasks: [trainer]
---
name: trainer
num_nodes: 3
resources: {cpus: 2, accelerators: 2}
envs: {COST: "$(HOME) $$ $5", PATH: /opt/bin}
secrets: {HF_TOKEN: hf_secret}
run: echo
---
name: data_server
envs: {A: b}
run: echo
"""


def task_of(pod: dict[str, Any]) -> str:
    return str(pod["metadata"]["annotations"][TASK])


def pods_of(text: str = GROUP) -> dict[str, dict[str, Any]]:
    objects = render_job(read_file(text))
    return {pod["metadata"]["name"].removesuffix("-a0"): pod for pod in objects.pods}


def test_names_are_known_and_addresses_are_the_pod_s() -> None:
    pod = pods_of()["my-group-trainer-2"]
    values = variables_of(pod)
    assert values["OVERSPAN_JOB_ID"] == values["SLURM_JOB_ID"] == "7"
    assert values["OVERSPAN_GROUP"] == values["SKYPILOT_JOBGROUP_NAME"] == values["SLURM_JOB_NAME"] == "My_Group"
    assert values["OVERSPAN_HOST"] == "trainer-2.my-group"
    assert values["OVERSPAN_MEMBERS"].split(",")[3] == "data-server-0.my-group"
    assert values["OVERSPAN_DATA_SERVER_HOSTS"] == "data-server-0.my-group"
    assert values["SKYPILOT_NODE_IPS"].splitlines() == [f"trainer-{index}.my-group" for index in range(3)]
    assert values["SLURM_JOB_NODELIST"] == "trainer-[0-2]"
    assert values["SLURM_PROCID"] == values["SKYPILOT_NODE_RANK"] == values["OVERSPAN_NODE_INDEX"] == "2"
    assert values["SLURM_HET_SIZE"] == "2"
    assert values["SKYPILOT_NUM_GPUS_PER_NODE"] == "2"
    assert values["OVERSPAN_RUN_DIR"] == values["SLURM_SUBMIT_DIR"] == "/overspan/run"
    assert not [name for name in values if name.endswith("_ADDRS")]
    own = next(entry for entry in main_of(pod)["env"] if entry["name"] == "OVERSPAN_ADDR")
    assert own["valueFrom"] == {"fieldRef": {"fieldPath": "status.podIP"}}


def test_a_name_alone_resolves_too() -> None:
    assert pods_of()["my-group-trainer-0"]["spec"]["dnsConfig"] == {"searches": ["my-group.lab.svc.cluster.local"]}


def test_a_single_pod_has_the_pod_s_address_for_skypilot() -> None:
    (pod,) = render_job(read_file("name: one\nrun: echo\n")).pods
    values = variables_of(pod)
    assert "SKYPILOT_NODE_IPS" not in values
    assert "SKYPILOT_NODE_IPS" in {entry["name"] for entry in main_of(pod)["env"]}
    assert values["SLURM_JOB_NODELIST"] == values["SLURMD_NODENAME"] == pod["spec"]["hostname"] == "one-7"
    assert "subdomain" not in pod["spec"]


def test_what_differs_between_nodes_is_all_that_is_told_for_each() -> None:
    for text in (GROUP, (EXAMPLES / "rlhf" / "rlhf.yaml").read_text(), "name: t\nnum_nodes: 3\nrun: echo\n"):
        job = relocate(read_file(text), configure())
        for task in job.spec.tasks:
            placed = place_members(job, task, 2)
            full = [
                build_environment(placed, NodeRunContext(task.name, index, 0, 0, "/overspan/run", "kube", {}))
                for index in range(task.num_nodes)
            ]
            changing = {name for name in full[0] if len({values[name] for values in full}) > 1}
            assert changing <= {*NODE_VARIABLES, "OVERSPAN_ADDR"}
            pods = [pod for pod in render_job(read_file(text)).pods if task_of(pod) == task.name]
            for pod, values in zip(pods, full, strict=True):
                rendered = variables_of(pod)
                for name in changing - {"OVERSPAN_ADDR"}:
                    assert rendered[name] == values[name]


def test_values_arrive_as_they_are() -> None:
    values = variables_of(pods_of()["my-group-trainer-0"])
    assert values["COST"] == "$$(HOME) $$$$ $5"
    assert values["PATH"] == "/opt/bin"
    assert "PATH" not in variables_of(pods_of()["my-group-data-server-0"])


def test_secrets_are_in_the_secret_and_nowhere_else() -> None:
    objects = render_job(read_file(GROUP), environment={"SPAN_TOKEN": "job-token", "SPAN_URL": URL, "X": "/home/x"})
    assert objects.secret is not None
    data = {key: base64.b64decode(value).decode() for key, value in objects.secret["data"].items()}
    assert data == {"job.SPAN_TOKEN": "job-token", "task.trainer.HF_TOKEN": "hf_secret"}
    rest = repr([objects.anchor, objects.configs, objects.service, objects.pods])
    assert "hf_secret" not in rest
    assert "job-token" not in rest
    trainer, server = objects.pods[0], objects.pods[-1]
    references = {
        entry["name"]: entry["valueFrom"]["secretKeyRef"]["key"]
        for entry in main_of(trainer)["env"]
        if "secretKeyRef" in entry.get("valueFrom", {})
    }
    assert references == {"SPAN_TOKEN": "job.SPAN_TOKEN", "HF_TOKEN": "task.trainer.HF_TOKEN"}
    assert "HF_TOKEN" not in {entry["name"] for entry in main_of(server)["env"]}
    # The daemon's address travels; folders of its machine do not.
    assert variables_of(server)["SPAN_URL"] == URL
    assert "X" not in variables_of(server)


def test_a_job_without_secrets_has_no_secret() -> None:
    assert render_job(read_file("name: one\nrun: echo\n")).secret is None


def test_long_values_stand_once() -> None:
    task = "---\nname: a-long-name-{0}\nnum_nodes: 16\nrun: echo\n"
    objects = render_job(read_file("name: big\nexecution: parallel\n" + "".join(map(task.format, range(3)))))
    entry = next(item for item in main_of(objects.pods[7])["env"] if item["name"] == "OVERSPAN_MEMBERS")
    reference = entry["valueFrom"]["configMapKeyRef"]
    assert reference["name"] == objects.anchor["metadata"]["name"]
    assert objects.anchor["data"][reference["key"]].count(",") == 47
    assert all(item["kind"] != "ConfigMap" for item in objects.configs)
    assert "envFrom" not in main_of(objects.pods[7])


WIDE = """\
name: wide
execution: parallel
---
name: few
num_nodes: 16
run: echo
---
name: many
num_nodes: 17
resources: {accelerators: 2}
envs: {COST: "$(HOME) $$ $5", LONG: "%s"}
secrets: {HF_TOKEN: hf_secret}
run: echo
""" % ("x" * 2000)


def full_variables(objects: Objects, pod: dict[str, Any]) -> dict[str, str]:
    """The plain variables of a pod as its kubelet makes them."""
    maps = {item["metadata"]["name"]: item["data"] for item in (objects.anchor, *objects.configs)}
    main = main_of(pod)
    found: dict[str, str] = {}
    for source in main.get("envFrom", ()):
        found.update(maps[source["configMapRef"]["name"]])
    for entry in main["env"]:
        if "value" in entry:
            found[entry["name"]] = entry["value"].replace("$$", "$")
        elif "configMapKeyRef" in entry["valueFrom"]:
            reference = entry["valueFrom"]["configMapKeyRef"]
            found[entry["name"]] = maps[reference["name"]][reference["key"]]
    return found


def test_many_pods_take_what_they_have_in_common_from_one_object() -> None:
    objects = render_job(read_file(WIDE), environment={"SPAN_URL": URL, "SPAN_TOKEN": "job-token"})
    (shared,) = objects.configs
    assert shared["immutable"]
    assert "hf_secret" not in repr(shared) and "job-token" not in repr(shared)
    small, large = objects.pods[0], objects.pods[-1]
    assert "envFrom" not in main_of(small)
    assert main_of(large)["envFrom"] == [{"configMapRef": {"name": shared["metadata"]["name"]}}]
    # Nothing of it says whose pod or which attempt it is, and it has all the rest.
    own = {entry["name"] for entry in main_of(large)["env"]}
    assert own == {*NODE_VARIABLES, "OVERSPAN_ATTEMPT", "OVERSPAN_ADDR", "HF_TOKEN", "SPAN_TOKEN"} - {"HOSTNAME"}
    assert not own & shared["data"].keys()
    assert not [key for key in objects.anchor["data"] if key.startswith("env.many.")]


def test_pods_with_and_without_that_object_find_the_same() -> None:
    job, settings = read_file(WIDE), configure()
    launch = make_launch(job, SPAN_URL=URL)
    plan = plan_launch(launch, settings, GangBackend.SOFT)
    assert plan.shared == ("many",)
    with_it, without = (render(launch, each, settings) for each in (plan, replace(plan, shared=())))
    for one, other in zip(with_it.pods, without.pods, strict=True):
        found = full_variables(with_it, one)
        assert found.pop(PROGRAM_VARIABLE, None) == (WORK if "envFrom" in main_of(one) else None)
        assert found == full_variables(without, other)
    assert full_variables(with_it, with_it.pods[-1])["COST"] == "$(HOME) $$ $5"


def test_an_overlay_s_variables_count_as_they_did() -> None:
    text = WIDE.replace("run: echo\n", "run: echo\nkubernetes: {spec: {containers: [{%s}]}}\n", 2)
    overlay = "env: [{name: SLURM_NNODES, value: mine}], envFrom: [{configMapRef: {name: theirs}}]"
    objects = render_job(read_file(text % (overlay, overlay)))
    main = main_of(objects.pods[-1])
    # A later source counts more than an earlier one, and an entry of its own more than both (API, envFrom).
    assert [source["configMapRef"]["name"] for source in main["envFrom"]] == [
        "theirs",
        objects.configs[0]["metadata"]["name"],
    ]
    assert variables_of(objects.pods[-1])["SLURM_NNODES"] == "mine"


def test_more_variables_than_an_object_takes() -> None:
    job = read_file(WIDE)
    many = replace(job.spec.tasks[1], env={f"A{number}": "x" * 90_000 for number in range(12)})
    job = replace(job, spec=replace(job.spec, tasks=(job.spec.tasks[0], many)))
    with pytest.raises(InvalidRequest, match="takes 1 MiB"):
        render_job(job)


def test_a_launch_of_an_older_version_has_no_such_object() -> None:
    launch, settings = make_launch(read_file(WIDE)), configure()
    plan = write_plan(plan_launch(launch, settings, GangBackend.SOFT))
    assert read_plan(plan).shared == ("many",)
    del plan["shared"]
    (pod,) = render_pods(read_plan(plan), settings, PodSelection("many", 1, (16,)))
    assert "envFrom" not in main_of(pod)
    assert variables_of(pod)["OVERSPAN_JOB_ID"] == "7"


def test_later_attempts_take_from_the_launch_s_object() -> None:
    launch, settings = make_launch(read_file(WIDE)), configure()
    plan = plan_launch(launch, settings, GangBackend.SOFT)
    (config,) = render(launch, plan, settings).configs
    (pod,) = render_pods(plan, settings, PodSelection("many", 3, (16,), run=2))
    assert main_of(pod)["envFrom"] == [{"configMapRef": {"name": config["metadata"]["name"]}}]
    assert variables_of(pod)["OVERSPAN_ATTEMPT"] == "3"
    assert variables_of(pod)["OVERSPAN_NODE_INDEX"] == "16"


@pytest.mark.parametrize(
    "make",
    [
        lambda index: f"t0-{index}.g0",
        lambda index: f"t-{index}",
        lambda index: "same",
        lambda index: str(index),
        lambda index: f"{index}-{index}",
        lambda index: f"0{index}",
        lambda index: f"x{index:03}",
    ],
)
@pytest.mark.parametrize("count", [1, 2, 10, 11, 120])
def test_a_series_is_what_it_is_drawn_from(make: Any, count: int) -> None:
    series = number_text(make, count)
    assert [series(index) for index in range(count)] == [make(index) for index in range(count)]


def test_a_job_file_s_environment_stays_behind() -> None:
    job = read_file("name: one\nrun: echo\n")
    job = replace(job, spec=replace(job.spec, environment={"HOME": "/home/ada", "EDITOR": "vi"}))
    assert not {"HOME", "EDITOR"} & variables_of(render_job(job).pods[0]).keys()


@pytest.mark.parametrize("name", ["a-b", "1A", ""])
def test_names_of_variables(name: str) -> None:
    job = read_file("name: one\nrun: echo\n")
    job = replace(job, spec=replace(job.spec, tasks=(replace(job.spec.tasks[0], env={name: "x"}),)))
    with pytest.raises(InvalidRequest, match="not the name of a variable"):
        plan_launch(make_launch(job), configure(), GangBackend.SOFT)


def test_a_value_that_no_program_can_be_given() -> None:
    job = read_file("name: one\nrun: echo\n")
    job = replace(job, spec=replace(job.spec, tasks=(replace(job.spec.tasks[0], env={"A": "x" * 110_000}),)))
    with pytest.raises(InvalidRequest, match="longer than 100 KiB"):
        plan_launch(make_launch(job), configure(), GangBackend.SOFT)


def test_the_blueprint_has_no_secrets_at_all() -> None:
    launch = make_launch(read_file(GROUP), SPAN_TOKEN="job-token")
    settings = configure()
    plan = plan_launch(launch, settings, GangBackend.SOFT)
    assert "hf_secret" not in repr(plan)
    assert "job-token" not in repr(plan)
    assert "job-token" not in repr(render(launch, plan, settings).anchor)

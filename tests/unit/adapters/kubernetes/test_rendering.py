"""Launches as objects: the pods of a group, what they find, and how they start together."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from tests.unit.adapters.kubernetes.samples import (
    EXAMPLES,
    UID,
    VERSIONS,
    check_golden,
    check_schema,
    configure,
    main_of,
    make_launch,
    read_file,
    read_script,
    render_job,
    variables_of,
)

from overspan.adapters.kubernetes.launches.gang import GROUP, MAX_POD_SETS, GangBackend, describe_pod_set
from overspan.adapters.kubernetes.manifests.limits import note_job
from overspan.adapters.kubernetes.manifests.names import label_job
from overspan.adapters.kubernetes.manifests.rendering import (
    PodSelection,
    own,
    plan_launch,
    plan_with_backend,
    read_plan,
    render,
    render_pods,
)
from overspan.adapters.kubernetes.manifests.scripts import COMMANDS_DIR, HOLD_PODS
from overspan.adapters.kubernetes.manifests.services import PLAN
from overspan.adapters.kubernetes.observation.launch_summaries import summarize_launch
from overspan.adapters.kubernetes.planning import list_notes, render_plan
from overspan.bridge.model.allocations import HOLD_SCRIPT, KEEP_SCRIPT
from overspan.bridge.model.errors import InvalidRequest
from overspan.bridge.model.job import Attempt, NodeRun
from overspan.bridge.model.states import State

HEADER = "name: learn\nexecution: parallel\nprimary_tasks: [trainer]\ntermination_delay: 20s\n"
TRAINER = "---\nname: trainer\nnum_nodes: 2\ntime: 2h\nresources: {cpus: 4, memory: 16}\nrun: python t.py\n"
SERVER = "---\nname: server\nready: {tcp: 8000}\ngrace_period: 90\nrun: python s.py\n"
PAIR = HEADER + TRAINER + SERVER
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def by_name(objects: Any) -> dict[str, dict[str, Any]]:
    return {pod["metadata"]["name"]: pod for pod in objects.pods}


def test_golden_group_without_help() -> None:
    check_golden("group-soft.yaml", render_plan(read_file(PAIR, 42), configure(), GangBackend.SOFT))


def test_a_cluster_that_was_not_asked_may_have_better() -> None:
    job = read_file(PAIR, 42)
    assert "has not asked the cluster" in render_plan(job, configure(), None)
    for sure in (render_plan(job, configure(), GangBackend.SOFT), render_plan(job, configure(gang="soft"), None)):
        assert "has not asked the cluster" not in sure
    assert "has not asked the cluster" not in render_plan(read_script("#!/bin/sh\ntrue\n"), configure(), None)


def test_the_demo_group_is_six_pods() -> None:
    demo = read_file((EXAMPLES / "rlhf" / "rlhf.yaml").read_text(), 42)
    assert len(render_job(demo, backend=GangBackend.V1ALPHA2).pods) == 6


def test_golden_native_group_with_everything() -> None:
    text = """\
name: learn
execution: parallel
primary_tasks: [trainer]
kubernetes: {spec: {priorityClassName: high}}
---
name: trainer
num_nodes: 2
time: 2h
grace_period: 2m
resources:
  cpus: 8
  memory: 64
  accelerators: H100:8
  image_id: docker:registry.example.com/train:3
  labels: {team: rl}
envs: {LR: "0.1"}
secrets: {HF_TOKEN: hidden}
volumes: {/data: datasets}
setup: pip install -e .
run: |
  torchrun --nnodes $OVERSPAN_NUM_NODES train.py
---
name: logger
spread: true
needs: [trainer]
ready: {http: "8000/health"}
run: "#!/usr/bin/env python3\\nprint(1)\\n"
"""
    settings = configure(
        gpus={"types": {"H100": "NVIDIA-H100"}},
        service_account="runner",
        image_pull_secrets=["registry"],
        node_selector={"pool": "gpu"},
        tolerations=[{"key": "pool", "value": "gpu", "effect": "NoSchedule"}],
        labels={"lab": "one"},
        annotations={"lab.example.com/cost": "7"},
        scheduler="binpack",
        priority_classes={"high": "lab-high"},
        volumes={"home": {"nfs": {"server": "nas", "path": "/home"}, "path": "/home"}},
    )
    check_golden("group-native.yaml", render_plan(read_file(text, 9), settings, GangBackend.V1BETA1))


def test_golden_batch_script() -> None:
    text = "#!/bin/bash\n#SBATCH -J fit -t 10 -c 2 --mem=4G --array=1-3 -o out.%j\nsrun hostname\n"
    check_golden("script.yaml", render_plan(read_script(text, ["fit.sh", "a b"]), configure(), GangBackend.KUEUE))


def test_a_group_is_a_service_and_a_pod_for_each_member() -> None:
    objects = render_job(read_file(PAIR))
    pods = by_name(objects)
    assert list(pods) == ["learn-trainer-0-a0", "learn-trainer-1-a0", "learn-server-0-a0"]
    assert objects.service is not None
    assert objects.service["metadata"]["name"] == "learn"
    token = objects.anchor["metadata"]["labels"]["overspan.io/launch"]
    assert objects.service["spec"]["selector"] == {"overspan.io/member": token}
    assert objects.service["spec"]["publishNotReadyAddresses"]
    pod = pods["learn-trainer-1-a0"]
    spec = pod["spec"]
    assert (spec["hostname"], spec["subdomain"]) == ("trainer-1", "learn")
    assert spec["restartPolicy"] == "Never"
    assert spec["enableServiceLinks"] is spec["automountServiceAccountToken"] is False
    assert pod["metadata"]["finalizers"] == ["overspan.io/outcome"]
    assert pod["metadata"]["namespace"] == "lab"
    assert pod["metadata"]["annotations"] == {
        "kubectl.kubernetes.io/default-container": "main",
        "overspan.io/task": "trainer",
        "overspan.io/index": "1",
        "overspan.io/attempt": "0",
        "overspan.io/run": "0",
    }
    assert pod["metadata"]["ownerReferences"][0]["uid"] == UID
    assert "ownerReferences" not in objects.anchor["metadata"]


def test_a_secret_command_is_none_of_ours_the_user_s_text_is_an_argument() -> None:
    pod = by_name(render_job(read_file(PAIR)))["learn-trainer-0-a0"]
    assert main_of(pod)["command"][:2] == ["/bin/sh", "-c"]
    assert "python t.py" in main_of(pod)["args"]


def barrier_of(pod: dict[str, Any]) -> list[str]:
    """Whether a pod waits, and the domain of the names that it waits for."""
    return list(main_of(pod)["args"][2:4])


def test_several_pods_wait_at_their_barrier_and_a_single_one_does_not() -> None:
    for pod in render_job(read_file(PAIR)).pods:
        assert barrier_of(pod) == ["1", "learn"]
        assert "initContainers" not in pod["spec"]
    (pod,) = render_job(read_file("name: one\nresources: {gpus: 1}\nrun: echo\n")).pods
    assert barrier_of(pod) == ["", ""]


def test_only_what_ends_others_tells_its_end_in_its_log() -> None:
    pods = by_name(render_job(read_file(PAIR)))
    marks = {name: variables_of(pod).get("OVERSPAN_END_MARK") for name, pod in pods.items()}
    assert marks.pop("learn-server-0-a0") is None
    assert len({mark for mark in marks.values() if mark}) == len(marks) == 2
    for pod in render_job(read_file("name: two\nnum_nodes: 2\nrun: echo\n")).pods:
        assert "OVERSPAN_END_MARK" not in variables_of(pod)


def test_grace_and_the_longest_life() -> None:
    pods = by_name(render_job(read_file(PAIR), configure(gang_timeout=100, default_time="1-0")))
    trainer, server = pods["learn-trainer-0-a0"]["spec"], pods["learn-server-0-a0"]["spec"]
    assert trainer["terminationGracePeriodSeconds"] == 30
    assert server["terminationGracePeriodSeconds"] == 90
    assert trainer["activeDeadlineSeconds"] == 2 * 7200 + 30 + 100 + 300
    assert server["activeDeadlineSeconds"] == 86400 + 20 + 90 + 300
    (pod,) = render_job(read_file("name: one\ntime: 60s\ngrace_period: 0\nrun: echo\n")).pods
    assert pod["spec"]["terminationGracePeriodSeconds"] == 1


@pytest.mark.parametrize(
    ("ready", "probe"),
    [
        ("{tcp: 8000}", {"tcpSocket": {"port": 8000}}),
        ("{http: 8000/health?x=1}", {"httpGet": {"port": 8000, "path": "/health?x=1"}}),
        ("{file: up}", {"exec": {"command": ["/bin/sh", "-c", '[ -e "$1" ]', "ready", "up"]}}),
        ("{command: test -e up, period: 3}", {"exec": {"command": ["/bin/sh", "-c", "test -e up"]}}),
    ],
)
def test_the_first_node_tells_when_a_task_is_ready(ready: str, probe: dict[str, Any]) -> None:
    first, second = render_job(read_file(f"name: two\nnum_nodes: 2\nready: {ready}\nrun: echo\n")).pods
    found = main_of(first)["readinessProbe"]
    if "exec" in probe:
        # Nothing is ready at the start gate.
        *_, text = probe["exec"]["command"][:3]
        assert found["exec"]["command"][2] == f"[ -s /overspan/pod/go ] || [ -s /overspan/run/.go ] || exit 1\n{text}"
        found["exec"]["command"][2] = text
    assert {key: found[key] for key in probe} == probe
    assert found["periodSeconds"] == (3 if "period" in ready else 1)
    assert "readinessProbe" not in main_of(second)


@pytest.mark.parametrize("backend", [GangBackend.V1BETA1, GangBackend.V1ALPHA3, GangBackend.V1ALPHA2])
def test_a_native_group_is_one_flat_pod_group(backend: GangBackend) -> None:
    objects = render_job(read_file(PAIR), backend=backend)
    (group,) = objects.gang
    assert group["apiVersion"] == f"{GROUP}/{backend.value}"
    assert group["spec"]["schedulingPolicy"] == {"gang": {"minCount": 3}}
    names = {pod["spec"]["schedulingGroup"]["podGroupName"] for pod in objects.pods}
    assert names == {group["metadata"]["name"]}


def test_pods_that_take_another_s_place_are_scheduled_alone() -> None:
    settings = configure()
    plan = plan_launch(make_launch(read_file(PAIR)), settings, GangBackend.V1BETA1)
    (pod,) = render_pods(plan, settings, PodSelection("trainer", 1, (1,), go="17.5"))
    assert pod["metadata"]["name"] == "learn-trainer-1-a1"
    assert pod["metadata"]["annotations"]["overspan.io/go"] == "17.5"
    assert pod["spec"]["hostname"] == "trainer-1"
    assert "schedulingGroup" not in pod["spec"]
    (again,) = render_pods(plan, settings, PodSelection("trainer", 0, (0,), run=2))
    assert again["metadata"]["name"] == "learn-trainer-0-a0-r2"
    assert "schedulingGroup" not in again["spec"]


def test_kueue_takes_the_pods_as_one_group() -> None:
    settings = configure(queue="team")
    objects = render_job(read_file(PAIR), settings, GangBackend.KUEUE)
    assert objects.gang == ()
    name = objects.anchor["metadata"]["name"]
    for pod in objects.pods:
        labels = pod["metadata"]["labels"]
        assert labels["kueue.x-k8s.io/queue-name"] == "team"
        assert labels["kueue.x-k8s.io/pod-group-name"] == name
        assert pod["metadata"]["annotations"]["kueue.x-k8s.io/pod-group-total-count"] == "3"
    # All nodes of a task have one shape.
    first, second = objects.pods[:2]
    assert first["metadata"]["labels"] == second["metadata"]["labels"]
    plan = plan_launch(make_launch(read_file(PAIR)), settings, GangBackend.KUEUE)
    (pod,) = render_pods(plan, settings, PodSelection("trainer", 1, (1,)))
    assert pod["metadata"]["labels"]["kueue.x-k8s.io/pod-group-name"] == name


def test_a_single_pod_and_an_independent_job_only_name_kueue_s_queue() -> None:
    for text in ("name: one\nrun: echo\n", "name: two\nnum_nodes: 2\nstart: independent\nrun: echo\n"):
        for pod in render_job(read_file(text), configure(queue="team"), GangBackend.KUEUE).pods:
            assert pod["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "team"
            assert "kueue.x-k8s.io/pod-group-name" not in pod["metadata"]["labels"]


def test_a_partition_is_kueue_s_queue() -> None:
    job = read_script("#!/bin/sh\n#SBATCH -p big\ntrue\n")
    (pod,) = render_job(job, configure(queue="team"), GangBackend.KUEUE).pods
    assert pod["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "big"


def test_kueue_admits_eight_shapes() -> None:
    text = "---\nname: t{0}\nresources: {{cpus: {1}}}\nrun: echo\n"
    tasks = [text.format(number, number + 1) for number in range(MAX_POD_SETS + 1)]
    header = "name: many\nexecution: parallel\n"
    settings = configure(queue="team")
    render_job(read_file(header + "".join(tasks[:-1])), settings, GangBackend.KUEUE)
    with pytest.raises(InvalidRequest, match="9 shapes"):
        plan_launch(make_launch(read_file(header + "".join(tasks))), settings, GangBackend.KUEUE)
    # Tasks of one shape count once.
    same = [text.format(number, 1) for number in range(MAX_POD_SETS + 1)]
    alike = render_job(read_file(header + "".join(same)), settings, GangBackend.KUEUE).pods
    assert len(alike) == MAX_POD_SETS + 1 and len({describe_pod_set(pod) for pod in alike}) == 1


@pytest.mark.parametrize(
    ("text", "backend"),
    [
        (PAIR, GangBackend.V1BETA1),
        ("name: one\nrun: echo\n", GangBackend.ALONE),
        (HEADER.replace("termination", "start: independent\ntermination") + TRAINER + SERVER, GangBackend.ALONE),
        (PAIR + "share: trainer\n", GangBackend.SOFT),
        (PAIR + "kubernetes: {spec: {priorityClassName: low}}\n", GangBackend.SOFT),
    ],
)
def test_the_way_of_the_start_is_one_that_the_job_can_have(text: str, backend: GangBackend) -> None:
    settings = configure()
    plan, choice = plan_with_backend(make_launch(read_file(text)), settings, GangBackend.V1BETA1)
    assert plan.backend is choice.backend is backend
    assert bool(choice.why) == (backend is GangBackend.SOFT)
    assert any(choice.why in note for note in note_job(plan.job, settings, choice)) or not choice.why


def test_a_task_that_shares_is_on_the_node_of_its_host_s_member() -> None:
    objects = render_job(read_file(PAIR.replace("name: server\n", "name: server\nshare: trainer\nnum_nodes: 2\n")))
    pods = by_name(objects)
    token = objects.anchor["metadata"]["labels"]["overspan.io/launch"]
    for index in (0, 1):
        assert pods[f"learn-trainer-{index}-a0"]["metadata"]["labels"]["overspan.io/host"] == f"trainer-{index}"
        (term,) = pods[f"learn-server-{index}-a0"]["spec"]["affinity"]["podAffinity"][REQUIRED]
        wanted = {"overspan.io/launch": token, "overspan.io/host": f"trainer-{index}"}
        assert term == {"labelSelector": {"matchLabels": wanted}, "topologyKey": "kubernetes.io/hostname"}


def test_tasks_that_share_keep_one_shape_under_kueue() -> None:
    text = PAIR.replace("name: server\n", "name: server\nshare: trainer\nnum_nodes: 2\n")
    pods = by_name(render_job(read_file(text), configure(queue="team"), GangBackend.KUEUE))
    assert pods["learn-trainer-0-a0"]["metadata"]["labels"] == pods["learn-trainer-1-a0"]["metadata"]["labels"]
    first, second = (pods[f"learn-server-{index}-a0"]["spec"]["affinity"] for index in (0, 1))
    assert first == second
    # Two of them never share one node.
    (term,) = first["podAntiAffinity"][REQUIRED]
    assert term["labelSelector"]["matchLabels"]["overspan.io/task"] == "server"


def test_a_task_that_spreads_has_nodes_of_its_own_but_for_its_guests() -> None:
    text = PAIR.replace("name: trainer\n", "name: trainer\nspread: true\n") + "---\nname: tap\nshare: trainer\nrun: t\n"
    objects = render_job(read_file(text))
    pods = by_name(objects)
    (term,) = pods["learn-trainer-0-a0"]["spec"]["affinity"]["podAntiAffinity"][REQUIRED]
    token = objects.anchor["metadata"]["labels"]["overspan.io/launch"]
    assert term["labelSelector"]["matchExpressions"] == [
        {"key": "overspan.io/launch", "operator": "In", "values": [token]},
        {"key": "overspan.io/guest", "operator": "NotIn", "values": ["trainer"]},
    ]
    assert pods["learn-tap-0-a0"]["metadata"]["labels"]["overspan.io/guest"] == "trainer"


@pytest.mark.parametrize("backend", [GangBackend.SOFT, GangBackend.V1BETA1, GangBackend.KUEUE])
def test_pods_are_selected_by_task_user_and_name(backend: GangBackend) -> None:
    job = read_file(PAIR.replace("name: server", "name: Data_server"))
    job = replace(job, spec=replace(job.spec, origin=replace(job.spec.origin, user="ada.l")))
    for pod in render_job(job, configure(queue="team"), backend).pods:
        labels = pod["metadata"]["labels"]
        assert (labels["overspan.io/name"], labels["overspan.io/user"]) == ("learn", "ada.l")
        assert labels["overspan.io/task"] == ("data-server" if "data-server" in pod["metadata"]["name"] else "trainer")


@pytest.mark.parametrize("text", ["two words", "ada@site", "-", "x" * 64, "", "n\u00e4me", "a\n"])
def test_what_is_no_value_of_a_label_is_left_out(text: str) -> None:
    job = read_file("name: one\nrun: echo\n")
    job = replace(job, spec=replace(job.spec, name=text, origin=replace(job.spec.origin, user=text)))
    assert label_job(job) == {}


def test_nodes_that_are_lost_are_left_soon_unless_the_site_says_when() -> None:
    (pod,) = render_job(read_file("name: one\nrun: echo\n")).pods
    seconds = {item["key"]: item["tolerationSeconds"] for item in pod["spec"]["tolerations"]}
    assert seconds == {"node.kubernetes.io/not-ready": 30, "node.kubernetes.io/unreachable": 30}
    settings = configure(tolerations=[{"operator": "Exists"}])
    (pod,) = render_job(read_file("name: one\nrun: echo\n"), settings).pods
    assert pod["spec"]["tolerations"] == [{"operator": "Exists"}]


@pytest.mark.parametrize("text", ["#!/usr/bin/env python3\nprint(1)\n", "#!/bin/bash\necho 1\n"])
def test_a_script_keeps_its_own_interpreter(text: str) -> None:
    objects = render_job(read_script(text, ["train.sh", "a b"]))
    (pod,) = objects.pods
    assert main_of(pod)["args"][-2:] == ["/overspan/scripts/slurm_script", "a b"]
    assert main_of(pod)["workingDir"] == "/overspan/run"
    volume = next(item for item in pod["spec"]["volumes"] if item["name"] == "overspan-script")
    (item,) = volume["configMap"]["items"]
    assert objects.anchor["data"][item["key"]] == text
    assert item["mode"] == 0o555


def test_a_very_long_text_is_a_file_too() -> None:
    text = "true\n" * 40_000
    job = read_file("name: one\nrun: echo\n")
    job = replace(job, spec=replace(job.spec, tasks=(replace(job.spec.tasks[0], run=text),)))
    objects = render_job(job)
    assert main_of(objects.pods[0])["args"][-2:] == ["/bin/sh", "/overspan/scripts/run"]
    assert objects.anchor["data"]["script.one"] == text


def test_a_script_s_folder_is_the_run_directory_unless_it_names_one() -> None:
    (pod,) = render_job(read_script("#!/bin/sh\n#SBATCH --chdir=/data\ntrue\n")).pods
    assert "/data" in main_of(pod)["args"]
    (pod,) = render_job(read_file("name: one\nrun: echo\n")).pods
    assert "workingDir" not in main_of(pod)


def test_the_anchor_tells_all_that_later_pods_need() -> None:
    settings = configure()
    launch = make_launch(read_file(PAIR.replace("run: python s.py", "secrets: {A: hidden}\nrun: python s.py")))
    plan = plan_launch(launch, settings, GangBackend.V1BETA1)
    objects = render(launch, plan, settings)
    document = json.loads(objects.anchor["data"][PLAN])
    again = read_plan(document)
    assert again == plan
    assert summarize_launch(again.token, again.job).pods == 3
    for pods in (PodSelection("server", 0), PodSelection("trainer", 4, (1,), 2, "1.0")):
        assert render_pods(again, settings, pods) == render_pods(plan, settings, pods)


@pytest.mark.parametrize("change", [{"format": 9}, {"job": None}, {"rung": "x"}, {"files": 3}, {"files": {"a": {}}}])
def test_what_is_no_plan(change: dict[str, Any]) -> None:
    launch, settings = make_launch(read_file(PAIR)), configure()
    plan = json.loads(render(launch, plan_launch(launch, settings, GangBackend.SOFT), settings).anchor["data"][PLAN])
    with pytest.raises(ValueError, match=r"."):
        read_plan({**plan, **change})


def test_a_later_launch_begins_where_the_attempts_left_off() -> None:
    job = read_file(PAIR)
    first = Attempt(0, State.NODE_FAIL, 1.0, (NodeRun(0), NodeRun(1)), ended_at=2.0)
    trainer = replace(job.tasks[0], attempts=(first,))
    over = replace(job.tasks[1], state=State.COMPLETED, ended_at=2.0)
    objects = render_job(replace(job, launch=1, tasks=(trainer, over)), backend=GangBackend.V1BETA1)
    assert list(by_name(objects)) == ["learn-trainer-0-a1", "learn-trainer-1-a1"]
    assert objects.gang[0]["spec"]["schedulingPolicy"]["gang"]["minCount"] == 2
    assert objects.pods[0]["spec"]["schedulingGroup"]


def test_a_thousand_pods_are_all_different_and_small() -> None:
    objects = render_job(read_file("name: big\nexecution: parallel\n---\nname: w\nnum_nodes: 1000\nrun: echo\n"))
    assert len({pod["metadata"]["name"] for pod in objects.pods}) == 1000
    assert len({pod["spec"]["hostname"] for pod in objects.pods}) == 1000
    assert max(len(json.dumps(pod)) for pod in objects.pods) < 10_000


@pytest.mark.parametrize("version", VERSIONS)
def test_the_schemas_find_mistakes(version: str) -> None:
    pod = render_job(read_file("name: one\nrun: echo\n")).pods[0]
    check_schema(pod, version)
    with pytest.raises(Exception, match="hostNam"):
        check_schema({**pod, "spec": {**pod["spec"], "hostNam": "x"}}, version)


def test_own_leaves_everything_else() -> None:
    document: dict[str, Any] = {"kind": "Pod", "metadata": {"name": "a"}}
    assert own(document, "anchor", UID) is document
    assert document["metadata"]["name"] == "a"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("name: one\nresources: {image_id: ./x.sif}\nrun: echo\n", "is a file"),
        ("name: one\nresources: {labels: {a b: c}}\nrun: echo\n", "no label"),
        ("name: one\nresources: {labels: {a: -c-}}\nrun: echo\n", "no label"),
    ],
)
def test_what_pods_cannot_be(text: str, words: str) -> None:
    with pytest.raises(InvalidRequest, match=words) as caught:
        plan_launch(make_launch(read_file(text)), configure(), GangBackend.SOFT)
    assert caught.value.remedy


def test_a_pod_needs_an_image() -> None:
    settings = configure().model_copy(update={"image": ""})
    with pytest.raises(InvalidRequest, match="needs an image") as caught:
        plan_launch(make_launch(read_file("name: one\nrun: echo\n")), settings, GangBackend.SOFT)
    assert "image_id" in caught.value.remedy


@pytest.mark.parametrize("text", [HOLD_SCRIPT, KEEP_SCRIPT])
def test_an_allocation_without_a_script_has_srun_and_what_holds_it(text: str) -> None:
    launch, settings = make_launch(read_script(text)), configure()
    objects = render(launch, plan_launch(launch, settings, GangBackend.SOFT), settings)
    texts = objects.anchor["data"].values()
    assert HOLD_PODS in texts and text not in texts
    (pod,) = objects.pods
    assert COMMANDS_DIR in [mount["mountPath"] for mount in pod["spec"]["containers"][0]["volumeMounts"]]


def test_text_that_is_no_utf_8_or_too_much() -> None:
    job = read_file("name: one\nrun: echo\n")
    task = job.spec.tasks[0]
    for run, words in (("echo \udcff", "UTF-8"), ("a\0b", "zero byte"), ("x" * (1 << 20), "takes 1 MiB")):
        launch = make_launch(replace(job, spec=replace(job.spec, tasks=(replace(task, run=run),))))
        settings = configure()
        with pytest.raises(InvalidRequest, match=words):
            render(launch, plan_launch(launch, settings, GangBackend.SOFT), settings)


def test_what_is_accepted_without_effect_is_noted() -> None:
    script = "#!/bin/sh\n#SBATCH -p big -o x.out -i in.txt\nsrun hostname\n"
    notes = list_notes(read_script(script), configure())
    assert len(notes) == 4
    for words in ("14 days", "shared", "input file", "srun"):
        assert any(words in note for note in notes)
    assert list_notes(read_file("name: one\ntime: 1h\nrun: echo\n"), configure()) == ()
    assert list_notes(read_file("name: one\ntime: 1h\nstart_timeout: 5m\nrun: echo\n"), configure()) == ()
    (note,) = list_notes(read_script(HOLD_SCRIPT), configure())
    assert "so its steps work in" in note

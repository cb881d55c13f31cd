"""Rows of docs/acceptance.md on a real Kubernetes: what members find, where they run, how they end and come back."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from statistics import median

import yaml
from tests.system.kubernetes.conftest import KubeSpan
from tests.system.members import check_members, write_group

PYTHON = {"image_id": "docker:rig/python:1", "cpus": 0.1}
SERVE = "trap 'echo term; exit 0' TERM; echo up; while :; do sleep 0.1; done"
ON_TERM = """\
import signal, sys, time
def end(*given):
    print("term", time.time(), flush=True)
    sys.exit(0)
signal.signal(signal.SIGTERM, end)
# The marks of its start have the kubelet busy for a moment.
time.sleep(3)
print("up", flush=True)
while True:
    time.sleep(60)
"""


def group(*tasks: dict[str, object], **header: object) -> str:
    """A job group's YAML from plain data, each task small."""
    documents = [{"name": "g", "execution": "parallel", **header}]
    documents += [{"resources": {"cpus": 0.1}, **task} for task in tasks]
    return str(yaml.safe_dump_all(documents, sort_keys=False))


def until_said(kube: KubeSpan, job: int, task: str, text: str) -> None:
    kube.wait_until(lambda: text in kube.log(job, task), 30, f"{task} to say {text}")


def test_every_member_finds_its_variables_and_all_names(kube: KubeSpan) -> None:
    job = kube.submit(write_group(**PYTHON))
    kube.until(job, "COMPLETED", timeout=60)
    told = check_members(job, lambda task, index: kube.log(job, task, "--node", str(index)))
    for member, found in told.items():
        # A pod knows its own address before it starts, and the others by their names.
        assert found["env"]["OVERSPAN_ADDR"] == found["found"][member]
        assert not [name for name in found["env"] if name.endswith("_ADDRS")]
        assert found["env"]["SLURM_CLUSTER_NAME"] == "kube"
        assert [found["env"][f"SLURM_NNODES_HET_GROUP_{place}"] for place in (0, 1)] == ["1", "2"]
    nodes = told["worker-1.vars"]["env"]
    assert nodes["SLURM_JOB_NODELIST"] == "worker-[0-1]" and nodes["SKYPILOT_NODE_IPS"].split() == [
        "worker-0.vars",
        "worker-1.vars",
    ]


def test_getent_finds_members_without_root(kube: KubeSpan) -> None:
    kube.connect(
        kube.rig,
        kube.namespace,
        image="rig/python:1",
        kubernetes={"spec": {"securityContext": {"runAsUser": 1234, "runAsNonRoot": True}}},
    )
    find = "id -u; for name in a-0.g b-0.g b-1.g; do until getent hosts $name; do sleep 0.2; done; done"
    job = kube.submit(group({"name": "a", "run": find}, {"name": "b", "num_nodes": 2, "run": find}))
    kube.until(job, "COMPLETED", timeout=60)
    for words in (("a",), ("b", "--node", "0"), ("b", "--node", "1")):
        lines = kube.log(job, *words).splitlines()
        assert lines[0] == "1234" and len(lines) == 4


def test_a_batch_script_runs_with_its_directives_and_exit_code(kube: KubeSpan) -> None:
    script = kube.folder / "train.sh"
    script.write_text(
        "#!/bin/bash\n#SBATCH --job-name=from-script -c 1\n#SBATCH --mem=64M --time=5\n"
        "#SBATCH --array=3,5 --export=FLAVOUR\n"
        'echo "$SLURM_JOB_NAME $SLURM_ARRAY_TASK_ID $FLAVOUR $SLURM_CPUS_ON_NODE $1 ${BASH_VERSION%%.*}"\n'
        "exit $SLURM_ARRAY_TASK_ID\n"
    )
    kube.connect(kube.rig, kube.namespace, image="rig/python:1")
    done = kube.run("sbatch", "--parsable", str(script), "a word", environment={"FLAVOUR": "vanilla"})
    array = int(done.stdout.partition(";")[0])
    assert kube.run("wait", str(array), check=False).returncode == 5
    for index in (3, 5):
        shown = kube.job(f"{array}_{index}")
        assert (shown["state"], shown["exit_code"], shown["name"]) == ("FAILED", index, "from-script")
        assert kube.log(f"{array}_{index}") == f"from-script {index} vanilla 1 a word 5\n"
    kube.until_empty()


def test_a_plan_is_what_the_cluster_takes_and_touches_nothing(kube: KubeSpan) -> None:
    file = kube.folder / "plan.yaml"
    file.write_text(group({"name": "a", "run": "touch made"}, {"name": "b", "num_nodes": 2, "run": "true"}))
    text = kube.run("plan", str(file)).stdout
    documents = [item for item in yaml.safe_load_all(text) if item]
    kinds = [item["kind"] for item in documents]
    assert kinds[0] == "ConfigMap" and {"Service", "Pod"} <= set(kinds) and "touch made" in text
    assert {"g-a-0-a0", "g-b-0-a0"} <= {item["metadata"]["name"] for item in documents}
    assert kube.left() == [] and kube.run("squeue", "--noheader", "-t", "all").stdout == ""
    for item in documents:
        item["metadata"].update(namespace=kube.namespace)
    done = kube.rig.kubectl("create", "--dry-run=server", "-f", "-", stdin=yaml.safe_dump_all(documents))
    assert done.rc == 0 and len(done.stdout.splitlines()) == len(documents), done


def test_term_arrives_within_a_second_of_the_cancel(kube: KubeSpan) -> None:
    text = yaml.safe_dump({"name": "deaf", "resources": PYTHON, "run": f"exec python3 -c '{ON_TERM}'"})
    delays = []
    for _ in range(5):
        job = kube.submit(text)
        until_said(kube, job, "", "up")
        kube.run("scancel", str(job))
        kube.until(job, "CANCELLED")
        rows = kube.timeline(job)
        asked = next(datetime.fromisoformat(row["at"]) for row in rows if row["text"].startswith("cancel"))
        told = float(kube.log(job).partition("term ")[2].split()[0])
        delays.append(told - asked.replace(tzinfo=asked.tzinfo or UTC).timestamp())
    assert min(delays) >= 0 and median(delays) < 1, delays


def test_a_task_shares_the_node_of_another_and_one_has_its_own(kube: KubeSpan) -> None:
    gate = kube.folder / "gate"
    gate.mkdir()
    kube.connect(kube.rig, kube.namespace, volumes={"gate": {"hostPath": {"path": str(gate)}, "path": "/gate"}})
    wait = "until [ -e /gate/open ]; do sleep 0.1; done"
    job = kube.submit(
        group(
            {"name": "trainer", "run": f"echo $OVERSPAN_HOST; {wait}"},
            {"name": "loader", "run": f"echo $OVERSPAN_HOST; {SERVE}", "share": "trainer"},
            {"name": "alone", "run": f"echo $OVERSPAN_HOST; {SERVE}", "spread": True},
            primary_tasks=["trainer"],
            termination_delay={"default": "0s", "loader": "2s"},
        )
    )
    for name in ("loader", "alone"):
        until_said(kube, job, name, "up")
    nodes = {name: kube.node_of(f"g-{name}-0-a0") for name in ("trainer", "loader", "alone")}
    assert nodes["trainer"] == nodes["loader"] != nodes["alone"]
    (gate / "open").touch()
    shown = kube.until(job, "COMPLETED")
    reasons = {task["name"]: task["reason"] for task in shown["tasks"]}
    assert reasons == {"trainer": "None", "loader": "PrimariesDone", "alone": "PrimariesDone"}
    ends = {task["name"]: task["ended_at"] for task in shown["tasks"]}
    assert ends["loader"] - ends["trainer"] >= 1.9
    assert kube.log(job, "trainer") == "trainer-0.g\n"
    for name in ("loader", "alone"):
        assert kube.log(job, name).startswith(f"{name}-0.g\nup\n") and "term" in kube.log(job, name)
    kube.until_empty()


def lose_server(kube: KubeSpan, **header: object) -> int:
    """A group whose server's pod somebody deletes; the trainer ends when it finds the second server."""
    serve = "mkdir -p /tmp/www; echo at $(date +%s) >/tmp/www/index.html; exec httpd -f -p 8000 -h /tmp/www"
    ask = "timeout 1 wget -q -O- http://server-0.g:8000/ 2>/dev/null || true"
    again = f'until now=$({ask}); [ -n "$now" ] && [ "$now" != "$first" ]; do sleep 0.1; done'
    begin = f'until first=$({ask}); [ -n "$first" ]; do sleep 0.1; done; echo found'
    wait = f"{begin}; [ $OVERSPAN_ATTEMPT -gt 0 ] || {{ {again}; }}"
    job = kube.submit(
        group(
            {"name": "trainer", "run": f"{wait}; echo $now; date +%s", "grace_period": "1s"},
            {"name": "server", "run": serve, "grace_period": "1s", "backoff": {"first": 0.1}},
            primary_tasks=["trainer"],
            **header,
        )
    )
    until_said(kube, job, "trainer", "found")
    kube.kubectl("delete", "pod", "g-server-0-a0", "--wait=false")
    kube.until(job, "COMPLETED", timeout=60)
    return job


def test_a_member_that_came_back_is_reached_by_its_name_within_ten_seconds(kube: KubeSpan) -> None:
    job = lose_server(kube)
    assert [len(task["attempts"]) for task in kube.job(job)["tasks"]] == [1, 2]
    started, reached = (int(line.split()[-1]) for line in kube.log(job, "trainer").splitlines()[1:])
    assert 0 <= reached - started <= 10
    kube.until_empty()


def test_a_lost_member_restarts_the_group_where_the_file_says_so(kube: KubeSpan) -> None:
    job = lose_server(kube, restart="group")
    shown = {task["name"]: task for task in kube.job(job)["tasks"]}
    assert [attempt["state"] for attempt in shown["server"]["attempts"]] == ["NODE_FAIL", "COMPLETED"]
    assert len(shown["trainer"]["attempts"]) == 2 and shown["trainer"]["state"] == "COMPLETED"
    # Nobody's program has failed: the second attempts cost the users' budgets nothing.
    assert "NonZeroExitCode" not in json.dumps(kube.job(job))
    kube.until_empty()

"""CC06 in pods: srun, scontrol and the rest of Slurm's commands in jobs on a real Kubernetes."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest
from tests.rigs.kube import KubeRig
from tests.system.kubernetes.conftest import KubeSpan

PYTHON = "rig/python:1"
TASK = """
name: one
resources: {{cpus: 0.1, image_id: "docker:{image}"}}
run: |
{run}
"""
PORT = 6818
ELSEWHERE = "the daemon of Overspan cannot be reached from a pod, run this where the job was submitted"


@pytest.fixture
def span(kube: KubeSpan, kube_rig: KubeRig, kube_namespace: str) -> KubeSpan:
    """The cluster with an image that has Python."""
    kube.connect(kube_rig, kube_namespace, image=PYTHON, cpus=0.1)
    return kube


def script(span: KubeSpan, tmp_path: Path, body: str, *options: str) -> int:
    """Submit a batch script of some nodes."""
    path = tmp_path / "job.sh"
    path.write_text(f"#!/bin/bash\n{body}")
    path.chmod(0o755)
    done = span.run("sbatch", "--parsable", *options, str(path))
    return int(done.stdout.strip().split(";")[0])


def task(span: KubeSpan, run: str, image: str = PYTHON) -> str:
    """Run a task of one node to its end, and give what it printed."""
    # One stream, so that the lines stand in their order.
    text = TASK.format(image=image, run="\n".join(f"  {line}" for line in ("exec 2>&1", *run.splitlines())))
    job = span.submit(text)
    span.until(job, "COMPLETED", timeout=60)
    return span.log(job)


def test_a_task_runs_steps_in_its_own_pod(span: KubeSpan) -> None:
    told = task(
        span,
        "which srun\n"
        "srun -n 3 --label sh -c 'echo $SLURM_PROCID of $SLURM_NTASKS, $SLURM_LOCALID, on node $SLURM_NODEID'\n"
        "echo from stdin | srun -n 2 cat\n"
        "srun -n 2 sh -c 'exit $((SLURM_PROCID + 4))' 2>/dev/null; echo code $?\n"
        "srun --frobnicate true; echo code $?\n"
        "srun --jobid=77777 true; echo code $?\n",
    ).splitlines()
    assert told[0] == "/overspan/commands/srun"
    assert sorted(told[1:4]) == [f"{rank}: {rank} of 3, {rank}, on node 0" for rank in range(3)]
    assert told[4:7] == ["from stdin", "from stdin", "code 5"]
    assert "unrecognized option '--frobnicate'" in told[7] and "code 255" in told
    assert any("cannot be reached from a pod" in line for line in told) and told[-1] == "code 1"


def test_host_lists_are_told_and_what_asks_the_daemon_says_that_it_cannot(span: KubeSpan) -> None:
    told = task(
        span,
        "scontrol show hostnames 'n[1-2],m'\n"
        "scontrol show hostnames | grep -c one\n"
        "scontrol show hostlist a1,a2\n"
        "scontrol show job 1; echo code $?\n"
        "squeue; echo code $?\n"
        "sbatch --wrap true; echo code $?\n",
    ).splitlines()
    assert told[:5] == ["n1", "n2", "m", "1", "a[1-2]"]
    assert told[6::2] == ["code 1"] * 3
    assert told[5].startswith(f"scontrol: error: {ELSEWHERE}; here")
    assert told[7::2] == [f"{verb}: error: {ELSEWHERE}" for verb in ("squeue", "sbatch")]


def test_an_image_without_python_says_so(span: KubeSpan) -> None:
    missing, asking = ("srun hostname", "scontrol show hostnames n1"), ("scancel 1", "scontrol show job 1")
    told = task(span, "\n".join(f"{words}; echo code $?" for words in (*missing, *asking)), image="rig/sh:1")
    wanted = "{0}: error: this image has no python3, which {0} needs in a pod\ncode 127\n"
    others = [f"{verb}: error: {ELSEWHERE}\ncode 1\n" for verb in ("scancel", "scontrol")]
    assert told == wanted.format("srun") + wanted.format("scontrol") + "".join(others)


def test_a_script_of_three_nodes_runs_its_steps_on_all_of_them(span: KubeSpan, tmp_path: Path) -> None:
    job = script(
        span,
        tmp_path,
        "#SBATCH -N 3\n"
        "echo script on $SLURM_NODEID of $SLURM_JOB_NODELIST\n"
        "srun --ntasks-per-node=2 "
        "sh -c 'echo rank $SLURM_PROCID $SLURM_NODEID $SLURM_LOCALID $(hostname) $OVERSPAN_ADDR'\n"
        "echo hello | srun -N 3 -n 3 cat\n"
        "srun -N 1 -n 1 -w $(scontrol show hostnames | tail -1) sh -c 'echo alone on $(hostname)'\n"
        "WORD=kept srun -N 2 -n 2 --export=NAMED=given /bin/sh -c 'echo export $NAMED-$WORD'\n"
        "srun -N 3 -n 3 sh -c 'exit $((SLURM_PROCID + 5))'; echo code $?\n"
        "exit 3\n",
    )
    shown = span.until(job, "FAILED", timeout=90)
    assert shown["exit_code"] == 3
    told = span.log(job).splitlines()
    hosts = [f"batch-{index}" for index in range(3)]
    assert told[0] == "script on 0 of batch-[0-2]"
    ranks = sorted(line.split()[1:] for line in told if line.startswith("rank "))
    assert [row[:4] for row in ranks] == [[str(n), str(n // 2), str(n % 2), hosts[n // 2]] for n in range(6)]
    assert len({row[4] for row in ranks}) == 3
    assert told.count("hello") == 3 and "alone on batch-2" in told
    assert told.count("export given-") == 2 and "code 7" in told
    span.until_empty()


def test_the_components_of_a_hetjob_are_pods_of_one_step(span: KubeSpan, tmp_path: Path) -> None:
    body = "srun --het-group=0,1 sh -c 'echo $SLURM_PROCID $(hostname)'\nsrun --het-group=1 hostname\n"
    job = script(span, tmp_path, f"#SBATCH -n 1\n#SBATCH hetjob\n#SBATCH -n 1\n{body}")
    span.until(job, "COMPLETED", timeout=90)
    told = [line.split(" | ")[-1] for line in span.log(job).splitlines()]
    first, second = (f"{task['name']}-0" for task in span.job(job)["tasks"])
    assert sorted(told) == sorted([f"0 {first}", f"1 {second}", second])


def test_a_cancel_lets_the_ranks_of_all_pods_have_their_grace(span: KubeSpan, tmp_path: Path) -> None:
    rank = 'trap "echo rank \\$SLURM_PROCID had TERM; sleep 1; echo rank \\$SLURM_PROCID done; exit 0" TERM'
    job = script(
        span, tmp_path, f"#SBATCH -N 2\nsrun sh -c '{rank}; echo up; while :; do sleep 0.1; done'\necho never\n"
    )
    span.wait_until(lambda: span.log(job).count("up\n") == 2, 60, "both ranks to run")
    span.run("scancel", str(job))
    span.until(job, "CANCELLED", timeout=40)
    told = span.log(job)
    assert all(f"rank {number} had TERM\n" in told and f"rank {number} done\n" in told for number in range(2))
    assert "never" not in told


def test_another_pod_cannot_use_the_step_daemon_and_the_key_is_nowhere_else(span: KubeSpan, tmp_path: Path) -> None:
    job = script(span, tmp_path, "#SBATCH -N 2\nsrun echo up\nwhile [ ! -e /tmp/stop ]; do sleep 0.1; done\n")
    span.wait_until(lambda: span.log(job).count("up\n") == 2, 60, "the step")
    pods = span.pods()
    address = next(pod["status"]["podIP"] for name, pod in pods.items() if "-batch-1-" in name)
    stranger = (
        "python3 - <<'END'\n"
        "import os, socket\n"
        f"peer = socket.create_connection(('{address}', {PORT}), 10)\n"
        "peer.sendall(b'overspan-step-1\\n' + os.urandom(32))\n"
        "print('challenged', len(peer.recv(64)))\n"
        "peer.sendall(os.urandom(32))\n"
        "print('answer', peer.recv(64))\n"
        "END\n"
    )
    assert task(span, stranger) == "challenged 64\nanswer b''\n"
    secrets = json.loads(span.kubectl("get", "secrets", "-o", "json"))["items"]
    # Those of other jobs go a moment after their ends.
    (secret,) = (one for one in secrets if one["metadata"]["name"].split("-")[-2] == str(job))
    key = base64.b64decode(secret["data"]["steps.key"]).decode()
    assert len(key) == 64
    for kind in ("pods", "configmaps"):
        assert key not in span.kubectl("get", kind, "-o", "json")
    assert key not in span.run("show", str(job), "--json").stdout
    for name in (name for name in pods if f"-{job}-" in name):
        words = "tr '\\0' ' ' </proc/1/cmdline; cat /proc/[0-9]*/cmdline /proc/[0-9]*/environ 2>/dev/null || true"
        assert key not in span.kubectl("exec", name, "--", "sh", "-c", words)
    span.run("scancel", str(job))

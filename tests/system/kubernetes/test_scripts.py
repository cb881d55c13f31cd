"""SL25 on a real Kubernetes: a batch script has its folder, files and environment where folders are shared."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest
from tests.rigs.kube import KubeRig
from tests.system.kubernetes.conftest import WAITS, KubeSpan, log_in


@pytest.fixture
def shared(kube: KubeSpan, kube_rig: KubeRig, kube_namespace: str, tmp_path: Path) -> Path:
    """A folder that this machine and the pods have at the same path: its nodes are processes of this machine."""
    folder = tmp_path / "shared"
    (folder / "out").mkdir(parents=True)
    volume = {"hostPath": {"path": str(folder), "type": "Directory"}, "path": str(folder), "shared": True}
    kube.connect(kube_rig, kube_namespace, cpus=0.1, volumes={"lab": volume})
    return folder


def sbatch(kube: KubeSpan, folder: Path, text: str, *options: str, **variables: str) -> int:
    """Submit a script from a folder."""
    script = folder / "job.sh"
    script.write_text("#!/bin/sh\n" + text)
    done = kube.run("sbatch", "--parsable", *options, str(script), cwd=folder, environment=variables)
    return int(done.stdout.strip().partition(";")[0])


def shown(kube: KubeSpan, job: int) -> dict[str, str]:
    """The fields of `scontrol show job`."""
    words = kube.run("scontrol", "show", "job", str(job)).stdout.split()
    return {name: value for name, _, value in (word.partition("=") for word in words)}


def test_a_script_on_a_shared_folder_has_its_folder_its_files_and_its_environment(kube: KubeSpan, shared: Path) -> None:
    text = (
        "pwd; echo $SLURM_SUBMIT_DIR; echo by path >relative.txt\n"
        'echo "$FLAVOUR, $PATH, $DISPLAY"; echo wrong >&2\n'
        "until [ -e end ]; do sleep 0.1; done\n"
    )
    given = {"FLAVOUR": "a $(b) 'c'", "DISPLAY": ":0"}
    job = sbatch(kube, shared, text, "-J", "fit", "-o", "out/%x-%j.out", "-e", "out/%A.err", **given)
    output = shared / "out" / f"fit-{job}.out"
    kube.wait_until(lambda: output.exists() and "local/bin" in output.read_text(), 60, "the script's output")
    assert shown(kube, job)["StdOut"] == str(output)
    # The file is written before the node has the log.
    kube.wait_until(lambda: kube.log(job, "batch", "--stream", "output") == output.read_text(), 60, "the script's log")
    # What travels is in a Secret alone.
    assert "a $(b)" not in kube.kubectl("get", "pods,configmaps", "-o", "yaml")
    secrets = json.loads(kube.kubectl("get", "secrets", "-o", "json"))["items"]
    told = {name: base64.b64decode(value).decode() for item in secrets for name, value in item["data"].items()}
    assert told["FLAVOUR"] == given["FLAVOUR"] and not {"PATH", "DISPLAY", "HOME"} & told.keys()
    (shared / "end").touch()
    kube.until(job, "COMPLETED")
    folder, submitted, values = output.read_text().splitlines()
    assert folder == submitted == str(shared)
    assert values.startswith("a $(b) 'c', ") and values.endswith(", ")
    assert (shared / "relative.txt").read_text() == "by path\n"
    assert (shared / "out" / f"{job}.err").read_text() == "wrong\n"
    assert kube.log(job, "batch", "--stream", "output") == output.read_text()
    assert kube.log(job, "batch", "--stream", "error") == "wrong\n"
    kube.until_empty()


def test_without_shared_folders_the_output_file_is_written_here_while_the_script_runs(
    kube: KubeSpan, tmp_path: Path
) -> None:
    kube.connect(kube.rig, kube.namespace, cpus=0.1)
    home = tmp_path / "home"
    home.mkdir()
    (home / "old.txt").write_text("of an earlier job\n")
    text = f"pwd; echo wrong >&2; {WAITS}; echo last; exit 3\n"
    job = sbatch(kube, home, text)
    added = sbatch(kube, home, "echo new\n", "-o", "old.txt", "--open-mode=append")
    output = home / f"slurm-{job}.out"
    kube.wait_until(lambda: output.exists() and "wrong" in output.read_text(), 60, "the first lines")
    assert shown(kube, job)["StdOut"] == str(output)
    kube.let_go(next(name for name in kube.pods() if f"-{job}-" in name))
    assert kube.run("wait", str(job), str(added), check=False).returncode == 3
    # All of it is there when the end is told.
    assert output.read_text() == "/overspan/run\nwrong\nlast\n" == kube.log(job)
    assert (home / "old.txt").read_text() == "of an earlier job\nnew\n"
    kube.until_empty()


def test_an_output_file_here_is_whole_although_the_daemon_was_away_at_the_end(kube: KubeSpan, tmp_path: Path) -> None:
    kube.connect(kube.rig, kube.namespace, cpus=0.1)
    job = sbatch(kube, tmp_path, f"echo first; {WAITS}; seq 2000; echo last\n")
    output = tmp_path / f"slurm-{job}.out"
    kube.wait_until(lambda: output.exists() and output.read_text() == "first\n", 60, "the first line")
    pod = next(name for name in kube.pods() if f"-{job}-" in name)
    kube.kill_daemon()
    kube.let_go(pod)
    kube.wait_until(lambda: kube.pods()[pod]["status"]["phase"] == "Succeeded", 60, "the end of the script")
    kube.until(job, "COMPLETED")
    assert output.read_text().splitlines() == ["first", *map(str, range(1, 2001)), "last"]


def test_a_requeue_empties_the_output_file_unless_it_is_to_be_added_to(kube: KubeSpan, shared: Path) -> None:
    text = 'echo "run ${SLURM_RESTART_COUNT:-0}"; until [ -e end ]; do sleep 0.1; done\n'
    jobs = {
        mode: sbatch(kube, shared, text, "-o", f"{mode}.out", "--open-mode", mode) for mode in ("append", "truncate")
    }
    files = {mode: shared / f"{mode}.out" for mode in jobs}
    kube.wait_until(lambda: all(file.exists() and file.read_text() for file in files.values()), 60, "the first runs")
    for job in jobs.values():
        kube.until(job, "RUNNING")
    kube.run("scontrol", "requeue", ",".join(map(str, jobs.values())))
    kube.wait_until(lambda: all("run 1" in file.read_text() for file in files.values()), 90, "the second runs")
    (shared / "end").touch()
    for job in jobs.values():
        kube.until(job, "COMPLETED")
    assert {mode: file.read_text() for mode, file in files.items()} == {
        "append": "run 0\nrun 1\n",
        "truncate": "run 1\n",
    }


def test_what_a_script_cannot_have_is_said(kube: KubeSpan, shared: Path) -> None:
    volume = {"hostPath": {"path": str(shared)}, "path": str(shared), "shared": True}
    nobody = {"spec": {"securityContext": {"runAsUser": 65534}}}
    kube.connect(kube.rig, kube.namespace, cpus=0.1, volumes={"lab": volume}, kubernetes=nobody)
    (shared / "open").mkdir(mode=0o777)
    (shared / "open").chmod(0o777)
    words = {
        ("-o", "missing/out"): f"cannot open the output file {shared}/missing/out: there is no folder {shared}/missing",
        ("-o", "out/mine"): f"cannot open the output file {shared}/out/mine: the user of the image (uid=65534(nobody)",
        ("-o", "open/x", "-D", "/nonexistent"): "cannot enter /nonexistent, its working directory: there is none",
        ("-o", "open/%a", "-a", "1-2"): "",
    }
    jobs = {sbatch(kube, shared, "echo ran\n", *options): said for options, said in words.items()}
    kube.run("wait", *map(str, jobs), check=False)
    for job, said in jobs.items():
        if said:
            ended = kube.job(job)
            assert (ended["state"], ended["reason"]) == ("FAILED", "JobLaunchFailure")
            assert said in " ".join(row["text"] for row in kube.timeline(job)) and said in kube.log(job)
    assert [(shared / "open" / name).read_text() for name in ("1", "2")] == ["ran\n", "ran\n"]


def test_a_secret_that_may_not_be_made_is_said(kube: KubeSpan, shared: Path) -> None:
    kinds = "--resource=pods,pods/log,configmaps,services,events,podgroups.scheduling.k8s.io"
    kube.kubectl("create", "role", "poor", "--verb=*", kinds)
    kube.kubectl("create", "rolebinding", "poor", "--role=poor", f"--serviceaccount={kube.namespace}:default")
    kube.connect(kube.rig, kube.namespace, kubeconfig=str(log_in(kube, "default")))
    job = sbatch(kube, shared, "echo ran\n", FLAVOUR="sweet")
    assert kube.until(job, "FAILED")["reason"] == "BadConstraints"
    told = " ".join(row["text"] for row in kube.timeline(job))
    assert "cannot create resource" in told and "the environments of batch scripts travel as Secrets" in told
    assert "sweet" not in told
    kube.run("shutdown")
    kube.connect(kube.rig, kube.namespace)

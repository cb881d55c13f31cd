"""What a cluster refuses, and what becomes of its API and its logins: each has its sentence, and leaves nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from tests.system.kubernetes.conftest import KubeSpan, log_in
from tests.system.kubernetes.gates import Gate

ACCOUNT = "worker"


@pytest.fixture
def gate(kube: KubeSpan) -> Iterator[Gate]:
    """A gate that is open in the end, whatever becomes of the test."""
    made = Gate(kube)
    kube.connect(kube.rig, kube.namespace, volumes=made.volume)
    yield made
    made.open()


def write_job(name: str, run: str, **keys: object) -> str:
    return str(yaml.safe_dump({"name": name, "resources": {"cpus": 0.1}, "grace_period": "1s", "run": run, **keys}))


@pytest.mark.parametrize(
    ("names", "words"),
    [
        (("g" * 64, "a"), "63"),
        (("g", "a" * 62), "63"),
        (("1st", "a"), "begins with a digit"),
    ],
    ids=["group", "member", "digit"],
)
def test_names_that_are_none_for_dns_are_refused_at_once(kube: KubeSpan, names: tuple[str, str], words: str) -> None:
    file = kube.folder / "names.yaml"
    tasks = [{"name": name, "run": "true"} for name in (names[1], "other")]
    file.write_text(yaml.safe_dump_all([{"name": names[0], "execution": "parallel"}, *tasks]))
    done = kube.run("submit", str(file), check=False)
    assert done.returncode != 0 and words in done.stderr and "name" in done.stderr, done.stderr
    assert kube.run("squeue", "-h", "-t", "all").stdout == "" and kube.left() == []


def test_a_full_quota_is_waited_for(kube: KubeSpan, gate: Gate) -> None:
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "few"}, "spec": {"hard": {"pods": "1"}}}
    kube.rig.apply(quota, namespace=kube.namespace)
    kube.rig.await_field("resourcequota", "few", ".status.hard.pods", "1", kube.namespace)
    first = kube.submit(write_job("first", gate.run))
    kube.until(first, "RUNNING")
    second = kube.submit(write_job("second", "echo second"))
    kube.wait_until(
        lambda: kube.job(second)["reason"].startswith("AssocGrpJobsLimit: "), 30, "the quota to be the reason"
    )
    assert kube.job(second)["state"] == "PENDING" and len(kube.pods()) == 1
    gate.open()
    for job in (first, second):
        kube.until(job, "COMPLETED", timeout=90)
    assert kube.log(second) == "second\n"
    kube.until_empty()


def test_a_missing_right_is_told_with_the_remedy(kube: KubeSpan) -> None:
    kube.connect(kube.rig, kube.namespace, kubeconfig=str(log_in(kube, "default")))
    file = kube.folder / "stranger.yaml"
    file.write_text(write_job("stranger", "true"))
    done = kube.run("submit", str(file), check=False)
    assert done.returncode != 0, done.stdout
    assert "may not get, list, watch, patch, delete pods" in done.stderr and "span check" in done.stderr
    assert kube.run("squeue", "-h", "-t", "all").stdout == ""
    # The daemon of this test may look at nothing there either.
    kube.run("shutdown")
    kube.connect(kube.rig, kube.namespace)


def test_what_no_node_can_take_says_so_until_it_is_cancelled(kube: KubeSpan) -> None:
    nowhere = {"spec": {"nodeSelector": {"none": "such"}}}
    job = kube.submit(write_job("nowhere", "true", kubernetes=nowhere))
    shown = kube.wait_until(
        lambda: (found := kube.job(job))["reason"].startswith("BadConstraints") and found, 30, "the reason"
    )
    assert shown["state"] == "PENDING" and "affinity/selector" in shown["reason"]
    kube.run("scancel", str(job))
    kube.until(job, "CANCELLED")
    kube.until_empty()


def test_a_submission_while_the_server_is_away_runs_once_when_it_is_back(kube: KubeSpan, gate: Gate) -> None:
    gate.open()
    with kube.rig.without_api():
        job = kube.submit(write_job("later", gate.run))
        assert kube.job(job)["state"] == "PENDING"
    shown = kube.until(job, "COMPLETED", timeout=90)
    assert len(shown["tasks"][0]["attempts"]) == 1 and gate.starts() == [job]
    kube.until_empty()


def test_a_server_that_has_forgotten_its_past_fails_nothing(kube: KubeSpan, gate: Gate) -> None:
    running, ending = (kube.submit(write_job(name, gate.run)) for name in ("running", "ending"))
    kube.wait_until(lambda: gate.starts() == [running, ending], 30, "both to run")
    # A pod that goes while nobody can watch is in no list afterwards.
    kube.rig.compact()
    with kube.rig.without_api():
        gate.open()
    for job in (running, ending):
        shown = kube.until(job, "COMPLETED", timeout=90)
        assert len(shown["tasks"][0]["attempts"]) == 1 and kube.log(job) == "done\n"
    assert gate.starts() == [running, ending]
    kube.until_empty()


def test_a_login_that_is_refused_makes_rows_stale_until_there_is_a_new_one(kube: KubeSpan, gate: Gate) -> None:
    def log_in_anew() -> Path:
        kube.kubectl("create", "serviceaccount", ACCOUNT)
        return log_in(kube, ACCOUNT)

    kube.kubectl(
        "create", "rolebinding", ACCOUNT, "--clusterrole=admin", f"--serviceaccount={kube.namespace}:{ACCOUNT}"
    )
    kube.connect(kube.rig, kube.namespace, kubeconfig=str(log_in_anew()), volumes=gate.volume)
    job = kube.submit(write_job("patient", gate.run))
    kube.wait_until(lambda: gate.starts() == [job], 30, "its start")
    kube.until(job, "RUNNING")
    kube.kubectl("delete", "serviceaccount", ACCOUNT)
    # A watch that stands is not asked for its login again.
    with kube.rig.without_api():
        pass
    kube.wait_until(lambda: kube.job(job).get("stale_since"), 60, "the row to be stale")
    kube.wait_until(lambda: "does not accept the login" in kube.run("squeue").stderr, 30, "why")
    assert kube.job(job)["state"] == "RUNNING"
    gate.open()
    log_in_anew()
    shown = kube.until(job, "COMPLETED", timeout=90)
    assert (len(shown["tasks"][0]["attempts"]), shown["stale_since"]) == (1, None)
    assert kube.log(job) == "done\n" and gate.starts() == [job]
    kube.until_empty()

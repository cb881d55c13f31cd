"""Tasks of a group in images that srun opens, on a real Slurm; the plugin is a stand-in (`image_plugin`).

The image has a shell and three programs: no bash, no Python, no packages, no network.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.system.conftest import Span
from tests.system.slurm.conftest import Site
from tests.system.slurm.groups import SMALL, connect, group, native_of, start, until_said
from tests.system.slurm.image_plugin import MAKE, SRUN, TASK
from tests.system.slurm.sets import stop
from tests.waiting import WaitUntil

ROOT = "/srv/images/tiny"
FILES = {"/usr/local/bin/srun": SRUN, "/usr/local/bin/image-task": TASK}
IMAGE: dict[str, Any] = {"resources": {**SMALL, "image_id": ROOT}, "slurm": {"exclude": "node3"}}
TELL = "echo $GREETING $BASE $OVERSPAN_NODE_INDEX; getent hosts b-0.g; echo kept >>/corpus/$OVERSPAN_TASK"
STOP = "while [ ! -e $OVERSPAN_RUN_DIR/stop ]; do sleep 0.1; done"
WAIT = f"{STOP}; exit 3"
TRAP = "trap 'echo term; exit 0' TERM"
FOREVER = "while :; do sleep 0.1; done"
SERVE = f"{TRAP}; echo up; {FOREVER}"


@pytest.fixture
def remote(site: Site, tmp_path: Path, wait_until: WaitUntil) -> Iterator[Span]:
    rig = site.rig
    names = [name for name in rig.containers if name != "ctl" and name not in rig.variant.closed]
    for name in names:
        for path, text in FILES.items():
            rig.put(path, text, on=name)
        done = rig.run(["sh", "-c", MAKE, "sh", ROOT], user="root", on=name)
        assert done.rc == 0, done.stderr
    span = connect(site, tmp_path, wait_until)
    settings = json.loads(span.config.read_text())
    settings["clusters"]["rig"]["containers"] = "pyxis"
    span.config.write_text(json.dumps(settings))
    yield span
    span.close()
    for name in names:
        rig.run(["rm", "-r", *FILES, ROOT], user="root", on=name)


def until_given_back(span: Span, site: Site, job: int) -> None:
    native = native_of(span, job)
    span.wait_until(lambda: not site.slurm("squeue", "-hj", native), 30, "the nodes to be given back")


def test_members_run_in_their_image_with_names_variables_and_volumes(remote: Span, site: Site) -> None:
    image = {**IMAGE, "envs": {"GREETING": "it's mine"}, "volumes": {"/corpus": "held"}}
    tasks = {
        "a": {**image, "num_nodes": 2, "run": f"{TELL}; {WAIT}"},
        "b": {"run": SERVE, "slurm": {"exclude": "node3"}},
    }
    job = start(remote, group(tasks, primary_tasks=["a"], hold_on_failure="10m"))
    for node in ("0", "1"):
        remote.wait_until(lambda node=node: "b-0.g" in remote.log(job, "a", "--node", node), 30, "a name in the image")
        assert remote.log(job, "a", "--node", node).splitlines()[0] == f"it's mine image {node}"
    until_said(remote, job, "b", "up")
    words = ("shell", f"{job}.a", "--node=1", "--", "sh", "-c", f"{TELL}; : >$OVERSPAN_RUN_DIR/told")
    first, second = remote.run(*words).stdout.splitlines()
    assert first == "it's mine image 1" and second.split()[1] == "b-0.g"
    # The members' end may be that of this shell too.
    remote.run(*words[:-1], "[ -e $OVERSPAN_RUN_DIR/told ] && : >$OVERSPAN_RUN_DIR/stop", check=False)
    remote.wait_until(lambda: remote.job(job)["reason"] == "HeldOnFailure", 30, "the hold")
    assert "the container of a has ended" in remote.run(*words, check=False).stderr
    remote.run("scancel", str(job))
    assert remote.until(job, "FAILED")["exit_code"] == 3
    assert site.slurm("sh", "-c", "cat ~/.overspan/volumes/held/a").split() == ["kept"] * 3
    until_given_back(remote, site, job)


def test_an_image_needs_nothing_and_ends_as_any_program_does(remote: Span, site: Site) -> None:
    lacks = "for name in bash python3 apt-get; do ! command -v $name || exit 9; done; [ ! -e /etc/slurm ] || exit 8"
    recovery = {**IMAGE["resources"], "job_recovery": {"max_restarts_on_errors": 1}}
    once = f"{lacks}; [ -e $OVERSPAN_RUN_DIR/once ] || {{ : >$OVERSPAN_RUN_DIR/once; kill -USR1 $$; }}; echo again"
    once += "".join(f"; until [ -e $OVERSPAN_RUN_DIR/{name} ]; do sleep 0.1; done" for name in ("b", "c"))
    tasks = {
        "a": {**IMAGE, "resources": recovery, "run": once, "backoff": {"first": 0.1}},
        "b": {**IMAGE, "run": f"{TRAP}; echo up; : >$OVERSPAN_RUN_DIR/b; {FOREVER}"},
        "c": {**IMAGE, "run": f"trap '' TERM; : >$OVERSPAN_RUN_DIR/c; {FOREVER}", "grace_period": "2s"},
    }
    job = start(remote, group(tasks, primary_tasks=["a"]))
    remote.until(job, "COMPLETED")
    shown = {task["name"]: task for task in remote.job(job)["tasks"]}
    assert remote.log(job, "a") == "again\n" and shown["a"]["restarts"] == 1
    assert "signal 10" in str(remote.timeline(job)), remote.timeline(job)
    assert remote.log(job, "b").split()[:2] == ["up", "term"] and shown["b"]["exit_code"] == 0
    assert "ended with signal 9" in str(remote.timeline(job))
    until_given_back(remote, site, job)


def test_a_cancel_of_slurms_own_leaves_the_program_its_time_in_the_image(remote: Span, site: Site) -> None:
    # The program looks at its root after TERM: the container is still there.
    flush = "trap 'sleep 1; getent hosts a-0.g; exit 0' TERM; echo up; while :; do sleep 0.1; done"
    job = start(remote, group({name: {**IMAGE, "run": flush} for name in ("a", "b")}))
    for name in ("a", "b"):
        until_said(remote, job, name, "up")
    site.slurm("scancel", native_of(remote, job))
    remote.until(job, "CANCELLED")
    assert all("a-0.g" in remote.log(job, name) for name in ("a", "b"))
    until_given_back(remote, site, job)


def test_a_program_does_not_outlive_its_container(remote: Span, site: Site) -> None:
    tasks = {name: {**IMAGE, "run": SERVE, "max_recoveries": 0} for name in ("a", "b")}
    job = start(remote, group(tasks, primary_tasks=["a"]))
    until_said(remote, job, "a", "up")
    until_said(remote, job, "b", "up")
    listed = site.slurm("squeue", "-hs", "-j", native_of(remote, job), "-o", "%i %j").splitlines()
    # The agent's step is the older one.
    holder = max((line.split()[0] for line in listed if line.endswith(" a")), key=lambda step: int(step.split(".")[1]))
    site.slurm("scancel", holder)
    shown = remote.until(job, "FAILED", "CANCELLED", "NODE_FAIL")
    assert {task["name"]: task["state"] for task in shown["tasks"]}["a"] != "COMPLETED"
    assert "term" in remote.log(job, "a")
    until_given_back(remote, site, job)


def test_an_image_that_cannot_be_had_is_a_failed_start_in_the_plugins_words(remote: Span, site: Site) -> None:
    missing = {**IMAGE, "resources": {**SMALL, "image_id": "/srv/images/none"}}
    job = start(remote, group({"a": {**missing, "run": "true"}, "b": {**IMAGE, "run": SERVE}}, primary_tasks=["a"]))
    remote.until(job, "FAILED")
    assert "[ERROR] No such file or directory: /srv/images/none" in str(remote.timeline(job))
    until_given_back(remote, site, job)


def test_a_task_of_a_set_runs_in_its_image(remote: Span, site: Site) -> None:
    tasks = {"a": {**IMAGE, "run": f"getent hosts b-0.g; echo $BASE; {STOP}"}, "b": {**IMAGE, "run": SERVE}}
    job = start(remote, group(tasks, restart="task", primary_tasks=["a"]))
    until_said(remote, job, "b", "up")
    stop(remote, site, job)
    remote.until(job, "COMPLETED")
    assert "b-0.g" in remote.log(job, "a") and "image" in remote.log(job, "a")
    assert remote.log(job, "b").split()[0] == "up"


def test_a_single_task_runs_in_its_image(remote: Span, site: Site) -> None:
    run = "echo $BASE; [ ! -e /bin/bash ] && exit 5"
    task = {"name": "solo", **IMAGE, "run": run}
    job = start(remote, json.dumps(task))
    assert remote.until(job, "FAILED")["exit_code"] == 5
    assert remote.log(job).splitlines()[0] == "image"

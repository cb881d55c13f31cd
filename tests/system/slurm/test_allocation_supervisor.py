"""The supervisor of an allocation on a real Slurm: its run directory is written by hand, its batch script submitted."""

from __future__ import annotations

import itertools
import json
import shlex
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tests.rigs.reach import find_address
from tests.rigs.slurm import SlurmRig
from tests.waiting import wait_until

from overspan.bridge.lifecycle.reduction import reduce
from overspan.bridge.model.documents import encode
from overspan.bridge.model.events import event_from_document
from overspan.bridge.model.job import Job, new_job
from overspan.bridge.model.spec import JobSpec, Origin, TaskSpec
from overspan.bridge.model.states import State
from overspan.bridge.runtime.zip_application import build_archive

HOME = "/home/researcher"
OPTIONS = ["--exact", "--cpus-per-task=1", "--mem=50M", "--gres=none", "--kill-on-bad-exit=0"]
# `getent hosts` would ask for IPv6 first, and the rig's name server knows nothing and says so late.
NAMES = "for name in $(echo $OVERSPAN_MEMBERS | tr , ' '); do getent ahosts $name || echo missing $name; done"
SERVE = "trap 'date +%s.%N; exit 0' TERM; echo up; while :; do sleep 0.02; done"
AT_ONCE = 20
"""Seconds, of which a busy machine may take most; what is usual is measured by the benchmarks."""
_ids = itertools.count(int(time.time()) % 1_000_000)


class Seat(NamedTuple):
    """One step of the placement."""

    task: str
    component: int
    members: Sequence[int]
    nodes: Sequence[int]


class Launched:
    """A job in the rig."""

    def __init__(self, rig: SlurmRig, job: Job) -> None:
        self.rig = rig
        self.job = job
        self.path = f"{HOME}/overspan-test/{job.id}"
        self.native = ""
        self.components = 1

    def shell(self, text: str, stdin: str | bytes = b"") -> str:
        """What a shell of the user says there."""
        done = self.rig.run(["sh", "-c", text], stdin=stdin)
        assert done.rc == 0, done.stderr
        return done.stdout

    def submit(self, archive: str, words: str, sizes: Sequence[int], seats: Sequence[Seat]) -> None:
        """Write plan and placement, and submit the batch script with these options of sbatch."""
        self.components = len(sizes)
        head: Mapping[str, Any] = {"format": 1, "token": f"t-{self.job.id}"}
        steps = [{**seat._asdict(), "options": [*OPTIONS, f"--job-name={seat.task}"]} for seat in seats]
        plan = {**head, "job": encode(self.job), "environment": {}, "cluster": "rig"}
        placement = {**head, "components": [{"nodes": size} for size in sizes], "steps": steps}
        self.shell(f"mkdir -p {self.path}")
        self.shell(f"umask 077; cat > {self.path}/plan.0.json", json.dumps(plan))
        self.shell(f"cat > {self.path}/placement.0.json", json.dumps(placement))
        script = f"#!/bin/sh\ntrap '' USR1\nexec python3 -I -S {archive} slurm {self.path} 0\n"
        options = f"--parsable --no-requeue --output={self.path}/supervisor.0.log"
        self.native = self.shell(f"cd {self.path}; sbatch {options} {words}", script).strip()

    @property
    def lines(self) -> list[dict[str, Any]]:
        """The journal's whole lines."""
        text = self.shell(f"cat {self.path}/journal.0.jsonl 2>/dev/null || :")
        return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]

    def events(self, kind: str, task: str = "") -> list[dict[str, Any]]:
        """The journal's events of one kind."""
        return [line for line in self.lines if line.get("event") == kind and task in ("", line.get("task"))]

    def until_over(self) -> str:
        """Wait for the native job's end; gives its state, or those of its components."""
        wait_until(lambda: not self.shell(f"squeue --noheader --jobs={self.native} 2>&1 || :").strip(), 20, "the end")
        return wait_until(self._states, 20, "the accounting of the end")

    def _states(self) -> str:
        # The accounting follows seconds later.
        listed = self.shell(f"sacct --noheader --parsable2 -X --jobs={self.native} --format=State").split("\n")
        states = [state.partition(" ")[0] for state in listed if state]
        late = len(states) < self.components or {"RUNNING", "PENDING"}.intersection(states)
        return "" if late else " ".join(states)

    def text(self, key: str) -> str:
        """What a node run wrote."""
        return self.shell(f"cat {self.path}/logs/{shlex.quote(key)}.out 2>/dev/null || :")

    def log(self) -> str:
        """The supervisor's log."""
        return self.shell(f"cat {self.path}/supervisor.0.log")

    def replay(self) -> Job:
        """The job as the daemon makes it from the journal."""
        job = self.job
        for line in self.lines:
            if "event" in line:
                job = reduce(job, event_from_document(line))
        return job


@pytest.fixture(scope="module")
def archive(slurm_rig: SlurmRig, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The supervisor's program, on the rig's shared file system."""
    built = Path(build_archive(str(tmp_path_factory.mktemp("lib"))))
    path = f"{HOME}/overspan-test/lib/{built.name}"
    done = slurm_rig.run(["sh", "-c", f"mkdir -p $(dirname {path}) && cat > {path}"], stdin=built.read_bytes())
    assert done.rc == 0, done.stderr
    return path


def make(rig: SlurmRig, *tasks: TaskSpec) -> Launched:
    """A group, not submitted yet."""
    origin = Origin(user="researcher", uid=1000, host="ctl", directory=HOME)
    spec = JobSpec("rl", tasks, group=True, origin=origin, environment={"PATH": "/usr/bin:/bin", "HOME": HOME})
    return Launched(rig, new_job(next(_ids), spec, time.time()))


def check_names(launched: Launched, key: str) -> None:
    """A node run has resolved every member to the address of its real node."""
    members = launched.events("Granted")[0]["members"]
    wanted = {(address, f"{task}-{index}.rl") for task, index, _, address, _ in members}
    rows = [line.split() for line in launched.text(key).splitlines()]
    found = {(row[0], row[2]) for row in rows if len(row) == 3 and row[1] == "STREAM"}
    assert wanted <= found, launched.text(key) + launched.log()


def test_two_nodes_of_an_ordinary_job_with_packed_steps(slurm_rig: SlurmRig, archive: str) -> None:
    tell = "echo $SLURM_JOB_ID $SLURM_NTASKS $SLURM_PROCID $SLURM_JOB_NODELIST $SLURMD_NODENAME"
    launched = make(
        slurm_rig,
        TaskSpec("train", run=f"{NAMES}; {tell}; until [ -e {HOME}/go ]; do sleep 0.02; done"),
        TaskSpec("serve", run=f"{NAMES}; {tell}; {SERVE}", num_nodes=2, primary=False),
    )
    launched.shell(f"rm -f {HOME}/go")
    seats = [Seat("train", 0, [0], [0]), Seat("serve", 0, [0, 1], [0, 1])]
    words = "--nodes=2 --nodelist=node2,node3 --cpus-per-task=2 --ntasks-per-node=1 --mem=300 --gres=gpu:1"
    launched.submit(archive, words, [2], seats)
    for node in (0, 1):
        wait_until(lambda node=node: "up" in launched.text(f"serve.{node}.0.0"), 20, "up")  # type: ignore[misc]
    launched.shell(f"touch {HOME}/go")
    assert launched.until_over() == "COMPLETED", launched.log()
    assert launched.lines[-1] == {"end": True} and launched.replay().state is State.COMPLETED
    granted = launched.events("Granted")[0]["members"]
    places = {(task, index): (node, address) for task, index, node, address, _ in granted}
    second, third = ("node2", find_address(slurm_rig, "node2")), ("node3", find_address(slurm_rig, "node3"))
    assert places == {("train", 0): second, ("serve", 0): second, ("serve", 1): third}
    # node3 has no user namespaces.
    for key in ("train.0.0.0", "serve.0.0.0", "serve.1.0.0"):
        check_names(launched, key)
    assert f"{launched.native} 2 1 node[2-3] node3" in launched.text("serve.1.0.0")
    assert f"{launched.native} 1 0 node2 node2" in launched.text("train.0.0.0")
    ended = launched.events("NodeEnded", "train")[0]["at"]
    assert 0 <= launched.events("Terminate", "serve")[0]["at"] - ended < AT_ONCE
    for node in (0, 1):
        got = float(launched.text(f"serve.{node}.0.0").splitlines()[-1])
        assert 0 <= got - ended < AT_ONCE, launched.lines


def test_a_hetjob(slurm_rig: SlurmRig, archive: str) -> None:
    tell = "echo $SLURM_JOB_ID $SLURM_JOB_ID_HET_GROUP_1 $SLURM_JOB_NODELIST_HET_GROUP_1 $SKYPILOT_NUM_GPUS_PER_NODE"
    launched = make(
        slurm_rig,
        TaskSpec("train", run=f"{NAMES}; {tell}; until [ -e {HOME}/go ]; do sleep 0.02; done"),
        TaskSpec("serve", run=f"{NAMES}; {tell}; {SERVE}", primary=False),
    )
    launched.shell(f"rm -f {HOME}/go")
    words = "--nodes=1 --ntasks=1 --mem=100 --nodelist=node1 : --nodes=1 --ntasks=1 --mem=100 --nodelist=node3"
    launched.submit(archive, words, [1, 1], [Seat("train", 0, [0], [0]), Seat("serve", 1, [0], [0])])
    wait_until(lambda: "up" in launched.text("serve.0.0.0"), 20, "up")
    launched.shell(f"touch {HOME}/go")
    assert launched.until_over() == "COMPLETED COMPLETED", launched.log()
    assert launched.replay().state is State.COMPLETED
    check_names(launched, "train.0.0.0")
    check_names(launched, "serve.0.0.0")
    assert f"{launched.native} {int(launched.native) + 1} node3 0" in launched.text("serve.0.0.0")
    ended = launched.events("NodeEnded", "train")[0]["at"]
    assert 0 <= float(launched.text("serve.0.0.0").splitlines()[-1]) - ended < AT_ONCE


def test_scancel_leaves_the_journal_open(slurm_rig: SlurmRig, archive: str) -> None:
    launched = make(slurm_rig, TaskSpec("train", run=SERVE), TaskSpec("serve", run=SERVE, primary=False))
    seats = [Seat("train", 0, [0], [0]), Seat("serve", 0, [0], [1])]
    launched.submit(archive, "--nodes=2 --ntasks-per-node=1 --mem=100", [2], seats)
    wait_until(lambda: len(launched.events("NodeStarted")) == 2, 20, "both run")
    for key in ("train.0.0.0", "serve.0.0.0"):
        wait_until(lambda key=key: "up" in launched.text(key), 20, "up")  # type: ignore[misc]
    before = launched.lines
    launched.shell(f"scancel {launched.native}")
    assert launched.until_over() == "CANCELLED"
    assert launched.lines == before, launched.log()
    # Each had its TERM; where Slurm itself is slow with it, from both.
    assert all(len(launched.text(key).splitlines()) in (2, 3) for key in ("train.0.0.0", "serve.0.0.0"))

"""An allocation without Slurm: stand-ins for srun, scontrol and scancel, and a real supervisor in it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.waiting import WaitUntil

import overspan
from overspan.bridge.lifecycle.reduction import reduce
from overspan.bridge.model.documents import encode
from overspan.bridge.model.events import Event, event_from_document, event_to_document
from overspan.bridge.model.job import Job, new_job
from overspan.bridge.model.spec import JobSpec, Origin, TaskSpec
from overspan.bridge.runtime.core import kernel
from overspan.bridge.runtime.zip_application import build_archive

DEADLINE = 20.0
SOURCE = str(Path(overspan.__file__).parent.parent)
# As srun: runs the rest of its words, passes the streams, ends with 128 and the signal; TERM kills the step at once.
SRUN = f"""#!{sys.executable}
import os, signal, subprocess, sys
sys.path.insert(0, {SOURCE!r})
from overspan.bridge.runtime.core import kernel
words = sys.argv[1:]
with open(os.environ["STAND_IN"] + "/sruns", "a") as file:
    file.write(" ".join(words) + "\\n")
if os.path.exists(os.environ["STAND_IN"] + "/refuse"):
    sys.exit("srun: error: Unable to create step for job 40: Requested node configuration is not available")
options = [word for word in words if word.startswith("--")]
kernel.set_subreaper()
node = next(word for word in options if word.startswith("--nodelist=")).partition("=")[2]
step = {{"SLURM_STEP_ID": "0", "SLURMD_NODENAME": node, "SLURM_STEP_NODELIST": node, "SLURM_STEP_NUM_NODES": "1",
        "SLURM_NTASKS": "1", "SLURM_PROCID": "0", "SLURM_NODEID": "0", "SLURM_JOB_NODELIST": node}}
def end(number, frame):
    sys.stderr.write("srun: forcing job termination\\n")
    kernel.signal_tree(os.getpid(), signal.SIGKILL)
signal.signal(signal.SIGTERM, end)
agent = subprocess.Popen(words[len(options):], env={{**os.environ, **step}})
code = agent.wait()
while kernel.read_children(os.getpid()):
    kernel.signal_tree(os.getpid(), signal.SIGKILL)
    os.wait()
sys.exit(code if code >= 0 else 128 - code)
"""
# The supervisor's application, with an hour for Slurm's TERM to come after an end that Slurm may have brought about.
HELD = """
import runpy, sys
sys.argv = sys.argv[1:]
sys.path.insert(0, sys.argv[0])
from overspan.bridge.runtime.slurm import nodes
nodes.HELD_SECONDS = 3600.0
runpy.run_path(sys.argv[0], run_name="__main__")
"""
SCONTROL = """#!/bin/sh
echo "NodeName=$4 Arch=x86_64 NodeAddr=192.0.2.${4#n} NodeHostName=$4 State=IDLE"
"""
SCANCEL = """#!/bin/sh
echo "$@" >> $STAND_IN/scancels
"""


class Allocation:
    """One launch, its run directory and its supervisor."""

    def __init__(self, folder: Path, wait_until: WaitUntil) -> None:
        self.folder = folder
        self.wait_until = wait_until
        self.python = sys.executable
        self.path = folder / "runs" / "7"
        self.work = folder / "work"
        self.log = folder / "supervisor.log"
        self.job: Job
        self.process: subprocess.Popen[bytes] | None = None
        self._orders = 0
        for name, text in (("srun", SRUN), ("scontrol", SCONTROL), ("scancel", SCANCEL)):
            (folder / "bin").mkdir(exist_ok=True)
            (folder / "bin" / name).write_text(text)
            (folder / "bin" / name).chmod(0o755)
        self.path.mkdir(parents=True)
        self.work.mkdir()
        self.archive = build_archive(str(folder / "lib"))

    def plan(self, *tasks: TaskSpec, components: Sequence[Sequence[str]] = (), **options: Any) -> None:
        """Write plan and placement; `components` lists tasks by component, each with a node for each of its members."""
        origin = Origin(user="alice", uid=1000, host="login", directory=str(self.work))
        spec = JobSpec("rl", tasks, **{"group": len(tasks) > 1, "origin": origin, **options})
        self.job = new_job(7, spec, time.time())
        groups = components or [[task.name for task in tasks]]
        sizes = [max(self.job.spec_of(name).num_nodes for name in group) for group in groups]
        steps = [
            {
                "task": name,
                "component": number,
                "members": list(range(self.job.spec_of(name).num_nodes)),
                "nodes": list(range(self.job.spec_of(name).num_nodes)),
                "options": ["--exact", "--mem=10M", f"--job-name={name}"],
            }
            for number, group in enumerate(groups)
            for name in group
        ]
        head = {"format": 1, "token": "t-7"}
        self._write("plan.0.json", {**head, "job": encode(self.job), "environment": {}, "cluster": "rig"})
        self._write("placement.0.json", {**head, "components": [{"nodes": size} for size in sizes], "steps": steps})
        self._sizes = sizes

    def _write(self, name: str, document: dict[str, Any]) -> None:
        (self.path / name).write_text(json.dumps(document))

    def start(self, code: str = "", **environment: str) -> None:
        """Start the supervisor as the batch script does; the application is run by `code`, where that is given."""
        variables = {
            "PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}",
            "STAND_IN": str(self.folder),
            "SLURM_JOB_ID": "40",
            "SLURM_NTASKS": "9",
            **self._name_nodes(),
            **environment,
        }
        how = ["-c", code] if code else []
        words = [self.python, "-I", "-S", *how, self.archive, "slurm", str(self.path), "0"]
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(words, env=variables, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def _name_nodes(self) -> dict[str, str]:
        numbers = iter(range(1, 100))
        lists = [",".join(f"n{next(numbers)}" for _ in range(size)) for size in self._sizes]
        variables = {"SLURM_JOB_NODELIST": lists[0]}
        if len(lists) > 1:
            variables["SLURM_HET_SIZE"] = str(len(lists))
            for number, nodes in enumerate(lists):
                variables[f"SLURM_JOB_NODELIST_HET_GROUP_{number}"] = nodes
                variables[f"SLURM_JOB_ID_HET_GROUP_{number}"] = str(40 + number)
        return variables

    def end(self) -> int:
        """Wait for the supervisor's end; gives its exit status."""
        process = self.process
        assert process is not None
        self.wait_until(lambda: process.poll() is not None, DEADLINE, f"the end in {self.lines}")
        return process.returncode

    def order(self, event: Event) -> None:
        """Append an order, with the daemon's hint."""
        self._orders += 1
        with (self.path / "orders.0.jsonl").open("a") as orders:
            orders.write(json.dumps({"seq": self._orders, "event": event_to_document(event)}) + "\n")
        assert self.process is not None
        self.process.send_signal(signal.SIGUSR1)

    @property
    def lines(self) -> list[dict[str, Any]]:
        """The journal's whole lines."""
        try:
            data = (self.path / "journal.0.jsonl").read_bytes()
        except FileNotFoundError:
            return []
        return [json.loads(line) for line in data[: data.rfind(b"\n") + 1].splitlines()]

    @property
    def ended(self) -> bool:
        """Whether the journal is closed."""
        return bool(self.lines) and bool(self.lines[-1].get("end"))

    def events(self, kind: str, task: str = "") -> list[dict[str, Any]]:
        """The journal's events of one kind."""
        return [line for line in self.lines if line.get("event") == kind and task in ("", line.get("task"))]

    def until(self, kind: str, task: str = "", count: int = 1) -> list[dict[str, Any]]:
        """Wait until the journal has that many events of a kind."""
        what = f"{count} {kind} {task}"
        self.wait_until(lambda: len(self.events(kind, task)) >= count, DEADLINE, what)
        return self.events(kind, task)

    def replay(self) -> Job:
        """The job as the daemon makes it from the journal."""
        job = self.job
        for line in self.lines:
            if "event" in line:
                job = reduce(job, event_from_document(line))
        return job

    def text(self, key: str, stream: str = "out") -> str:
        """What a node run wrote; empty while there is nothing."""
        path = self.path / "logs" / f"{key}.{stream}"
        return path.read_text() if path.exists() else ""

    def until_text(self, key: str, text: str) -> None:
        """Wait until a node run has written something."""
        self.wait_until(lambda: text in self.text(key), DEADLINE, f"{text!r} from {key}")

    def sruns(self) -> list[str]:
        """The words of each srun so far."""
        return (self.folder / "sruns").read_text().splitlines()

    def below(self) -> list[kernel.Process]:
        """Every living process of the allocation, by its environment."""
        mark = f"STAND_IN={self.folder}".encode()
        found = []
        for pid in kernel.list_pids():
            try:
                marked = mark in kernel.read_file(f"/proc/{pid}/environ").split(b"\0")
            except OSError:
                continue
            process = kernel.read_process(pid) if marked else None
            if process is not None and process.state not in "ZX":
                found.append(process)
        return found

    def clean(self) -> None:
        """End what is left of a test that failed."""
        for process in self.below():
            kernel.signal_process(process, signal.SIGKILL)
        if self.process is not None:
            self.process.kill()
            self.process.wait()
        for program in find_programs(self.folder):
            kernel.signal_process(program, signal.SIGKILL)


def find_programs(folder: Path, task: str = "") -> list[kernel.Process]:
    """The living programs of users below a folder, of one task or of all: their environment tells."""
    marks = {f"OVERSPAN_RUN_DIR={folder}/runs/7".encode()} | ({f"OVERSPAN_TASK={task}".encode()} if task else set())
    found = []
    for pid in kernel.list_pids():
        try:
            marked = marks <= set(kernel.read_file(f"/proc/{pid}/environ").split(b"\0"))
        except OSError:
            continue
        process = kernel.read_process(pid) if marked else None
        if process is not None and process.state not in "ZX":
            found.append(process)
    return found

"""Stand-ins for a Slurm and a Kubernetes that live beside daemons: run by the old version's interpreter.

`python stand_ins.py FOLDER` makes `FOLDER/bin` with Slurm's commands and `FOLDER/kubeconfig`, prints `ready`, and ends
with its input. What programs on the fake Slurm do is in their text: `hang` never ends, `exit N` ends so, `sleep S`
takes so long, and `gate FILE`, for groups, ends when there is that file. Pods are processes of this machine.

What it imports is of the commits in `old_version.py`: it stays as it is when something moves in this tree.
"""

# mypy: ignore-errors

from __future__ import annotations

import getpass
import json
import os
import re
import select
import shlex
import sys
import threading
import time
from pathlib import Path

from overspan.adapters.slurm.journals import Part, read_orders
from tests.contract.kubernetes_nodes import FakeNodes
from tests.fakes.kubernetes_api import KubernetesApi
from tests.fakes.kubernetes_objects import Key
from tests.fakes.slurm_commands import COMMANDS, Answer, Asked
from tests.fakes.slurm_controller import FakeSlurm, Site
from tests.fakes.slurm_jobs import Behaviour, NativeJob
from tests.fakes.slurm_nodes import FakeNode
from tests.fakes.slurm_supervisor import FakeSupervisor, Programs
from tests.fakes.slurm_supervisor import Key as NodeKey
from tests.fakes.slurm_transport import FakeTransport

from overspan.bridge.model import events
from overspan.bridge.model.documents import decode
from overspan.bridge.model.job import Job

LOOK_SECONDS = 0.5
"""How often the supervisor of a set's task looks for orders."""
LOOK = 0.05
"""Seconds after which the fake Slurm lets happen what is due."""
STUB = """\
#!/bin/sh
d=$(mktemp -d "{folder}/call.XXXXXX") && mkfifo "$d/rc" || exit 1
printf '%s\\0' "${{0##*/}}" "$@" >"$d/words"
env -0 >"$d/environment"
[ "${{0##*/}}" != sbatch ] || cat >"$d/stdin"
printf '%s\\n' "$d" >"{folder}/ask"
read -r rc <"$d/rc"
cat "$d/out"; cat "$d/err" >&2
exit "$rc"
"""


def read_behaviour(text: str) -> Behaviour:
    """What a program does, by its text."""
    code, seconds = re.findall(r"exit (\d+)", text), re.findall(r"sleep ([\d.]+)", text)
    if "hang" in text or "gate " in text:
        return Behaviour(None, output="begun\n")
    return Behaviour(float(seconds[-1]) if seconds else 0.2, int(code[-1]) if code else 0, output="begun\nended\n")


class MemberStandIn(FakeSupervisor):
    """The supervisor of one task of a set: it launches and ends what orders say, and goes when its task has ended."""

    def __init__(self, slurm: FakeSlurm, native: NativeJob, programs: Programs) -> None:
        folder, launch, task, first = shlex.split(native.request.script.splitlines()[-1])[-4:]
        self.slurm, self.native, self.programs, self.on_program = slurm, native, programs, lambda supervisor, key: None
        self.folder, self.run = Path(folder, "members", task, first), native.run
        self.journal, self.orders = (self.folder / f"{name}.{launch}.jsonl" for name in ("journal", "orders"))
        self.job = decode(Job, json.loads((self.folder / f"plan.{launch}.json").read_text())["job"])
        self.launch, self.taken, self.running = int(launch), 0, set[NodeKey]()
        self._write({"format": 1, "job": self.job.id, "launch": self.launch})
        members = tuple((task, index, node, "10.0.0.1", ()) for index, node in enumerate(native.nodes))
        self._record(events.Granted(slurm.now, members))
        self._turn()

    def _turn(self) -> None:
        data = self.orders.read_bytes() if self.orders.exists() else b""
        for number, event in read_orders(Part(len(data), data)):
            if number > self.taken:
                self.taken = number
                self._record(event, number)
                self._act(event)
        self._later(LOOK_SECONDS, self._turn)

    def _end(self, key: NodeKey, code: int, signal: int) -> None:
        ran = key in self.running
        super()._end(key, code, signal)
        if ran and not self.running:
            self._write({"end": True})
            self.slurm.after(0.0, lambda: self.slurm.end_script(self.native, self.run, code))


def is_member(native: NativeJob) -> bool:
    """Whether a native job is one of a set's."""
    return "/lib/supervisor-" in native.request.script and " member " in native.request.script.splitlines()[-1]


class SlurmStandIn:
    """The fake Slurm in the time of this machine, asked by commands of their own names."""

    def __init__(self, folder: Path) -> None:
        nodes = [FakeNode(f"node{number}", cpus=16, memory=64_000) for number in (1, 2, 3)]
        self.slurm = FakeSlurm(time.time(), Site(user=getpass.getuser()), nodes)
        self._transport = FakeTransport(self.slurm, folder, time.time)
        self._transport.behave = lambda job: Behaviour(None) if is_member(job) else read_behaviour(job.request.script)
        self._transport.programs = lambda task: read_behaviour(task.run)
        self._transport.on_program = self._note_program
        self._gated: list[tuple[Path, FakeSupervisor, NodeKey]] = []
        """Programs of groups that end when there is a file."""
        self._start_other = self.slurm.on_start
        self.slurm.on_start = self._start
        self._folder = folder
        (folder / "bin").mkdir()
        os.mkfifo(folder / "ask")
        for name in (*COMMANDS, "srun"):
            stub = folder / "bin" / name
            stub.write_text(STUB.format(folder=folder))
            stub.chmod(0o755)
        self._bell = os.open(folder / "ask", os.O_RDWR)

    def serve(self) -> None:
        """Answer for ever."""
        while True:
            ready, _, _ = select.select([self._bell], [], [], LOOK)
            self.slurm.catch_up(time.time())
            for call in os.read(self._bell, 65536).decode().split() if ready else ():
                self._answer(Path(call))
            open_gates = [gated for gated in self._gated if gated[0].exists()]
            self._gated = [gated for gated in self._gated if gated not in open_gates]
            for _, supervisor, key in open_gates:
                supervisor._end(key, 0, 0)

    def _note_program(self, supervisor: FakeSupervisor, key: NodeKey) -> None:
        gate = re.search(r"gate (\S+)", supervisor.job.spec_of(key[0]).run)
        if gate:
            self._gated.append((Path(gate[1]), supervisor, key))

    def _start(self, job: NativeJob) -> None:
        if is_member(job):
            MemberStandIn(self.slurm, job, self._transport.programs)
        else:
            self._start_other(job)

    def _answer(self, call: Path) -> None:
        name, *words = _split(call / "words")
        variables = dict(text.split("=", 1) for text in _split(call / "environment") if "=" in text)
        stdin = (call / "stdin").read_text("utf-8", "surrogateescape") if (call / "stdin").exists() else ""
        if name == "sbatch" and not stdin:
            stdin = Path(words[-1]).read_text()
        answer = Answer(1, "", "srun: error: Unable to allocate resources\n")
        if name in COMMANDS:
            answer = COMMANDS[name](self.slurm, Asked(words, stdin, variables, variables.get("PWD", "/")))
        (call / "out").write_text(answer.out)
        (call / "err").write_text(answer.err)
        (call / "rc").write_text(f"{answer.rc}\n")


def main(folder: Path) -> None:
    """Serve until the input ends."""
    slurm = SlurmStandIn(folder)
    threading.Thread(target=slurm.serve, daemon=True).start()
    with KubernetesApi() as api:
        api.objects.create(Key("", "namespaces", "", "default"), {"metadata": {"name": "default"}})
        api.write_kubeconfig(folder / "kubeconfig")
        (folder / "pods").mkdir()
        with FakeNodes(api, folder / "pods"):
            print("ready", flush=True)
            sys.stdin.read()


def _split(path: Path) -> list[str]:
    return path.read_bytes().decode("utf-8", "surrogateescape").split("\0")[:-1]


if __name__ == "__main__":
    main(Path(sys.argv[1]))

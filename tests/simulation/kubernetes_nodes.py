"""The nodes of the fake cluster on a simulated clock: a scheduler, kubelets, and what befalls nodes and pods."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

from tests.fakes.kubernetes_api import KubernetesApi
from tests.fakes.kubernetes_exec import Run
from tests.fakes.kubernetes_objects import Document, Key, Refused, from_rfc3339, merge, to_rfc3339
from tests.fakes.slurm_jobs import Behaviour
from tests.simulation.clockwork import Chaos

from overspan.adapters.kubernetes.api.quantities import add_amounts, read_amounts, sum_requests
from overspan.adapters.kubernetes.manifests.scripts import END_OCTAL, END_VARIABLE, END_WORD, OPENED
from overspan.adapters.kubernetes.observation.evidence import NOT_BEGUN
from overspan.adapters.kubernetes.observation.records import GO

NODES = ("node-1", "node-2", "node-3")
UNREACHABLE_SECONDS, EVICTION_SECONDS = 40.0, 60.0
"""How long a node is silent until it counts as not ready, and until its pods are deleted (300 s unless told)."""
_KEY = Key("", "nodes", "")


@dataclass(eq=False)
class Node:
    """One machine."""

    name: str
    alive: bool = True
    lost_at: float = 0.0


@dataclass(eq=False)
class Program:
    """The container `main` of one pod."""

    document: Document
    work: Behaviour
    waits: bool
    """Whether it waits at its start gate."""
    began: float
    started: float | None = None
    ends_at: float | None = None
    term_at: float | None = None
    opened: bool = False
    over: bool = False
    nudge: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def runs(self) -> bool:
        """Whether the user's program runs."""
        return self.started is not None and not self.over


class Nodes:
    """All nodes. `stay` starts what no daemon's end ends; `on_start` is told of each program that starts."""

    def __init__(
        self,
        api: KubernetesApi,
        chaos: Chaos,
        stay: Callable[[Coroutine[Any, Any, None]], object],
        on_start: Callable[[Program], None],
    ) -> None:
        self.api, self.chaos = api, chaos
        self.nodes = {name: Node(name) for name in NODES}
        self.programs: dict[str, Program] = {}
        """By the uids of their pods."""
        self.touch: Callable[[Document], None] = lambda pod: None
        """Told of each pod to which something is done that may end it."""
        self._stay, self._on_start = stay, on_start
        self._known: set[str] = set()
        self._alive: set[str] = set()
        """The pods that somebody sees to."""
        self._changed = asyncio.Event()
        api.exec.reply = self._run
        for name in NODES:
            status = {"allocatable": {"cpu": "4", "memory": "64Gi", "pods": "20"}, "conditions": [_ready("True")]}
            api.objects.create_simple("nodes", name, status=status, spec={})

    # --- looking -----------------------------------------------------------------------------------------------------

    def look(self) -> None:
        """Something has changed."""
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()
        for program in self.programs.values():
            program.nudge.set()
        for pod in self.list_pods():
            uid = pod["metadata"]["uid"]
            if uid not in self._known:
                self._known.add(uid)
                self._stay(self._live(pod["metadata"]["name"], uid))

    def list_pods(self) -> list[Document]:
        """All pods."""
        return self.api.objects.select(Key("", "pods", ""), lambda pod: True)[0]

    def find(self, name: str, uid: str) -> Document | None:
        """A pod as it is; None when it has gone."""
        try:
            pod = self.api.pods.get(name)
        except Refused:
            return None
        return pod if pod["metadata"]["uid"] == uid else None

    # --- a pod's life ------------------------------------------------------------------------------------------------

    async def _live(self, name: str, uid: str) -> None:
        self._alive.add(uid)
        try:
            await self._carry(name, uid)
        finally:
            self._alive.discard(uid)

    async def _carry(self, name: str, uid: str) -> None:
        node = await self._schedule(name, uid)
        if node is None:
            return
        await asyncio.sleep(self.chaos.random.uniform(0.2, 3.0))
        if self.chaos.happens(0.05):
            await self._fail_to_pull(name, uid)
        pod = self.find(name, uid)
        if pod is None or not node.alive:
            return
        if pod["metadata"].get("deletionTimestamp"):
            self._fail_unknown(name)
            self._leave(name, uid)
            return
        self.api.pods.run(name)
        now = self.api.objects.clock()
        self.programs[uid] = program = Program(pod, self._read_work(pod), _has_barrier(pod), now)
        await self._contain(name, uid, node, program)
        program.over = True
        if node.alive and self.find(name, uid) is not None:
            await self._clean(name, uid, node)

    async def _schedule(self, name: str, uid: str) -> Node | None:
        await asyncio.sleep(self.chaos.random.uniform(0.01, 0.5))
        while True:
            pod = self.find(name, uid)
            if pod is None or pod["metadata"].get("deletionTimestamp"):
                return None
            node = self._choose(pod)
            if node is not None:
                self.api.pods.bind(name, node.name, f"10.0.0.{len(self._known) % 250}")
                return node
            lacks = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
            lacks["message"] = "0/3 nodes are available: 3 Insufficient cpu."
            self.api.pods.set_status(name, {"conditions": [lacks]})
            changed = self._changed
            await changed.wait()
            await asyncio.sleep(self.chaos.random.uniform(0.1, 1.0))

    def _choose(self, pod: Document) -> Node | None:
        need = sum_requests(pod["spec"])
        fits = []
        for node in self.nodes.values():
            document = self.api.objects.get(_KEY._replace(name=node.name))
            ready = document["status"]["conditions"][0]["status"] == "True"
            if not ready or document["spec"].get("unschedulable"):
                continue
            there = [
                sum_requests(one["spec"])
                for one in self.list_pods()
                if one["spec"].get("nodeName") == node.name and one["status"]["phase"] in ("Pending", "Running")
            ]
            total, used = read_amounts(document["status"]["allocatable"]), add_amounts(there)
            if all(used.get(what, 0.0) + value <= total.get(what, 0.0) for what, value in need.items()):
                fits.append(node)
        return self.chaos.random.choice(fits) if fits else None

    async def _fail_to_pull(self, name: str, uid: str) -> None:
        """An image cannot be had for a while."""
        if self.find(name, uid) is not None:
            waits = {"waiting": {"reason": "ErrImagePull", "message": "no such host"}}
            self.api.pods.set_status(name, {"containerStatuses": [{"name": "main", "ready": False, "state": waits}]})
        await asyncio.sleep(self.chaos.random.uniform(5, 60))

    async def _contain(self, name: str, uid: str, node: Node, program: Program) -> None:
        """What a kubelet does while a container runs."""
        if not program.waits:
            self._start(program)
        delay = self.chaos.random.uniform(0.0, 1.0)
        while True:
            pod, now = self.find(name, uid), self.api.objects.clock()
            if not node.alive:
                return
            if pod is None:
                # Deleted by force: its kubelet ends it when it next looks.
                await asyncio.sleep(delay)
                return
            ended = self._judge(pod, program, now)
            if ended is not None:
                program.over = True
                await self._tell_end(name, uid, node, program, *ended)
                return
            await self._wait(pod, program, now)

    def _judge(self, pod: Document, program: Program, now: float) -> tuple[int, str, str] | None:
        """How a container ends now: code, words it leaves, the pod's own reason; None while it goes on."""
        metadata = pod["metadata"]
        going = from_rfc3339(metadata["deletionTimestamp"]) if metadata.get("deletionTimestamp") else None
        go, _, stop = (metadata.get("annotations") or {}).get(GO, "").partition(" ")
        if program.started is None and going is None and (go or program.opened):
            if stop:
                return 143, NOT_BEGUN, ""
            self._start(program)
        if going is not None and program.term_at is None:
            program.term_at = now
            if program.started is None:
                return 143, NOT_BEGUN, ""
            if program.work.on_term is not None:
                program.ends_at = min(program.ends_at or now, now + program.work.on_term)
                program.work = Behaviour(None, 143)
        if program.ends_at is not None and now >= program.ends_at:
            return program.work.code, "", ""
        if going is not None and now >= going:
            return 137, "" if program.started is not None else NOT_BEGUN, ""
        limit = pod["spec"].get("activeDeadlineSeconds")
        if limit is not None and now >= from_rfc3339(pod["status"]["startTime"]) + limit:
            return 143, "", "DeadlineExceeded"
        return None

    async def _wait(self, pod: Document, program: Program, now: float) -> None:
        times = [program.ends_at] if program.ends_at is not None else []
        if pod["metadata"].get("deletionTimestamp"):
            times.append(from_rfc3339(pod["metadata"]["deletionTimestamp"]))
        if pod["spec"].get("activeDeadlineSeconds") is not None:
            times.append(from_rfc3339(pod["status"]["startTime"]) + pod["spec"]["activeDeadlineSeconds"])
        program.nudge.clear()
        try:
            async with asyncio.timeout(max(0.001, min(times) - now) if times else None):
                await program.nudge.wait()
        except TimeoutError:
            return
        # A kubelet hears of a change, and the files of a pod follow it.
        await asyncio.sleep(self.chaos.random.uniform(0.0, 1.0))

    def _start(self, program: Program) -> None:
        program.started = self.api.objects.clock()
        if program.work.seconds is not None:
            program.ends_at = program.started + program.work.seconds
        name = program.document["metadata"]["name"]
        self.api.streams.write_log(name, f"started {name}")
        self._on_start(program)

    async def _tell_end(
        self, name: str, uid: str, node: Node, program: Program, code: int, words: str, reason: str
    ) -> None:
        """The log tells the end at once, the status when the kubelet has next looked."""
        at = self.api.objects.clock()
        mark = _find_mark(program.document)
        if mark and program.started is not None and program.term_at is None:
            self.api.streams.write_log(name, f"{chr(int(END_OCTAL, 8))}{END_WORD} {mark} {code}")
        await asyncio.sleep(self.chaos.random.uniform(0.0, 1.5))
        if not node.alive or self.find(name, uid) is None:
            return
        state = {"exitCode": code, "reason": "Error" if code else "Completed", "message": words}
        state |= {"startedAt": to_rfc3339(program.began), "finishedAt": to_rfc3339(at)}
        status: Document = {
            "phase": "Failed" if code else "Succeeded",
            "conditions": [{"type": "PodScheduled", "status": "True"}, *_disruptions(self.find(name, uid))],
            "containerStatuses": [{"name": "main", "ready": False, "state": {"running": None, "terminated": state}}],
        }
        if reason:
            status |= {"reason": reason, "phase": "Failed"}
        self.api.pods.set_status(name, status)

    async def _clean(self, name: str, uid: str, node: Node) -> None:
        """A pod that has ended goes when its deletion is asked for."""
        while (pod := self.find(name, uid)) is not None and node.alive:
            if pod["metadata"].get("deletionTimestamp"):
                await asyncio.sleep(self.chaos.random.uniform(0.0, 1.0))
                self._leave(name, uid)
                return
            await self._changed.wait()

    def _leave(self, name: str, uid: str) -> None:
        """The node is done with a pod; its log goes with its containers."""
        if self.find(name, uid) is not None:
            self.api.streams.logs.pop(("default", name, "main"), None)
            self.api.pods.gone(name)

    def _run(self, run: Run) -> tuple[int, str] | None:
        """Words in a container."""
        pod = self.api.pods.get(run.pod)
        program = self.programs.get(pod["metadata"]["uid"])
        if program is None or program.over:
            return 1, "no such process"
        if OPENED in run.words[2]:
            program.opened = True
            program.nudge.set()
        return 0, ""

    def _read_work(self, pod: Document) -> Behaviour:
        """`work SECONDS CODE ON_TERM` in the pod or in its batch script."""
        metadata = pod["metadata"]
        text = json.dumps(pod["spec"]["containers"])
        found = re.search(r"work (\S+) (\d+) (none|\d+)", text)
        if found is None:
            owner = metadata["ownerReferences"][0]["name"]
            anchor = self.api.objects.get(Key("", "configmaps", "default", owner))
            task = metadata["annotations"]["overspan.io/task"]
            return read_work(anchor["data"][f"script.{task}"])
        return read_work(found[0])

    # --- what befalls them -------------------------------------------------------------------------------------------

    def cordon(self, name: str, cordoned: bool = True) -> None:
        """Take a node out of service, or back into it."""
        self._change(name, {"spec": {"unschedulable": cordoned or None}})

    def drain(self, name: str) -> None:
        """Take a node out of service, and evict its pods."""
        self.cordon(name)
        for pod in self._pods_of(name):
            self.disrupt(pod, "EvictionByEvictionAPI")

    def disrupt(self, pod: Document, reason: str) -> None:
        """Delete a pod for a reason that Kubernetes tells."""
        name = pod["metadata"]["name"]
        self.touch(pod)
        if pod["status"]["phase"] in ("Pending", "Running"):
            conditions = [*pod["status"].get("conditions", ())]
            conditions.append({"type": "DisruptionTarget", "status": "True", "reason": reason})
            self.api.pods.set_status(name, {"conditions": conditions})
        self.delete(pod)

    def delete(self, pod: Document, grace: int | None = None) -> None:
        """Delete a pod, as an operator does."""
        self.touch(pod)
        options = {} if grace is None else {"gracePeriodSeconds": grace}
        self.api.objects.delete(Key("", "pods", "default", pod["metadata"]["name"]), options)

    def lose(self, name: str) -> None:
        """A node loses its power."""
        node = self.nodes[name]
        if not node.alive:
            return
        node.alive, node.lost_at = False, self.api.objects.clock()
        for pod in self._pods_of(name):
            self.touch(pod)
            program = self.programs.get(pod["metadata"]["uid"])
            if program is not None:
                program.over = True
                program.nudge.set()
        self._stay(self._miss(node, node.lost_at))

    async def _miss(self, node: Node, lost_at: float) -> None:
        """What controllers do about a node that is silent."""
        await asyncio.sleep(UNREACHABLE_SECONDS)
        if node.alive or node.lost_at != lost_at:
            return
        self._change(node.name, {"status": {"conditions": [_ready("Unknown")]}})
        await asyncio.sleep(EVICTION_SECONDS)
        while not node.alive and node.lost_at == lost_at:
            for pod in self._pods_of(node.name):
                if not pod["metadata"].get("deletionTimestamp"):
                    self.disrupt(pod, "DeletionByTaintManager")
            await asyncio.sleep(5.0)

    def restore(self, name: str) -> None:
        """A node is back: what ran there is over, and its kubelet says so."""
        node = self.nodes[name]
        self.cordon(name, False)
        if node.alive:
            return
        node.alive = True
        self._change(name, {"status": {"conditions": [_ready("True")]}})
        for pod in self._pods_of(name):
            if pod["metadata"]["uid"] not in self._alive:
                self._stay(self._tell_lost(pod, node))

    async def _tell_lost(self, pod: Document, node: Node) -> None:
        metadata = pod["metadata"]
        name, uid = metadata["name"], metadata["uid"]
        await asyncio.sleep(self.chaos.random.uniform(0.5, 3.0))
        found = self.find(name, uid)
        if found is None:
            return
        if found["status"]["phase"] in ("Pending", "Running"):
            self._fail_unknown(name)
        await self._clean(name, uid, node)

    def _fail_unknown(self, name: str) -> None:
        """What a kubelet says of a container that is not there (TerminatePod; the phase since 1.27)."""
        self.touch(self.api.pods.get(name))
        state = {"exitCode": 137, "reason": "ContainerStatusUnknown", "message": "the container is not there"}
        containers = [{"name": "main", "ready": False, "state": {"running": None, "terminated": state}}]
        self.api.pods.set_status(name, {"phase": "Failed", "containerStatuses": containers})

    def _pods_of(self, node: str) -> list[Document]:
        return [pod for pod in self.list_pods() if pod["spec"].get("nodeName") == node]

    def _change(self, name: str, patch: Document) -> None:
        self.api.objects.replace(_KEY._replace(name=name), lambda node: merge(node, patch), check=False)


def read_work(text: str) -> Behaviour:
    """`work SECONDS CODE ON_TERM` in a script or a task."""
    found = re.search(r"work (\S+) (\d+) (none|\d+)", text)
    assert found is not None, text
    return Behaviour(float(found[1]), int(found[2]), on_term=None if found[3] == "none" else float(found[3]))


def _ready(status: str) -> Document:
    return {"type": "Ready", "status": status}


def _disruptions(pod: Document | None) -> list[Document]:
    conditions = pod["status"].get("conditions", ()) if pod is not None else ()
    return [one for one in conditions if one["type"] == "DisruptionTarget"]


def _main(pod: Document) -> Document:
    found: Document = next(one for one in pod["spec"]["containers"] if one["name"] == "main")
    return found


def _has_barrier(pod: Document) -> bool:
    """The first argument of the program behind every task (scripts.py)."""
    words = _main(pod)["args"]
    return bool(words[2] if len(words[0]) > 100 else words[0])


def _find_mark(pod: Document) -> str:
    return next((str(one["value"]) for one in _main(pod).get("env", ()) if one["name"] == END_VARIABLE), "")

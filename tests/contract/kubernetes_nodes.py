"""Two nodes for the fake API server: they bind pods and run their commands as processes of this machine."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import threading
from dataclasses import dataclass
from pathlib import Path

from tests.fakes.kubernetes_api import KubernetesApi
from tests.fakes.kubernetes_exec import Run
from tests.fakes.kubernetes_objects import Document, Key, Refused, from_rfc3339

from overspan.adapters.kubernetes.api.quantities import sum_requests
from overspan.adapters.kubernetes.manifests.scripts import POD_DIR
from overspan.adapters.kubernetes.observation.records import GO, NOTICE

_LATE = {
    "reason": "DeadlineExceeded",
    "message": "Pod was active on the node longer than the specified deadline",
}
NODES = ("node-1", "node-2")
CPUS = 4


@dataclass
class Running:
    """The process of a pod's main container, and what was read of it."""

    process: subprocess.Popen[bytes]
    file: Path
    marks: Path | None
    """Where the pod's marks are kept as files (downward API)."""
    told: int = 0
    kill_at: float | None = None


class FakeNodes:
    """What kubelets and the scheduler do, by looking at each change."""

    def __init__(self, api: KubernetesApi, folder: Path) -> None:
        self.api = api
        self.frozen = False
        """Whether nothing is bound, started or ended for now."""
        self._folder = folder
        self._bin = _make_name_server(folder)
        api.exec.reply = self._signal
        self._work: dict[str, Running] = {}
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="nodes")
        for name in NODES:
            given = {"cpu": str(CPUS), "memory": "8Gi", "pods": "110"}
            ready = {"type": "Ready", "status": "True"}
            status = {"allocatable": given, "capacity": given, "conditions": [ready]}
            api.objects.create(Key("", "nodes", "", name), {"metadata": {"name": name}, "spec": {}, "status": status})

    def __enter__(self) -> FakeNodes:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closed.set()
        self._thread.join()
        for running in self._work.values():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(running.process.pid, signal.SIGKILL)
            running.process.wait()
        _end_rest(self._folder)

    def _run(self) -> None:
        changed = self.api.objects.changed
        while not self._closed.is_set():
            if not self.frozen:
                for pod in self.api.objects.select(Key("", "pods", ""), lambda _: True)[0]:
                    with contextlib.suppress(Refused):
                        self._look(pod)
            with changed:
                changed.wait(0.01)

    def _look(self, pod: Document) -> None:
        metadata, name = pod["metadata"], pod["metadata"]["name"]
        space, uid = metadata["namespace"], metadata["uid"]
        running = self._work.get(uid)
        if running is not None:
            self._watch(pod, running)
        elif pod["status"].get("phase") in ("Succeeded", "Failed"):
            return
        elif metadata.get("deletionTimestamp"):
            if pod["spec"].get("nodeName"):
                self.api.pods.set_status(name, {"phase": "Failed"}, space)
                self.api.pods.gone(name, space)
        elif not pod["spec"].get("nodeName"):
            self._bind(pod)
        else:
            self._start(pod)

    def _bind(self, pod: Document) -> None:
        used = dict.fromkeys(NODES, 0.0)
        for other in self.api.objects.select(Key("", "pods", ""), lambda _: True)[0]:
            if other["status"].get("phase") not in ("Succeeded", "Failed") and other["spec"].get("nodeName") in used:
                used[other["spec"]["nodeName"]] += _cpus(other)
        name, space = pod["metadata"]["name"], pod["metadata"]["namespace"]
        for number, node in enumerate(NODES):
            if used[node] + _cpus(pod) <= CPUS:
                self.api.pods.bind(name, node, f"10.0.{number}.{len(self._work) % 200 + 2}", space)
                return
        if pod["status"].get("conditions"):
            return
        message = f"0/{len(NODES)} nodes are available: {len(NODES)} Insufficient cpu."
        wait = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
        self.api.pods.set_status(name, {"conditions": [wait]}, space)

    def _start(self, pod: Document) -> None:
        metadata = pod["metadata"]
        main = next(item for item in pod["spec"]["containers"] if item["name"] == "main")
        file, message = self._folder / f"{metadata['uid']}.log", self._folder / f"{metadata['uid']}.message"
        mounts = {}
        for mount in main.get("volumeMounts") or []:
            folder = mounts[mount["mountPath"]] = self._folder / metadata["uid"] / mount["name"]
            folder.mkdir(parents=True)
            if mount["mountPath"] == POD_DIR:
                _write_marks(pod, folder)

        def place(text: str) -> str:
            """A text of the manifest with the mounts where they are on this machine."""
            for path, folder in mounts.items():
                text = text.replace(path, str(folder))
            return text.replace("/dev/termination-log", str(message))

        environment = {item["name"]: place(item["value"]) for item in main.get("env") or [] if "value" in item}
        environment.setdefault("PATH", f"{self._bin}:{os.environ['PATH']}")
        # A dollar sign is escaped by another one (Container.args).
        words = [place(word).replace("$$", "$") for word in [*main["command"], *main.get("args", [])]]
        with file.open("wb") as output:
            process = subprocess.Popen(
                words,
                stdout=output,
                stderr=output,
                stdin=subprocess.DEVNULL,
                env=environment,
                cwd=self._folder,
                start_new_session=True,
            )
        self._work[metadata["uid"]] = Running(process, file, mounts.get(POD_DIR))
        self.api.pods.run(metadata["name"], metadata["namespace"])

    def _signal(self, run: Run) -> tuple[int, str]:
        """Carry out a command that sends a signal to a pod's program; any other has no effect."""
        asked = re.search(r"kill -s (\w+) 1$", run.words[-1])
        uid = self.api.pods.get(run.pod, run.namespace)["metadata"]["uid"]
        if asked is not None and uid in self._work:
            self._work[uid].process.send_signal(getattr(signal, f"SIG{asked[1]}"))
        return 0, ""

    def _watch(self, pod: Document, running: Running) -> None:
        metadata = pod["metadata"]
        name, space, now = metadata["name"], metadata["namespace"], self.api.objects.clock()
        if pod["status"].get("phase") in ("Succeeded", "Failed"):
            return
        if running.marks is not None:
            _write_marks(pod, running.marks)
        code = running.process.poll()
        printed = running.file.read_bytes()[running.told :]
        if code is None:
            # A line that is being written is told when it is whole.
            printed = printed[: printed.rfind(b"\n") + 1]
        if printed:
            running.told += len(printed)
            self.api.streams.write_log(name, printed.decode(), space)
        if code is not None:
            message = running.file.with_suffix(".message")
            text = message.read_text() if message.exists() else ""
            self.api.pods.finish(name, 128 - code if code < 0 else code, message=text, namespace=space)
            if running.kill_at is not None and not metadata.get("deletionTimestamp"):
                self.api.pods.set_status(name, {"phase": "Failed", **_LATE}, space)
        elif metadata.get("deletionTimestamp") or _is_late(pod, now):
            grace = metadata.get("deletionGracePeriodSeconds", pod["spec"].get("terminationGracePeriodSeconds", 30))
            if running.kill_at is None:
                os.killpg(running.process.pid, signal.SIGTERM)
            running.kill_at = min(running.kill_at or now + grace, now + grace)
            if now >= running.kill_at:
                os.killpg(running.process.pid, signal.SIGKILL)


def _make_name_server(folder: Path) -> Path:
    """A folder with a `getent` that knows every name, in the place of the cluster's DNS."""
    commands = folder / "bin"
    commands.mkdir()
    getent = commands / "getent"
    getent.write_text('#!/bin/sh\necho "10.0.0.2 $2"\n')
    getent.chmod(0o755)
    return commands


def _is_late(pod: Document, now: float) -> bool:
    """Whether a pod has been on its node for longer than it may be."""
    seconds = pod["spec"].get("activeDeadlineSeconds")
    return seconds is not None and now >= from_rfc3339(pod["status"]["startTime"]) + seconds


def _end_rest(folder: Path) -> None:
    """Kill what a shell with job control has put into groups of its own."""
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if (process / "cwd").readlink() == folder:
                os.kill(int(process.name), signal.SIGKILL)


def _write_marks(pod: Document, folder: Path) -> None:
    """The annotations that the pod reads, as files."""
    marks = pod["metadata"].get("annotations") or {}
    for path, mark in (("go", GO), ("notice", NOTICE)):
        text = marks.get(mark, "")
        file, part = folder / path, folder / f".{path}.new"
        if not file.exists() or file.read_text() != text:
            part.write_text(text)
            part.replace(file)


def _cpus(pod: Document) -> float:
    return sum_requests(pod["spec"]).get("cpu", 0.0)

"""A shell beside the work: kubectl's exec into the pod of one member. Pure. Nothing of the job depends on it."""

from __future__ import annotations

from collections.abc import Iterable

from overspan.adapters.abilities import Entrance, ShellRequest
from overspan.adapters.kubernetes.manifests.scripts import PROGRAM_VARIABLE
from overspan.adapters.kubernetes.observation.evidence import has_begun
from overspan.adapters.kubernetes.observation.records import MAIN, PodRecord
from overspan.adapters.kubernetes.settings import Settings
from overspan.bridge.model.errors import Conflict

INTERACTIVE = ("/bin/sh", "-c", f"unset {PROGRAM_VARIABLE}; [ -x /bin/bash ] && exec /bin/bash; exec /bin/sh")


def enter_pod(request: ShellRequest, pods: Iterable[PodRecord], settings: Settings) -> Entrance:
    """The command that enters a member's pod. Raises Conflict where its program does not run."""
    live = [
        pod
        for pod in pods
        if (pod.task, pod.index) == (request.task, request.node) and pod.go and has_begun(pod) and not pod.ended
    ]
    if not live:
        raise Conflict(f"node {request.node} of task {request.task} does not run", remedy="`span show` tells what does")
    pod = max(live, key=lambda found: (found.attempt, found.run))
    words = ["kubectl"]
    for option, value in (("--kubeconfig", settings.kubeconfig), ("--context", settings.context)):
        words += [option, value] if value else []
    words += ["--namespace", pod.namespace, "exec", "-i", *(["-t"] if request.terminal else [])]
    return Entrance((*words, pod.name, "-c", MAIN, "--", *(request.command or INTERACTIVE)))

"""A shell beside the work: kubectl's exec into the pod of one member. Pure. Nothing of the job depends on it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from overspan.adapters.abilities import Entrance, ShellRequest
from overspan.adapters.kubernetes.manifests.scripts import PROGRAM_VARIABLE
from overspan.adapters.kubernetes.observation.evidence import has_begun
from overspan.adapters.kubernetes.observation.records import MAIN, PodRecord
from overspan.adapters.kubernetes.settings import Settings
from overspan.bridge.model.errors import Conflict

INTERACTIVE = ("/bin/sh", "-c", f"unset {PROGRAM_VARIABLE}; [ -x /bin/bash ] && exec /bin/bash; exec /bin/sh")


def enter_pod(request: ShellRequest, pods: Iterable[PodRecord], settings: Settings) -> Entrance:
    """The command that enters a member's pod. Raises Conflict where its program does not run."""
    pod = find_live(pods, request.task, request.node)
    return Entrance(exec_words(pod, settings, request.command or INTERACTIVE, terminal=request.terminal))


def find_live(pods: Iterable[PodRecord], task: str, node: int) -> PodRecord:
    """The pod in which a member's program runs. Raises Conflict where there is none."""
    live = [
        pod for pod in pods if (pod.task, pod.index) == (task, node) and pod.go and has_begun(pod) and not pod.ended
    ]
    if not live:
        raise Conflict(f"node {node} of task {task} does not run", remedy="`span show` tells what does")
    return max(live, key=lambda found: (found.attempt, found.run))


def exec_words(pod: PodRecord, settings: Settings, command: Sequence[str], *, terminal: bool) -> tuple[str, ...]:
    """kubectl's words that run a command in the pod's own container, with the user's streams."""
    words = ["kubectl"]
    for option, value in (("--kubeconfig", settings.kubeconfig), ("--context", settings.context)):
        words += [option, value] if value else []
    words += ["--namespace", pod.namespace, "exec", "-i", *(["-t"] if terminal else [])]
    return (*words, pod.name, "-c", MAIN, "--", *command)

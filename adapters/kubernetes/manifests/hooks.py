"""A task's own command for the loss of its pod: the kubelet runs it before TERM, unless Overspan itself ends the pod.

The kubelet takes its time off the pod's grace, and leaves at least two seconds for TERM (pkg/kubelet/kuberuntime,
killContainer). A mark that is patched into the pod comes too late, since the files of a pod that is deleted are not
kept up to date; so Overspan leaves a file in the pod before it ends it.
"""

from __future__ import annotations

from typing import Any

from overspan.adapters.kubernetes.manifests.scripts import POD_DIR, RUN_DIR
from overspan.adapters.kubernetes.observation.launch_summaries import MIN_GRACE
from overspan.bridge.model.spec import TaskSpec

Document = dict[str, Any]

_ORDERED = f"{RUN_DIR}/.ended"
_RESERVE = 2
"""Seconds of the grace that are the program's own, between TERM and KILL."""

MARK_END_WORDS = ("/bin/sh", "-c", f": >{_ORDERED}")
"""What runs in a pod before Overspan ends it."""

MARK_SECONDS = 1.5
"""How long the mark of an end takes to be a file in the pod, where nothing can be run in it (measured: 0.2 s)."""

HOOK = (
    "# Runs a command when the pod is taken away: not before its start, and not when Overspan ends it.\n"
    f"go= stop=; read -r go stop <{POD_DIR}/go\n"
    f'if [ -z "$go" ] || [ -n "$stop" ] || [ -e {_ORDERED} ]; then exit 0; fi\n'
    "shell=/bin/sh; [ -x /bin/bash ] && shell=/bin/bash\n"
    "# Its output is the task's.\n"
    "out=/proc/1/fd/1; { : >>$out; } 2>/dev/null || out=/dev/null\n"
    '"$shell" -c "$1" on_preemption >>$out 2>&1 </dev/null &\n'
    "hook=$!\n"
    '{ sleep "$2"; kill -s KILL $hook; } >/dev/null 2>&1 </dev/null &\n'
    "wait $hook 2>/dev/null\n"
    "kill $! 2>/dev/null\n"
    "exit 0\n"
)
"""Arguments: the command, and the seconds that it has."""


def render_hook(task: TaskSpec) -> Document:
    """The `lifecycle` of a task's container; empty for a task without such a command."""
    if not task.on_preemption.strip():
        return {}
    # The kubelet expands no $(NAME) in a hook (pkg/kubelet/lifecycle, handlers.go).
    words = ["/bin/sh", "-c", HOOK, "overspan", task.on_preemption, str(hook_seconds(task))]
    return {"preStop": {"exec": {"command": words}}}


def hook_seconds(task: TaskSpec) -> int:
    """How long the command may take: the grace period, less a reserve for the program."""
    return max(MIN_GRACE, task.grace_period - _RESERVE)

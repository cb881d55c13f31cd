"""Allocations: which nodes of a batch task run the user's script, and which run a step daemon.

A batch script runs on its first node. Its other nodes, and all nodes of a hetjob's other components, run the step
daemon, through which `srun` reaches them. An allocation without a script runs it everywhere.
"""

from __future__ import annotations

from overspan.bridge.model.spec import Form, TaskSpec

HOLD_SCRIPT = "#!/bin/false\n# No script: this allocation is held for salloc or srun.\n"
"""The text of an allocation that lasts for as long as its client is connected. It is never executed."""

KEEP_SCRIPT = "#!/bin/false\n# No script: this allocation is kept until its limit or scancel.\n"
"""The text of an allocation that needs no client (`salloc --no-shell`). It is never executed."""

GIVE_BACK, GIVE_BACK_AS_STEPS = "USR1", "USR2"
"""Signals that end an allocation which is a native job, given to its batch script alone: with 0, or with the highest
exit code of its steps."""


def is_held(spec: TaskSpec) -> bool:
    """Whether the task's first node runs the step daemon instead of a script, for as long as a client is connected."""
    return spec.form is Form.BATCH and spec.run == HOLD_SCRIPT


def is_kept(spec: TaskSpec) -> bool:
    """Whether the first node runs the step daemon without a client, until its limit or scancel."""
    return spec.form is Form.BATCH and spec.run == KEEP_SCRIPT


def is_allocation(spec: TaskSpec) -> bool:
    """Whether the task has no script, so that only steps of its submitter run there."""
    return is_held(spec) or is_kept(spec)


def has_body(spec: TaskSpec) -> bool:
    """Whether the task is a batch script, whose end is that of its first node."""
    return spec.form is Form.BATCH and bool(spec.run)


def runs_daemon(spec: TaskSpec, node: int) -> bool:
    """Whether that node of the task runs the step daemon; a held first node counts as the body."""
    return spec.form is Form.BATCH and (node > 0 or not spec.run)

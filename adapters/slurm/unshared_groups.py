"""Groups on nodes that share no folder: what their batch script carries, and what cannot run so. Pure.

The script has the application, which holds nothing of the user's; plan and placement, with secrets, travel as
variables of sbatch's environment, as those of a single job do.
"""

from __future__ import annotations

import functools
from dataclasses import replace

from overspan.adapters.slurm.library import build
from overspan.adapters.slurm.script import Submission
from overspan.bridge.model.errors import Rejected
from overspan.bridge.model.job import Job
from overspan.bridge.model.spec import ReadyKind, TaskSpec
from overspan.bridge.supervisor.remote.carrying import entry_words, pack_application, pack_documents, select_sources
from overspan.bridge.supervisor.remote.unshared import LOG

__all__ = ["FOLDER", "LOG", "TRAVELS", "carry_group", "refuse_group", "unshared_words"]

FOLDER = "/tmp"
"""Where jobs run unless they say otherwise: a folder that every node has."""
REMEDY = "set `root` of the cluster to a folder that the compute nodes share, and leave `shared_root: false` out"
TRAVELS = "the supervisor's application stands behind the script; plan and secrets travel as variables of sbatch's"
_END = "OVERSPAN_APPLICATION"


def unshared_words(python: str, folder: str, launch: int) -> tuple[str, ...]:
    """The command of the supervisor, whose application comes by standard input."""
    return tuple(entry_words(python, "unshared", folder, str(launch)))


@functools.cache
def pack() -> str:
    """This version's application as text."""
    return pack_application(select_sources(build())).decode("ascii")


def carry_group(submission: Submission, files: tuple[tuple[str, bytes], ...]) -> Submission:
    """The submission with all that its supervisor needs. Raises Rejected for a plan that is too large."""
    try:
        variables = pack_documents(dict(files))
    except ValueError as error:
        raise Rejected(f"the group cannot travel: {error}", remedy=REMEDY) from None
    script = f"{submission.script.rstrip()} <<'{_END}'\n{pack()}\n{_END}\n"
    return replace(submission, script=script, variables={**submission.variables, **variables})


def refuse_group(job: Job) -> None:
    """Refuse groups that need more than their nodes' own disks. Raises Rejected."""
    for task in job.spec.tasks:
        what = _find_need(task)
        if what:
            raise Rejected(
                f"{what} needs a folder that the compute nodes share, and this cluster has none", remedy=REMEDY
            )


def _find_need(task: TaskSpec) -> str:
    if task.image:
        return "an image of a group's task"
    if task.ready is not None and task.ready.kind is ReadyKind.FILE:
        return "`ready: file`, which another node looks for,"
    return ""

"""Groups on nodes that share no folder: the batch script contains everything that the supervisor needs. Pure.

The application, which contains nothing of the user, is in the script. Plan and placement contain secrets, so they
travel as variables in sbatch's environment, as a single job's secrets do.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import replace

from overspan.adapters.slurm.files.application import build
from overspan.adapters.slurm.rendering.script import BatchSubmission
from overspan.adapters.slurm.unshared.inline_files import InlineFiles, encode_inline
from overspan.bridge.model.errors import Rejected
from overspan.bridge.runtime.slurm.bootstrap import entry_words, pack_application, pack_documents, select_sources
from overspan.bridge.runtime.slurm.unshared_supervisor import LOG

__all__ = ["FOLDER", "LOG", "TRAVELS", "carry_group", "unshared_words"]

FOLDER = "/tmp"
"""The default working directory of jobs: a folder that every node has."""
REMEDY = "set `root` of the cluster to a folder that the compute nodes share, and leave `shared_root: false` out"
TRAVELS = "the supervisor's application is appended to the script; plan and secrets travel as variables of sbatch"
_END = "OVERSPAN_APPLICATION"


def unshared_words(python: str, *words: str) -> tuple[str, ...]:
    """The command of the supervisor, which reads its application from standard input."""
    return tuple(entry_words(python, "unshared", *words))


@functools.cache
def pack() -> str:
    """This version's application, encoded as text."""
    return pack_application(select_sources(build())).decode("ascii")


def carry_group(
    submission: BatchSubmission, files: Mapping[str, bytes], inline: InlineFiles | None = None
) -> BatchSubmission:
    """The submission with everything that its supervisor needs. Raises Rejected for a plan that is too large."""
    try:
        variables = pack_documents(files)
    except ValueError as error:
        raise Rejected(f"the group cannot travel: {error}", remedy=REMEDY) from None
    brought = "" if inline is None else encode_inline(inline)
    script = f"{submission.script.rstrip()} <<'{_END}'\n{pack()}\n{brought}{_END}\n"
    return replace(submission, script=script, variables={**submission.variables, **variables})

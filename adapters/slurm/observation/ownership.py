"""Tells a launch's own records from those of other jobs with the same id: Slurm gives job ids more than once. Pure.

A slurmctld that was killed before it saved its state gives the last ids again; one whose ids were reset or have reached
MaxJobId begins again at FirstJobId (sacct(1), --duplicates).
"""

from __future__ import annotations

from collections.abc import Sequence

from overspan.adapters.slurm.commands.sacct import AccountingRecord
from overspan.adapters.slurm.groups.handles import NativeJob
from overspan.adapters.slurm.groups.parts import IN_PART, split_token
from overspan.adapters.slurm.handles import Handle
from overspan.adapters.slurm.rendering.script import list_tokens, names_another, names_launch


def is_another(handle: Handle | NativeJob, text: str) -> bool:
    """Whether a record with the handle's id is of another launch, by its comment or submit line.

    Elements have their array's token. A job that Slurm requeued keeps the token of its first launch, so those of
    earlier launches count as the handle's own.
    """
    if isinstance(handle, NativeJob) and _is_sibling(handle, text):
        return True
    return names_another(text, _numbers(handle), range(handle.launch + 1))


def _is_sibling(handle: NativeJob, text: str) -> bool:
    """Whether a record is of another native job of the same group."""
    members = [member for member in map(split_token, list_tokens(text)) if member is not None]
    return (
        bool(members)
        and IN_PART in handle.folder
        and not any(handle.folder.endswith(member.folder) for member in members)
    )


def list_own(handle: Handle | NativeJob, runs: Sequence[AccountingRecord]) -> list[AccountingRecord]:
    """The runs of the launch's own native job, out of all records with its id, oldest first.

    Where the accounting keeps submit lines, every run of one job has the same. Jobs that Overspan did not submit have
    no token.
    """
    numbers, exact = _numbers(handle), range(handle.launch, handle.launch + 1)
    texts = [f"{run.comment} {run.submit_line}" for run in runs]
    is_exact = any(names_launch(text, numbers, exact) for text in texts)
    launches = exact if is_exact else range(handle.launch + 1)
    own = [run for run, text in zip(runs, texts, strict=True) if not names_another(text, numbers, launches)]
    marked = [names_launch(run.submit_line, numbers, launches) for run in own]
    if not any(marked):
        return own
    first = marked.index(True)
    return [run for place, run in enumerate(own) if place >= first and (marked[place] or not run.submit_line)]


def _numbers(handle: Handle | NativeJob) -> tuple[int, ...]:
    return (handle.job, handle.array) if handle.array else (handle.job,)

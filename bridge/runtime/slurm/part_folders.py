"""Where a run directory has the files of a group's parts: members/TASK, and in it a folder for each native job.

The folder of a native job is named after the first attempt that the job is for. A group that is one native job has no
such folders: its files are in the run directory itself.
"""

from __future__ import annotations

from typing import Optional, Union

MEMBERS = "members"


def name_part(task: str, first: Optional[Union[int, str]] = None) -> str:
    """The folder of a native job, or without its first attempt that of all native jobs of the task."""
    return f"{MEMBERS}/{task}" if first is None else f"{MEMBERS}/{task}/{first}"

"""Finds the group that a submission joins: by default the one that it is made in."""

from __future__ import annotations

import re
from collections.abc import Mapping

from overspan.bridge.model.errors import InvalidRequest

VARIABLE = "OVERSPAN_JOB_GROUP"
"""Set by `span submit --job-group`; sbatch reads it as it reads SBATCH_* variables."""
NO_GROUP = "none"


def read_parent(given: str | None, environment: Mapping[str, str]) -> int | None:
    """The id of the group to join, or None.

    `given` is an id or `none`; where it is None, OVERSPAN_JOB_GROUP counts, and else the group that the submitting
    process runs in (OVERSPAN_JOB_ID, where OVERSPAN_GROUP is not empty). Raises InvalidRequest.
    """
    if given is None:
        given = environment.get(VARIABLE)
    if given is None:
        given = environment.get("OVERSPAN_JOB_ID", "") if environment.get("OVERSPAN_GROUP") else ""
        # The variables may have been set by hand, so a malformed id is ignored.
        return int(given) if re.fullmatch("[1-9][0-9]{0,17}", given) else None
    if given.lower() in ("", NO_GROUP):
        return None
    if not re.fullmatch("[1-9][0-9]{0,17}", given):
        raise InvalidRequest(f"{given!r} is not the id of a group", remedy="write --job-group=ID, or --no-job-group")
    return int(given)

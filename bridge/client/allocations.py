"""The client's part for allocations without a script: holding one, and steps in a job."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from overspan.bridge.client.connection import Gone
from overspan.bridge.client.transport import Transport, quote_part

SILENT_SECONDS = 60.0
"""Silence after which a hold counts as lost; the daemon says something every 15 s."""


class AllocationCalls(Transport):
    """What a client can ask about allocations; raises as every method of the client does."""

    def prepare_step(
        self, ref: str, words: Sequence[str], *, own: bool = False, terminal: bool = False, alone: bool = False
    ) -> dict[str, Any]:
        """What to run for a step in a job: words of the step, and of the guard that takes signals for it.

        `words` are srun's; `own` tells that the job is an allocation for this step alone, `alone` that the
        daemon's own connection is not to be shared. Raises Conflict for a job that does not run, InvalidRequest for one
        that takes no steps, NotFound.
        """
        from overspan.bridge.client.submission import read_umask, submission_variables

        body = {
            "words": list(words),
            "environment": submission_variables(self.environment),
            "directory": os.getcwd(),
            "umask": read_umask(),
            "own": own,
            "terminal": terminal,
            "alone": alone,
        }
        return self._post(f"/v1/jobs/{quote_part(ref)}/step", body)

    def hold_allocation(self, ref: str) -> bool:
        """Hold an allocation until its job is over, which is True; False where the daemon went away before."""
        answer = self._request("GET", f"/v1/jobs/{quote_part(ref)}/allocation", timeout=SILENT_SECONDS)
        try:
            return any(line == b"over" for line in answer.lines())
        except (Gone, OSError):
            return False
        finally:
            self.close()

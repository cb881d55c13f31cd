"""Checks that predecessors are still live in Slurm, right before Slurm is told to wait for them.

Slurm treats `afterok:` on an id that it has forgotten as met (measured on 22.05). It remembers a job that is live now
for some minutes after its end (MinJobAge), so a dependency on such a job is safe.
"""

from __future__ import annotations

from collections.abc import Sequence

from overspan.adapters.contract import Unmet
from overspan.adapters.slurm.commands.queries import Queries
from overspan.adapters.slurm.handles import parse_handle
from overspan.adapters.slurm.observation.outcomes import Phase, judge
from overspan.adapters.slurm.submission.dependencies import UNKNOWN, find_problem, find_trouble, read_rules
from overspan.bridge.model.job import Job


class Predecessors:
    """Checks predecessors, with one query for all of them."""

    def __init__(self, queries: Queries) -> None:
        self._queries = queries

    def waits_for(self, job: Job, needs: Sequence[Unmet]) -> bool:
        """Whether Slurm can wait for all of these. Before the first query of the site this is an assumption."""
        site = self._queries.known_site
        rules = UNKNOWN if site is None else read_rules(site.config, site.hetjobs)
        return not needs or not find_problem(job, needs, rules)

    async def list_open(self, waiting: Sequence[Sequence[Unmet]]) -> list[bool]:
        """For each list of needs: whether all of its predecessors are live in Slurm. Raises Unreachable."""
        if not any(waiting):
            return [True] * len(waiting)
        site = await self._queries.site()
        rules = read_rules(site.config, site.hetjobs)
        handles = [
            None if find_trouble(needs, rules) else {parse_handle(one.handle) for unmet in needs for one in unmet.jobs}
            for needs in waiting
        ]
        natives = {handle.native for found in handles for handle in found or ()}
        if not natives:
            return [found is not None for found in handles]
        queue = await self._queries.look(sorted(natives))
        records = {handle: queue.find(handle.native, handle.index) for found in handles for handle in found or ()}
        live = {handle for handle, record in records.items() if record and judge(record.state).phase is not Phase.ENDED}
        return [found is not None and found <= live for found in handles]

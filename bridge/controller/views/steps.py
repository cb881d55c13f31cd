"""Job steps, as the clusters report them."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence

from overspan.adapters import abilities
from overspan.bridge.controller.core.clusters import Clusters
from overspan.bridge.controller.core.registry import JobEntry, entry_of
from overspan.bridge.controller.core.repository import Repository
from overspan.bridge.listings.rows import StepRow
from overspan.bridge.model.errors import OverspanError
from overspan.bridge.model.slurm.hostlists import compress
from overspan.bridge.store.records import JobQuery

log = logging.getLogger(__name__)

PAGE = 500
"""Jobs whose facts are read at once."""


class StepListing:
    """Asks each cluster for the steps of its jobs; one that cannot tell has none."""

    def __init__(self, clusters: Clusters) -> None:
        self.clusters = clusters

    async def rows(self, entries: Iterable[JobEntry]) -> list[StepRow]:
        """The steps of the newest launches of these jobs."""
        by_cluster: dict[str, dict[str, JobEntry]] = {}
        for entry in entries:
            if entry.launched:
                by_cluster.setdefault(entry.cluster, {})[entry.handle] = entry
        rows: list[StepRow] = []
        for name, found in by_cluster.items():
            rows += [_row(found[step.handle], step) for step in await self._ask(name, found)]
        return rows

    async def past_rows(self, handles: Mapping[str, Mapping[str, int]], repository: Repository) -> list[StepRow]:
        """The same of jobs of any age, by cluster, handle and id; only those that had steps are read."""
        rows: list[StepRow] = []
        for name, found in handles.items():
            steps = await self._ask(name, found)
            ids = list(dict.fromkeys(found[step.handle] for step in steps))
            entries: dict[int, JobEntry] = {}
            for begin in range(0, len(ids), PAGE):
                part = await repository.find(JobQuery(ids=tuple(ids[begin : begin + PAGE])))
                entries.update((stored.job.id, entry_of(stored)) for stored in part)
            known = [(entries.get(found[step.handle]), step) for step in steps]
            rows += [_row(entry, step) for entry, step in known if entry is not None and entry.launched]
        return rows

    async def _ask(self, name: str, handles: Iterable[str]) -> Sequence[abilities.Step]:
        cluster = self.clusters.find(name)
        if cluster is None:
            return ()
        try:
            adapter = cluster.adapter
            return await adapter.steps(list(handles)) if isinstance(adapter, abilities.Steps) else ()
        except OverspanError as error:
            log.warning("cluster %s does not tell its steps: %s", name, error.message, extra={"cluster": name})
            return ()


def _row(entry: JobEntry, step: abilities.Step) -> StepRow:
    names = [task.name for task in entry.job.tasks]
    hosts = {item.index: item.node for item in entry.job.placements if item.task == step.task}
    return StepRow(
        job_id=entry.job.id,
        task_offset=names.index(step.task) if len(names) > 1 and step.task in names else None,
        number=step.number,
        component=step.component,
        name=step.name,
        started_at=step.started_at,
        ended_at=step.ended_at,
        running=step.running,
        exit_code=step.exit_code,
        signal=step.signal,
        cancelled=step.cancelled,
        ntasks=step.ntasks,
        cpus=step.cpus,
        nodes=len(step.nodes),
        node_list=compress(dict.fromkeys(filter(None, (hosts.get(index) for index in step.nodes)))),
        layout=step.layout,
        submit_line=step.command,
        host=step.host,
        pid=step.pid,
    )

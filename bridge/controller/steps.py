"""The steps that ran inside jobs, as their clusters tell them."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any

from overspan.adapters import abilities
from overspan.bridge.controller.book import Entry
from overspan.bridge.controller.clusters import Clusters
from overspan.bridge.model.errors import OverspanError
from overspan.bridge.model.hostlists import compress

log = logging.getLogger(__name__)

STEP_COLUMNS = (
    "job_id",
    "task_offset",
    "number",
    "component",
    "name",
    "started_at",
    "ended_at",
    "running",
    "exit_code",
    "signal",
    "cancelled",
    "ntasks",
    "cpus",
    "nodes",
    "node_list",
    "layout",
    "submit_line",
    "host",
    "pid",
)
"""`task_offset` is k of the task `N+k` that the step ran in, null for a job of one task; `component` is k of a step
`N.S+k`. Times are epoch seconds; without an end and not running it was killed, and nobody saw when."""


class Steps:
    """Asks each cluster for the steps of its jobs; one that cannot tell has none."""

    def __init__(self, clusters: Clusters) -> None:
        self.clusters = clusters

    async def rows(self, entries: Iterable[Entry]) -> list[list[Any]]:
        """Rows of the newest launches of these jobs, by the columns above."""
        by_cluster: dict[str, dict[str, Entry]] = {}
        for entry in entries:
            if entry.launched:
                by_cluster.setdefault(entry.cluster, {})[entry.handle] = entry
        rows: list[list[Any]] = []
        for name, found in by_cluster.items():
            cluster = self.clusters.find(name)
            if cluster is None:
                continue
            try:
                adapter = cluster.adapter
                steps = await adapter.steps(list(found)) if isinstance(adapter, abilities.Steps) else ()
            except OverspanError as error:
                log.warning("cluster %s does not tell its steps: %s", name, error.message)
                continue
            rows += [_row(found[step.handle], step) for step in steps]
        return rows


def _row(entry: Entry, step: abilities.Step) -> list[Any]:
    """The values in the order of STEP_COLUMNS."""
    names = [task.name for task in entry.job.tasks]
    hosts = {item.index: item.node for item in entry.job.placements if item.task == step.task}
    return [
        entry.job.id,
        names.index(step.task) if len(names) > 1 and step.task in names else None,
        step.number,
        step.component,
        step.name,
        step.started_at,
        step.ended_at,
        step.running,
        step.exit_code,
        step.signal,
        step.cancelled,
        step.ntasks,
        step.cpus,
        len(step.nodes),
        compress(dict.fromkeys(filter(None, (hosts.get(index) for index in step.nodes)))),
        step.layout,
        step.command,
        step.host,
        step.pid,
    ]

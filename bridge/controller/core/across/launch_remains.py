"""What still runs of the lost launches of groups across: their next launch waits until all of it has ended.

Where one part of a launch is lost, the others are told to end and have their grace. When they have ended, their cluster
tells (adapters with `Traces`), so a new daemon knows it too. What the cluster itself has given up, such as a pod whose
node does not answer, is not waited for.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence

from overspan.adapters.abilities import Trace, Traces
from overspan.adapters.contract import Adapter
from overspan.bridge.controller.core.registry import JobEntry, Registry
from overspan.bridge.model.durations import format_timestamp
from overspan.bridge.model.job import Job

_MOST_NAMED = 3


class LaunchRemains:
    """The groups with a lost launch, by cluster, and what was seen of it there last."""

    def __init__(self, registry: Registry, installation: str) -> None:
        self._registry = registry
        self._installation = installation
        self._jobs: defaultdict[str, dict[int, tuple[str, ...]]] = defaultdict(dict)

    def note(self, entry: JobEntry, clusters: Collection[str]) -> None:
        """Note that parts of a group's lost launch may still run on these clusters."""
        for name in clusters:
            self._jobs[name].setdefault(entry.job.id, ())

    def list_jobs(self, cluster: str) -> frozenset[int]:
        """The groups whose lost launch may still run a part on a cluster."""
        return frozenset(self._jobs[cluster])

    def describe(self, job: Job, clusters: Collection[str]) -> str:
        """What a group's next launch waits for on its clusters, and since when; empty for nothing."""
        left = [
            f"{name}: {_name_objects(objects)}" if objects else name
            for name in clusters
            if (objects := self._jobs[name].get(job.id)) is not None
        ]
        if not left:
            return ""
        ends = [task.attempts[-1].ended_at or 0.0 for task in job.tasks if task.attempts]
        since = f", since {format_timestamp(max(ends))}" if any(ends) else ""
        return f"the launch before is being ended{since}, on {'; '.join(left)}"

    async def look(self, name: str, adapter: Adapter, jobs: Collection[int]) -> list[int]:
        """Ask a cluster that has been told to end these; gives the groups of which nothing runs there any more.

        Raises Unreachable.
        """
        if not jobs:
            return []
        traces = await adapter.find_traces() if isinstance(adapter, Traces) else []
        settled = []
        for number in jobs:
            objects = tuple(text for trace in traces if self._runs(trace, number) for text in trace.objects)
            if objects:
                self._jobs[name][number] = objects
            elif self._jobs[name].pop(number, None) is not None:
                settled.append(number)
        return settled

    def _runs(self, trace: Trace, number: int) -> bool:
        """Whether a launch before the job's present one runs something that its cluster has not given up."""
        entry = self._registry.get(number)
        return (
            entry is not None
            and (trace.installation, trace.job) == (self._installation, number)
            and (trace.launch < entry.job.launch or entry.job.over)
            and trace.running > len(trace.stuck)
        )


def _name_objects(objects: Sequence[str]) -> str:
    more = f" and {len(objects) - _MOST_NAMED} more" if len(objects) > _MOST_NAMED else ""
    return ", ".join(objects[:_MOST_NAMED]) + more

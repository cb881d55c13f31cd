"""Intake: a cluster whose queue is in memory accepts launches in the transaction that stores their jobs.

Elsewhere a job is stored first, with the submission that it owes; the dispatcher makes that, and stores the answer.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence

from overspan.adapters.abilities import LaunchIntake
from overspan.adapters.contract import Accepted, Launch
from overspan.bridge.controller.core.clusters import Cluster, Clusters
from overspan.bridge.controller.core.observation import follow_report
from overspan.bridge.controller.core.outbox import SUBMIT
from overspan.bridge.controller.core.recording import Recorder, stored_handle
from overspan.bridge.controller.core.unit_of_work import UnitOfWork
from overspan.bridge.lifecycle.failover import list_next
from overspan.bridge.model.errors import OverspanError
from overspan.bridge.model.job import Job
from overspan.bridge.store.records import OutboxRow

MakeLaunch = Callable[[str, Job, str], Launch]
"""The launch to send, of a token, a job and a cluster."""


class Intake:
    """Offers the launches of new jobs to their clusters before the jobs are stored."""

    def __init__(self, recorder: Recorder, clusters: Clusters, make_launch: MakeLaunch) -> None:
        self._recorder = recorder
        self._clusters = clusters
        self._make_launch = make_launch

    @contextlib.contextmanager
    def accept(self, units: Sequence[UnitOfWork]) -> Iterator[None]:
        """Have the units' launches accepted where that is possible; inside, their jobs are stored and published.

        An error there means that nothing was stored: the clusters forget the launches.
        """
        taken: list[tuple[Cluster, str]] = []
        for name in {unit.cluster for unit in units}:
            cluster = self._find(name)
            if cluster is not None:
                handles = self._offer(cluster, [unit for unit in units if unit.cluster == name])
                taken += [(cluster, handle) for handle in handles]
        storing = self._recorder.registry.storing
        storing.update(handle for _, handle in taken)
        try:
            yield
        except BaseException:
            for cluster, handle in taken:
                _intake_of(cluster).give_up(handle)
            raise
        finally:
            storing.difference_update(handle for _, handle in taken)

    def _find(self, name: str) -> Cluster | None:
        """The cluster, where it accepts launches from memory, and its place is stored."""
        cluster = self._clusters.find(name)
        if cluster is None or not cluster.opened or not cluster.traits.stateless or cluster.limited:
            return None
        settled = cluster.home == cluster.place and cluster.stale_since is None
        return cluster if settled and isinstance(cluster.open(), LaunchIntake) else None

    def _offer(self, cluster: Cluster, units: Sequence[UnitOfWork]) -> list[str]:
        offers = [(unit, row) for unit in units for row in unit.add if row.kind == SUBMIT and _is_plain(unit, row)]
        try:
            launches = [self._make_launch(row.token, unit.job, cluster.name) for unit, row in offers]
            answers = _intake_of(cluster).take_in(launches) if launches else []
        except (OverspanError, OSError):
            # The dispatcher tries, and says, what is wrong.
            return []
        now, handles = self._recorder.clock(), []
        for (unit, row), answer in zip(offers, answers, strict=True):
            if isinstance(answer, Accepted):
                # What is refused stays owed: the dispatcher hears it again, and concludes.
                handles.append(answer.handle)
                unit.settle(row)
                unit.handle, unit.native_id, unit.cursor = stored_handle(unit, answer.handle), answer.native_id, ""
                if answer.report is not None:
                    follow_report(unit, answer.report, now, cluster.traits)
                self._recorder.completion.complete(unit, now)
        return handles


def _intake_of(cluster: Cluster) -> LaunchIntake:
    adapter = cluster.open()
    assert isinstance(adapter, LaunchIntake)
    return adapter


def _is_plain(unit: UnitOfWork, row: OutboxRow) -> bool:
    """Whether nothing is to be found out, or waited for, before the launch is sent."""
    job = unit.job
    if row.cluster != unit.cluster or row.payload["launch"] != job.launch:
        return False
    return not (job.held or job.stage or job.bids or job.racers or job.dependency.needs or list_next(job))

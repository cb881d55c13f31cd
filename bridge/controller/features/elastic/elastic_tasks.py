"""Keeps elastic tasks at the size that is wanted, and tells a group's members of each other.

What is wanted is a fact of the group, and each further member is a job that has joined it, so nothing is stored here: a
later daemon finds the same members and goes on. Only how many members came because there was room, and which ended by
themselves, is in memory, and found out again from the jobs.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from overspan.bridge.controller.core.clusters import Clusters
from overspan.bridge.controller.core.recording import Recorder
from overspan.bridge.controller.core.registry import JobEntry
from overspan.bridge.controller.core.unit_of_work import UnitOfWork, is_whole_cancel
from overspan.bridge.controller.features.elastic.member_jobs import make_member, name_partition
from overspan.bridge.controller.features.elastic.node_queries import NodeQueries
from overspan.bridge.controller.features.elastic.room import count_returned, count_room, list_free, waits_for_room
from overspan.bridge.controller.features.joined_jobs import BY as BY_GROUP
from overspan.bridge.controller.features.joined_jobs import JoinedJobs
from overspan.bridge.controller.orders.orders import place
from overspan.bridge.controller.submission.submitter import ParsedSubmission, Submitter
from overspan.bridge.lifecycle.members import (
    JoinedMember,
    elastic_of,
    list_peers,
    may_grow,
    plan_members,
    takes_members,
    wanted_size,
)
from overspan.bridge.model import events
from overspan.bridge.model.elastic import SCALED, Elastic, MemberOf, Peer
from overspan.bridge.model.errors import Conflict, OverspanError, StoreFailed, Unreachable
from overspan.bridge.model.job import Job
from overspan.bridge.model.names import one_line
from overspan.bridge.model.parts import place_task
from overspan.bridge.model.states import State
from overspan.bridge.readers.submission import JOB_FILE, Submission
from overspan.bridge.store.records import JobQuery

log = logging.getLogger(__name__)

BY = "scale"
MOST_WORDS = 300
"""Characters of a refusal that the timeline has."""
PAUSE = 0.05
"""Seconds for which changes of a group are collected: its members often change together."""
RETRY_SECONDS = 15.0
"""How long after a member could not be submitted that is tried again."""
LOOK_SECONDS = 5.0
"""How often it is looked for room, where room decides."""
DEMAND_SECONDS = 5.0
"""How long a job has waited before members that were added for room are given back to it."""


@dataclass
class _TaskWatch:
    """One elastic task: how many members it has beyond those wanted, since when there is room, and who gave up."""

    weighed: int
    """The last query of nodes whose answer counted, or that had begun before: each answer counts once."""
    extra: int = 0
    room_since: float | None = None
    given_up: set[int] = field(default_factory=set)


@dataclass
class _GroupWatch:
    """A group with elastic tasks, as its present launch is."""

    tasks: dict[str, _TaskWatch]
    granted_at: float | None
    trouble: str = ""
    """Why the last change could not be made, as the group's timeline has it."""
    silences: dict[str, str] = field(default_factory=dict)
    """Why clusters did not tell their nodes, as the group's timeline has it."""


class ElasticTasks:
    """The groups with elastic tasks."""

    def __init__(self, recorder: Recorder, clusters: Clusters, submitter: Submitter, joined: JoinedJobs) -> None:
        self.recorder = recorder
        self.clusters = clusters
        self.submitter = submitter
        self.joined = joined
        self.queries = NodeQueries(recorder)
        self._watches: dict[int, _GroupWatch] = {}
        self._locks: dict[int, asyncio.Lock] = {}
        """One coroutine at a time works on a group."""
        self._due: set[int] = set()
        self._loaded = False

    def start(self) -> None:
        """Go on with the groups of an earlier daemon."""
        self._loaded = True
        for entry in self.recorder.registry:
            if _is_elastic(entry.job) and not entry.job.over:
                self._wake(entry.job.id)

    def follow(self, before: Job | None, entry: JobEntry) -> None:
        """A job has changed: a group with elastic tasks, or a member of one."""
        job, member = entry.job, entry.job.spec.member
        if not self._loaded or not (member is not None or _is_elastic(job)):
            return
        if member is not None and job.over and before is not None and not before.over and not _was_sent_away(job):
            watch = self._watches.get(member.group)
            if watch is not None and member.task in watch.tasks:
                watch.tasks[member.task].given_up.add(member.index)
        self._wake(job.id if member is None else member.group)

    async def scale(self, job_id: int, task: str, size: int | None, by: str) -> None:
        """Set how many members a task is to have; None leaves that to its file, and to the room there is.

        Raises Conflict where the job has ended, or is about to.
        """

        def work(units: list[UnitOfWork]) -> None:
            now = self.recorder.clock()
            for unit in units:
                if unit.job.over or unit.job.ending is not None:
                    raise Conflict(f"job {job_id} is {unit.job.state.value}: its tasks have no more members")
                unit.advance(events.Scale(now, task, size, by))

        await self.recorder.change([job_id], work)
        watch = self._watches.get(job_id)
        if watch is not None:
            watch.tasks[task] = _TaskWatch(self.queries.count)
        await self._settle(job_id)

    def count(self, job_id: int, name: str) -> tuple[int, int]:
        """How many members a live group's task is to have, and how many it has, coming ones included."""
        entry = self.recorder.registry.get(job_id)
        if entry is None:
            return 0, 0
        watch = self._watches.get(job_id)
        extra = watch.tasks[name].extra if watch is not None and name in watch.tasks else 0
        joined = sum(not each.leaves for each in self._list_joined(job_id, name))
        return wanted_size(entry.job, name) + extra, entry.job.spec_of(name).num_nodes + joined

    def _count_further(self, entry: JobEntry) -> None:
        """Tell the listings how many further members are on nodes."""
        others = map(self.recorder.registry.get, self.joined.members(entry.job.id))
        members = [other.job.spec.member for other in others if other is not None and other.job.granted_at is not None]
        self.recorder.registry.count_further(entry, Counter(member.task for member in members if member is not None))

    # --- the loop -----------------------------------------------------------------------------------------------------

    def _wake(self, group: int) -> None:
        """Look at a group soon, once for all changes until then."""
        if group not in self._due:
            self._due.add(group)
            self.recorder.timers.set(f"members:{group}", self.recorder.clock() + PAUSE, lambda: self._begin(group))

    def _begin(self, group: int) -> None:
        self._due.discard(group)
        self.recorder.spawn(self._settle(group), f"members of group {group}")

    async def _settle(self, group: int) -> None:
        entry = self.recorder.registry.get(group)
        if entry is None or entry.job.over:
            self._watches.pop(group, None)
            self._locks.pop(group, None)
            self.recorder.timers.drop(f"elastic:{group}")
            return
        # Before anything that may have to wait for a cluster.
        self._count_further(entry)
        async with self._locks.setdefault(group, asyncio.Lock()):
            watch = await self._open(entry)
            try:
                await self._end_former(entry)
                for name in watch.tasks:
                    await self._resize(entry, name, watch.tasks[name])
                await self._tell(group)
                watch.trouble = ""
            except OverspanError as error:
                self._note_trouble(watch, group, error)
                return
        if any(self._is_watched(entry.job, name, watch.tasks[name]) for name in watch.tasks):
            self._look_again(group, LOOK_SECONDS)

    def _note_trouble(self, watch: _GroupWatch, group: int, error: OverspanError) -> None:
        """Try again later, and say why once: a member that its cluster refuses is refused again."""
        log.warning("members of group %d: %s; trying again", group, error)
        if str(error) != watch.trouble and not isinstance(error, (StoreFailed, Unreachable)):
            watch.trouble = str(error)
            self._say(group, f"its members are as they were: {one_line(error.message, MOST_WORDS)}")
        self._look_again(group, RETRY_SECONDS)

    def _look_again(self, group: int, seconds: float) -> None:
        self.recorder.timers.set(f"elastic:{group}", self.recorder.clock() + seconds, lambda: self._wake(group))

    async def _open(self, entry: JobEntry) -> _GroupWatch:
        """What is known of a group, found out again where its launch has begun anew."""
        job = entry.job
        watch = self._watches.get(job.id)
        if watch is not None and watch.granted_at == job.granted_at:
            return watch
        given_up = await self._find_given_up(entry) if watch is None else []
        watch = _GroupWatch({}, job.granted_at)
        for spec in job.spec.tasks:
            if spec.elastic is None:
                continue
            count = spec.num_nodes + sum(not each.leaves for each in self._list_joined(job.id, spec.name))
            extra = max(0, count - wanted_size(job, spec.name)) if may_grow(job, spec.name) else 0
            lost = {member.index for member in given_up if member.task == spec.name}
            watch.tasks[spec.name] = _TaskWatch(self.queries.count, extra, None, lost)
        self._watches[job.id] = watch
        return watch

    async def _find_given_up(self, entry: JobEntry) -> list[MemberOf]:
        """Members of the present launch that ended by themselves before this daemon came."""
        since = entry.job.granted_at
        if since is None:
            return []
        ids = tuple(await self.joined.list_joined(entry))
        stored = await self.recorder.repository.find(JobQuery(ids=ids)) if ids else []
        return [
            each.job.spec.member
            for each in stored
            if each.job.spec.member is not None
            and each.job.submitted_at >= since
            and _is_given_up(each.job, entry.job.task(each.job.spec.member.task).sized_at)
        ]

    # --- the number of members ----------------------------------------------------------------------------------------

    async def _end_former(self, entry: JobEntry) -> None:
        """End members of a launch that is no more: the group was put back, and its names lead elsewhere."""
        job = entry.job
        former = [
            number
            for number in self.joined.members(job.id)
            if (other := self.recorder.registry.get(number)) is not None
            and (member := other.job.spec.member) is not None
            and (member.launch != job.launch or job.granted_at is None)
            and self._find_leaver(other.job) is None
        ]
        await self._end(former)

    async def _resize(self, entry: JobEntry, name: str, watch: _TaskWatch) -> None:
        """Add members that are missing, and end those that are too many."""
        job = entry.job
        elastic = elastic_of(job, name)
        if elastic is None or job.granted_at is None or job.ending is not None:
            return
        self._weigh(entry, name, watch, elastic)
        target = min(elastic.most, wanted_size(job, name) + watch.extra)
        changes = plan_members(elastic, target, self._list_joined(job.id, name), self._list_lost(job.id, name, watch))
        await self._end(changes.ended)
        if takes_members(job, name):
            # None is left under way when this ends: its number would be given twice.
            added = (self._add(entry, name, index) for index in changes.added)
            failed = [error for error in await asyncio.gather(*added, return_exceptions=True) if error is not None]
            if failed:
                raise failed[0]

    def _list_entries(self, group: int, name: str) -> list[tuple[JobEntry, MemberOf]]:
        """The live jobs of a task's further members."""
        entries = [self.recorder.registry.get(number) for number in self.joined.members(group)]
        found = [(entry, entry.job.spec.member) for entry in entries if entry is not None]
        return [(entry, member) for entry, member in found if member is not None and member.task == name]

    def _list_joined(self, group: int, name: str) -> list[JoinedMember]:
        return [
            JoinedMember(entry.job.id, member.index, self._find_leaver(entry.job) is not None)
            for entry, member in self._list_entries(group, name)
        ]

    def _list_lost(self, group: int, name: str, watch: _TaskWatch) -> set[int]:
        """The numbers of members that ended by themselves, and of those that an order or another rule is ending."""
        ours = (None, BY, BY_GROUP)
        entries = self._list_entries(group, name)
        return watch.given_up | {member.index for entry, member in entries if self._find_leaver(entry.job) not in ours}

    def _find_leaver(self, job: Job) -> str | None:
        """Who ends a member, by decision or by an order that is under way; None for one that stays."""
        if job.ending is not None and not job.ending.requeues:
            return job.ending.by
        cancels = (row for row in self.recorder.outbox.of_job(job.id) if is_whole_cancel(row))
        return next((str(row.payload["event"].get("by", "")) for row in cancels), None)

    async def _add(self, entry: JobEntry, name: str, index: int) -> None:
        """Submit the job of a further member."""
        group = entry.job
        origin = group.spec.origin
        spec = make_member(group, entry.cluster, name, index, list_peers(group))
        submission = Submission(
            JOB_FILE, origin.text, origin.file, directory=origin.directory or "/", user=entry.user, uid=origin.uid
        )
        done = await self.submitter.take(ParsedSubmission(spec), submission)
        self._say(group.id, f"{name}-{index} is job {done.id}")

    async def _end(self, members: Sequence[int]) -> None:
        """Have members go: with a notice where they run."""
        if not members:
            return

        def work(units: list[UnitOfWork]) -> None:
            now = self.recorder.clock()
            for unit in units:
                started = unit.job.granted_at is not None
                event = events.Cancel(now, by=BY, done=SCALED if started else "", delayed=started)
                try:
                    place(unit, event, now)
                except Conflict:
                    continue

        await self.recorder.change(members, work)

    # --- room ---------------------------------------------------------------------------------------------------------

    def _weigh(self, entry: JobEntry, name: str, watch: _TaskWatch, elastic: Elastic) -> None:
        """Take members where there has been room for a while, and give them back where other jobs wait."""
        job = entry.job
        if not self._is_watched(job, name, watch):
            return
        cluster = self.clusters.find(place_task(job, name, entry.cluster))
        if cluster is None or cluster.stale_since is not None:
            return
        waiting = self._find_waiting(entry, cluster.name, self.recorder.clock())
        if waiting is None and watch.extra + wanted_size(job, name) >= elastic.most:
            return
        query = self.queries.ask(cluster, job.id, lambda: self._begin(job.id))
        self._note_silence(job.id, cluster.name, query.trouble)
        if query.number <= watch.weighed:
            return
        watch.weighed = query.number
        free = list_free(query.nodes, name_partition(job))
        if waiting is None:
            self._take(job, name, watch, count_room(free, job.spec_of(name).resources.needs()), query.asked_at)
        else:
            need = job.spec_of(name).resources.needs()[0]
            self._give_back(job, name, watch, count_returned(free, waiting, need, cluster.name))

    def _take(self, job: Job, name: str, watch: _TaskWatch, fitting: int, at: float) -> None:
        """Take what fits, where it has fitted for a while."""
        elastic, since = job.spec_of(name).elastic, watch.room_since
        if not fitting or elastic is None:
            watch.room_since = None
        elif since is None:
            watch.room_since = at
        elif at - since >= (elastic.scale_up_after or 0.0):
            watch.extra = min(watch.extra + fitting, elastic.most - wanted_size(job, name))
            watch.room_since = None

    def _give_back(self, job: Job, name: str, watch: _TaskWatch, short: int) -> None:
        """Give back what a job that waits is short of, less what members that are ending will leave to it."""
        leaving = sum(each.leaves for each in self._list_joined(job.id, name))
        watch.room_since = None
        watch.extra = max(0, watch.extra - max(0, short - leaving))

    def _note_silence(self, group: int, cluster: str, why: str) -> None:
        """Say once why a cluster does not tell its nodes; one that does not answer at all is shown as stale."""
        watch = self._watches.get(group)
        if watch is None or watch.silences.get(cluster, "") == why:
            return
        watch.silences[cluster] = why
        if why:
            self._say(group, f"room for more members on {cluster} is not known: {one_line(why, MOST_WORDS)}")

    def _is_watched(self, job: Job, name: str, watch: _TaskWatch) -> bool:
        """Whether room decides about the task's size."""
        elastic = job.spec_of(name).elastic
        return (
            elastic is not None and may_grow(job, name) and (watch.extra > 0 or wanted_size(job, name) < elastic.most)
        )

    def _find_waiting(self, entry: JobEntry, cluster: str, now: float) -> Job | None:
        """A job that has waited for a while for room on a cluster of the group."""
        for other in self.recorder.registry:
            job, member = other.job, other.job.spec.member
            own = member is not None and member.group == entry.job.id
            since = max(job.submitted_at, job.begin or 0.0)
            here = not own and waits_for_room(job, other.cluster, cluster)
            if here and now - since >= DEMAND_SECONDS:
                return job
        return None

    # --- who is there -------------------------------------------------------------------------------------------------

    async def _tell(self, group: int) -> None:
        """Tell the launches of a group, and of its further members, which members there are."""
        members = [number for number in self.joined.members(group) if self._is_member(number)]

        def work(units: list[UnitOfWork]) -> None:
            now = self.recorder.clock()
            known = {unit.job.id: unit for unit in units}
            head = known.get(group)
            if head is None:
                return
            peers = _gather(unit.job for unit in units)
            rows = tuple((peer.task, peer.index, peer.node, peer.address, peer.state) for peer in peers)
            generation = head.job.generation if peers == head.job.peers else head.job.generation + 1
            for unit in units:
                job = unit.job
                if unit.launched and job.granted_at is not None and not job.over and job.generation < generation:
                    tell_peers(unit, events.SetPeers(now, generation, rows), now)

        await self.recorder.change([group, *members], work)

    def _is_member(self, number: int) -> bool:
        entry = self.recorder.registry.get(number)
        return entry is not None and entry.job.spec.member is not None

    def _say(self, group: int, text: str) -> None:
        """Put a line into the group's timeline."""

        def work(units: list[UnitOfWork]) -> None:
            for unit in units:
                unit.amend(self.recorder.clock(), unit.job, text)

        self.recorder.spawn(self.recorder.change([group], work), f"the timeline of job {group}")


def tell_peers(unit: UnitOfWork, event: events.SetPeers, now: float) -> None:
    """Put a list of members into the facts and owe it to the launch, in place of an earlier one that is still owed."""
    if not unit.advance(event):
        return
    for row in unit.owed_orders(events.SetPeers):
        unit.settle(row)
    unit.pass_on(now, event)


def _gather(jobs: Iterable[Job]) -> tuple[Peer, ...]:
    """All members that have a place, in the order of their names."""
    return tuple(sorted((peer for job in jobs for peer in list_peers(job)), key=lambda peer: (peer.task, peer.index)))


def _is_elastic(job: Job) -> bool:
    return job.spec.member is None and job.spec.changes_size


def _is_given_up(job: Job, sized_at: float | None) -> bool:
    """Whether a member has ended by itself since the size of its task was last set."""
    return job.ended_at is not None and job.ended_at > (sized_at or 0.0) and not _was_sent_away(job)


def _was_sent_away(job: Job) -> bool:
    """Whether a member that has ended is missed: this feature, its group, or the cluster ended it."""
    if job.state is State.PREEMPTED or job.reason == SCALED:
        return True
    return job.ending is not None and job.ending.by in (BY, BY_GROUP)

"""The lab as a source: the methods of the daemon's client, answered by the simulation."""

from __future__ import annotations

import os
import pwd
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from overspan.bridge.client.messages import (
    Accepted,
    Cancelled,
    CancelOrder,
    FoundLine,
    LogFinds,
    LogPart,
    LogSearch,
    SentForm,
    Stream,
    StreamKey,
    Transition,
    Variable,
)
from overspan.bridge.client.records import JobFilter, Listing, QueueChanges
from overspan.bridge.listings.rows import JobRow
from overspan.bridge.model.errors import Conflict, NotFound
from overspan.bridge.model.log_matching import find_lines, make_matcher
from overspan.tui.demo.documents import describe_demo_job, make_history_rows, make_rows, make_transitions
from overspan.tui.demo.evaluations import describe_demo_watch, evaluate_again, sum_up_demo_watch
from overspan.tui.demo.lab import KEPT_SECONDS, DemoLab
from overspan.tui.demo.logs import LabLogs
from overspan.tui.demo.machines import CLUSTERS, DemoCluster, list_machines
from overspan.tui.demo.orders import LabOrders
from overspan.tui.demo.pools import DemoPools
from overspan.tui.demo.records import ME, DemoJob
from overspan.tui.demo.scenario import SEED, open_lab
from overspan.tui.demo.schedules import DemoSchedule, make_schedules
from overspan.tui.demo.sent import list_demo_variables, make_sent_form

LOOK_SECONDS = 0.2
"""How often a long poll looks at the clock."""
ANY = JobFilter()
NO_CHANGES: Mapping[str, str] = {}
Clock = Callable[[], float]
T = TypeVar("T")


class DemoSource:
    """One lab for all threads of an application; its time is the clock's. Its methods are the client's."""

    autostart = False
    timeout = 60.0
    """As the client has it; there is nothing to start."""

    def __init__(self, clock: Clock = time.time, seed: int = SEED, me: str = ME) -> None:
        self._clock = clock
        self._lock = threading.RLock()
        self._lab = open_lab(clock(), seed, me)
        self._orders = LabOrders(self._lab, me)
        self._logs = LabLogs(self._lab)
        self._schedules = make_schedules()
        self._pools = DemoPools(self._lab.begun_at)

    def __call__(self) -> DemoSource:
        """Open it, for a thread."""
        return self

    def close(self) -> None:
        """As the client; the lab goes on for the other threads."""

    def look(self) -> DemoLab:
        """The lab at this moment."""
        self._lab.advance(self._clock())
        for schedule in self._schedules:
            due = schedule.find_next(schedule.last_run_at or self._lab.now)
            if due is not None and due <= self._lab.now:
                self._run(schedule)
            elif schedule.last_run_at is None:
                schedule.last_run_at = (due or self._lab.now) - schedule.period
        return self._lab

    # --- looking ------------------------------------------------------------------------------------------------------

    def queue_changes(self, version: str = "", wanted: JobFilter = ANY, wait: float = 0) -> QueueChanges:
        """As the client; a wait ends with a change."""
        held = int(version) if version.isdecimal() else -1
        end = time.monotonic() + wait
        while True:
            with self._lock:
                lab = self.look()
                if lab.revision != held or time.monotonic() >= end:
                    return self._make_changes(lab, held, wanted)
            time.sleep(min(LOOK_SECONDS, max(0.0, end - time.monotonic())))

    def _make_changes(self, lab: DemoLab, held: int, wanted: JobFilter) -> QueueChanges:
        whole = not 0 <= held <= lab.revision
        changed = list(lab.jobs) if whole else [job for job, revision in lab.revisions.items() if revision > held]
        rows = [
            row
            for number in changed
            for row in self._list_rows(lab.jobs[number], lab.now)
            if _fits(row, wanted, lab.now)
        ]
        return QueueChanges(lab.now, str(lab.revision), whole, () if whole else tuple(changed), rows)

    @staticmethod
    def _list_rows(job: DemoJob, now: float) -> list[JobRow]:
        gone = job.ended_at is not None and job.ended_at <= now - KEPT_SECONDS
        return [] if gone else make_rows(job)

    def history(self, wanted: JobFilter = ANY) -> Listing:
        """As the client: jobs of any age, newest last."""
        with self._lock:
            lab = self.look()
            rows = [row for job in lab.jobs.values() for row in make_history_rows(job)]
            rows = [row for row in rows if _fits(row, wanted, lab.now) and _overlaps(row, wanted)]
            rows.sort(key=lambda row: (row.array_id or row.id, row.array_index or 0, row.id))
            return Listing(lab.now, rows[-wanted.limit :] if wanted.limit else rows)

    def show(self, ref: str) -> dict[str, Any]:
        with self._lock:
            lab = self.look()
            return describe_demo_job(self._orders.find(ref)[0], lab.now)

    def script(self, ref: str) -> str:
        with self._lock:
            return self._orders.find(ref)[0].wish.text

    def sent(self, ref: str) -> SentForm:
        with self._lock:
            self.look()
            return make_sent_form(self._orders.find(ref)[0])

    def variables(self, ref: str) -> list[Variable]:
        with self._lock:
            return list_demo_variables(self._orders.find(ref)[0])

    def timeline(self, ref: str) -> list[Transition]:
        with self._lock:
            self.look()
            job, task = self._orders.find(ref)
            return make_transitions(job, task.wish.name if task is not None else "")

    def streams(self, ref: str, times: bool = False) -> list[Stream]:
        with self._lock:
            self.look()
            job, task = self._orders.find(ref)
            return self._logs.list(job, task.wish.name if task else "", times)

    def log_part(self, ref: str, key: StreamKey, offset: int = 0, limit: int = 1 << 20) -> LogPart:
        with self._lock:
            self.look()
            job, task = self._orders.find(ref)
            if task is not None and not key.task:
                key = key._replace(task=task.wish.name)
            return self._logs.read(job, key, offset, limit)

    def nodes(self, clusters: Sequence[str] = ()) -> dict[str, Any]:
        with self._lock:
            lab = self.look()
            chosen = [cluster.name for cluster in CLUSTERS if not clusters or cluster.name in clusters]
            rows = [row for row in _describe_nodes(lab) if row["cluster"] in chosen]
            answers = [{"name": name, "message": ""} for name in chosen]
            return {"format": 1, "now": lab.now, "clusters": answers, "nodes": rows}

    def search_log(self, ref: str, key: StreamKey, wanted: LogSearch) -> LogFinds:
        """As the client; all of it in one go."""
        part = self.log_part(ref, key, 0, 1 << 30)
        end = part.size if wanted.end is None else min(wanted.end, part.size)
        begin = min(max(0, wanted.begin), end)
        lines = list(find_lines(part.data[begin:end], begin, make_matcher(wanted.pattern, wanted.invert)))
        found = [FoundLine(*line) for line in lines[::-1][: wanted.limit]]
        return LogFinds(found, begin if len(lines) <= wanted.limit else found[-1].begin, end, part.size, path=part.path)

    def clusters(self) -> list[dict[str, Any]]:
        with self._lock:
            jobs = self.look().jobs.values()
            return [
                {
                    "name": cluster.name,
                    "kind": cluster.kind,
                    "default": cluster.default,
                    "state": "up",
                    "since": None,
                    "message": "",
                    "answered_at": self.look().now - 2.0,
                    "answer_seconds": 0.04,
                    "calls_left": "57 of 60 a minute" if cluster.kind == "slurm" else "",
                    "traits": ["own_queue" if cluster.kind == "slurm" else "captures_logs"],
                    "jobs": sum(job.wish.cluster == cluster.name and not job.over for job in jobs),
                }
                for cluster in CLUSTERS
            ]

    def check(self, cluster: str) -> list[dict[str, Any]]:
        """As the client: everything works, except what a machine that is away says."""
        with self._lock:
            known = self._find_cluster(cluster)
            away = [f"{machine.name}: {machine.reason}" for machine in list_machines() if machine.state]
            seen = [text for text in away if text.startswith(tuple(place.prefix for place in known.partitions))]
            contact = {"what": "contact", "works": True, "seen": f"{known.kind}, answered in 0.04 s", "remedy": ""}
            machines = {
                "what": "nodes",
                "works": not seen,
                "seen": "; ".join(seen) or "all take jobs",
                "remedy": "ask an operator" if seen else "",
            }
            return [contact, machines]

    def login(self, cluster: str) -> dict[str, Any]:
        """As the client: a simulated lab needs no login."""
        name = self._find_cluster(cluster).name
        return {"format": 1, "message": f"{name} needs no login", "words": [], "check": []}

    def shell(self, ref: str, task: str = "", node: int = 0) -> dict[str, Any]:
        """As the client, which has nothing to enter here."""
        with self._lock:
            job = self._orders.find(ref)[0]
            raise Conflict(f"job {job.id} is simulated", remedy="`span top` without --demo opens shells")

    @staticmethod
    def _find_cluster(name: str) -> DemoCluster:
        found = next((cluster for cluster in CLUSTERS if cluster.name == name), None)
        if found is None:
            known = ", ".join(cluster.name for cluster in CLUSTERS)
            raise NotFound(f"there is no cluster {name}", remedy=f"there are {known}")
        return found

    def ping(self) -> dict[str, Any]:
        import overspan

        return {
            "format": 1,
            "version": overspan.__version__,
            "pid": 0,
            "host": "demo",
            "state_dir": "",
            "since": self._lab.begun_at,
            "clusters": len(CLUSTERS),
            "problems": [],
            "formats": [1],
        }

    def pools(self, name: str = "") -> list[dict[str, Any]]:
        with self._lock:
            return self._pools.describe(self.look().now, name)

    def schedules(self) -> list[dict[str, Any]]:
        with self._lock:
            lab = self.look()
            states = {number: job.state for number, job in lab.jobs.items()}
            return [each.describe(lab.now, states.get(each.last_job or 0, "")) for each in self._schedules]

    def watches(self) -> list[dict[str, Any]]:
        with self._lock:
            return [sum_up_demo_watch(watch) for watch in reversed(self.look().watches)]

    def evals(self, ref: str) -> list[dict[str, Any]]:
        with self._lock:
            lab = self.look()
            job = self._orders.find(ref)[0]
            return [describe_demo_watch(watch) for watch in lab.watches if watch.job is job]

    # --- orders -------------------------------------------------------------------------------------------------------

    def cancel(self, order: CancelOrder) -> Cancelled:
        return self._order(lambda: self._orders.cancel(order))

    def hold(self, ref: str) -> None:
        self._order(lambda: self._orders.hold(ref))

    def release(self, ref: str) -> None:
        self._order(lambda: self._orders.release(ref))

    def requeue(self, ref: str, hold: bool = False) -> None:
        self._order(lambda: self._orders.requeue(ref, hold))

    def suspend(self, ref: str) -> None:
        self._order(lambda: self._orders.suspend(ref))

    def resume(self, ref: str) -> None:
        self._order(lambda: self._orders.resume(ref))

    def top(self, ref: str) -> None:
        self._order(lambda: self._orders.top(ref))

    def restart(self, ref: str, task: str = "") -> None:
        self._order(lambda: self._orders.restart(ref, task))

    def scale(self, ref: str, task: str, size: int | None) -> dict[str, Any]:
        return self._order(lambda: self._orders.scale(ref, task, size))

    def resubmit_values(self, ref: str) -> dict[str, str]:
        return self._order(lambda: self._orders.list_values(ref))

    def resubmit(self, ref: str, failed: bool = False, changes: Mapping[str, str] = NO_CHANGES) -> Accepted:
        job = self._order(lambda: self._orders.resubmit(ref, failed, changes))
        numbers = tuple(str(job.id + offset) for offset in range(len(job.tasks)))
        return Accepted(job.id, numbers, job.name, job.wish.cluster)

    def update(self, ref: str, changes: Mapping[str, Any]) -> None:
        self._order(lambda: self._orders.update(ref, changes))

    def run_evaluation(self, ref: str, checkpoint: str, evaluation: str = "") -> list[dict[str, Any]]:
        return self._order(lambda: evaluate_again(self._lab, self._orders.find(ref)[0], checkpoint, evaluation))

    def pause_schedule(self, schedule_id: int) -> None:
        self._order(lambda: self._find_schedule(schedule_id).pause(True))

    def resume_schedule(self, schedule_id: int) -> None:
        self._order(lambda: self._find_schedule(schedule_id).pause(False))

    def run_schedule(self, schedule_id: int) -> int:
        return self._order(lambda: self._run(self._find_schedule(schedule_id)))

    def delete_schedule(self, schedule_id: int) -> None:
        self._order(lambda: self._schedules.remove(self._find_schedule(schedule_id)))

    def drain_pool(self, name: str, workers: Sequence[int] = ()) -> dict[str, Any]:
        self._order(lambda: self._pools.drain(name, tuple(workers)))
        return self.pools(name)[0]

    def _find_schedule(self, schedule_id: int) -> DemoSchedule:
        found = next((each for each in self._schedules if each.id == schedule_id), None)
        if found is None:
            raise NotFound(f"there is no schedule c{schedule_id}", remedy="`span cron list` lists them")
        return found

    def _run(self, schedule: DemoSchedule) -> int:
        job = self._lab.submit(schedule.make_wish(), schedule.id)
        schedule.runs, schedule.last_job, schedule.last_run_at = schedule.runs + 1, job.id, self._lab.now
        return job.id

    def _order(self, give: Callable[[], T]) -> T:
        with self._lock:
            self.look()
            return give()


def open_demo() -> DemoSource:
    """The lab with the user of this process in it."""
    try:
        me = pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        me = ME
    return DemoSource(me=me)


def _fits(row: JobRow, wanted: JobFilter, now: float) -> bool:
    """Whether a listing asks for the row."""
    ids = (str(row.id), str(row.array_id), str(row.raw_id), row.ref, f"{row.id}+{row.task_offset}")
    lately = wanted.finished_within is None or row.ended_at is None or row.ended_at > now - wanted.finished_within
    return lately and all(
        not asked or any(value in asked for value in values)
        for asked, values in (
            (wanted.states, (row.state, "all")),
            (wanted.users, (row.user,)),
            (wanted.ids, ids),
            (wanted.names, (row.name, row.group)),
            (wanted.partitions, (row.partition,)),
            (wanted.clusters, (row.cluster,)),
            (wanted.accounts, (row.account,)),
            (wanted.qos, (row.qos,)),
        )
    )


def _overlaps(row: JobRow, wanted: JobFilter) -> bool:
    """Whether the job was there in the time that is asked for."""
    begun = wanted.until is None or (row.submitted_at or 0) <= wanted.until
    return begun and (wanted.since is None or row.ended_at is None or row.ended_at >= wanted.since)


def _describe_nodes(lab: DemoLab) -> list[dict[str, Any]]:
    rows = []
    for usage in lab.capacity.usages.values():
        machine, place = usage.machine, usage.machine.partition
        busy = "allocated" if usage.cpus >= place.cpus or usage.gpus >= place.gpus > 0 else "mixed"
        rows.append(
            {
                "cluster": place.cluster,
                "name": machine.name,
                "partition": place.name,
                "state": machine.state or (busy if usage.cpus else "idle"),
                "cpus": place.cpus,
                "cpus_used": usage.cpus,
                "memory": place.memory,
                "memory_used": usage.memory,
                "gpus": place.gpus,
                "gpus_used": usage.gpus,
                "gpu_kind": place.gpu_kind,
                "reason": machine.reason,
                "default": place.default,
                "time_limit": place.limit,
            }
        )
    return rows

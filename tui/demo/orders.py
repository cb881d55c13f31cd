"""Orders in the simulated lab: each changes it, or is refused in the daemon's words."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from overspan.bridge.client.messages import Cancelled, CancelOrder, FailedOrder
from overspan.bridge.model.errors import Conflict, InvalidRequest, NotFound, OverspanError
from overspan.bridge.model.slurm.words import ALREADY_ENDED, NOT_PENDING
from overspan.tui.demo.lab import DemoLab
from overspan.tui.demo.machines import CLUSTERS
from overspan.tui.demo.records import DemoJob, DemoTask, Life
from overspan.tui.demo.resubmission import change_wish, list_demo_values

_TOP = 100
_NOTHING: Mapping[str, str] = {}


class LabOrders:
    """What users can do; `me` is who does it. In the demonstration `me` may give orders to all users' jobs."""

    def __init__(self, lab: DemoLab, me: str) -> None:
        self._lab = lab
        self._me = me

    def find(self, ref: str) -> tuple[DemoJob, DemoTask | None]:
        """The job, element or task that `N`, `N_i`, `N+k`, `N.task` or `CLUSTER:N` names. Raises NotFound."""
        text = ref.rpartition(":")[2]
        number, _, index = text.partition("_")
        head, _, offset = number.partition("+")
        head, _, name = head.partition(".")
        job = self._lab.jobs.get(int(head)) if head.isdecimal() else None
        if job is None:
            job = next((each for each in self._lab.jobs.values() if _holds(each, head)), None)
            offset = offset or (str(int(head) - job.id) if job is not None else "")
        if job is None:
            raise NotFound(f"no job {ref}", remedy="`span squeue` and `span sacct` list the jobs")
        if index and not index.startswith("["):
            return self._find_element(job, int(index)), None
        task = next((each for each in job.tasks if each.wish.name == name), None) if name else None
        if offset and offset.isdecimal() and int(offset) < len(job.tasks) > 1:
            task = job.tasks[int(offset)]
        return job, task

    def _find_element(self, array: DemoJob, index: int) -> DemoJob:
        found = next((each for each in self._lab.list_elements(array) if each.array_index == index), None)
        if found is None:
            raise NotFound(f"{array.id}_{index} waits, so it is no job of its own yet", remedy=f"name {array.id}")
        return found

    def cancel(self, order: CancelOrder) -> Cancelled:
        """End jobs, or send them a signal."""
        done: list[str] = []
        errors: list[FailedOrder] = []
        for ref in order.refs or self._list_matching(order):
            try:
                self._cancel_one(ref, order)
                done.append(ref)
            except OverspanError as error:
                errors.append(FailedOrder(ref, error.code, error.message, error.remedy))
        return Cancelled(tuple(done), tuple(errors))

    def _list_matching(self, order: CancelOrder) -> list[str]:
        asked = order.filter
        return [
            str(job.id)
            for job in self._lab.jobs.values()
            if not job.over
            and (not asked.states or job.state in asked.states)
            and (not asked.users or job.wish.user in asked.users)
            and (not asked.names or job.name in asked.names)
            and (not asked.partitions or job.partition in asked.partitions)
            and (not asked.clusters or job.wish.cluster in asked.clusters)
        ]

    def _cancel_one(self, ref: str, order: CancelOrder) -> None:
        job, _ = self.find(ref)
        if job.over or job.state == "COMPLETING":
            raise Conflict(f"job {ref}: {ALREADY_ENDED}")
        signal = order.signal.removeprefix("SIG")
        if signal and signal not in ("KILL", "TERM", "INT", "9", "15", "2"):
            self._lab.note_order(job, f"Signal {signal}", self._me)
            return
        self._lab.end_job(job, "cancel", self._me)

    def hold(self, ref: str) -> None:
        """Keep a pending job from starting."""
        job = self._find_waiting(ref, "only a waiting job can be held")
        job.held = True
        self._lab.note_order(job, "Hold", self._me)
        self._lab.schedule(job.wish.cluster)

    def release(self, ref: str) -> None:
        """End a hold."""
        job, _ = self.find(ref)
        if not job.held:
            raise Conflict(f"job {ref} is not held")
        job.held = False
        self._lab.note_order(job, "Release", self._me)
        self._lab.schedule(job.wish.cluster)

    def requeue(self, ref: str, hold: bool = False) -> None:
        """End what runs, and wait again."""
        job, _ = self.find(ref)
        if job.state == "PENDING" or job.is_array:
            raise Conflict(f"job {ref}: Job is pending execution")
        for task in job.tasks:
            self._lab.stop_task(job, task, "requeue")
            task.state, task.reason, task.ended_at = "PENDING", "None", None
        job.epoch += 1
        job.restarts += 1
        job.held = hold
        job.started_at = job.ended_at = job.suspended_at = None
        job.suspended, job.exit_code, job.signal = 0.0, 0, 0
        self._lab.move_job(job, "PENDING", "Requeue", f"requeue by {self._me}")
        self._lab.schedule(job.wish.cluster)

    def suspend(self, ref: str) -> None:
        """Stop what runs, in place."""
        job = self._find_in(ref, "RUNNING", "suspend")
        self._lab.suspend_job(job, self._me)

    def resume(self, ref: str) -> None:
        """Let it go on."""
        job = self._find_in(ref, "SUSPENDED", "resume")
        self._lab.resume_job(job, self._me)

    def top(self, ref: str) -> None:
        """Put a pending job before the user's other ones."""
        job = self._find_waiting(ref, "it has started")
        mine = [each for each in self._lab.jobs.values() if each.wish.user == job.wish.user and each.state == "PENDING"]
        job.priority = max(each.priority for each in mine) + _TOP
        self._lab.note_order(job, "Top", self._me)
        self._lab.schedule(job.wish.cluster)

    def restart(self, ref: str, task: str = "") -> None:
        """Start one task again in place, or all."""
        job, named = self.find(ref)
        if task and all(each.wish.name != task for each in job.tasks):
            raise Conflict(f"job {job.id} has no task {task!r}")
        if job.state != "RUNNING":
            raise Conflict(f"job {ref} is {job.state}, so restart does not apply")
        self._lab.note_order(job, "Restart", self._me)
        for each in job.tasks:
            wanted = each is named if named is not None and not task else task in ("", each.wish.name)
            if wanted and each.current is not None and each.current.live:
                self._lab.end_attempt(job, each, each.current, Life(end="restart", signal=15), again=True)
                self._lab.launch_again(job, each)

    def scale(self, ref: str, task: str, size: int | None) -> dict[str, Any]:
        """Change how many members an elastic task has; None: as many as in its file."""
        job, named = self.find(ref)
        name = task or (named.wish.name if named is not None else "")
        found = next((each for each in job.tasks if each.wish.name == name), None)
        if found is None:
            known = ", ".join(each.wish.name for each in job.tasks)
            raise NotFound(f"job {job.id} has no task {name!r}", remedy=f"its tasks: {known}")
        least, most = found.wish.nodes, found.wish.most
        if not most:
            there = "write `elastic: {min: 1, max: 8}` in its file"
            raise InvalidRequest(f"{name} is not elastic: its size is part of job {job.id}", remedy=there)
        wanted = least if size is None else size
        if not least <= wanted <= most:
            bounds = f"{least} to {most}"
            raise InvalidRequest(f"{name} has {bounds} members, and {wanted} is asked for", remedy=f"name {bounds}")
        if job.state != "RUNNING":
            raise Conflict(f"job {job.id} is {job.state}: its tasks have no more members")
        resize(self._lab, job, found, wanted, self._me)
        return {"task": name, "wanted": wanted, "present": least + len(found.staying)}

    def resubmit(self, ref: str, failed: bool = False, changes: Mapping[str, str] = _NOTHING) -> DemoJob:
        """The same again with changes, as a new job; of an array, with `failed`, only the elements that failed."""
        job, _ = self.find(ref)
        wish = change_wish(job.wish._replace(held=False, after=None, blocked="", blocked_for=0.0), changes)
        if failed and job.is_array:
            lost = [each for each in self._lab.list_elements(job) if each.over and each.state != "COMPLETED"]
            if not lost:
                raise Conflict(f"no element of {ref} has failed")
            wish = wish._replace(array=tuple(sorted(each.array_index or 0 for each in lost)))
        return self._lab.submit(wish)

    def list_values(self, ref: str) -> dict[str, str]:
        """What a resubmission may change."""
        return list_demo_values(self.find(ref)[0])

    def update(self, ref: str, changes: Mapping[str, Any]) -> None:
        """Change limits and labels."""
        job, task = self.find(ref)
        if job.over:
            raise Conflict(f"job {ref}: {ALREADY_ENDED}")
        for key, value in changes.items():
            change = _CHANGES.get(key)
            if change is None:
                raise InvalidRequest(f"a job has nothing called {key!r}", remedy=f"it has {', '.join(_CHANGES)}")
            if key in _WAITING_ONLY and job.state != "PENDING":
                raise Conflict(f"job {ref}: {NOT_PENDING}", remedy="only a waiting job can move")
            if key == "partition" and value not in _list_partitions(job.wish.cluster):
                raise InvalidRequest("Invalid partition name specified")
            change(job, task, value)
        self._lab.note_order(job, "Update", self._me)
        self._lab.replan(job)

    def _find_waiting(self, ref: str, remedy: str) -> DemoJob:
        job, _ = self.find(ref)
        if job.over:
            raise Conflict(f"job {ref}: {ALREADY_ENDED}")
        if job.state != "PENDING":
            raise Conflict(f"job {ref}: {NOT_PENDING}", remedy=remedy)
        return job

    def _find_in(self, ref: str, state: str, order: str) -> DemoJob:
        job, _ = self.find(ref)
        if job.state != state:
            raise Conflict(f"job {ref} is {job.state}, so {order} does not apply")
        return job


def _holds(job: DemoJob, number: str) -> bool:
    """Whether the id is of one of the job's later tasks."""
    return number.isdecimal() and job.id < int(number) < job.id + len(job.tasks)


def _list_partitions(cluster: str) -> list[str]:
    return [place.name for known in CLUSTERS if known.name == cluster for place in known.partitions]


def _set_limit(job: DemoJob, task: DemoTask | None, seconds: int | None) -> None:
    for each in [task] if task is not None else job.tasks:
        each.limit = seconds


def _setter(name: str) -> Callable[[DemoJob, DemoTask | None, Any], None]:
    return lambda job, task, value: setattr(job, name, value)


def _wish_setter(name: str) -> Callable[[DemoJob, DemoTask | None, Any], None]:
    return lambda job, task, value: setattr(job, "wish", job.wish._replace(**{name: value}))


def _ignore(job: DemoJob, task: DemoTask | None, value: Any) -> None:
    """Taken, and without an effect that shows."""


_CHANGES: dict[str, Callable[[DemoJob, DemoTask | None, Any], None]] = {
    "time_limit": _set_limit,
    "priority": _setter("priority"),
    "nice": _setter("nice"),
    "begin": _setter("begin"),
    "throttle": _setter("throttle"),
    "comment": _setter("comment"),
    "name": _setter("name"),
    "partition": _setter("partition"),
    "account": _wish_setter("account"),
    "qos": _wish_setter("qos"),
    "dependency": _ignore,
}
_WAITING_ONLY = frozenset({"begin", "partition", "account", "qos"})


def resize(lab: DemoLab, group: DemoJob, task: DemoTask, size: int, by: str) -> None:
    """Bring an elastic task to so many members: the lowest free numbers come, the highest go."""
    staying, further = task.staying, size - task.wish.nodes
    for member in staying[further:]:
        lab.end_job(member, "scaled_down", by)
    taken = {member.number for member in task.members if not member.over}
    free = [number for number in range(task.wish.nodes, task.wish.most) if number not in taken]
    for number in free[: max(0, further - len(staying))]:
        lab.join(group, task, number)

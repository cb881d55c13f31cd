"""The node runs of a launch in a Slurm allocation: each is an srun with an agent on its node."""

from __future__ import annotations

import select
import signal
import time
from collections.abc import Mapping, Sequence
from typing import Any, Callable, Optional

from overspan.bridge.model.causes import Cause
from overspan.bridge.model.events import Event, NodeStarted, TaskReady
from overspan.bridge.model.job import Job
from overspan.bridge.model.names import member_name
from overspan.bridge.model.records import NamedTuple
from overspan.bridge.model.spec import Form
from overspan.bridge.runtime.core.environment import NodeRunContext, build_environment, has_names, list_members
from overspan.bridge.runtime.core.gated_child import STORAGE_STEP
from overspan.bridge.runtime.core.members_file import describe_members
from overspan.bridge.runtime.core.node_data import NodeData
from overspan.bridge.runtime.core.node_runs import (
    LAUNCH_SIGNAL,
    report_end,
    report_failure,
    report_unlaunched,
    report_unstarted,
)
from overspan.bridge.runtime.core.shim_control import Shim
from overspan.bridge.runtime.core.streams import NodeKey
from overspan.bridge.runtime.slurm.channel import RemoteLaunch, encode_launch, encode_line
from overspan.bridge.runtime.slurm.container_holders import ContainerHolders, holder_words
from overspan.bridge.runtime.slurm.file_parts import encode_part
from overspan.bridge.runtime.slurm.images import list_carried
from overspan.bridge.runtime.slurm.node_staging import NOTICE
from overspan.bridge.runtime.slurm.placement import GrantedComponent, NodeSlots, srun_words
from overspan.bridge.runtime.slurm.run_files import RunFiles
from overspan.bridge.runtime.slurm.srun import Srun
from overspan.bridge.runtime.slurm.verdicts import EndVerdict, is_doubtful, judge_end, judge_loss, judge_start

HELD_SECONDS = 1.0
"""How long an end that Slurm may have brought about waits for Slurm's TERM to the supervisor."""
LOST_SECONDS = 2.0
"""The same for a program of which nothing more was heard."""
_FORCE_SECONDS = 5.0
_GIVE_UP_SECONDS = 15.0
_DOUBTED = (int(signal.SIGTERM), int(signal.SIGKILL))


class LaunchContext(NamedTuple):
    """What all node runs of a launch share.

    `variables` is the environment of each srun, `extra` the plan's own variables; `log` takes a line for the
    supervisor's log.
    """

    files: RunFiles
    data: NodeData
    cluster: str
    extra: Mapping[str, str]
    slots: NodeSlots
    components: Sequence[GrantedComponent]
    variables: Mapping[str, str]
    poller: select.poll
    log: Callable[[str], None]


class _Live:
    """One srun. `end` is what its agent told; an end that is `held` is reported when its time has come.

    `unheld` are the messages about a container that could not be opened, or ended before its program. `outcome` is how
    the program sees its storage (`NodeMounts`).
    """

    def __init__(self, job: Job, key: NodeKey, srun: Srun, outcome: str = "") -> None:
        self.job = job
        self.key = key
        self.srun = srun
        self.outcome = outcome
        self.umask = job.spec.origin.umask
        self.started = False
        self.told = False
        self.reported = False
        self.end: Optional[Mapping[str, Any]] = None
        self.ended_at = 0.0
        self.due_at: Optional[float] = None
        self.sent: set[int] = set()
        self.killed_at: Optional[float] = None
        self.forced = False
        self.unheld: Optional[list[str]] = None


class RemoteNodes:
    """The node runs that may have processes; they meet `node_runs.NodeRuns`."""

    def __init__(self, context: LaunchContext) -> None:
        self._context = context
        self._live: dict[NodeKey, _Live] = {}
        self._holders = ContainerHolders(context.poller, context.log)
        self._data = context.data

    # --- what a run asks ---------------------------------------------------------------------------------------------

    def start(self, job: Job, key: NodeKey, now: float) -> list[Event]:
        """Start a node run; the report where it cannot be started at all."""
        unstarted = report_unstarted(job, key, now)
        if unstarted is not None:
            return [unstarted]
        return self._data.start(job, key, self._begin, now)

    def _begin(self, job: Job, key: NodeKey, now: float) -> list[Event]:
        context = self._context
        slot = context.slots[key.task, key.node]
        words = srun_words(slot, len(context.components), context.files.program)
        try:
            line = context.files.greeting + encode_launch(self._launch(job, key))
            srun = Srun(words, context.variables, context.poller, job.spec.origin.umask)
        except (OSError, ValueError) as error:
            # ValueError: a word that no program can be given, such as one with a NUL.
            return [report_failure(key, now, error)]
        self._live[key] = _Live(job, key, srun, self._data.mount(job, key.task, key.attempt).outcome)
        srun.send(line)
        return []

    def adopt(self, job: Job, key: NodeKey, now: float) -> list[Event]:
        """No srun outlives its supervisor: what an earlier one had begun is lost."""
        return [report_end(key, now, cause=Cause.NODE, detail="the supervisor of this allocation was started again")]

    def collect(self, ended: Sequence[Shim], now: float) -> list[Event]:
        """What the agents have told and which sruns have ended, since the last call; output is kept before any end."""
        reports = self._data.collect(self._begin, now)
        self._keep_output()
        for key, mark in self._holders.take_new():
            self._live[key].srun.send(encode_line({"container": {"mark": mark}}))
        for live in list(self._live.values()):
            self._take(live, now, reports)
            self._look_after(live)
            self._conclude(live, now, reports)
        self._holders.reap()
        return reports

    def signal(self, task: str, attempt: int, signum: int, scope: str = "tree") -> bool:
        """Signal every live node run of an attempt, behind the notice of it; False when that reached nothing."""
        if signum in _DOUBTED:
            self._data.stop(task, attempt)
        notices = self._context.files.take_notices()
        if notices:
            self._tell_all(encode_part(NOTICE, notices))
        reached = False
        for key, live in self._live.items():
            if key.task == task and key.attempt == attempt and live.end is None:
                live.sent.add(signum)
                reached = live.srun.send(encode_line({"signal": signum, "scope": scope})) or reached
                if signum == signal.SIGKILL:
                    self._insist(live)
        return reached

    def flush(self, job: Job, now: float) -> list[Event]:
        """Have the data of attempts whose programs have ended sent; the news of that."""
        return self._data.flush(job, now)

    def flush_terminated(self, job: Job, now: float) -> bool:
        """Have all data sent before Slurm ends the allocation; whether it has been, or there is no data mover."""
        sent = self._data.send_all(job, now)
        if sent:
            self._context.files.remove_links()
        return sent

    def abandon_flush(self, task: str, attempt: int) -> None:
        """Have no more data of an attempt sent."""
        self._data.abandon(task, attempt)

    def end_data(self, now: float) -> bool:
        """Have the data mover end, because the launch is over; whether it has."""
        ended = self._data.end(now)
        if ended:
            self._context.files.remove_links()
        return ended

    def move_clock(self, seconds: float) -> None:
        """The machine's clock was set by that much: what is due stays as far away as it was."""
        self._data.move_clock(seconds)
        for live in self._live.values():
            if live.due_at is not None:
                live.due_at += seconds
                live.ended_at += seconds

    @property
    def wake_at(self) -> Optional[float]:
        """When to look again without being woken: for held ends, and for what the data mover answers."""
        times = [live.due_at for live in self._live.values() if live.due_at is not None and not live.reported]
        if self._data.wake_at is not None:
            times.append(self._data.wake_at)
        return min(times) if times else None

    @property
    def unsettled(self) -> bool:
        """Nothing is ended here without a report."""
        return False

    # --- what the supervisor asks ------------------------------------------------------------------------------------

    def handle(self, ready: Sequence[int]) -> None:
        """Read and write what poll found ready, and log what srun has said."""
        for fd in ready:
            any(live.srun.handle(fd) for live in self._live.values())
        for live in self._live.values():
            for line in live.srun.take_lines():
                self._context.log(f"{live.key}: {line}")
        self._holders.handle(ready)

    def terminate(self) -> None:
        """Slurm ends the allocation: each agent gives its program TERM, if Slurm has not."""
        self._tell_all({"terminate": True})

    def tell_members(self, job: Job) -> None:
        """Members have come, gone or moved: every agent rewrites its hosts file, and its members file."""
        message: dict[str, Any] = {"members": list_members(job)} if has_names(job) else {}
        if job.spec.changes_size and not self._context.files.seen:
            message["members_file"] = describe_members(job)
        if message:
            self._tell_all(message)

    def _tell_all(self, message: Mapping[str, Any]) -> None:
        line = encode_line(message)
        for live in self._live.values():
            live.srun.send(line)

    def close_inputs(self) -> None:
        """End every channel; agents then end what they watch."""
        for live in self._live.values():
            live.srun.close_input()
        self._holders.close_all()

    def reap(self) -> bool:
        """Forget sruns that have ended; tells whether any is left. Output still comes while Slurm ends them."""
        self._keep_output()
        for key, live in list(self._live.items()):
            if live.srun.status is not None:
                self._holders.close(key)
                self._live.pop(key).srun.release()
        return self._holders.reap() or bool(self._live)

    def abandon(self) -> None:
        """Have Slurm end what is left."""
        for live in self._live.values():
            live.srun.signal(signal.SIGTERM)
        self._holders.abandon()

    # --- reports -----------------------------------------------------------------------------------------------------

    def _keep_output(self) -> None:
        """Keep what programs have written; a full disk leaves a gap."""
        for live in self._live.values():
            messages, live.srun.messages = live.srun.messages, []
            for message in messages:
                if "part" not in message:
                    live.srun.messages.append(message)
                    continue
                try:
                    self._context.files.keep(message["part"])
                except (OSError, KeyError, TypeError, ValueError) as error:
                    self._context.log(f"{live.key}: some of its output is not kept: {error}")

    def _take(self, live: _Live, now: float, reports: list[Event]) -> None:
        messages, live.srun.messages = live.srun.messages, []
        for message in messages:
            if "started" in message and not live.started:
                live.started = True
                reports.append(NodeStarted(_time_of(message["started"], now), *_identity(live.key), live.outcome))
            elif "ready" in message:
                reports.append(TaskReady(_time_of(message["ready"], now), live.key.task, live.key.attempt))
            elif "wanted" in message:
                self._open_container(live, message["wanted"])
            elif "told" in message:
                live.told = True
            elif "ended" in message and live.end is None:
                live.end = message["ended"]
                live.ended_at = _time_of(live.end, now)
                live.told = live.told or bool(live.end.get("told"))

    def _open_container(self, live: _Live, wanted: Mapping[str, Any]) -> None:
        context = self._context
        words = holder_words(context.slots[live.key.task, live.key.node], len(context.components), wanted)
        try:
            self._holders.open(live.key, words, context.variables, live.umask)
        except (OSError, ValueError) as error:
            live.unheld = [f"error: the image cannot be opened: {error}"]
            live.srun.close_input()

    def _look_after(self, live: _Live) -> None:
        """A program whose container has ended is ended too."""
        holder = self._holders.find(live.key)
        if holder is not None and holder.lost and live.end is None and live.unheld is None:
            live.unheld = [*holder.srun.said] or ["the image's container has ended"]
            live.srun.close_input()

    def _conclude(self, live: _Live, now: float, reports: list[Event]) -> None:
        status = live.srun.status
        if live.end is not None and live.end.get("failed_at") == STORAGE_STEP and not live.sent.intersection(_DOUBTED):
            # Another node could, and this one gets a copy.
            if status is not None:
                self._live.pop(live.key).srun.release()
                self._data.copy(live.job, live.key, str(live.end.get("error", "")))
                reports += self._data.start(live.job, live.key, self._begin, now)
            return
        if live.end is not None or status is not None:
            self._holders.close(live.key)
        if not live.reported and (live.end is not None or status is not None):
            if live.due_at is None:
                live.ended_at = live.ended_at or now
                live.due_at = now + self._hold(live)
            if live.due_at <= now:
                live.reported = True
                reports.append(self._report(live, status or 0))
        if live.reported and status is not None:
            self._live.pop(live.key).srun.release()

    def _hold(self, live: _Live) -> float:
        """Seconds for which the report of an end waits, because Slurm may have caused it."""
        if live.sent.intersection(_DOUBTED):
            return 0.0
        if live.end is None or live.unheld is not None:
            return LOST_SECONDS if live.started else 0.0
        code, number = _codes(live.end)
        return HELD_SECONDS if is_doubtful(code, number, live.told) and not live.end.get("failed_at") else 0.0

    def _report(self, live: _Live, status: int) -> Event:
        key, at, said = live.key, live.ended_at, list(live.srun.said)
        if live.end is None or live.unheld is not None:
            said = live.unheld or said
            if live.sent.intersection(_DOUBTED):
                return report_end(key, at, signal=int(signal.SIGKILL), detail="srun was ended")
            if live.started:
                verdict = judge_loss(said, status)
                return report_end(key, at, cause=verdict.cause, signal=int(signal.SIGKILL), detail=verdict.detail)
            verdict = judge_start(said, status)
            return report_end(key, at, cause=verdict.cause, signal=LAUNCH_SIGNAL, detail=verdict.detail)
        end = live.end
        if end.get("failed_at"):
            return report_unlaunched(key, at, f"{end.get('error', '')} on {self._node(key)}", int(end.get("errno", 0)))
        code, number = _codes(end)
        verdict = (
            EndVerdict(Cause.SETUP, "")
            if end.get("setup_failed")
            else judge_end(said, bool(live.told or code or number))
        )
        return report_end(key, at, cause=verdict.cause, exit_code=code, signal=number, detail=verdict.detail)

    def _node(self, key: NodeKey) -> str:
        return self._context.slots[key.task, key.node].node

    def _insist(self, live: _Live) -> None:
        """An agent that does not carry a KILL out, or never came up, is ended with its srun."""
        now = time.monotonic()
        live.killed_at = live.killed_at or now
        if now > live.killed_at + _GIVE_UP_SECONDS:
            live.srun.signal(signal.SIGKILL)
        elif not live.forced and (not live.started or now > live.killed_at + _FORCE_SECONDS):
            live.forced = True
            live.srun.signal(signal.SIGTERM)

    # --- launches ----------------------------------------------------------------------------------------------------

    def _launch(self, job: Job, key: NodeKey) -> RemoteLaunch:
        """What the agent of a node run is told. OSError and ValueError where there is nothing to tell."""
        context, spec = self._context, job.spec_of(key.task)
        refuse_batch(job, key)
        image = context.slots[key.task, key.node].image
        work = context.files.prepare(job, key, self._node(key), image, self._data.locate(job, key.task))
        place = NodeRunContext(*key, work.run_dir, context.cluster, context.extra, real_nodes=True)
        members = list_members(job) if has_names(job) else []
        environment = build_environment(job, place)
        mounts = self._data.mount(job, key.task, key.attempt)
        return RemoteLaunch(
            key=str(key),
            environment=environment,
            umask=job.spec.origin.umask,
            hostname=member_name(key.task, key.node + job.spec.first_index),
            members=tuple((address, tuple(names)) for address, names in members),
            bare="HOME" not in job.spec.environment,
            nodes=tuple(item.node for item in job.placements if item.task == key.task),
            grace=float(spec.grace_period),
            image=image,
            carried=list_carried(spec, environment) if image else (),
            server=mounts.server,
            mounted=mounts.folders,
            note=mounts.note,
            **work.fields,
        )


def refuse_batch(job: Job, key: NodeKey) -> None:
    """ValueError for a node run that no agent can be told of."""
    if job.spec_of(key.task).form is Form.BATCH and key.node > 0:
        raise ValueError("a batch script of several nodes is a job of its own on Slurm")


def _identity(key: NodeKey) -> tuple[str, int, int, int]:
    return key.task, key.attempt, key.node, key.run


def _codes(end: Mapping[str, Any]) -> tuple[int, int]:
    return int(end.get("exit_code", 0)), int(end.get("signal", 0))


def _time_of(message: Mapping[str, Any], now: float) -> float:
    """When something happened by this machine's clock; a node's own may be wrong, its differences are not."""
    try:
        ago = float(message["sent"]) - float(message["at"])
    except (KeyError, TypeError, ValueError):
        return now
    return round(now - max(0.0, ago), 6)

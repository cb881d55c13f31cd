"""Submits sets: native jobs held, each once for its own token; then all are released, unless the job is held.

The native job of a deferred task is submitted by the order that launches the task, as a replacement is.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from overspan.adapters.contract import Accepted, Decider, Launch, Order, Refusal
from overspan.adapters.slurm.groups.handles import (
    GroupHandle,
    GroupPart,
    find_decider,
    is_group_handle,
    join_natives,
    make_group_handle,
    parse_group,
)
from overspan.adapters.slurm.groups.limits import read_limits
from overspan.adapters.slurm.groups.parts import PartLaunch, PartToken, list_members, member_of, split_token
from overspan.adapters.slurm.groups.rendering import read_launch_file
from overspan.adapters.slurm.handles import is_handle
from overspan.adapters.slurm.observation.outcomes import Phase, judge
from overspan.adapters.slurm.orders.job_commands import cancel_natives
from overspan.adapters.slurm.rendering.renderer import explain
from overspan.adapters.slurm.rendering.script import find_token
from overspan.adapters.slurm.submission.in_doubt import SubmissionAnswer
from overspan.adapters.slurm.submission.submitter import Submitter
from overspan.bridge.lifecycle.reduction import reduce
from overspan.bridge.lifecycle.stages import list_deferred
from overspan.bridge.model.errors import InvalidRequest, NotFound, OverspanError, TimedOut
from overspan.bridge.model.events import Launch as LaunchEvent

_WHOLE = 64 << 20
_PASSES = "not available"
"""Part of Slurm's errors about nodes, partitions and reservations. For a replacement they are transient, because the
set had these before."""


class PartSubmitter:
    """Submits sets by the submitter of single jobs, which keeps each native job's answer by its token."""

    def __init__(self, submitter: Submitter) -> None:
        self._submitter = submitter
        self._fresh: set[str] = set()
        """Launches submitted since the last release, whose lists may not have them yet."""
        self._clean = False
        """Whether the last release found no native job of a set, so that the next one need not ask Slurm."""

    async def submit(self, launches: Sequence[Launch]) -> dict[str, SubmissionAnswer]:
        """The answers by token; a set with a native job in doubt has none yet."""
        concluded: dict[str, SubmissionAnswer] = {}
        members: dict[str, list[PartLaunch]] = {}
        for launch in launches:
            try:
                members[launch.token] = list_members(launch)
            except InvalidRequest as error:
                concluded[launch.token] = Refusal(launch.token, explain(error))
            self._fresh.add(launch.token)
            self._clean = False
        flat = [member for listed in members.values() for member in listed]
        answers = await self._submitter.answer(flat)
        for launch in launches:
            own = members.get(launch.token, [])
            if own and all(member.token in answers for member in own):
                self._submitter.forget(own)
                concluded[launch.token] = await self._conclude(launch, own, [answers[member.token] for member in own])
        return concluded

    async def _conclude(
        self, launch: Launch, members: Sequence[PartLaunch], answers: Sequence[SubmissionAnswer]
    ) -> Accepted | Refusal:
        accepted = [answer for answer in answers if isinstance(answer, Accepted)]
        refusal = next((answer for answer in answers if isinstance(answer, Refusal)), None)
        natives = [int(answer.native_id) for answer in accepted]
        if refusal is not None:
            try:
                await self._end(natives)
            except OverspanError:
                self._submitter.look_up(members)
                raise
            self._submitter.drop([member.token for member in members])
            return replace(refusal, token=launch.token)
        if launch.wanted and not launch.job.held:
            await self._submitter.release(natives)
        nodes = {task.name: task.num_nodes for task in launch.job.spec.tasks}
        parts = [
            GroupPart(native, member.task, nodes[member.task]) for member, native in zip(members, natives, strict=True)
        ]
        parts += [GroupPart(0, name, nodes[name]) for name in list_deferred(launch.job)]
        folder = await self._submitter.folder(members[0])
        handle = make_group_handle(launch.job, folder, parts, Decider.DAEMON, launch.token)
        return Accepted(launch.token, str(handle), join_natives(natives))

    async def replace(self, handle: GroupHandle, order: Order, event: LaunchEvent) -> int | Refusal:
        """Submit a native job for an attempt that has none, or find the one that was submitted; returns its id.

        Raises OverspanError if that cannot be done now.
        """
        part = handle.part(event.task)
        kept = handle.parts[0] if part.deferred else part
        path = f"{handle.part_folder(kept)}/launch.{handle.launch}.json"
        transport = self._submitter.queries.transport
        try:
            job, environment, access = read_launch_file((await transport.read(path, 0, _WHOLE)).data)
        except (NotFound, ValueError, KeyError) as error:
            return Refusal(order.token, f"{path} cannot be read: {error}")
        for limit in await read_limits(handle, transport):
            job = reduce(job, limit)
        # The time of the order is the earliest one at which the accounting may have this job.
        launch = Launch(handle.token, replace(job, submitted_at=event.at), environment, access=access)
        member = member_of(launch, event.task, event.attempt, order, kept.task)
        answer = (await self._submitter.submit([member])).get(member.token)
        if answer is None:
            raise TimedOut(self._submitter.in_doubt)
        if isinstance(answer, Refusal):
            passes = answer.transient or _PASSES in answer.message
            return replace(answer, token=order.token, transient=passes)
        return int(answer.native_id)

    def note_watched(self, since: Collection[str]) -> None:
        """Note launches that are watched: with a set among them the next release asks Slurm."""
        for text in since:
            if find_decider(text) is Decider.DAEMON:
                self._clean = False

    async def release(self, installation: str, handles: Collection[str], tokens: Collection[str]) -> None:
        """End the native jobs of the installation's sets that are in neither list."""
        self.note_watched(handles)
        # A handle of a later version names native jobs that look unwanted from here.
        if self._clean or any(is_group_handle(text) and not is_handle(text) for text in handles):
            return
        self._fresh.clear()
        listed = {parse_group(text).token for text in handles if find_decider(text) is Decider.DAEMON} | set(tokens)
        queue = await self._submitter.queries.own_queue()
        wanted = listed | self._fresh
        left, kept = [], False
        for record in queue:
            member = split_token(find_token(record.comment))
            if member is None or not member.token.startswith(f"{installation}-"):
                continue
            if judge(record.state).phase is Phase.ENDED:
                continue
            kept = kept or member.token in wanted
            if member.token not in wanted:
                left.append(record.raw)
        await self._end(left)
        # Without any native job of a set the next release need not ask.
        self._clean = not left and not kept and not self._fresh

    async def end(self, members: Collection[PartToken]) -> None:
        """End the native jobs that have these tokens. Raises OverspanError."""
        if members:
            queue = await self._submitter.queries.own_queue()
            alive = [record for record in queue if judge(record.state).phase is not Phase.ENDED]
            await self._end([record.raw for record in alive if split_token(find_token(record.comment)) in members])

    async def _end(self, natives: Sequence[int]) -> None:
        await cancel_natives(self._submitter.queries.transport, [str(native) for native in natives])

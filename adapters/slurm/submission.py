"""Submitting: once for each token, whatever happens to the answer.

The token stands in the job's comment. When it is not known whether sbatch had its effect, Slurm is asked twice, a
message timeout apart; only then the job is submitted again, held, and released once it is known to be the only one.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from overspan.adapters.contract import Accepted, Launch, Refusal
from overspan.adapters.slurm.errors import Failure, Kind, read_failure, read_submitted
from overspan.adapters.slurm.forms import is_group
from overspan.adapters.slurm.handles import GroupHandle, Handle, make_group_handle, make_handle
from overspan.adapters.slurm.library import Library
from overspan.adapters.slurm.outcomes import Phase, judge
from overspan.adapters.slurm.questions import Questions, Site
from overspan.adapters.slurm.rendering import Rendered, Renderer, Scene, explain, name_run, resolve_root
from overspan.adapters.slurm.squeue import QueueRecord
from overspan.adapters.slurm.staging import Stager
from overspan.adapters.slurm.transports.channel import Done
from overspan.bridge.model.errors import InvalidRequest, OverspanError, Rejected, TimedOut

BATCH = 50
"""Submissions of one round trip."""
LOOKS = 2
_MARGIN = 3600.0
"""Seconds by which the clocks of this machine and the cluster may differ."""

Answer = Accepted | Refusal


@dataclass
class Doubt:
    """A submission whose effect is not known: since when, and how often Slurm was asked without finding it."""

    since: float
    looks: int = 0
    looked_at: float = 0.0


class Submitter:
    """Remembers what it submitted itself; what an earlier process may have submitted is looked up."""

    def __init__(self, questions: Questions, renderer: Renderer, started_at: float) -> None:
        self._questions = questions
        self._renderer = renderer
        settings = renderer.settings
        transport, limit = questions.transport, settings.max_staged << 20
        self._stager = None if settings.shared else Stager(transport, limit, settings.timeout)
        self._library = Library(transport)
        self._started_at = started_at
        self._known: dict[str, Answer] = {}
        self._doubts: dict[str, Doubt] = {}
        self.monotonic: Callable[[], float] = time.monotonic

    async def submit(self, launches: Sequence[Launch]) -> list[Answer]:
        """One answer for each launch. Raises TimedOut while one is in doubt; the others' answers are remembered."""
        fresh = [launch for launch in launches if launch.token not in self._known]
        if fresh:
            await self._adopt(fresh)
        await self._settle([launch for launch in fresh if launch.token in self._doubts])
        todo = [launch for launch in fresh if launch.token not in self._known and launch.token not in self._doubts]
        for start in range(0, len(todo), BATCH):
            await self._send(todo[start : start + BATCH])
        doubtful = [launch for launch in launches if launch.token in self._doubts]
        if doubtful:
            raise TimedOut(
                f"submission unknown: Slurm has not said whether it has job {doubtful[0].job.id}",
                remedy="it is looked up, and submitted again only when Slurm surely has it not",
            )
        answers = [self._known[launch.token] for launch in launches]
        self._forget(launches)
        return answers

    def _forget(self, launches: Sequence[Launch]) -> None:
        """A refusal may be mended by the time of the next try; of accepted ones some thousands are kept."""
        for launch in launches:
            if isinstance(self._known.get(launch.token), Refusal):
                del self._known[launch.token]
        while len(self._known) > 20_000:
            del self._known[next(iter(self._known))]

    # --- what may be there already -----------------------------------------------------------------------------------

    async def _adopt(self, launches: Sequence[Launch]) -> None:
        """Find native jobs that Slurm has requeued; what an earlier process may have sent is in doubt."""
        again = [launch for launch in launches if launch.job.launch and launch.token not in self._doubts]
        if again:
            await self._adopt_requeued([launch for launch in again if not is_group(launch.job)])
            await self._end_earlier([launch for launch in again if is_group(launch.job)])
        for launch in launches:
            if launch.job.submitted_at < self._started_at and not self._is_settled(launch):
                # Whoever made the call may still be at it.
                self._doubts[launch.token] = Doubt(self.monotonic())

    def _is_settled(self, launch: Launch) -> bool:
        return launch.token in self._known or launch.token in self._doubts

    async def _end_earlier(self, launches: Sequence[Launch]) -> None:
        """End what Slurm still has of a group's earlier launches: no two of them run at once."""
        if not launches:
            return
        tokens = {token for launch in launches for token in earlier_tokens(launch)}
        found = await self._questions.find_in_queue(tokens)
        left = sorted({record.raw for records in found.values() for record in _alive(records)})
        if left:
            await self._questions.transport.run(["scancel", *map(str, left)])

    async def _adopt_requeued(self, launches: Sequence[Launch]) -> None:
        if not launches:
            return
        tokens = {token for launch in launches for token in (launch.token, *earlier_tokens(launch))}
        found = await self._questions.find_in_queue(tokens)
        held = []
        for launch in launches:
            own = _newest(found[launch.token])
            earlier = [record for token in earlier_tokens(launch) for record in _alive(found[token])]
            record = own or next(iter(earlier), None)
            if record is None:
                continue
            if own is None and record.reason.startswith("JobHeld"):
                held.append(record.raw)
            await self._accept(launch, record.raw, record.restarts)
        if held:
            await self._release(held)

    async def _settle(self, launches: Sequence[Launch]) -> None:
        """Look once more for what is in doubt; what was not there twice is submitted again, held."""
        if not launches:
            return
        gap = (await self._questions.site()).message_timeout
        due = []
        for launch in launches:
            doubt = self._doubts[launch.token]
            if not doubt.looks or self.monotonic() - doubt.looked_at >= gap:
                due.append(launch)
        for launch in await self._look(due):
            doubt = self._doubts[launch.token]
            doubt.looks, doubt.looked_at = doubt.looks + 1, self.monotonic()
            if doubt.looks >= LOOKS:
                await self._send_again(launch)

    async def _look(self, launches: Sequence[Launch]) -> list[Launch]:
        """Those that are neither in the queue nor in the accounting; the others are accepted."""
        if not launches:
            return []
        tokens = [launch.token for launch in launches]
        queued = await self._questions.find_in_queue(tokens)
        missing = []
        for launch in launches:
            record = _newest(queued[launch.token])
            if record is not None:
                await self._accept(launch, record.raw, record.restarts)
            else:
                missing.append(launch)
        if missing and (await self._questions.site()).accounting:
            since = min(launch.job.submitted_at for launch in missing) - _MARGIN
            kept = await self._questions.find_in_accounts([launch.token for launch in missing], since)
            for launch in missing:
                if launch.token in kept:
                    await self._accept(launch, kept[launch.token], 0)
        return [launch for launch in missing if launch.token in self._doubts]

    async def _send_again(self, launch: Launch) -> None:
        """Submit held, and release when it is the only one; of two the later one is ended."""
        await self._send([launch], held=True)
        answer = self._known.get(launch.token)
        if not isinstance(answer, Accepted):
            return
        records = (await self._questions.find_in_queue([launch.token]))[launch.token]
        others = sorted(record.raw for record in _alive(records) if str(record.raw) != answer.native_id)
        if others:
            await self._questions.transport.run(["scancel", answer.native_id])
            await self._accept(launch, others[0], 0)
        elif not launch.job.held:
            await self._release([int(answer.native_id)])

    async def _release(self, ids: Sequence[int]) -> None:
        done = await self._questions.transport.run(["scontrol", "release", ",".join(map(str, ids))])
        if done.rc != 0:
            failure = read_failure(done.words, done.rc)
            if failure.transient:
                raise failure.error()

    # --- sbatch ------------------------------------------------------------------------------------------------------

    async def _send(self, launches: Sequence[Launch], held: bool = False) -> None:
        scene = await self._set_scene(launches)
        rendered: list[tuple[Launch, Rendered]] = []
        for launch in launches:
            try:
                staged = await self._stage(launch, scene.site)
                rendered.append((staged, self._renderer.render(staged, scene, held)))
            except (InvalidRequest, Rejected) as error:
                self._known[launch.token] = Refusal(launch.token, explain(error))
            except OverspanError as error:
                if error.transient:
                    raise
                self._known[launch.token] = Refusal(launch.token, error.message, True, "Resources")
        for launch, one in list(rendered):
            try:
                await self._bring(launch, one, scene.site)
            except OverspanError as error:
                if error.transient:
                    raise
                self._known[launch.token] = Refusal(launch.token, error.message, True, "Resources")
                rendered.remove((launch, one))
        if not rendered:
            return
        limit = self._questions.timeout + len(rendered)
        answers = await self._questions.transport.run_all([one.call for _, one in rendered], limit) if rendered else []
        failures = [await self._read(launch, done) for (launch, _), done in zip(rendered, answers, strict=True)]
        await self._release_sent(rendered)
        for failure in failures:
            if failure is not None:
                raise failure.error()

    async def _set_scene(self, launches: Sequence[Launch]) -> Scene:
        """What the launches are rendered for; the nodes are asked for where a group is among them."""
        site = await self._questions.site()
        groups = any(is_group(launch.job) for launch in launches)
        return Scene(site, await self._questions.nodes() if groups else ())

    async def _bring(self, launch: Launch, rendered: Rendered, site: Site) -> None:
        """Write what has to be there before; independent files at once."""
        write = self._questions.transport.write
        works = [write(file.path, file.data) for file in rendered.files]
        if is_group(launch.job):
            works.append(self._library.bring(resolve_root(self._renderer.root, site.home)))
        for failure in await asyncio.gather(*works, return_exceptions=True):
            if isinstance(failure, BaseException):
                raise failure

    async def _stage(self, launch: Launch, site: Site) -> Launch:
        """The launch with its files on a cluster that does not see the submitter's."""
        if self._stager is None:
            return launch
        return await self._stager.stage(launch, resolve_root(self._renderer.root, site.home), name_run(launch))

    async def _read(self, launch: Launch, done: Done | None) -> Failure | None:
        """Take in an answer of sbatch's; a failure that says nothing of the job is given back."""
        native = read_submitted(done.text) if done is not None and done.rc == 0 else ""
        if native:
            await self._accept(launch, int(native), 0)
            return None
        failure = Failure(Kind.NO_ANSWER, "") if done is None else read_failure(done.words or done.text, done.rc)
        if failure.uncertain:
            self._doubts[launch.token] = Doubt(self.monotonic())
            return None
        if failure.kind in (Kind.UNREACHABLE, Kind.MISSING):
            return failure
        self._doubts.pop(launch.token, None)
        reason = "AssocMaxSubmitJobLimit" if failure.kind is Kind.LIMIT else "BadConstraints"
        self._known[launch.token] = Refusal(launch.token, failure.message, failure.transient, reason)
        return None

    async def _release_sent(self, rendered: Sequence[tuple[Launch, Rendered]]) -> None:
        held = [
            int(answer.native_id)
            for launch, one in rendered
            if one.release and isinstance(answer := self._known.get(launch.token), Accepted)
        ]
        if held:
            await self._release(held)

    async def _accept(self, launch: Launch, native: int, run: int) -> None:
        self._doubts.pop(launch.token, None)
        site = await self._questions.site()
        handle: Handle | GroupHandle
        if is_group(launch.job):
            handle = make_group_handle(launch.job, native, self._renderer.folder(launch, site))
        else:
            handle = make_handle(launch.job, native, run, self._renderer.paths(launch, native, site))
        self._known[launch.token] = Accepted(launch.token, str(handle), str(native))


def earlier_tokens(launch: Launch) -> list[str]:
    """The tokens of the job's earlier launches, newest first: a token ends with the launch's number."""
    head, dash, number = launch.token.rpartition("-")
    if not dash or number != str(launch.job.launch):
        return []
    return [f"{head}-{earlier}" for earlier in range(launch.job.launch - 1, -1, -1)]


def _alive(records: Sequence[QueueRecord]) -> list[QueueRecord]:
    return [record for record in records if judge(record.state).phase not in (Phase.ENDED, Phase.ENDING)]


def _newest(records: Sequence[QueueRecord]) -> QueueRecord | None:
    """The job that counts among those of one token: a live one before an ended one, then the first."""
    alive = _alive(records) or list(records)
    return min(alive, key=lambda record: record.raw, default=None)

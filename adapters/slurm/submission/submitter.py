"""Exactly-once submission: one native job for each token, even if sbatch's answer is lost.

The token is an idempotency key in the job's comment. A submission in doubt is looked up twice, a message timeout apart.
Only if neither look finds it, the job is submitted again, held, and released once it is known to be the only one.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from overspan.adapters.contract import NOT_HERE, Accepted, Launch, Refusal
from overspan.adapters.settings import to_bytes
from overspan.adapters.slurm.commands.errors import FailureKind, SlurmFailure, read_failure, read_submitted
from overspan.adapters.slurm.commands.queries import Queries, Site
from overspan.adapters.slurm.files.application import InstalledApplication
from overspan.adapters.slurm.files.references import References, list_links, name_file
from overspan.adapters.slurm.files.store_renewals import StoreRenewals
from overspan.adapters.slurm.groups.handles import GroupPart, make_group_handle
from overspan.adapters.slurm.groups.parts import PartLaunch, starts_together
from overspan.adapters.slurm.groups.rendering import inline_path
from overspan.adapters.slurm.handles import make_handle, name_native
from overspan.adapters.slurm.observation.ownership import list_own
from overspan.adapters.slurm.observation.requeues import Successor, find_successor, list_alive
from overspan.adapters.slurm.orders.job_commands import cancel_natives, release_natives
from overspan.adapters.slurm.rendering.forms import is_group, needs_nodes
from overspan.adapters.slurm.rendering.renderer import ClusterFacts, Rendered, Renderer, explain, name_run, resolve_root
from overspan.adapters.slurm.submission.arrays import (
    Native,
    SubmissionUnit,
    earlier_keys,
    identify,
    is_element,
    make_units,
    native_of,
)
from overspan.adapters.slurm.submission.in_doubt import (
    InDoubt,
    SubmissionAnswer,
    choose_native,
    describe_in_doubt,
    find_newest,
    read_native,
    was_taken_back,
)
from overspan.adapters.slurm.submission.late_commits import LateCommits
from overspan.adapters.slurm.submission.predecessors import Predecessors
from overspan.adapters.slurm.submission.throttles import Throttles
from overspan.adapters.slurm.transports.rate_limit import RateLimited
from overspan.adapters.slurm.transports.transport import Call, Done, Transport
from overspan.adapters.slurm.unshared.inline_files import InlineFiles
from overspan.adapters.slurm.unshared.staging import Files
from overspan.adapters.store_files import list_stores, render_stores
from overspan.bridge.model.errors import InvalidRequest, NotFound, OverspanError, Rejected
from overspan.bridge.model.storage import StoreAccess
from overspan.bridge.runtime.data.cache import name_cache_settings, render_cache_settings

BATCH = 100
"""Submissions of one round trip."""
BATCH_BYTES = 32 << 20
"""Bytes of scripts of one round trip: these contain files if the nodes share no folder."""
_LARGEST = 64 << 20
"""Bytes of inline files that are read at most."""
SIZE_WORDS = "job submit limit"
"""Part of Slurm's error for a limit on a user's jobs, and also for one on sizes, which waiting does not help."""
STILL_ENDING = "Slurm is still ending its former run"
PROGRAMS = 4
"""Parallel programs at most: while one sbatch waits for the controller, others go on."""
LEAST_CALLS = 4
"""Calls of each parallel program, at least: fewer are not worth a program of their own."""
LOOKS = 2
"""Look-ups of a submission in doubt before it is submitted again."""
LAST_LOOKS = 3
"""Look-ups of one that is not wanted any more: one more, because a job that appears after the last would run."""
_MARGIN = 3600.0
"""Seconds by which the clocks of this machine and of the cluster may differ."""


class Submitter:
    """Submits launches. Keeps the answers to its own submissions, and looks up those of earlier processes."""

    def __init__(
        self,
        queries: Queries,
        renderer: Renderer,
        started_at: float,
        throttles: Throttles | None = None,
        stores: Mapping[str, StoreAccess] = MappingProxyType({}),
    ) -> None:
        self.queries = self._queries = queries
        self._throttles = throttles or Throttles(queries)
        self.late_commits = LateCommits(queries)
        self._predecessors = Predecessors(queries)
        self._renderer = renderer
        self._stores = stores
        self.references = References(queries.transport, queries.timeout)
        self.renewals = StoreRenewals(queries.transport, queries.timeout, stores)
        self._files = Files(queries.transport, renderer.settings, self.references)
        self.library = InstalledApplication(queries.transport)
        self._started_at = started_at
        self._known: dict[str, SubmissionAnswer] = {}
        self._in_doubt: dict[str, InDoubt] = {}
        self.monotonic: Callable[[], float] = time.monotonic

    async def submit(self, launches: Sequence[Launch]) -> dict[str, SubmissionAnswer]:
        """The answers by token. A launch in doubt has none yet; the caller passes it again."""
        answers = await self.answer(launches)
        self.forget(launches)
        return answers

    async def answer(self, launches: Sequence[Launch]) -> dict[str, SubmissionAnswer]:
        """As `submit`, but a refusal stays the answer until `forget`."""
        fresh = [launch for launch in launches if launch.token not in self._known]
        if fresh:
            await self._adopt(fresh)
            for launch in fresh:
                if not launch.wanted and not self._is_settled(launch):
                    self._mark_in_doubt(launch)
        await self._settle([launch for launch in fresh if launch.token in self._in_doubt])
        await self._send([launch for launch in fresh if not self._is_settled(launch)])
        for in_doubt in (self._in_doubt[launch.token] for launch in launches if launch.token in self._in_doubt):
            in_doubt.asked_at = self.monotonic()
        return {launch.token: self._known[launch.token] for launch in launches if launch.token not in self._in_doubt}

    @property
    def in_doubt(self) -> str:
        """The message about submissions in doubt; empty where there are none."""
        return describe_in_doubt(self._in_doubt.values(), self.monotonic())

    def forget(self, launches: Sequence[Launch]) -> None:
        """Drop refusals, whose next try may succeed, and the oldest of very many accepted answers."""
        for launch in launches:
            if isinstance(self._known.get(launch.token), Refusal):
                del self._known[launch.token]
        while len(self._known) > 20_000:
            del self._known[next(iter(self._known))]

    def drop(self, tokens: Sequence[str]) -> None:
        """Drop the answers to these launches, whose native jobs were ended."""
        for token in tokens:
            self._known.pop(token, None)

    def look_up(self, launches: Sequence[Launch]) -> None:
        """Mark accepted launches as in doubt, because it is not known whether their native jobs were ended."""
        self._doubt_accepted(launches)

    def _mark_in_doubt(self, launch: Launch, why: str = "") -> None:
        self._in_doubt[launch.token] = InDoubt(self.monotonic(), launch.job.id, why=why)

    async def release(self, natives: Sequence[int]) -> None:
        """Release native jobs that were submitted held."""
        await self._release([Native(native) for native in natives])

    async def folder(self, launch: Launch) -> str:
        """The run directory of a launch on the cluster."""
        return self._renderer.folder(launch, await self.queries.site())

    # --- what may be there already -----------------------------------------------------------------------------------

    async def _adopt(self, launches: Sequence[Launch]) -> None:
        """Find native jobs that Slurm has requeued; what an earlier process may have sent is in doubt."""
        again = [launch for launch in launches if launch.job.relaunches and launch.token not in self._in_doubt]
        if again:
            await self._adopt_requeued([launch for launch in again if not is_group(launch.job)])
            # A racing job may have another live bid here; those that are no longer wanted are ended by `release`.
            await self._end_earlier([one for one in again if is_group(one.job) and not one.job.racers])
        for launch in launches:
            if launch.job.submitted_at < self._started_at and not self._is_settled(launch):
                # The earlier process may have made the call, and it may still be under way.
                self._mark_in_doubt(launch)

    def _is_settled(self, launch: Launch) -> bool:
        return launch.token in self._known or launch.token in self._in_doubt

    async def _end_earlier(self, launches: Sequence[Launch]) -> None:
        """Cancel native jobs of a group's earlier launches, so that no two launches run at once."""
        if not launches:
            return
        keys = {key for launch in launches for key in earlier_keys(launch)}
        found = await self._queries.find_in_queue(keys)
        left = sorted({record.raw for records in found.values() for record in list_alive(records)})
        await cancel_natives(self._queries.transport, [str(native) for native in left])

    async def _adopt_requeued(self, launches: Sequence[Launch]) -> None:
        """Accept the next run of a requeued native job as the launch, if there is one."""
        if not launches:
            return
        keys = {key for launch in launches for key in (identify(launch), *earlier_keys(launch))}
        found = await self._queries.find_in_queue(keys)
        unknown = []
        for launch in launches:
            key = identify(launch)
            own, earlier = find_newest(found[key]), [found[one] for one in earlier_keys(launch)]
            next_one = Successor(own, 0) if own is not None else find_successor(enumerate(earlier, 1))
            if next_one is None:
                unknown += [launch] if not any(earlier) else []
            elif next_one.run is None:
                self._known[launch.token] = Refusal(launch.token, STILL_ENDING, True, "Cleaning")
            else:
                await self._accept(launch, native_of(next_one.record, key.element).job, next_one.run)
        await self._adopt_ended(unknown)

    async def _adopt_ended(self, launches: Sequence[Launch]) -> None:
        """Adopt a run that started and ended between two polls, and that only the accounting still knows."""
        if not launches or not (await self._queries.site()).accounting:
            return
        since = min(launch.job.submitted_at for launch in launches) - _MARGIN
        keys = {key for launch in launches for key in earlier_keys(launch)}
        kept = await self._queries.find_in_accounts(keys, since)
        for launch in launches:
            ago, key = next(((ago, key) for ago, key in enumerate(earlier_keys(launch), 1) if key in kept), (0, None))
            if key is None:
                continue
            name = name_native(kept[key], key.element)
            handle = make_handle(launch.job, kept[key], ago)
            if len(list_own(handle, (await self._queries.runs([name]))[name])) > ago:
                await self._accept(launch, kept[key], ago)

    async def _settle(self, launches: Sequence[Launch]) -> None:
        """Look up launches in doubt; those that were not found LOOKS times are submitted again, held."""
        if not launches:
            return
        gap = (await self._queries.site()).message_timeout
        due = []
        for launch in launches:
            in_doubt = self._in_doubt[launch.token]
            if not in_doubt.looks or self.monotonic() - in_doubt.looked_at >= gap:
                due.append(launch)
        again = []
        for launch in await self._look(due):
            in_doubt = self._in_doubt[launch.token]
            in_doubt.looks, in_doubt.looked_at = in_doubt.looks + 1, self.monotonic()
            if in_doubt.looks >= (LOOKS if launch.wanted else LAST_LOOKS):
                again.append(launch)
        given_up = [launch for launch in again if not launch.wanted]
        for launch in given_up:
            self._refuse(SubmissionUnit((launch,)), NOT_HERE)
        self.late_commits.expect(map(identify, given_up))
        await self._send_again([launch for launch in again if launch.wanted])

    async def _look(self, launches: Sequence[Launch]) -> list[Launch]:
        """Accept the launches that are in the queue or in the accounting; return the others."""
        if not launches:
            return []
        queued = await self._queries.find_in_queue(map(identify, launches))
        found, missing = [], []
        for launch in launches:
            key = identify(launch)
            chosen = choose_native(queued[key], key.element, starts_together(launch))
            if chosen is None:
                missing.append(launch)
            else:
                found.append((launch, chosen))
        # Accepted at last: until then a failure leaves all in doubt, and the next look goes on.
        surplus = [name_native(*native) for _, chosen in found for native in chosen.surplus]
        await cancel_natives(self._queries.transport, surplus)
        released = [(launch, chosen) for launch, chosen in found if launch.wanted and not _stays_held(launch)]
        await self._release([chosen.native for _, chosen in released if chosen.held])
        for launch, chosen in found:
            await self._accept(launch, chosen.native.job, 0)
        if missing and (await self._queries.site()).accounting:
            since = min(launch.job.submitted_at for launch in missing) - _MARGIN
            kept = await self._queries.find_in_accounts(map(identify, missing), since)
            for launch in missing:
                native = kept.get(identify(launch))
                if native is not None and not (starts_together(launch) and await self._was_taken_back(native)):
                    await self._accept(launch, native, 0)
        return [launch for launch in missing if launch.token in self._in_doubt]

    async def _was_taken_back(self, native: int) -> bool:
        runs = (await self._queries.runs([str(native)]))[str(native)]
        return bool(runs) and all(was_taken_back(run) for run in runs)

    async def _send_again(self, launches: Sequence[Launch]) -> None:
        """Submit again, held. Release a job that is the only one of its launch; cancel it if there is another."""
        if not launches:
            return
        try:
            await self._send(launches, held=True)
        finally:
            sent = self._doubt_accepted(launches)
        await self._look(sent)

    def _doubt_accepted(self, launches: Sequence[Launch]) -> list[Launch]:
        """Mark those of the launches as in doubt that were accepted, since their native jobs are held; gives them."""
        accepted = [launch for launch in launches if isinstance(self._known.get(launch.token), Accepted)]
        for launch in accepted:
            del self._known[launch.token]
            self._mark_in_doubt(launch)
        return accepted

    async def _release(self, natives: Sequence[Native]) -> None:
        await release_natives(self._queries.transport, [name_native(*native) for native in natives])

    # --- sbatch ------------------------------------------------------------------------------------------------------

    async def _send(self, launches: Sequence[Launch], held: bool = False) -> None:
        """Submit, elements of an array together, and process the answers. Raises Unreachable."""
        if not launches:
            return
        facts = await self._gather_facts(launches)
        size = facts.site.array_size
        todo = make_units(await self._throttle(launches), lambda launch: self._compare(launch, facts), size)
        while todo:
            batch, todo = todo[:BATCH], todo[BATCH:]
            todo = [*await self._send_batch(batch, facts, held), *todo]

    def _compare(self, launch: Launch, facts: ClusterFacts) -> object:
        """An element's submission without its index: equal ones become one array. One that is refused equals none."""
        try:
            # Tokens differ, and travel in one document.
            rendered = self._renderer.render(replace(launch, access=""), replace(facts, elements={}))
        except OverspanError:
            return launch.token
        call = rendered.call
        return (*call.argv, call.stdin, *sorted(call.environment.items()), rendered.files, rendered.release)

    async def _throttle(self, launches: Sequence[Launch]) -> list[Launch]:
        """The launches with the throttles of their native arrays; elements for which there is no room are refused."""
        limits = {
            launch.job.element.array: launch.throttle
            for launch in launches
            if is_element(launch) and launch.job.element is not None and launch.throttle is not None
        }
        rooms = await self._throttles.find_rooms(limits, launches) if limits else {}
        ready = []
        for launch in launches:
            element = launch.job.element
            room = rooms.get(element.array) if element is not None and is_element(launch) else None
            if room is None:
                ready.append(launch)
            elif room > 0:
                ready.append(replace(launch, throttle=room))
            else:
                message = f"others of the array {launch.job.element.array if launch.job.element else 0} come first"
                self._known[launch.token] = Refusal(launch.token, message, True, "JobArrayTaskLimit")
        return ready

    async def _send_batch(
        self, units: Sequence[SubmissionUnit], facts: ClusterFacts, held: bool
    ) -> list[SubmissionUnit]:
        """Submit over one round trip; returns the units to try next: the rest, and halves of refused arrays."""
        rendered: list[tuple[SubmissionUnit, Rendered]] = []
        left = list(units)
        while left and sum(len(one.call.stdin) for _, one in rendered) < BATCH_BYTES:
            unit = left.pop(0)
            if (one := await self._prepare(unit, facts, held)) is not None:
                rendered.append((unit, one))
        rendered = await self._keep_open(rendered)
        if not rendered:
            return left
        again, failures = [], []
        limit = self._queries.timeout + len(rendered)
        answers = await call_together(self._queries.transport, [one.call for _, one in rendered], limit)
        for (unit, _), done in zip(rendered, answers, strict=True):
            silence = f"sbatch has not answered within {limit:g} s"
            failure = done if isinstance(done, OverspanError) else await self._read(unit, done, silence)
            if isinstance(failure, SubmissionUnit):
                again.append(failure)
            elif failure is not None:
                failures.append(failure)
        await self._release_sent(rendered)
        for failure in failures:
            raise failure.error() if isinstance(failure, SlurmFailure) else failure
        return [*again, *left]

    async def _keep_open(
        self, rendered: list[tuple[SubmissionUnit, Rendered]]
    ) -> list[tuple[SubmissionUnit, Rendered]]:
        """The units whose predecessors are all live in Slurm; the others are refused for now."""
        good = await self._predecessors.list_open([unit.first.needs for unit, _ in rendered])
        for (unit, _), one in zip(rendered, good, strict=True):
            if not one:
                self._refuse(unit, "what it waits for may be over: Overspan waits for it", "Dependency")
        return [pair for pair, one in zip(rendered, good, strict=True) if one]

    async def _prepare(self, unit: SubmissionUnit, facts: ClusterFacts, held: bool) -> Rendered | None:
        """Write the files of a unit, and return its command; None if it cannot be submitted now."""
        first = replace(unit.first, access=unit.access)
        try:
            staged, inline = await self._stage(first, facts.site)
            rendered = self._renderer.render(staged, replace(facts, elements=unit.elements, inline=inline), held)
            await self._bring(staged, rendered, facts.site)
        except (InvalidRequest, Rejected) as error:
            self._refuse(unit, explain(error))
        except OverspanError as error:
            if error.transient:
                raise
            self._refuse(unit, error.message, "Resources")
        else:
            return rendered
        return None

    def _refuse(self, unit: SubmissionUnit, message: str, passing: str = "") -> None:
        """Refuse all launches of a unit; with a `passing` reason only for now."""
        for launch in unit.launches:
            self._in_doubt.pop(launch.token, None)
            reason = passing or "BadConstraints"
            self._known[launch.token] = Refusal(launch.token, message, bool(passing), reason)
            if not (passing or is_element(launch)):
                self.references.refuse(name_run(launch))

    async def _gather_facts(self, launches: Sequence[Launch]) -> ClusterFacts:
        """The facts for rendering; with the cluster's nodes if a launch needs them."""
        site = await self._queries.site()
        groups = any(needs_nodes(launch.job) for launch in launches)
        return ClusterFacts(site, await self._queries.nodes() if groups else ())

    async def _bring(self, launch: Launch, rendered: Rendered, site: Site) -> None:
        """Write the files that have to exist before the submission, in parallel."""
        write = self._queries.transport.write
        stores = render_stores(list_stores(launch.job), self._stores, self._renderer.folder(launch, site))
        await self._refer(launch, site, stores)
        works = [write(file.path, file.data, file.mode) for file in rendered.files]
        works += [write(path, data) for path, data in stores.items()]
        settings = self._renderer.settings
        if settings.data_cache and any(task.storage for task in launch.job.spec.tasks):
            path = name_cache_settings(self._renderer.folder(launch, site))
            works.append(write(path, render_cache_settings(settings.data_cache, to_bytes(settings.data_cache_size))))
        if self._renderer.needs_application(launch):
            works.append(self.library.bring(resolve_root(self._renderer.root, site.home)))
        for failure in await asyncio.gather(*works, return_exceptions=True):
            if isinstance(failure, BaseException):
                raise failure
        self.renewals.note(stores)

    async def _refer(self, launch: Launch, site: Site, stores: Iterable[str]) -> None:
        """Add references to the shared files and links that the launch uses, to its credentials and its access.

        Who moves the data removes those at the end; where Slurm ends that too, they go with the last reference.
        """
        if not self._renderer.settings.shared_root:
            # Without a shared folder a run makes its links on its node, and removes them itself.
            return
        root, run = resolve_root(self._renderer.root, site.home), name_run(launch)
        links = list_links(self._renderer.move(launch, site), site.home, f"{root}/runs/")
        files = [path for path in (*stores, self._renderer.access_path(launch, site)) if path]
        await self.references.add(root, run, [*links, *map(name_file, files)])
        if self._renderer.needs_application(launch):
            await self.references.add_library(root, run)

    async def _stage(self, launch: Launch, site: Site) -> tuple[Launch, InlineFiles | None]:
        """The launch with the paths of its staged files, and the files that travel inline."""
        if isinstance(launch, PartLaunch) and launch.order is not None:
            # The files were staged when the set was submitted.
            return launch, await self._read_inline(launch, site)
        return await self._files.bring(launch, resolve_root(self._renderer.root, site.home), name_run(launch))

    async def _read_inline(self, launch: PartLaunch, site: Site) -> InlineFiles | None:
        """The inline files with which a set was submitted, where it had any."""
        if self._renderer.settings.shared_root:
            return None
        path = f"{self._renderer.folder(launch, site)}/{inline_path(launch.kept, launch.job.launch)}"
        try:
            return InlineFiles((await self._queries.transport.read(path, 0, _LARGEST)).data)
        except NotFound:
            return None

    async def _read(
        self, unit: SubmissionUnit, done: Done | None, silence: str
    ) -> SlurmFailure | SubmissionUnit | None:
        """Process an answer of sbatch. Returns a failure that says nothing about the job, or a smaller unit to try."""
        native = read_submitted(done.text) if done is not None and done.rc == 0 else ""
        if native:
            for launch in unit.launches:
                await self._accept(launch, int(native), 0)
            self._throttles.note(unit.first, int(native))
            return None
        failure = (
            SlurmFailure(FailureKind.NO_ANSWER, silence)
            if done is None
            else read_failure(done.words or done.text, done.rc)
        )
        if failure.uncertain:
            for launch in unit.launches:
                self._mark_in_doubt(launch, failure.message)
            return None
        if failure.kind in (FailureKind.UNREACHABLE, FailureKind.MISSING):
            return failure
        too_many = failure.kind is FailureKind.LIMIT or SIZE_WORDS in failure.message
        passing = "AssocMaxSubmitJobLimit" if failure.kind is FailureKind.LIMIT else "Resources" * failure.transient
        if too_many and len(unit.launches) > 1:
            # A site accepts an array as a whole or not at all: try half of it now, and the rest later.
            half = unit.half()
            self._refuse(SubmissionUnit(unit.launches[len(half.launches) :]), failure.message, "AssocMaxSubmitJobLimit")
            return half
        self._refuse(unit, failure.message, passing)
        return None

    async def _release_sent(self, rendered: Sequence[tuple[SubmissionUnit, Rendered]]) -> None:
        held = [launch for unit, one in rendered if one.release for launch in unit.launches]
        answers = [self._known.get(launch.token) for launch in held]
        try:
            await self._release([read_native(answer) for answer in answers if isinstance(answer, Accepted)])
        except OverspanError:
            self._doubt_accepted(held)
            raise

    async def _accept(self, launch: Launch, native: int, run: int) -> None:
        self._in_doubt.pop(launch.token, None)
        site = await self._queries.site()
        if is_group(launch.job):
            handle = make_group_handle(launch.job, self._renderer.folder(launch, site), [GroupPart(native)])
            self._known[launch.token] = Accepted(launch.token, str(handle), str(native))
        else:
            folder = self._renderer.work_dir(launch, site)
            single = make_handle(launch.job, native, run, self._renderer.paths(launch, native, site), folder)
            self._known[launch.token] = Accepted(launch.token, str(single), single.name)


def _stays_held(launch: Launch) -> bool:
    """Whether a native job stays held after its submission: by the user's hold, or for the rest of its set."""
    return launch.job.held or starts_together(launch)


async def call_together(
    transport: Transport, calls: Sequence[Call], timeout: float
) -> list[Done | OverspanError | None]:
    """Run calls by several programs in parallel, roughly in order; by a single one if the site limits the query rate.

    Returns for each call its end, None if that is unknown, or an error if the call was not made.
    """
    free = not isinstance(transport, RateLimited) or transport.bucket is None
    count = min(PROGRAMS, -(-len(calls) // LEAST_CALLS)) if free else 1
    programs = [transport.run_all(calls[number::count], timeout) for number in range(count)]
    outcomes: list[Done | OverspanError | None] = [None] * len(calls)
    for number, found in enumerate(await asyncio.gather(*programs, return_exceptions=True)):
        if isinstance(found, OverspanError):
            outcomes[number::count] = [found] * len(calls[number::count])
        elif isinstance(found, BaseException):
            raise found
        else:
            outcomes[number::count] = found
    return outcomes

"""The local scheduler: starts launches from the queue, passes orders on, and frees the resources of ended launches."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from overspan.adapters.contract import NOT_HERE, Accepted, Launch, Order, Refusal
from overspan.adapters.local.files import journals
from overspan.adapters.local.files.launch_files import LaunchFiles, mark_ended, parse_handle
from overspan.adapters.local.launches import launches
from overspan.adapters.local.launches.gated_launches import list_unwanted, write_places
from overspan.adapters.local.launches.launches import GrantFacts, LocalLaunch
from overspan.adapters.local.launches.lost_launches import LostLaunch, LostLaunches, find_damage
from overspan.adapters.local.launches.observation import Reports
from overspan.adapters.local.queue.addresses import Addresses
from overspan.adapters.local.queue.admission import GPUS_UNKNOWN, NEVER_FITS, find_misfit, find_refusal
from overspan.adapters.local.queue.array_throttles import ThrottledQueue
from overspan.adapters.local.queue.booking import Bookings, Variant
from overspan.adapters.local.queue.capacity import Capacity
from overspan.adapters.local.queue.partition_limits import list_limits
from overspan.adapters.local.queue.preemption import RunningLaunch, choose_victims
from overspan.adapters.local.queue.start_estimates import estimate_start
from overspan.adapters.local.settings import OFF, REQUEUE, Settings
from overspan.adapters.local.supervisors.supervisor_names import SupervisorChoice
from overspan.adapters.local.supervisors.supervisors import Supervisors, sweep_hosts
from overspan.adapters.settings import to_bytes
from overspan.bridge.model.causes import Cause
from overspan.bridge.model.events import Cancel, Event, LaunchLost, Preempt, Refused, SetTime, Signal
from overspan.bridge.model.job import Placement
from overspan.bridge.model.storage import StoreAccess
from overspan.bridge.runtime.core.loss_records import is_damage, list_losses, word_damage
from overspan.bridge.runtime.core.mounts import sweep_links
from overspan.bridge.runtime.core.shortages import is_shortage

_log = logging.getLogger(__name__)

TASK_LIMIT = "JobArrayTaskLimit"
"""Slurm's reason for an element that waits because of its array's throttle."""
_CHECKED_AT_ONCE = 50
"""Journals that one round checks without a wake-up."""
_MOST_ROUNDS = 30
"""Rounds after which every journal was checked, at most, however many there are."""
_TAKEN_AT_ONCE = 500
"""Waiting launches that are taken over before others have their turn."""


class Dispatch:
    """The live launches. Not reentrant: its owner calls one coroutine at a time."""

    def __init__(
        self,
        root: str,
        settings: Settings,
        cluster: str,
        node: str,
        boot_id: str,
        *,
        stores: Mapping[str, StoreAccess] = MappingProxyType({}),
    ) -> None:
        self.runs: dict[str, LocalLaunch] = {}
        self.reports = Reports(root, self.runs)
        self.queue = ThrottledQueue()
        self.bookings = Bookings(Capacity(0, 0))
        self.ended_hosts: set[str] = set()
        self.lost_launches = LostLaunches()
        self.fresh_tokens: set[str] = set()
        """Of gated launches that came while a release is under way: what is wanted was listed before them."""
        self.attention = asyncio.Event()
        self.stalled = False
        """Whether something could not be written and is to be tried again."""
        self._root = root
        self._settings = settings
        self._cluster = cluster
        self._node = node
        self._boot_id = boot_id
        self._stores = stores
        self._addresses = Addresses()
        self._hosts = Supervisors(root, settings.python, self._list_hosted, self._note_host_end)
        self._supervisors = SupervisorChoice()
        self._head = ""
        self._outdated = False
        """Whether an order has changed the estimated start of the first in the queue."""
        self._round = 0

    @property
    def live(self) -> bool:
        """Whether any launch has a supervisor."""
        return len(self.bookings) > 0

    @property
    def live_jobs(self) -> set[int]:
        """The jobs with a live launch, or a lost one that is being ended."""
        ending = [lost.place.job for lost in self.lost_launches.list_ending()]
        return {run.place.job for run in self.runs.values()}.union(ending)

    @property
    def busy(self) -> bool:
        """Whether rounds are needed without a wake-up."""
        return self.live or self.stalled or bool(self.lost_launches.list_ending()) or self.reports.unsettled

    # --- submission --------------------------------------------------------------------------------------------------

    async def load(self, capacity: Capacity, waiting: Sequence[Launch]) -> None:
        """Take over the launches of an earlier daemon: granted ones from the disk, `waiting` ones from the store.

        Those of `waiting` that have files were granted, or have ended, without the store's knowing it yet.
        """
        self.bookings = Bookings(capacity)
        found = await asyncio.to_thread(launches.load_launches, self._root, capacity, self._boot_id)
        for run in found:
            self.enter(run)
        for start in range(0, len(waiting), _TAKEN_AT_ONCE):
            part = await asyncio.to_thread(self._make_waiting, waiting[start : start + _TAKEN_AT_ONCE])
            for run in part:
                self.enter(run)
            self._refuse_misfits(part)
        names = {run.host for run in found}
        for name in names:
            self._supervisors.restore(name)
            await self._hosts.hand(name, self._list_hosted(name))
        await asyncio.to_thread(sweep_hosts, self._root, names)
        try:
            await asyncio.to_thread(sweep_links, self._root)
        except OSError as error:
            _log.warning("links of launches that are over cannot be removed: %s", error)

    def learn_gpus(self, capacity: Capacity) -> None:
        """Go on with a capacity whose GPUs were unknown: what waits for more than that is refused."""
        self.bookings = self.bookings.resize(capacity)
        waiting = [run for run in self.runs.values() if run.booking is None]
        for run in waiting:
            launches.refit(run, capacity)
        self._refuse_misfits(waiting)

    def _refuse_misfits(self, waiting: Sequence[LocalLaunch]) -> None:
        """Refuse the waiting launches that this machine can never hold, as far as its GPUs are known."""
        # Most jobs ask for the same.
        fits: dict[tuple[Variant, ...], bool] = {}
        for run in waiting:
            variants = run.ticket.variants
            if variants not in fits:
                fits[variants] = find_misfit(variants, self.bookings.capacity) in ("", GPUS_UNKNOWN)
            if not fits[variants]:
                self._note(run, [Refused(time.time(), NEVER_FITS)])

    def _make_waiting(self, waiting: Sequence[Launch]) -> list[LocalLaunch]:
        places = [LaunchFiles(self._root, launch.job.id, launch.job.launch) for launch in waiting]
        return [
            launches.make_run(place, launch, self.bookings.capacity)
            for place, launch in zip(places, waiting, strict=True)
            if not launches.has_files(place)
        ]

    async def submit(self, wanted: Sequence[Launch]) -> list[Accepted | Refusal]:
        """Put launches in the queue."""
        answers = await asyncio.to_thread(lambda: [self._judge(launch) for launch in wanted])
        for _, run in answers:
            if run is not None and run.handle not in self.runs:
                self.enter(run)
                if run.ticket.gated:
                    self.fresh_tokens.add(run.ticket.token)
        return [answer for answer, _ in answers]

    def _judge(self, launch: Launch) -> tuple[Accepted | Refusal, LocalLaunch | None]:
        """The answer to a submission, and the launch to put in the queue if it is new."""
        place = LaunchFiles(self._root, launch.job.id, launch.job.launch)
        accepted = Accepted(launch.token, place.handle, place.handle)
        known = self.runs.get(place.handle)
        if place.handle in self.lost_launches:
            return accepted, None
        try:
            token = launches.find_launch(place) if known is None else known.ticket.token
        except OSError as error:
            return Refusal(launch.token, f"the run directory cannot be read: {error}", transient=True), None
        if token is None and self.reports.has_left(place.handle):
            token = launch.token
        if token == launch.token:
            return accepted, None
        if token is not None:
            return Refusal(launch.token, f"job {place.job} was launched here before, by another submission"), None
        if not launch.wanted:
            return Refusal(launch.token, NOT_HERE), None
        if launch.job.spec.across and place.job in self.live_jobs:
            text = "the launch before is being ended on this machine"
            return Refusal(launch.token, text, transient=True, reason="Cleaning"), None
        run = launches.make_run(place, launch, self.bookings.capacity)
        assert run.launch is not None
        refusal = find_refusal(run.launch.job, self._settings, self.bookings.capacity)
        if refusal == GPUS_UNKNOWN:
            return Refusal(launch.token, refusal, transient=True, reason="Resources"), None
        return (Refusal(launch.token, refusal), None) if refusal else (accepted, run)

    def enter(self, run: LocalLaunch) -> None:
        """Follow a launch: a granted one has its booking, a waiting one its place in the queue."""
        self.runs[run.handle] = run
        if run.booking is not None:
            self.bookings.restore(run.handle, run.booking)
            self._addresses.take(run.addresses)
            self.queue.start(run.handle, run.rank)
            return
        if not run.held:
            self._enqueue(run)
        if run.array is not None and run.launch is not None:
            self.queue.set_limit(run.array, run.launch.throttle)

    def _enqueue(self, run: LocalLaunch) -> None:
        """Add a launch to the queue. An array element gets its reason later, when its throttle has been applied."""
        self._requeue(run)
        if run.array is None:
            self.reports.set_reason(run, "Priority")

    def _requeue(self, run: LocalLaunch) -> None:
        self.queue.add(run.handle, run.rank, run.launch.throttle if run.launch is not None else None)

    # --- starting ----------------------------------------------------------------------------------------------------

    async def schedule(self) -> None:
        """Start launches from the head of the queue while they fit."""
        self.stalled = False
        moves = self.queue.settle()
        chosen = self._choose()
        if chosen:
            await self._grant(chosen)
        for handle in moves.admitted:
            if handle in self.queue:
                self.reports.set_reason(self.runs[handle], "Priority")
        for handle, throttled in self.queue.list_parked():
            self.reports.set_reason(self.runs[handle], TASK_LIMIT if throttled else "Priority")
        if self.queue.head and self._settings.preempt != OFF:
            await self._preempt(self.runs[self.queue.head])
        self._set_reasons()

    async def _grant(self, chosen: Sequence[LocalLaunch]) -> None:
        names = self._settings.names
        limit = to_bytes(self._settings.data_cache_size)
        facts = GrantFacts(self._cluster, time.time(), self._node, names, self._boot_id, self._stores, limit)
        for run in chosen:
            assert run.launch is not None
            job = run.launch.job
            launches.limit(run, list_limits(job, self._settings.partition(job.spec.partition), facts.at))
        failed = await asyncio.to_thread(launches.write_grants, chosen, facts)
        for run, error in failed:
            self._release(run)
            self.queue.remove(run.handle)
            if is_damage(error):
                await self.lose(run.place, word_damage(error))
                continue
            self._requeue(run)
            reason = f"Resources: {error.strerror or error}"
            # It is tried again each second, and told once.
            if run.reason != reason:
                _log.warning("launch %s cannot be granted: %s", run.handle, error)
            self.reports.set_reason(run, reason)
            self.stalled = True
        by_host: dict[str, list[LaunchFiles]] = {}
        for run in chosen:
            if run.booking is not None:
                self.reports.drop_reason(run)
                by_host.setdefault(run.host, []).append(run.place)
        for name, places in by_host.items():
            await self._hosts.hand(name, places)

    def _choose(self) -> list[LocalLaunch]:
        chosen: list[LocalLaunch] = []
        live: Counter[str] | None = None
        while self.queue.head:
            run = self.runs[self.queue.head]
            run.booking = self.bookings.book(run.handle, run.ticket.variants)
            if run.booking is None:
                break
            self.queue.start(run.handle, run.rank)
            run.addresses = tuple(self._draw(run, member.task, member.node) for member in run.booking.members)
            live = live if live is not None else Counter(other.host for other in self._granted() if other is not run)
            run.host = self._supervisors.pick(run.ticket.group, live)
            live[run.host] += 1
            chosen.append(run)
        return chosen

    def _draw(self, run: LocalLaunch, task: str, node: int) -> str:
        """A member's address: this machine's own where others have to reach it."""
        return self._settings.address if run.ticket.gated else self._addresses.draw(run.place.job, task, node)

    def _set_reasons(self) -> None:
        """Set the reasons of waiting launches: Resources for the first in the queue, Priority for the others."""
        head = self.queue.head
        if head != self._head and self._head in self.queue:
            self.reports.set_reason(self.runs[self._head], "Priority")
        if (
            head
            and not self.stalled
            and (head != self._head or self._outdated or self.runs[head].reason != "Resources")
        ):
            run = self.runs[head]
            ends = [(holder.ends_by, holder.handle) for holder in self._granted()]
            self.reports.set_reason(run, "Resources", estimate_start(self.bookings, run.ticket.variants, ends))
        self._head, self._outdated = head, False

    async def _preempt(self, first: LocalLaunch) -> None:
        """Preempt running launches if the first in the queue needs their resources."""
        holders = [
            RunningLaunch(run.handle, run.rank.behind, run.granted_at, run.booking, run.leaving)
            for run in self._granted()
            if run.booking is not None and not run.ticket.gated
        ]
        for handle in choose_victims(self.bookings, first.ticket.variants, first.rank.behind, holders):
            run = self.runs[handle]
            requeue = self._settings.preempt == REQUEUE and run.ticket.requeue
            event = Preempt(time.time(), requeue, self._settings.preempt_grace, f"job {first.place.job}")
            try:
                await self._order(run, [Order(f"preempt-{handle}-{first.handle}", handle, event)])
            except OSError as error:
                _log.warning("launch %s cannot be preempted: %s", handle, error)
                self.stalled = True

    # --- ending ------------------------------------------------------------------------------------------------------

    async def settle(self, woken: set[str], check_others: bool, all_launches: bool = False) -> None:
        """Read the journals of the `woken` launches; those that have ended free their resources.

        `check_others`: also check some of the others, whose wake-up may have been lost. A wake-up is lost only if its
        supervisor could not write it; after that, `all_launches` are checked.
        """
        if check_others or all_launches:
            self._hosts.poll()
            sizes = [(run.place, run.size) for run in self._choose_checked(all_launches)]
            changed = await asyncio.to_thread(launches.find_changed, sizes)
            woken = woken | changed.keys()
            for handle, size in changed.items():
                self.runs[handle].size = size
        woken_runs = [run for run in map(self.runs.get, woken) if run is not None and run.booking is not None]
        for run in woken_runs:
            self._hosts.note_work(run.host)
        for run in woken_runs:
            self.reports.mark(run.handle)
        for run in woken_runs:
            if await self._is_over(run):
                await self._drop(run)
        while self.ended_hosts:
            name = self.ended_hosts.pop()
            try:
                await self._settle_host(name)
            except BaseException:
                self.ended_hosts.add(name)
                raise
        await self._end_lost_launches()

    def _choose_checked(self, all_launches: bool) -> list[LocalLaunch]:
        """The running launches to check in this round: a part in rotation, so that many cost no more than few."""
        granted = [run for run in self._granted() if run.handle not in self.lost_launches]
        rounds = 1 if all_launches else min(_MOST_ROUNDS, -(-len(granted) // _CHECKED_AT_ONCE))
        self._round += 1
        return [run for run in granted if rounds < 2 or run.place.job % rounds == self._round % rounds]

    async def _settle_host(self, name: str) -> None:
        """Handle the end of a supervisor: its unfinished launches need another one."""
        for run in self._hosted(name):
            if await self._is_over(run):
                self.reports.mark(run.handle)
                await self._drop(run)
            elif self._hosts.is_hopeless(name):
                await self._give_up(run)
            elif self._hosts.find_shortage(name):
                self.reports.set_reason(run, f"Resources: {self._hosts.find_shortage(name)}")
        if self._hosted(name):
            self._hosts.revive(name)
        else:
            await self._hosts.forget(name)

    async def _give_up(self, run: LocalLaunch) -> None:
        """End a launch that no supervisor could begin; one that has begun is never given up."""
        event = LaunchLost(time.time(), run.place.launch, Cause.LAUNCH.value, f"no supervisor starts; see {run.host}")
        try:
            if await asyncio.to_thread(journals.has_started, run.place):
                return
            await asyncio.to_thread(launches.end_launch, run.place, event)
        except OSError as error:
            if not is_damage(error):
                raise
            await self.lose(run.place, word_damage(error))
            return
        self.reports.mark(run.handle)
        await self._drop(run)

    async def _is_over(self, run: LocalLaunch) -> bool:
        """Whether a launch's files contain its end. If they are damaged, the launch is lost."""
        try:
            return await asyncio.to_thread(journals.is_over, run.place)
        except OSError as error:
            if is_damage(error):
                await self.lose(run.place, word_damage(error))
            elif is_shortage(error):
                raise
            return False

    async def lose(self, place: LaunchFiles, why: str) -> LostLaunch:
        """Give up a launch that cannot be supervised: end its processes, then report its end."""
        lost = self.lost_launches.get(place.handle)
        if lost is None:
            run = self.runs.get(place.handle)
            begun = run is None or run.booking is not None
            lost = await self.lost_launches.open(place, why, begun)
            if not begun:
                self.queue.remove(place.handle)
            self.attention.set()
            _log.warning("%s", lost.describe())
        return lost

    async def _end_lost_launches(self) -> None:
        """Find lost launches, end their processes and report their ends."""
        for name in await asyncio.to_thread(list_losses, self._root):
            if name in self.runs and name not in self.lost_launches:
                await self.lose(self.runs[name].place, "")
        for handle, known in self.reports.take_suspects().items():
            place = parse_handle(self._root, handle)
            why = known or await asyncio.to_thread(find_damage, place)
            if why and handle not in self.lost_launches:
                await self.lose(place, why)
            elif not why:
                self.reports.read_again(handle)
        async for lost, events in self.lost_launches.end():
            self.reports.report_end(lost.place.handle, events)
            run = self.runs.get(lost.place.handle)
            if run is not None:
                await self._drop(run)
            else:
                await self._remove_ticket(lost.place)

    async def _drop(self, run: LocalLaunch) -> None:
        self._release(run)
        self.queue.remove(run.handle)
        self.runs.pop(run.handle, None)
        if run.launch is None:
            await self._remove_ticket(run.place)

    async def _remove_ticket(self, place: LaunchFiles) -> None:
        try:
            await asyncio.to_thread(mark_ended, place)
            await asyncio.to_thread(sweep_links, place.root, place.handle)
        except OSError as error:
            _log.warning("%s, or a link of its launch, cannot be removed: %s", place.ticket, error)

    def _release(self, run: LocalLaunch) -> None:
        self.bookings.release(run.handle)
        self._addresses.release(run.addresses)
        run.booking, run.addresses = None, ()

    async def release(self, handles: Collection[str], tokens: frozenset[str]) -> None:
        """End gated launches that the daemon no longer wants; those of `tokens` are about to have a handle."""
        for run in list_unwanted(self.runs.values(), handles, tokens | self.fresh_tokens):
            event = LaunchLost(time.time(), run.place.launch, Cause.CANCEL.value, "no longer wanted")
            await self._order(run, [Order(f"release-{run.handle}", run.handle, event)])
            run.leaving = True

    async def place(self, handle: str, members: Sequence[Placement]) -> None:
        """Tell a gated launch where members of its group are that run elsewhere. Raises OSError."""
        run = self.runs.get(handle)
        if run is not None and run.booking is not None and members:
            await self._order(run, [write_places(handle, members)])

    # --- orders ------------------------------------------------------------------------------------------------------

    async def order(self, orders: Sequence[Order]) -> list[Refusal | None]:
        """Carry out orders: on waiting launches here, on others through their supervisors."""
        by_run: dict[str, list[Order]] = {}
        for order in orders:
            by_run.setdefault(order.handle, []).append(order)
        failures: dict[str, Refusal] = {}
        for handle, given in by_run.items():
            try:
                lost = await self._deliver(handle, given)
            except OSError as error:
                text = f"the order cannot be written: {error}"
                failures.update({order.token: Refusal(order.token, text, transient=True) for order in given})
                continue
            if lost is not None:
                for order in given:
                    lost.obey(order.event)
                self.attention.set()
        return [failures.get(order.token) for order in orders]

    async def _deliver(self, handle: str, orders: Sequence[Order]) -> LostLaunch | None:
        """Carry out orders; returns the launch if it is lost. Raises OSError if nothing can be written."""
        run = self.runs.get(handle)
        known = self.lost_launches.get(handle)
        if known is not None:
            return known
        if run is None:
            return await self._find_lost(handle, orders)
        try:
            await self._order(run, orders)
        except OSError as error:
            if is_damage(error):
                return await self.lose(run.place, word_damage(error))
            lost = await self._deliver_unwritten(run, orders, error)
            if lost is None:
                raise
            return lost
        return await self._judge_host(run, orders)

    async def _deliver_unwritten(self, run: LocalLaunch, orders: Sequence[Order], error: OSError) -> LostLaunch | None:
        """Pass orders that end work although nothing can be written: the job itself may have filled the disk.

        The orders stay in the outbox and are written when there is space; the supervisor recognises their tokens.
        """
        urgent = [(order.token, order.event) for order in orders if isinstance(order.event, Cancel | Signal)]
        cancelled = any(isinstance(event, Cancel) and not launches.is_part(run, event) for _, event in urgent)
        if urgent and not self._hosts.send_urgent(run.host, run.place, urgent) and cancelled:
            return await self.lose(run.place, f"it has no supervisor, and nothing can be written: {error.strerror}")
        return None

    async def _find_lost(self, handle: str, orders: Sequence[Order]) -> LostLaunch | None:
        """Treat a cancelled launch as lost if it is unknown here and its files do not show an end."""
        place = parse_handle(self._root, handle)
        if self.reports.has_left(handle) or not any(isinstance(order.event, Cancel) for order in orders):
            return None
        try:
            if await asyncio.to_thread(journals.is_over, place):
                return None
        except OSError as error:
            return await self.lose(place, word_damage(error))
        return await self.lose(place, await asyncio.to_thread(find_damage, place) or f"{place.plan} cannot be read")

    async def _judge_host(self, run: LocalLaunch, orders: Sequence[Order]) -> LostLaunch | None:
        """Treat a cancelled launch as lost if no supervisor can be started for it."""
        cancelled = any(isinstance(order.event, Cancel) and not order.event.task for order in orders)
        if not cancelled or run.booking is None or not self._hosts.is_hopeless(run.host):
            return None
        return await self.lose(run.place, f"no supervisor starts; see {self._root}/hosts/{run.host}/log")

    async def _order(self, run: LocalLaunch, orders: Sequence[Order]) -> None:
        await asyncio.to_thread(launches.read_tokens, run)
        assert run.tokens is not None
        fresh = list({order.token: order.event for order in orders if order.token not in run.tokens}.items())
        if not fresh:
            return
        if run.booking is None:
            run.kept += [pair for pair in fresh if isinstance(pair[1], SetTime) or launches.is_part(run, pair[1])]
            self._note(run, launches.select_notes(run, fresh))
        else:
            await asyncio.to_thread(launches.write_orders, run, fresh)
            for _, event in fresh:
                launches.note_event(run, event)
            self._hosts.wake(run.host)
            self._outdated = True
        run.tokens.update(order.token for order in orders)

    def _note(self, run: LocalLaunch, noted: Sequence[Event]) -> None:
        """Apply what happened to a waiting launch and report it; its order stays owed until that report is stored."""
        if not noted:
            return
        last = next((place for place, event in enumerate(noted) if launches.is_end(run, event)), None)
        if last is not None:
            noted = noted[: last + 1]
        for event in noted:
            launches.note_event(run, event)
        self.reports.tell(run.handle, noted)
        if last is not None:
            self.queue.remove(run.handle)
            del self.runs[run.handle]
            self.reports.leave(run.handle)
        elif run.held:
            self.queue.remove(run.handle)
            run.reason = ""
        else:
            self._enqueue(run)

    def set_throttle(self, array: int, limit: int | None) -> None:
        """Set an array's throttle, also for those of its launches that are held."""
        self.queue.set_limit(array, limit)
        for run in self.runs.values():
            if run.array == array and run.launch is not None:
                run.launch = replace(run.launch, throttle=limit)

    # --- supervisors -------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Stop watching the supervisors; they go on."""
        self._hosts.close()

    def _hosted(self, name: str) -> list[LocalLaunch]:
        return [run for run in self._granted() if run.host == name and run.handle not in self.lost_launches]

    def _granted(self) -> list[LocalLaunch]:
        return [run for run in map(self.runs.get, self.bookings.keys()) if run is not None]

    def _list_hosted(self, name: str) -> list[LaunchFiles]:
        return [run.place for run in self._hosted(name)]

    def _note_host_end(self, name: str) -> None:
        self.ended_hosts.add(name)
        self.attention.set()

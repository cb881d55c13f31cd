"""Visits the mailboxes of workers that cannot connect to the daemon.

A route is what one visit reaches: on Slurm the mailboxes of all workers, in pods one. Each route has a visit that waits
for something new, and another one as soon as there are answers to leave. A request is answered once for each name that
it has, and may be taken twice: what workers and daemon say are differences, so nothing depends on that. An answer is
kept until a visit says that it was left, or the worker asks something else.

A file outlives the process that has left it. So the first request that this daemon finds says nothing of the worker: it
is answered with 503, which has a worker ask again, by another name.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from overspan.adapters.abilities import OutputPiece, WorkerMessage
from overspan.adapters.mailboxes import Mailboxes, MailboxOrder, MailboxRequest, VisitReport, pack_visit, read_report
from overspan.adapters.worker_messages import EXCHANGE_PATH, OUTPUT_PATH, read_message, read_piece
from overspan.bridge.controller.core.clusters import Clusters
from overspan.bridge.controller.core.registry import JobEntry
from overspan.bridge.controller.core.rights import deny
from overspan.bridge.lifecycle.retries import backoff_delay
from overspan.bridge.model.errors import Denied, InvalidRequest, OverspanError, Unreachable
from overspan.bridge.model.spec import Backoff
from overspan.bridge.runtime.pool.mailbox_visit import LEAVE, READ

log = logging.getLogger(__name__)

AGAIN = Backoff(first=1.0, factor=2.0, limit=30.0, jitter=0.2)
"""How soon a route that failed is tried again."""
VISIT_SECONDS = 60.0
"""How much longer than it waits a visit may take."""
GATHER_SECONDS = 0.02
"""How long an answer waits for others that go with the same visit."""
IDLE_SECONDS = 5.0
"""Seconds between two visits of workers that hold nothing, where one reaches them all: none of them has news."""
EXPECT_SECONDS = 10.0
"""How long after an answer a worker's next question is expected, so that it is not found a pause later only."""
LEAST_SECONDS = 0.02
"""Seconds between two visits, whatever they find."""
ASK_LANE = "ask"
"""Of the worker's thread that waits for news."""
Serve = Callable[[WorkerMessage | OutputPiece], Awaitable[dict[str, Any]]]
"""Answers a message; Denied for one that is of no worker."""


class VisitKind(Enum):
    """What a visit is for."""

    LOOK = "look"
    """To wait for requests."""
    BRING = "bring"
    """To leave answers, and the program."""


@dataclass
class WorkerMailbox:
    """The mailbox of one launch of a worker, as far as this daemon knows it. Times are the event loop's."""

    job: int
    handle: str
    seen: dict[str, str] = field(default_factory=dict)
    """The name of the last request of each lane."""
    answers: dict[str, dict[str, Any]] = field(default_factory=dict)
    """What is to be left there, by lane."""
    wants_program: bool = False
    busy: bool = True
    """Whether its worker holds launches, or has not said so yet."""
    troubles: dict[VisitKind, str] = field(default_factory=dict)
    """What the last visit of each kind could not do there. Both are kept apart: a full disk can still be read."""
    alive: bool = False
    """Whether a lane has had two requests, so that there was a process to leave the second."""
    failures: int = 0
    """How often in a row nothing could be left there."""
    again_at: float = 0.0
    """Before this time nothing is brought there."""
    expected_until: float = 0.0
    """Until when the worker's next question is looked for."""

    def is_due(self, kind: VisitKind, now: float) -> bool:
        """Whether a visit of that kind goes there."""
        if kind is VisitKind.LOOK:
            return not self.wants_program
        return now >= self.again_at and (bool(self.answers) or self.wants_program)

    def is_quiet(self, now: float) -> bool:
        """Whether the worker has nothing to say until it is given something."""
        return not self.busy and now >= self.expected_until

    def note_left(self, answers: Mapping[str, object], now: float) -> None:
        """A visit has left these answers, and the program where it was wanted."""
        self.failures, self.again_at, self.wants_program = 0, 0.0, False
        self.answers = {lane: each for lane, each in self.answers.items() if answers.get(lane) is not each}
        if ASK_LANE in answers:
            self.expected_until = now + EXPECT_SECONDS

    def note_refused(self, now: float) -> float:
        """Nothing could be left there: seconds until that is tried again, longer each time."""
        pause = backoff_delay(AGAIN, self.failures, f"{self.handle}.{self.failures}")
        self.failures += 1
        self.again_at = now + pause
        return pause


class MailboxRoute:
    """The mailboxes that one visit reaches, and the tasks that visit them."""

    def __init__(self, cluster: str) -> None:
        self.cluster = cluster
        self.boxes: dict[str, WorkerMailbox] = {}
        """By the job's number as a text."""
        self.outgoing = asyncio.Event()
        self.stirred = asyncio.Event()
        self.tasks: list[asyncio.Task[None]] = []
        self.serving: set[asyncio.Task[None]] = set()
        self.troubles: dict[VisitKind, str] = {}
        """Why the last visit of each kind failed."""

    def find_due(self, kind: VisitKind) -> dict[str, WorkerMailbox]:
        """The mailboxes to which a visit of that kind goes now."""
        now = asyncio.get_running_loop().time()
        return {key: box for key, box in self.boxes.items() if box.is_due(kind, now)}

    def is_quiet(self) -> bool:
        """Whether no worker has anything to say until it is given something."""
        now = asyncio.get_running_loop().time()
        return all(box.is_quiet(now) for box in self.boxes.values())

    def close(self) -> None:
        """End its tasks; requests that are being answered are taken again by the next one."""
        for task in (*self.tasks, *self.serving):
            task.cancel()


@dataclass(frozen=True)
class Visit:
    """One visit: to which mailboxes it goes, the answers that it has for each, and for how long it may wait."""

    kind: VisitKind
    boxes: Mapping[str, WorkerMailbox]
    answers: Mapping[str, Mapping[str, Any]]
    wait: float


class WorkerMailboxes:
    """The routes of all clusters."""

    def __init__(self, clusters: Clusters, serve: Serve, build_program: Callable[[], bytes]) -> None:
        self._clusters = clusters
        self._serve = serve
        self._build_program = build_program
        self._routes: dict[tuple[str, int], MailboxRoute] = {}

    def follow(self, entry: JobEntry) -> None:
        """A worker has changed: its mailbox is visited as long as it runs."""
        worker, job = entry.job.spec.worker, entry.job
        if worker is None or not worker.mailbox:
            return
        if job.over or job.started_at is None or not entry.launched:
            self._leave(job.id)
            return
        known = self._find(job.id)
        if known is not None and known.handle == entry.handle:
            return
        self._leave(job.id)
        mailboxes = self._clusters.find_traits(entry.cluster).mailboxes
        if mailboxes is not None:
            self._add(entry, mailboxes)

    def find_trouble(self, job: int) -> str:
        """Why the mailbox of a worker cannot be visited at the moment; empty where it can."""
        for route in self._routes.values():
            box = route.boxes.get(str(job))
            if box is not None:
                return next((text for text in (*route.troubles.values(), *box.troubles.values()) if text), "")
        return ""

    async def close(self) -> None:
        """Visit none any more."""
        tasks = [task for route in self._routes.values() for task in (*route.tasks, *route.serving)]
        for route in self._routes.values():
            route.close()
        self._routes.clear()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _find(self, job: int) -> WorkerMailbox | None:
        return next((route.boxes[str(job)] for route in self._routes.values() if str(job) in route.boxes), None)

    def _add(self, entry: JobEntry, mailboxes: Mailboxes) -> None:
        key = entry.cluster, 0 if mailboxes.together else entry.job.id
        route = self._routes.get(key)
        if route is None:
            self._routes[key] = route = MailboxRoute(entry.cluster)
            route.tasks = [asyncio.ensure_future(work(route)) for work in (self._look, self._bring)]
        route.boxes[str(entry.job.id)] = WorkerMailbox(entry.job.id, entry.handle)
        route.stirred.set()

    def _leave(self, job: int) -> None:
        for key, route in list(self._routes.items()):
            if route.boxes.pop(str(job), None) is not None and not route.boxes:
                del self._routes[key]
                route.close()

    # --- visits -------------------------------------------------------------------------------------------------------

    async def _look(self, route: MailboxRoute) -> None:
        """Visit for what is new, again and again."""
        failures = 0
        while True:
            route.stirred.clear()
            if not route.find_due(VisitKind.LOOK):
                # All wait for their program.
                await route.stirred.wait()
                continue
            mailboxes = self._clusters.find_traits(route.cluster).mailboxes
            quiet = mailboxes is not None and mailboxes.together and route.is_quiet()
            wait = 0.0 if mailboxes is None or quiet else mailboxes.wait
            visited = await self._visit(route, VisitKind.LOOK, mailboxes, wait)
            failures = 0 if visited else failures + 1
            pause = IDLE_SECONDS if quiet and route.is_quiet() else LEAST_SECONDS
            if failures:
                pause = backoff_delay(AGAIN, failures - 1, f"{route.cluster}.{failures}")
            if pause > LEAST_SECONDS:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(pause):
                        await route.stirred.wait()
            await asyncio.sleep(LEAST_SECONDS)

    async def _bring(self, route: MailboxRoute) -> None:
        """Visit to leave answers, and the program."""
        failures = 0
        while True:
            await route.outgoing.wait()
            await asyncio.sleep(GATHER_SECONDS)
            route.outgoing.clear()
            mailboxes = self._clusters.find_traits(route.cluster).mailboxes
            if await self._visit(route, VisitKind.BRING, mailboxes, 0.0):
                failures = 0
                route.stirred.set()
                continue
            route.outgoing.set()
            failures += 1
            await asyncio.sleep(backoff_delay(AGAIN, failures - 1, f"{route.cluster}.{failures}"))

    async def _visit(self, route: MailboxRoute, kind: VisitKind, mailboxes: Mailboxes | None, wait: float) -> bool:
        """One visit; False where it failed, which is noted."""
        boxes = route.find_due(kind)
        if mailboxes is None:
            return False
        if not boxes:
            # What could not be brought is not asked for any more.
            route.troubles.pop(kind, None)
            return True
        bring = kind is VisitKind.BRING
        made = Visit(kind, boxes, {key: dict(box.answers) if bring else {} for key, box in boxes.items()}, wait)
        where = f"cluster {route.cluster}: the mailboxes of workers"
        try:
            report = await self._run(mailboxes, made)
        except OverspanError as error:
            _note_trouble(route.troubles, kind, error.line, where)
            return False
        except Exception:
            # The loop must go on: the workers have no other way.
            log.exception("%s", where)
            _note_trouble(route.troubles, kind, "a visit failed; look into daemon.log", where)
            return False
        _note_trouble(route.troubles, kind, "", where)
        _note_visit(route, made, report)
        self._take(route, report)
        return True

    async def _run(self, mailboxes: Mailboxes, made: Visit) -> VisitReport:
        orders = {
            key: MailboxOrder(mailboxes.find_folder(box.handle), dict(box.seen), made.answers[key])
            for key, box in made.boxes.items()
        }
        handle = next(iter(made.boxes.values())).handle
        wanted = any(box.wants_program for box in made.boxes.values())
        program = await asyncio.to_thread(self._build_program) if wanted else b""
        library = mailboxes.find_library(handle)
        line = await asyncio.to_thread(pack_visit, orders, made.wait, mailboxes.python, library, program)
        return await asyncio.to_thread(read_report, await mailboxes.run(handle, line, made.wait + VISIT_SECONDS))

    # --- requests -----------------------------------------------------------------------------------------------------

    def _take(self, route: MailboxRoute, report: VisitReport) -> None:
        """Begin to answer what is new."""
        for key in report.wants:
            if key in route.boxes:
                route.boxes[key].wants_program = True
                route.outgoing.set()
        for request in report.found:
            box = route.boxes.get(request.key)
            if box is not None and box.seen.get(request.lane) != request.id:
                box.alive = box.alive or request.lane in box.seen
                box.seen[request.lane] = request.id
                # Its worker waits for no answer to the request before.
                box.answers.pop(request.lane, None)
                if request.lane == ASK_LANE:
                    box.expected_until = 0.0
                task = asyncio.ensure_future(self._answer(route, box, request, heard=box.alive))
                route.serving.add(task)
                task.add_done_callback(route.serving.discard)

    async def _answer(self, route: MailboxRoute, box: WorkerMailbox, request: MailboxRequest, *, heard: bool) -> None:
        """Answer a request; `heard` where it was left since this daemon visits the mailbox."""
        status, document = 200, {}
        try:
            message = read_request(request)
            if message.job != box.job:
                raise deny("a worker speaks for itself alone")
            if not heard:
                raise Unreachable("the daemon visits this mailbox for the first time: ask again")
            box.busy = isinstance(message, OutputPiece) or bool(message.held)
            document = await self._serve(message)
            box.busy = box.busy or bool(document.get("leases"))
        except Denied as error:
            status, document = 403, {"error": {"message": error.message}}
        except InvalidRequest as error:
            status, document = 400, {"error": {"message": error.message}}
        except OverspanError as error:
            status, document = 503, {"error": {"message": error.message}}
        except Exception as error:
            log.exception("worker %d: a request in its mailbox", box.job)
            status, document = 500, {"error": {"message": f"the daemon failed: {error!r}"}}
        if box.seen.get(request.lane) == request.id:
            body = json.dumps({"format": 1, **document}, separators=(",", ":"))
            box.answers[request.lane] = {"id": request.id, "status": status, "body": body}
            route.outgoing.set()


def _note_visit(route: MailboxRoute, made: Visit, report: VisitReport) -> None:
    """Note what a visit could do in each mailbox."""
    loop = asyncio.get_running_loop()
    parts = (LEAVE,) if made.kind is VisitKind.BRING else (LEAVE, READ)
    for key, box in made.boxes.items():
        trouble = report.find_trouble(key, *parts)
        _note_trouble(box.troubles, made.kind, trouble, f"worker {box.job}: its mailbox")
        if made.kind is VisitKind.LOOK:
            continue
        if key in report.left and not trouble:
            box.note_left(made.answers[key], loop.time())
        else:
            # A full disk stays full for a while, and a folder that was removed comes back with the next request.
            loop.call_later(box.note_refused(loop.time()), route.outgoing.set)


def _note_trouble(troubles: dict[VisitKind, str], kind: VisitKind, trouble: str, where: str) -> None:
    """Note what a visit of that kind could not do, and log it where it is another trouble than before."""
    if trouble and trouble != troubles.get(kind):
        log.warning("%s: %s", where, trouble)
    troubles[kind] = trouble


def read_request(request: MailboxRequest) -> WorkerMessage | OutputPiece:
    """The message of a request. Raises InvalidRequest for none."""
    readers: Mapping[str, Callable[[Any], WorkerMessage | OutputPiece]] = {
        EXCHANGE_PATH: read_message,
        OUTPUT_PATH: read_piece,
    }
    if request.path not in readers:
        raise InvalidRequest(f"{request.path!r} is nothing that a worker asks for")
    try:
        return readers[request.path](json.loads(request.body))
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise InvalidRequest(f"the request is no message of a worker: {error!r}") from None

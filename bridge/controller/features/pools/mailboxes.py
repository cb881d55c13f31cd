"""Visits the mailboxes of workers that cannot connect to the daemon.

A route is what one visit reaches: on Slurm the mailboxes of all workers, in pods one. Each route has a visit that waits
for something new, and another one as soon as there are answers to leave. A request is answered once for each name that
it has, and may be taken twice: what workers and daemon say are differences, so nothing depends on that.

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

log = logging.getLogger(__name__)

AGAIN = Backoff(first=1.0, factor=2.0, limit=30.0, jitter=0.2)
"""How soon a route that failed is tried again."""
VISIT_SECONDS = 60.0
"""How much longer than it waits a visit may take."""
GATHER_SECONDS = 0.02
"""How long an answer waits for others that go with the same visit."""
IDLE_SECONDS = 4.0
"""Seconds between two visits of workers that hold nothing, where one reaches them all: none of them has news."""
LEAST_SECONDS = 0.02
"""Seconds between two visits, whatever they find."""
Serve = Callable[[WorkerMessage | OutputPiece], Awaitable[dict[str, Any]]]
"""Answers a message; Denied for one that is of no worker."""


@dataclass
class WorkerMailbox:
    """The mailbox of one launch of a worker, as far as this daemon knows it."""

    job: int
    handle: str
    seen: dict[str, str] = field(default_factory=dict)
    """The name of the last request of each lane."""
    answers: dict[str, dict[str, Any]] = field(default_factory=dict)
    """What is to be left there, by lane."""
    wants_program: bool = False
    busy: bool = True
    """Whether its worker holds launches, or has not said so yet."""
    trouble: str = ""
    alive: bool = False
    """Whether a lane has had two requests, so that there was a process to leave the second."""

    def is_due(self, bring: bool) -> bool:
        """Whether a visit goes there: one that brings something, or one that looks for what is new."""
        return bool(self.answers) or self.wants_program if bring else not self.wants_program


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
        self.trouble = ""

    def close(self) -> None:
        """End its tasks; requests that are being answered are taken again by the next one."""
        for task in (*self.tasks, *self.serving):
            task.cancel()


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
                return route.trouble or box.trouble
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
            mailboxes = self._clusters.find_traits(route.cluster).mailboxes
            visited = await self._visit(route, mailboxes, 0.0 if mailboxes is None else mailboxes.wait)
            failures = 0 if visited else failures + 1
            idle = mailboxes is not None and mailboxes.together and not any(box.busy for box in route.boxes.values())
            pause = IDLE_SECONDS if idle else LEAST_SECONDS
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
            if await self._visit(route, mailboxes, 0.0, bring=True):
                failures = 0
                route.stirred.set()
                continue
            route.outgoing.set()
            failures += 1
            await asyncio.sleep(backoff_delay(AGAIN, failures - 1, f"{route.cluster}.{failures}"))

    async def _visit(
        self, route: MailboxRoute, mailboxes: Mailboxes | None, wait: float, *, bring: bool = False
    ) -> bool:
        """One visit; False where it failed, which is noted."""
        boxes = {key: box for key, box in route.boxes.items() if box.is_due(bring)}
        if mailboxes is None or not boxes:
            return mailboxes is not None
        answers = {key: dict(box.answers) if bring else {} for key, box in boxes.items()}
        try:
            report = await self._run(mailboxes, boxes, answers, wait)
        except OverspanError as error:
            self._note_trouble(route, error.line)
            return False
        except Exception:
            # The loop must go on: the workers have no other way.
            log.exception("cluster %s: the mailboxes of workers", route.cluster)
            self._note_trouble(route, "a visit failed; look into daemon.log")
            return False
        self._note_trouble(route, "")
        for key, box in boxes.items():
            box.trouble = report.troubles.get(key, "")
            if bring:
                box.wants_program = False
                box.answers = {lane: each for lane, each in box.answers.items() if answers[key].get(lane) is not each}
                if box.trouble:
                    # The requests whose answers could not be left there are taken again, but not at once: a full disk
                    # stays full for a while.
                    asyncio.get_running_loop().call_later(AGAIN.first, box.seen.clear)
        self._take(route, report)
        return True

    async def _run(
        self,
        mailboxes: Mailboxes,
        boxes: Mapping[str, WorkerMailbox],
        answers: Mapping[str, Mapping[str, Any]],
        wait: float,
    ) -> VisitReport:
        orders = {
            key: MailboxOrder(mailboxes.find_folder(box.handle), dict(box.seen), answers[key])
            for key, box in boxes.items()
        }
        handle = next(iter(boxes.values())).handle
        wanted = any(box.wants_program for box in boxes.values())
        program = await asyncio.to_thread(self._build_program) if wanted else b""
        library = mailboxes.find_library(handle)
        line = await asyncio.to_thread(pack_visit, orders, wait, mailboxes.python, library, program)
        return read_report(await mailboxes.run(handle, line, wait + VISIT_SECONDS))

    def _note_trouble(self, route: MailboxRoute, trouble: str) -> None:
        if trouble and trouble != route.trouble:
            log.warning("cluster %s: the mailboxes of workers: %s", route.cluster, trouble)
        route.trouble = trouble

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

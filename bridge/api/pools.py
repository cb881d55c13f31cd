"""Routes for pools, and for the workers of them."""

from __future__ import annotations

import asyncio
from typing import Annotated, Literal

from fastapi import APIRouter, Path
from fastapi.responses import Response
from pydantic import Field

from overspan.adapters.abilities import HeldLaunch, WorkerMessage
from overspan.bridge.api.authorization import Anyone, AnyoneOrJob
from overspan.bridge.api.bodies import MAX_BODY, Name, RequestBody, SubmissionBody
from overspan.bridge.api.jobs import answer, read_submission_body
from overspan.bridge.controller.controller import Controller
from overspan.bridge.controller.orders.rights import deny

PoolRef = Annotated[str, Path(max_length=64, description="The pool's name")]
Amount = Annotated[int, Field(ge=0, le=100_000)]
MOST_HELD = 100_000
MAX_WAIT = 60.0


class PoolResizeBody(RequestBody):
    """The lowest and the highest number of workers."""

    min_workers: Amount
    max_workers: Amount


class PoolDrainBody(RequestBody):
    """The jobs of the workers that are to take no more; all for none."""

    workers: list[Annotated[int, Field(ge=1, le=2**53)]] = Field(default_factory=list, max_length=10_000)


class PoolDeleteBody(RequestBody):
    """What becomes of the pool's jobs; it can be left out where there are none."""

    jobs: Literal["", "cancel", "requeue"] = ""


class JournalGrowth(RequestBody):
    """What follows an offset of a journal."""

    offset: Annotated[int, Field(ge=0)]
    text: Annotated[str, Field(max_length=MAX_BODY)]


class HeldState(RequestBody):
    """How far a worker is with a launch: bytes of its journal that it has sent, and orders that it has."""

    sent: Annotated[int, Field(ge=0)]
    orders: Annotated[int, Field(ge=0)]


class WorkerBody(RequestBody):
    """What a worker says, and how far it is with each of its launches."""

    job: Annotated[int, Field(ge=1, le=2**53)]
    word: Annotated[str, Field(min_length=1, max_length=64, pattern="^[0-9a-z]+$")]
    held: dict[Name, HeldState] = Field(default_factory=dict, max_length=MOST_HELD)
    journals: dict[Name, JournalGrowth] = Field(default_factory=dict, max_length=MOST_HELD)
    mark: Name = ""
    wait: Annotated[float, Field(ge=0, le=MAX_WAIT)] = 0.0


def build_pool_routes(controller: Controller) -> APIRouter:
    """The routes."""
    router = APIRouter(prefix="/v1")
    _add_pools(router, controller)
    _add_workers(router, controller)
    return router


def _add_pools(router: APIRouter, controller: Controller) -> None:
    pools = controller.pools

    @router.get("/pools", summary="Every pool with its workers")
    async def listing(by: Anyone) -> Response:
        return answer(now=controller.clock(), pools=pools.describe())

    @router.get("/pools/{name}", summary="A pool with its workers")
    async def show(name: PoolRef, by: Anyone) -> Response:
        return answer(now=controller.clock(), pools=pools.describe(name))

    @router.post("/pools/{name}/apply", summary="Make a pool of a file, or change it")
    async def apply(name: PoolRef, body: SubmissionBody, by: Anyone) -> Response:
        pool, notes = await pools.apply(name, read_submission_body(body, by))
        return answer(pool=pool, notes=list(notes))

    @router.post("/pools/{name}/resize", summary="Change the number of workers; those that there are stay")
    async def resize(name: PoolRef, body: PoolResizeBody, by: Anyone) -> Response:
        return answer(pool=await pools.resize(name, body.min_workers, body.max_workers))

    @router.post("/pools/{name}/drain", summary="Give workers no more jobs, and end each when it holds none")
    async def drain(name: PoolRef, body: PoolDrainBody, by: Anyone) -> Response:
        return answer(pool=await pools.drain(name, body.workers))

    @router.post("/pools/{name}/delete", summary="End a pool and its workers")
    async def delete(name: PoolRef, body: PoolDeleteBody, by: Anyone) -> Response:
        return answer(jobs=await pools.delete(name, body.jobs))


def _add_workers(router: APIRouter, controller: Controller) -> None:
    @router.get("/worker-program", summary="The application that a worker is", response_class=Response)
    async def program(by: AnyoneOrJob) -> Response:
        return Response(await asyncio.to_thread(controller.pools.build_program), media_type="application/zip")

    @router.post("/pool/exchange", summary="What a worker says, and what it is owed")
    async def exchange(body: WorkerBody, by: AnyoneOrJob) -> Response:
        if by.job not in (0, body.job):
            raise deny("a worker speaks for itself alone")
        held = {handle: HeldLaunch(each.sent, each.orders) for handle, each in body.held.items()}
        journals = {handle: (each.offset, each.text) for handle, each in body.journals.items()}
        message = WorkerMessage(body.job, body.word, held, journals, body.mark, body.wait)
        return answer(**await controller.pools.exchange(message))

"""Routes that list: the queue, the history, the event stream."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

from fastapi import APIRouter, Query
from fastapi.responses import Response, StreamingResponse

from overspan.bridge.api.authorization import Anyone, AnyoneOrJob
from overspan.bridge.api.error_responses import describe_error
from overspan.bridge.api.jobs import row_document
from overspan.bridge.api.query_parameters import ChangesFilter, HistoryFilter, QueueFilter
from overspan.bridge.controller.controller import Controller
from overspan.bridge.controller.views.listing import Selection
from overspan.bridge.model.errors import OverspanError

if TYPE_CHECKING:
    from overspan.bridge.api.queue_lines import QueueLines

JSON = "application/json"
NDJSON = "application/x-ndjson"


def build_listing_routes(controller: Controller) -> APIRouter:
    router = APIRouter(prefix="/v1")
    kept: list[QueueLines] = []

    def write_lines(chosen: Selection) -> bytes | None:
        # Few daemons have a queue that is worth it; the others need not hold what it takes.
        from overspan.bridge.api.queue_lines import QueueLines

        kept[:] = kept or [QueueLines(controller)]
        return kept[0].write(chosen)

    @router.get("/queue", summary="Live jobs")
    async def queue(wanted: Annotated[QueueFilter, Query()], by: AnyoneOrJob) -> Response:
        chosen = replace(wanted.select(), inside=by.job)
        found = write_lines(chosen) if wanted.lines and not by.job and not chosen.steps else None
        if found is None:
            found = await controller.queue_with_steps(chosen, by.within) if chosen.steps else controller.queue(chosen)
        return Response(found, media_type=JSON)

    @router.get("/queue/changes", summary="What changed of the queue since a version")
    async def changes(wanted: Annotated[ChangesFilter, Query()], by: Anyone) -> Response:
        found = await controller.feed.read(wanted.select(), wanted.version, wanted.wait)
        return Response(found, media_type=JSON)

    @router.get("/history", summary="Jobs of any age, newest last")
    async def history(wanted: Annotated[HistoryFilter, Query()], by: AnyoneOrJob) -> Response:
        chosen = wanted.select()
        parts = controller.history(replace(chosen, users=by.narrow(chosen.users), inside=by.job))
        # Awaited here: an error before the first row is answered like any other error.
        first = await anext(parts)
        return StreamingResponse(_follow(first, parts), media_type=JSON)

    _add_events(router, controller)
    return router


async def _follow(first: bytes, parts: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """The pieces of a document; what fails in the middle is its last member, which clients look for."""
    yield first
    try:
        async for part in parts:
            yield part
    except OverspanError as error:
        yield b'], "error":' + json.dumps(describe_error(error)).encode() + b"}"


def _add_events(router: APIRouter, controller: Controller) -> None:
    @router.get(
        "/events",
        summary="Transitions of all jobs, a JSON object a line",
        response_class=StreamingResponse,
        responses={200: {"content": {NDJSON: {}}}},
    )
    async def events(
        by: Anyone, since: Annotated[int | None, Query(ge=0, le=2**63 - 1)] = None, follow: bool = False
    ) -> Response:
        async def lines() -> AsyncIterator[bytes]:
            async for rows in controller.events(since, follow, by.within):
                texts = [json.dumps(row_document(row), ensure_ascii=False) for row in rows]
                yield ("\n".join(texts) + "\n").encode()

        return StreamingResponse(lines(), media_type=NDJSON)

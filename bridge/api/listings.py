"""Routes that list: the queue, the history, the event stream."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import APIRouter, Query
from fastapi.responses import Response, StreamingResponse

from overspan.bridge.api.bodies import LATEST
from overspan.bridge.api.jobs import row_document
from overspan.bridge.controller.controller import Controller
from overspan.bridge.controller.listing import FINISHED_WITHIN, Selection, check_states

Commas = Annotated[str, Query(max_length=4096, description="words with commas between them")]
Ids = Annotated[str, Query(max_length=1 << 14, description="ids with commas between them")]
Time = Annotated[float | None, Query(ge=0, le=LATEST, allow_inf_nan=False)]
Seconds = Annotated[float, Query(ge=0, le=LATEST, allow_inf_nan=False)]

JSON = "application/json"
NDJSON = "application/x-ndjson"


def build_listing_routes(controller: Controller) -> APIRouter:
    """The routes."""
    router = APIRouter(prefix="/v1")
    _add_queue(router, controller)
    _add_history(router, controller)
    _add_events(router, controller)
    return router


def _add_queue(router: APIRouter, controller: Controller) -> None:
    @router.get("/queue", summary="Live jobs")
    async def queue(
        states: Commas = "",
        users: Commas = "",
        ids: Ids = "",
        names: Commas = "",
        partitions: Commas = "",
        clusters: Commas = "",
        accounts: Commas = "",
        qos: Commas = "",
        tasks: bool = False,
        finished_within: Seconds = FINISHED_WITHIN,
        full: bool = True,
    ) -> Response:
        selection = Selection(
            states=check_states(_split(states)),
            users=frozenset(_split(users)),
            ids=tuple(_split(ids)),
            names=frozenset(_split(names)),
            partitions=frozenset(_split(partitions)),
            clusters=frozenset(_split(clusters)),
            accounts=frozenset(_split(accounts)),
            qos=frozenset(_split(qos)),
            tasks=tasks,
            finished_within=finished_within,
            full=full,
        )
        return Response(controller.queue(selection), media_type=JSON)


def _add_history(router: APIRouter, controller: Controller) -> None:
    @router.get("/history", summary="Jobs of any age, newest last")
    async def history(
        states: Commas = "",
        users: Commas = "",
        ids: Ids = "",
        names: Commas = "",
        partitions: Commas = "",
        clusters: Commas = "",
        accounts: Commas = "",
        qos: Commas = "",
        tasks: bool = False,
        since: Time = None,
        until: Time = None,
        limit: Annotated[int | None, Query(ge=1, le=1_000_000)] = None,
    ) -> Response:
        selection = Selection(
            states=check_states(_split(states)),
            users=frozenset(_split(users)),
            ids=tuple(_split(ids)),
            names=frozenset(_split(names)),
            partitions=frozenset(_split(partitions)),
            clusters=frozenset(_split(clusters)),
            accounts=frozenset(_split(accounts)),
            qos=frozenset(_split(qos)),
            tasks=tasks,
            since=since,
            until=until,
            limit=limit,
        )
        return Response(await controller.history(selection), media_type=JSON)


def _add_events(router: APIRouter, controller: Controller) -> None:
    @router.get(
        "/events",
        summary="Transitions of all jobs, a JSON object a line",
        response_class=StreamingResponse,
        responses={200: {"content": {NDJSON: {}}}},
    )
    async def events(since: Annotated[int | None, Query(ge=0, le=2**63 - 1)] = None, follow: bool = False) -> Response:
        async def lines() -> AsyncIterator[bytes]:
            async for rows in controller.events(since, follow):
                texts = [json.dumps(row_document(row), ensure_ascii=False) for row in rows]
                yield ("\n".join(texts) + "\n").encode()

        return StreamingResponse(lines(), media_type=NDJSON)


def _split(text: str) -> list[str]:
    return [word for word in (part.strip() for part in text.split(",")) if word]

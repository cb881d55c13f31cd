"""Routes for what clusters keep of object stores."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter
from fastapi.responses import Response
from pydantic import Field

from overspan.bridge.api.authorization import Operator
from overspan.bridge.api.bodies import ClusterBody
from overspan.bridge.api.jobs import answer
from overspan.bridge.controller.controller import Controller

_MOST_SECONDS = 10 * 365 * 24 * 3600


class CacheCleanBody(ClusterBody):
    """Which contents are removed: those that no job has used for so many seconds."""

    seconds: Annotated[float, Field(ge=0, le=_MOST_SECONDS)] = 0


def build_cache_routes(controller: Controller) -> APIRouter:
    router = APIRouter(prefix="/v1")
    caches = controller.data_caches

    @router.post("/cache/list", summary="What clusters keep of object stores")
    async def listing(body: ClusterBody, by: Operator) -> Response:
        return answer(**(await caches.list(body.cluster))._asdict())

    @router.post("/cache/clean", summary="Remove what no job uses of it")
    async def clean(body: CacheCleanBody, by: Operator) -> Response:
        return answer(**(await caches.clean(body.cluster, body.seconds))._asdict())

    return router

"""Routes for what ended jobs could not send to object stores."""

from __future__ import annotations

from fastapi import APIRouter
from fastapi.responses import Response

from overspan.bridge.api.authorization import Operator
from overspan.bridge.api.bodies import ClusterBody
from overspan.bridge.api.jobs import Ref, answer
from overspan.bridge.controller.controller import Controller


def build_unsent_routes(controller: Controller) -> APIRouter:
    router = APIRouter(prefix="/v1")
    unsent = controller.unsent_data

    @router.post("/unsent/list", summary="What ended jobs could not send")
    async def listing(body: ClusterBody, by: Operator) -> Response:
        return answer(**(await unsent.list(body.cluster))._asdict())

    @router.post("/jobs/{ref}/unsent/remove", summary="Remove what an ended job could not send")
    async def remove(ref: Ref, by: Operator) -> Response:
        return answer(**await unsent.remove(ref))

    return router

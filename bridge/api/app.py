"""The FastAPI application over a controller."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Annotated, Any

from fastapi import APIRouter, Body, FastAPI, Path, Query
from fastapi.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

import overspan
from overspan.bridge.api.access import build_access_routes
from overspan.bridge.api.allocations import build_allocation_routes
from overspan.bridge.api.authorization import Anyone, AnyoneOrJob, Authenticator, Operator
from overspan.bridge.api.bodies import EmptyBody, FsckBody
from overspan.bridge.api.cache import build_cache_routes
from overspan.bridge.api.error_responses import ERROR_SCHEMA, Guard, add_handlers
from overspan.bridge.api.evaluations import build_evaluation_routes
from overspan.bridge.api.jobs import answer, build_job_routes
from overspan.bridge.api.listings import build_listing_routes
from overspan.bridge.api.pools import build_pool_routes, build_worker_routes
from overspan.bridge.api.reach import build_reach_routes
from overspan.bridge.api.schedules import build_schedule_routes
from overspan.bridge.api.storage import build_storage_routes
from overspan.bridge.api.unsent import build_unsent_routes
from overspan.bridge.api.volumes import build_volume_routes
from overspan.bridge.controller.controller import Controller
from overspan.bridge.controller.features.orphans import OrphanRemoval

FORMATS = [1]

_FAILURES: dict[int | str, dict[str, Any]] = {
    "default": {
        "description": "What failed, where, and what to do",
        "content": {"application/json": {"schema": ERROR_SCHEMA}},
    }
}


class DaemonApplication(FastAPI):
    """The application, with the routes of workers before all layers of the others."""

    worker_routes: Mapping[str, ASGIApp] = MappingProxyType({})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        route = self.worker_routes.get(scope["path"]) if scope["type"] == "http" and scope["method"] == "POST" else None
        if route is None:
            await super().__call__(scope, receive, send)
        else:
            scope["app"] = self
            await route(scope, receive, send)


def build_app(
    controller: Controller, stop: Callable[[], None] | None = None, authenticator: Authenticator | None = None
) -> FastAPI:
    """The application; `stop` ends the daemon that it runs in, `reception` knows who asks."""
    app = DaemonApplication(
        title="Overspan",
        version=overspan.__version__,
        description="Jobs over Slurm, Kubernetes and this machine.",
        openapi_url="/v1/openapi.json",
        docs_url=None,
        redoc_url=None,
        responses=_FAILURES,
    )
    app.state.controller = controller
    app.state.authenticator = authenticator or Authenticator()
    add_handlers(app)
    app.add_middleware(Guard)
    app.worker_routes = build_worker_routes(controller)
    app.include_router(build_job_routes(controller))
    app.include_router(build_listing_routes(controller))
    app.include_router(build_schedule_routes(controller))
    app.include_router(build_evaluation_routes(controller))
    app.include_router(build_pool_routes(controller))
    app.include_router(build_storage_routes(controller))
    app.include_router(build_cache_routes(controller))
    app.include_router(build_unsent_routes(controller))
    app.include_router(build_volume_routes(controller))
    app.include_router(_build_cluster_routes(controller))
    app.include_router(build_reach_routes(controller))
    app.include_router(build_access_routes(controller.access))
    app.include_router(build_allocation_routes(controller.allocations))
    app.include_router(_build_daemon_routes(controller, stop))
    return app


def _build_cluster_routes(controller: Controller) -> APIRouter:
    router = APIRouter(prefix="/v1")

    @router.get("/clusters", summary="The configured clusters")
    async def clusters(by: Anyone) -> Response:
        return answer(clusters=controller.health.list_clusters())

    @router.get("/nodes", summary="Nodes with capacity, use and state")
    async def nodes(by: Anyone, clusters: Annotated[str, Query(max_length=4096)] = "") -> Response:
        found, health = await controller.health.nodes([name for name in clusters.split(",") if name])
        rows = [{"cluster": cluster, **_node_document(node)} for cluster, node in found]
        return answer(now=controller.clock(), clusters=health, nodes=rows)

    @router.post("/clusters/{name}/check", summary="What works on a cluster")
    async def check(
        name: Annotated[str, Path(max_length=256)], by: Anyone, body: Annotated[EmptyBody | None, Body()] = None
    ) -> Response:
        findings = await controller.health.check(name, by.name)
        return answer(findings=[vars(finding) for finding in findings])

    @router.post("/clusters/{name}/fsck", summary="What launches have left on a cluster; remove it if asked")
    async def fsck(
        name: Annotated[str, Path(max_length=256)], by: Operator, body: Annotated[FsckBody | None, Body()] = None
    ) -> Response:
        asked = body or FsckBody()
        sweep = OrphanRemoval(asked.release, tuple(asked.installations), asked.all_installations)
        found = await controller.orphans.check(name, sweep)
        launches = [{**vars(one.trace), "standing": one.standing.value, "removed": one.removed} for one in found.found]
        return answer(
            installation=found.installation,
            looked=found.looked,
            launches=launches,
            missing=list(found.missing),
            damaged=list(found.damaged),
        )

    return router


def _node_document(node: Any) -> dict[str, Any]:
    return dict(vars(node))


def _build_daemon_routes(controller: Controller, stop: Callable[[], None] | None) -> APIRouter:
    router = APIRouter(prefix="/v1")

    @router.get("/ping", summary="Who answers")
    async def ping(by: AnyoneOrJob) -> Response:
        return answer(
            version=overspan.__version__,
            pid=os.getpid(),
            host=socket.gethostname(),
            **controller.describe(),
            formats=FORMATS,
        )

    @router.get("/client", summary="The client application for commands inside jobs", response_class=Response)
    async def client(by: AnyoneOrJob, have: Annotated[str, Query(max_length=64)] = "") -> Response:
        from overspan.bridge.api.client_application import build_client

        found = await asyncio.to_thread(build_client)
        if have == found.digest:
            return Response(status_code=304)
        return Response(found.data, media_type="application/zip", headers={"X-Span-Client": found.digest})

    @router.post("/shutdown", summary="End the daemon; jobs go on")
    async def shutdown(by: Operator, body: Annotated[EmptyBody | None, Body()] = None) -> Response:
        if stop is not None:
            stop()
        return answer()

    return router

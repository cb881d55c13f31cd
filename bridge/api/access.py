"""Routes for access to clusters: logins, shells, and the import of native jobs."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Body, Path
from fastapi.responses import Response
from pydantic import Field

from overspan.bridge.api.authorization import Anyone, Reader
from overspan.bridge.api.bodies import EmptyBody, Name, Number, Words
from overspan.bridge.api.bodies import RequestBody as Document
from overspan.bridge.api.jobs import answer
from overspan.bridge.controller.features.access import Access, ShellParameters

Ref = Annotated[str, Path(max_length=300)]
ClusterName = Annotated[str, Path(max_length=256)]


class ImportBody(Document):
    """The cluster's own id of a job."""

    native: Name


class ShellBody(Document):
    """Where a shell is wanted; `terminal` tells that a person sits at it."""

    task: Name = ""
    node: Number = 0
    command: Words = Field(default_factory=list)
    terminal: bool = True


def build_access_routes(access: Access) -> APIRouter:
    """The routes; each acts in the requester's name."""
    router = APIRouter(prefix="/v1")

    @router.post("/clusters/{name}/login", summary="The command that opens the way to a cluster on a terminal")
    async def login(name: ClusterName, by: Anyone, body: Annotated[EmptyBody | None, Body()] = None) -> Response:
        found = await access.login(name, by.name)
        return answer(message=found.message, words=list(found.words), check=list(found.check))

    @router.post("/jobs/{ref}/shell", summary="What to run on a terminal for a shell beside the work")
    async def enter(ref: Ref, by: Reader, body: Annotated[ShellBody, Body()]) -> Response:
        parameters = ShellParameters(body.task, body.node, tuple(body.command), body.terminal)
        entrance, place = await access.enter(ref, parameters)
        return answer(place=place, words=list(entrance.words), environment=dict(entrance.environment))

    @router.post("/clusters/{name}/import", summary="Watch a job that the cluster has")
    async def take_in(name: ClusterName, by: Anyone, body: Annotated[ImportBody, Body()]) -> Response:
        entry = await access.take_in(name, body.native, by.name)
        return answer(id=entry.job.id, name=entry.job.spec.name, cluster=entry.cluster, state=entry.job.state.value)

    return router

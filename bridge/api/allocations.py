"""Routes of allocations without a script: holding one, and what to run for a step in a job."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Body, Path
from fastapi.responses import Response, StreamingResponse
from pydantic import AfterValidator, Field

from overspan.bridge.api.authorization import Reader
from overspan.bridge.api.bodies import RequestBody as Document
from overspan.bridge.api.bodies import Variables, Words, no_nul
from overspan.bridge.api.jobs import answer
from overspan.bridge.controller.features.allocations import Allocations, StepParameters

Ref = Annotated[str, Path(max_length=300)]


class StepBody(Document):
    """The words of srun(1) and what they were typed with; `own`: the job is an allocation for this step alone.

    `alone`: it shares no connection with the daemon.
    """

    words: Words
    environment: Variables = Field(default_factory=dict)
    directory: Annotated[str, Field(max_length=4096, pattern="^/"), AfterValidator(no_nul)] = "/"
    umask: Annotated[int, Field(ge=0, le=0o777)] = 0o022
    own: bool = False
    terminal: bool = False
    alone: bool = False


def build_allocation_routes(allocations: Allocations) -> APIRouter:
    router = APIRouter(prefix="/v1")

    @router.get(
        "/jobs/{ref}/allocation",
        summary="Hold an allocation for as long as the answer is read; its last line is `over`",
        response_class=StreamingResponse,
        responses={200: {"content": {"text/plain": {}}}},
    )
    async def hold(ref: Ref, by: Reader) -> Response:
        return StreamingResponse(await allocations.hold(ref), media_type="text/plain")

    @router.post("/jobs/{ref}/step", summary="What to run on a terminal for a step in a job")
    async def step(ref: Ref, by: Reader, body: Annotated[StepBody, Body()]) -> Response:
        parameters = StepParameters(
            tuple(body.words), body.environment, body.directory, body.umask, body.own, body.terminal, body.alone
        )
        found = await allocations.prepare_step(ref, parameters)
        return answer(words=list(found.words), guard=list(found.guard), last_line=found.last_line)

    return router

"""Routes for schedules and crontabs."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Body, Path
from fastapi.responses import Response
from pydantic import Field

from overspan.bridge.api.authorization import Anyone
from overspan.bridge.api.bodies import MAX_BODY, EmptyBody, Name, Number, RequestBody, Variables, Word
from overspan.bridge.api.jobs import answer
from overspan.bridge.controller.controller import Controller
from overspan.bridge.readers.submission import SCRIPT, Submission

ScheduleNumber = Annotated[int, Path(ge=1, le=2**53, description="K of cK")]
Empty = Annotated[EmptyBody | None, Body()]


class CrontabBody(RequestBody):
    """A crontab, and where it was installed from."""

    text: Annotated[str, Field(max_length=MAX_BODY, pattern=r"^[^\x00]*$")]
    file: Word | None = ""
    environment: Variables = Field(default_factory=dict)
    directory: Annotated[str, Field(max_length=4096, pattern=r"^/[^\x00]*$")] = "/"
    umask: Annotated[int, Field(ge=0, le=0o777)] = 0o022
    user: Name | None = ""
    uid: Number = 0
    gid: Number = 0
    host: Name | None = ""


def build_schedule_routes(controller: Controller) -> APIRouter:
    """The routes; a schedule is its owner's alone."""
    router = APIRouter(prefix="/v1")
    _add_schedules(router, controller)
    _add_crontab(router, controller)
    return router


def _add_schedules(router: APIRouter, controller: Controller) -> None:
    schedules = controller.schedules

    @router.get("/schedules", summary="Every schedule with its next run and its counts")
    async def listing(by: Anyone) -> Response:
        found = [each for each in await schedules.describe() if by.within in ("", each["user"])]
        return answer(now=controller.clock(), schedules=found)

    @router.post("/schedules/{number}/pause", summary="Make no more runs")
    async def pause(number: ScheduleNumber, by: Anyone, body: Empty = None) -> Response:
        await schedules.pause(number, by.name)
        return answer()

    @router.post("/schedules/{number}/resume", summary="End a pause")
    async def resume(number: ScheduleNumber, by: Anyone, body: Empty = None) -> Response:
        await schedules.resume(number, by.name)
        return answer()

    @router.post("/schedules/{number}/run", summary="Make a run now")
    async def run(number: ScheduleNumber, by: Anyone, body: Empty = None) -> Response:
        done = await schedules.run(number, by.name)
        return answer(id=done.id, name=done.name, cluster=done.cluster, notes=list(done.notes))

    @router.post("/schedules/{number}/delete", summary="Forget a schedule; its jobs go on")
    async def delete(number: ScheduleNumber, by: Anyone, body: Empty = None) -> Response:
        await schedules.delete(number, by.name)
        return answer()


def _add_crontab(router: APIRouter, controller: Controller) -> None:
    crontabs = controller.crontabs

    @router.get("/crontab", summary="The user's crontab")
    async def show(by: Anyone) -> Response:
        return answer(text=await crontabs.show(by.name))

    @router.post("/crontab", summary="Install a crontab in place of the former one")
    async def install(body: CrontabBody, by: Anyone) -> Response:
        base = Submission(
            kind=SCRIPT,
            text="",
            file=body.file or "",
            environment=body.environment,
            directory=body.directory,
            umask=body.umask,
            user=by.name,
            uid=body.uid if by.alone else by.uid,
            host=body.host or "",
        )
        return answer(ids=await crontabs.install(body.text, base))

    @router.post("/crontab/remove", summary="Remove the crontab; its jobs go on")
    async def remove(by: Anyone, body: Empty = None) -> Response:
        await crontabs.remove(by.name)
        return answer()

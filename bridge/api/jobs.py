"""Routes that make, show and change jobs."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any
from urllib.parse import quote

from fastapi import APIRouter, Body, Path, Query
from fastapi.responses import JSONResponse, PlainTextResponse, Response

from overspan.bridge.api.authorization import AnyoneOrJob, Owner, Reader, Viewer
from overspan.bridge.api.bodies import (
    CancelBody,
    EmptyBody,
    RequeueBody,
    RestartBody,
    ResubmitBody,
    ScaleBody,
    SubmissionBody,
    UpdateBody,
)
from overspan.bridge.api.error_responses import describe_error
from overspan.bridge.api.query_parameters import MAX_WAIT, LogFilter, LogSearchFilter
from overspan.bridge.controller.controller import Controller
from overspan.bridge.controller.core.rights import Requester
from overspan.bridge.controller.orders.requests import CancelRequest, Filters, Update
from overspan.bridge.controller.submission.resubmission import ResubmitRequest
from overspan.bridge.controller.submission.submitter import Submitted
from overspan.bridge.controller.views.listing import check_states
from overspan.bridge.model import events
from overspan.bridge.model.errors import InvalidRequest
from overspan.bridge.readers.submission import Submission
from overspan.bridge.runtime.core.job_access import ACCESS
from overspan.bridge.store.records import TimelineRow

Ref = Annotated[str, Path(max_length=300, description="N, N+k, N.task or CLUSTER:ID")]
Empty = Annotated[EmptyBody | None, Body()]


def answer(**values: Any) -> JSONResponse:
    """A JSON answer with its format number."""
    return JSONResponse({"format": 1, **values})


def row_document(row: TimelineRow) -> dict[str, Any]:
    """A line of the timeline as clients read it."""
    return row._asdict()


def build_job_routes(controller: Controller) -> APIRouter:
    router = APIRouter(prefix="/v1")
    _add_submission(router, controller)
    _add_views(router, controller)
    _add_output(router, controller)
    _add_cancel(router, controller)
    _add_orders(router, controller)
    return router


def _submit_within(controller: Controller, submission: Submission, by: Requester) -> Submission:
    """The submission as one from inside the requesting job, if it is a job: its way to the daemon is not inherited."""
    if not by.job:
        return submission
    environment = {name: value for name, value in submission.environment.items() if name != ACCESS}
    home = controller.find_cluster(by.job, environment.get("OVERSPAN_TASK", ""))
    return replace(submission, job=by.job, home=home, environment=environment)


def _add_submission(router: APIRouter, controller: Controller) -> None:
    @router.post("/jobs", summary="Submit a job")
    async def submit(body: SubmissionBody, by: AnyoneOrJob) -> Response:
        return _accept(await controller.submit(_submit_within(controller, read_submission_body(body, by), by)))

    @router.post("/jobs/{ref}/resubmit", summary="Submit a job again as a new one")
    async def resubmit(ref: Ref, by: Owner, body: Annotated[ResubmitBody | None, Body()] = None) -> Response:
        body = body or ResubmitBody()
        return _accept(await controller.resubmit(ResubmitRequest(ref, body.failed, body.changes, body.token)))

    @router.get("/jobs/{ref}/resubmit", summary="What a resubmission may change, with the present values")
    async def list_values(ref: Ref, by: Owner) -> Response:
        return answer(values=await controller.list_resubmit_values(ref))

    @router.post("/plan", summary="Show what would be sent, with no effect")
    async def plan(body: SubmissionBody, by: AnyoneOrJob) -> Response:
        text, notes = await controller.plan(_submit_within(controller, read_submission_body(body, by), by))
        return answer(text=text, notes=list(notes))

    @router.get("/schema", summary="The JSON Schema of a job file")
    async def schema(by: AnyoneOrJob) -> Response:
        from overspan.bridge.readers.job_file_schema import job_file_schema

        return answer(schema=job_file_schema())


def _accept(done: Submitted) -> Response:
    return answer(
        id=done.id,
        task_ids=list(done.task_ids),
        name=done.name,
        cluster=done.cluster,
        notes=list(done.notes),
        options=dict(done.options),
        **({"text": done.text} if done.text else {}),
        **({"schedule": done.schedule} if done.schedule else {}),
        **({"uploads": [upload._asdict() for upload in done.uploads]} if done.uploads else {}),
        **({"next_due": done.next_due} if done.next_due is not None else {}),
    )


def read_submission_body(body: SubmissionBody, by: Requester) -> Submission:
    """The submission. Its user is the requester; only a daemon of one user takes the name that the client sends."""
    user, uid = (body.user or by.name, body.uid) if by.alone else (by.name, by.uid)
    return Submission(
        kind=body.kind,
        text=body.text,
        file=body.file or "",
        argv=tuple(body.argv),
        environment=body.environment,
        directory=body.directory,
        umask=body.umask,
        user=user,
        uid=uid,
        host=body.host or "",
        command=tuple(body.command),
        overrides=tuple(body.overrides),
        env=body.env,
        secrets=body.secrets,
        test_only=body.test_only,
        name=body.name or "",
        hold=body.hold,
        cluster=body.cluster or "",
        files=body.files,
        token=body.token,
        uploads=body.uploads,
    )


def _add_views(router: APIRouter, controller: Controller) -> None:
    @router.get("/jobs/{ref}", summary="One job in full")
    async def show(ref: Ref, by: Viewer) -> Response:
        return answer(now=controller.clock(), job=await controller.job(ref))

    @router.get(
        "/jobs/{ref}/script",
        summary="The batch script or job file as it was submitted",
        response_class=PlainTextResponse,
    )
    async def script(ref: Ref, by: Owner) -> Response:
        return PlainTextResponse(await controller.script(ref))

    @router.get("/jobs/{ref}/sent", summary="What a job was sent to its cluster as, or would be")
    async def sent(ref: Ref, by: Reader) -> Response:
        return answer(**await controller.sent_forms.read(ref))

    @router.get("/jobs/{ref}/variables", summary="The variables that a job's work is given; no secret is among them")
    async def variables(ref: Ref, by: Reader) -> Response:
        return answer(variables=await controller.sent_forms.list_variables(ref))

    @router.get("/jobs/{ref}/timeline", summary="Every transition of a job")
    async def timeline(ref: Ref, by: Owner) -> Response:
        rows = await controller.timeline(ref)
        return answer(now=controller.clock(), rows=[row_document(row) for row in rows])

    @router.get("/jobs/{ref}/wait", summary="Wait for a job's end")
    async def wait(
        ref: Ref, by: Viewer, timeout: Annotated[float, Query(ge=0, le=MAX_WAIT, allow_inf_nan=False)] = 30
    ) -> Response:
        return answer(**await controller.wait(ref, timeout))


def _add_output(router: APIRouter, controller: Controller) -> None:
    @router.get("/jobs/{ref}/streams", summary="Which logs there are")
    async def streams(
        ref: Ref, by: Reader, times: Annotated[bool, Query(description="tell when each of them grew")] = False
    ) -> Response:
        return answer(streams=await controller.logs.list(ref, times))

    @router.get(
        "/jobs/{ref}/logs",
        summary="Bytes of a log",
        response_class=Response,
        responses={200: {"content": {"application/octet-stream": {}}}},
    )
    async def logs(ref: Ref, by: Reader, wanted: Annotated[LogFilter, Query()]) -> Response:
        found = await controller.logs.read(ref, wanted.select())
        part = found.part
        headers = {
            "X-Span-Offset": str(part.offset),
            "X-Span-Size": str(part.size),
            "X-Span-Path": quote(part.path),
            "X-Span-Gap": str(part.gap),
            "X-Span-Over": "1" if found.over else "0",
        }
        return Response(part.data, media_type="application/octet-stream", headers=headers)

    @router.get("/jobs/{ref}/logs/search", summary="Lines of a log that match, the newest first")
    async def search(ref: Ref, by: Reader, wanted: Annotated[LogSearchFilter, Query()]) -> Response:
        found = await controller.logs.search(ref, wanted.select(), wanted.select_lines())
        lines = [[line.begin, line.end, line.data.decode("latin-1")] for line in found.lines]
        return answer(**{**vars(found), "lines": lines})


def _add_cancel(router: APIRouter, controller: Controller) -> None:
    @router.post("/cancel", summary="End or signal jobs")
    async def cancel(body: CancelBody, by: AnyoneOrJob) -> Response:
        part = body.filters
        filters = Filters(
            states=check_states(part.states),
            users=frozenset(part.users),
            names=frozenset(part.names),
            partitions=frozenset(part.partitions),
            clusters=frozenset(part.clusters),
            accounts=frozenset(part.accounts),
            qos=frozenset(part.qos),
            nodes=frozenset(part.nodes),
        )
        if not body.refs and filters == Filters():
            raise InvalidRequest("no job is named", remedy="give ids, or a filter such as a user")
        wish = (body.refs, body.task, filters, body.signal or "", body.batch_only, by.name, body.full)
        request = CancelRequest(*wish, within=by.within, inside=by.job, flush=body.flush)
        outcome = await controller.orders.cancel(request)
        errors = [{"ref": ref, "error": describe_error(error)} for ref, error in outcome.errors]
        return answer(done=outcome.done, errors=errors, **({"note": outcome.note} if outcome.note else {}))


def _add_orders(router: APIRouter, controller: Controller) -> None:
    orders = controller.orders

    @router.post("/jobs/{ref}/hold", summary="Do not start a job")
    async def hold(ref: Ref, by: Owner, body: Empty = None) -> Response:
        await orders.give(ref, lambda at, task: events.Hold(at, by.name))
        return answer()

    @router.post("/jobs/{ref}/release", summary="End a hold")
    async def release(ref: Ref, by: Owner, body: Empty = None) -> Response:
        await orders.give(ref, lambda at, task: events.Release(at, by.name))
        return answer()

    @router.post("/jobs/{ref}/requeue", summary="Put a job back into the queue")
    async def requeue(ref: Ref, by: Owner, body: Annotated[RequeueBody | None, Body()] = None) -> Response:
        held = body is not None and body.hold
        await orders.give(ref, lambda at, task: events.Requeue(at, by.name, held))
        return answer()

    @router.post("/jobs/{ref}/suspend", summary="Stop a job's processes without ending them")
    async def suspend(ref: Ref, by: Owner, body: Empty = None) -> Response:
        await orders.give(ref, lambda at, task: events.Suspend(at, by.name))
        return answer()

    @router.post("/jobs/{ref}/resume", summary="Let a suspended job go on")
    async def resume(ref: Ref, by: Owner, body: Empty = None) -> Response:
        await orders.give(ref, lambda at, task: events.Resume(at, by.name))
        return answer()

    @router.post("/jobs/{ref}/top", summary="Put a waiting job before the user's others")
    async def top(ref: Ref, by: Owner, body: Empty = None) -> Response:
        await orders.top(ref, by.name)
        return answer()

    @router.post("/jobs/{ref}/restart", summary="Start a task, or all, again in place")
    async def restart(ref: Ref, by: Owner, body: Annotated[RestartBody | None, Body()] = None) -> Response:
        name = (body.task if body is not None else None) or ""
        await orders.give(ref, lambda at, task: events.Restart(at, task, by.name), name)
        return answer()

    @router.post("/jobs/{ref}/scale", summary="Change how many members an elastic task has")
    async def scale(ref: Ref, body: ScaleBody, by: Owner) -> Response:
        return answer(**(await controller.scaling.scale(ref, body.task, body.size, by.name))._asdict())

    @router.post("/jobs/{ref}/update", summary="Change limits and labels")
    async def update(ref: Ref, body: UpdateBody, by: Owner) -> Response:
        await orders.update(ref, Update(body.given(), by.name))
        return answer()

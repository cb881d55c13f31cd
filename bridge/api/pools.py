"""Routes for pools, and for the workers of them."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Awaitable, Callable
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path, Request
from fastapi.responses import Response
from pydantic import Field
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Receive, Scope, Send

from overspan.adapters.abilities import HeldLaunch, OutputPiece, WorkerMessage
from overspan.bridge.api.authorization import Anyone, AnyoneOrJob, identify
from overspan.bridge.api.bodies import RequestBody, SubmissionBody
from overspan.bridge.api.error_responses import Guard, TooLarge, answer_error
from overspan.bridge.api.jobs import answer, read_submission_body
from overspan.bridge.controller.controller import Controller
from overspan.bridge.controller.core.rights import deny
from overspan.bridge.model.errors import InvalidRequest, OverspanError

PoolRef = Annotated[str, Path(max_length=64, description="The pool's name")]
Amount = Annotated[int, Field(ge=0, le=100_000)]
MAX_WAIT = 60.0
WorkerWord = WorkerMessage | OutputPiece
MOST_LETTERS = 64
MOST_FILES = 100_000
MOST = 2**53


class PoolResizeBody(RequestBody):
    """The lowest and the highest number of workers: of a class where one is named, else of the pool."""

    min_workers: Amount
    max_workers: Amount
    worker_class: Annotated[str, Field(max_length=64)] = ""


class PoolDrainBody(RequestBody):
    """The jobs of the workers that are to take no more; all for none."""

    workers: list[Annotated[int, Field(ge=1, le=2**53)]] = Field(default_factory=list, max_length=10_000)


class PoolDeleteBody(RequestBody):
    """What becomes of the pool's jobs; it can be left out where there are none."""

    jobs: Literal["", "cancel", "requeue"] = ""


def build_pool_routes(controller: Controller) -> APIRouter:
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
        return answer(pool=await pools.resize(name, body.min_workers, body.max_workers, body.worker_class))

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


class WorkerRoute:
    """A route of workers, an application without the layers of other routes: a job on a worker costs an exchange.

    `read` makes a message of a body, and raises ValueError, LookupError, TypeError or AttributeError for anything else;
    `serve` gives the fields of the answer.
    """

    def __init__(self, read: Callable[[Any], WorkerWord], serve: Callable[[Any], Awaitable[dict[str, Any]]]) -> None:
        self._read = read
        self._serve = serve

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        try:
            document = await self._answer(Request(scope), await _read_body(receive))
        except ClientDisconnect:
            return
        except (OverspanError, TooLarge) as error:
            refusal = InvalidRequest(error.detail) if isinstance(error, TooLarge) else error
            await answer_error(refusal)(scope, receive, send)
            return
        body = json.dumps({"format": 1, **document}, separators=(",", ":")).encode()
        headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    async def _answer(self, request: Request, body: bytes) -> dict[str, Any]:
        """What a worker is owed. Raises InvalidRequest, Denied."""
        by = await identify(request)
        try:
            message = self._read(json.loads(body))
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            raise InvalidRequest(f"the body is no message of a worker: {error!r}") from None
        if by.job not in (0, message.job):
            raise deny("a worker speaks for itself alone")
        return await self._serve(message)


async def _read_body(receive: Receive) -> bytes:
    """The body of a request. Raises ClientDisconnect."""
    parts: list[bytes] = []
    while True:
        part = await receive()
        if part["type"] == "http.disconnect":
            raise ClientDisconnect
        parts.append(part.get("body", b""))
        if not part.get("more_body"):
            return b"".join(parts)


def build_worker_routes(controller: Controller) -> dict[str, ASGIApp]:
    """The routes of workers, by their paths."""
    pools = controller.pools

    async def keep_output(piece: OutputPiece) -> dict[str, Any]:
        return {"taken": await pools.keep_output(piece)}

    return {
        "/v1/pool/exchange": Guard(WorkerRoute(read_message, pools.exchange)),
        "/v1/pool/output": Guard(WorkerRoute(read_piece, keep_output)),
    }


def read_message(document: Any) -> WorkerMessage:
    """Read what a worker has sent. Raises ValueError, LookupError, TypeError and AttributeError for anything else."""
    held = {
        str(handle): HeldLaunch(_count(state["sent"]), _count(state["orders"]))
        for handle, state in document["held"].items()
    }
    journals = {
        str(handle): (_count(growth["offset"]), str(growth["text"])) for handle, growth in document["journals"].items()
    }
    word, mark, wait = str(document["word"]), str(document.get("mark", "")), float(document["wait"])
    if not word.isalnum() or len(word) > MOST_LETTERS or not 0 <= wait <= MAX_WAIT:
        raise ValueError("its word or its wait is out of bounds")
    features = frozenset(str(name) for name in document.get("features", ()))
    return WorkerMessage(_count(document["job"]), word, held, journals, mark, wait, features)


def read_piece(document: Any) -> OutputPiece:
    """Read a piece of output. Raises ValueError, LookupError, TypeError and AttributeError for anything else."""
    given, word = document["stream"], str(document["word"])
    stream: dict[str, str | int] = {name: _count(given[name]) for name in ("node", "attempt", "run")}
    stream |= {"task": str(given["task"]), "stream": str(given["stream"])}
    if stream["stream"] not in ("output", "error") or not word.isalnum() or len(word) > MOST_LETTERS:
        raise ValueError("its stream or its word is none")
    data = base64.b64decode(document["data"], validate=True)
    number = _count(document["number"])
    if number > MOST_FILES:
        raise ValueError(f"{number} is no number of a file")
    return OutputPiece(
        _count(document["job"]), word, str(document["handle"]), number, stream, _count(document["offset"]), data
    )


def _count(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < MOST:
        raise ValueError(f"{value!r} is no count")
    return value

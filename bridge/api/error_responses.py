"""Error responses: every failure as the same JSON (what, where, how to fix), never a traceback."""

from __future__ import annotations

import logging
import uuid
from typing import Any, cast

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel
from pydantic_core import ErrorDetails
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from overspan.bridge.api.bodies import MAX_BODY
from overspan.bridge.model.errors import ERRORS, ExitCode, InvalidRequest, OverspanError
from overspan.bridge.validation.diagnostics import Diagnostics
from overspan.bridge.validation.models import add_mistake
from overspan.bridge.validation.positions import NOWHERE

log = logging.getLogger(__name__)


class _Hidden:
    """In place of a value that no message may show."""

    def __str__(self) -> str:
        return "a value that is not shown"


_HIDDEN = _Hidden()

SBATCH_PREFIX = "sbatch: error: "

_BY_STATUS = {kind.http_status: code for code, kind in reversed(ERRORS.items())}

ERROR_SCHEMA: dict[str, Any] = {
    "type": "object",
    "required": ["format", "error"],
    "properties": {
        "format": {"const": 1},
        "error": {
            "type": "object",
            "required": ["code", "message"],
            "properties": {
                "code": {"type": "string"},
                "message": {"type": "string"},
                "remedy": {"type": "string"},
                "exit_code": {"type": "integer"},
                "place": {
                    "type": "object",
                    "properties": {
                        "file": {"type": "string"},
                        "line": {"type": "integer"},
                        "column": {"type": "integer"},
                    },
                },
            },
        },
    },
}


def describe_error(error: OverspanError) -> dict[str, Any]:
    """The error as the client reads it. The daemon's words are for every command, so sbatch's prefix is left out."""
    document = error.to_document()
    lines = str(document["message"]).split("\n")
    document["message"] = "\n".join(line.removeprefix(SBATCH_PREFIX) for line in lines)
    if not isinstance(error.exit_code, ExitCode):
        # An exit code of sbatch's own.
        document["exit_code"] = int(error.exit_code)
    return document


def answer_error(error: OverspanError, status: int = 0) -> JSONResponse:
    """The HTTP answer for an error."""
    return JSONResponse({"format": 1, "error": describe_error(error)}, status or error.http_status)


def add_handlers(app: FastAPI) -> None:
    """Give the app its answers for all kinds of failures."""

    @app.exception_handler(OverspanError)
    async def overspan_error(request: Request, error: OverspanError) -> JSONResponse:
        return answer_error(error)

    @app.exception_handler(RequestValidationError)
    async def validation_error(request: Request, error: RequestValidationError) -> JSONResponse:
        return answer_error(explain_validation(error, _find_body(request)))

    @app.exception_handler(HTTPException)
    async def http_error(request: Request, error: HTTPException) -> JSONResponse:
        code = _BY_STATUS.get(error.status_code, InvalidRequest.code if error.status_code < 500 else OverspanError.code)
        document = {"code": code, "message": _sentence(request, error)}
        return JSONResponse({"format": 1, "error": document}, error.status_code, dict(error.headers or {}))


def explain_validation(error: RequestValidationError, body: type[BaseModel] = BaseModel) -> InvalidRequest:
    """The mistakes of a request, by the names of the parts they are in; `body` is the model of its body."""
    found = Diagnostics()
    for details in error.errors():
        if details["type"] == "json_invalid":
            return InvalidRequest("the body is no valid JSON", remedy="send a JSON object")
        part, *path = details["loc"] or ("request",)
        given = _HIDDEN if "secrets" in path and details["type"].endswith("_type") else details["input"]
        below = cast(ErrorDetails, {**details, "loc": tuple(path), "input": given})
        add_mistake(found, below, body, NOWHERE, (part,))
    try:
        found.raise_any()
    except InvalidRequest as refusal:
        refusal.remedy = refusal.remedy or "see /v1/openapi.json"
        return refusal
    return InvalidRequest("the request is not valid", remedy="see /v1/openapi.json")


def _find_body(request: Request) -> type[BaseModel]:
    """The model of the body that the route takes; one without keys where it takes none."""
    field = getattr(request.scope.get("route"), "body_field", None)
    model = field.field_info.annotation if field is not None else None
    return model if isinstance(model, type) and issubclass(model, BaseModel) else BaseModel


def _sentence(request: Request, error: HTTPException) -> str:
    if error.status_code == 404:
        return f"nothing is at {request.url.path}"
    if error.status_code == 405:
        return f"{request.method} is not for {request.url.path}"
    return str(error.detail)


class TooLarge(HTTPException):
    """The body is larger than the daemon takes."""

    def __init__(self) -> None:
        super().__init__(413, f"a request has at most {MAX_BODY >> 20} MiB")


class Guard:
    """Middleware around the whole app: bounds the body, and answers an unforeseen error with an id for the log."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started = False
        left = MAX_BODY

        async def bounded() -> Message:
            nonlocal left
            message = await receive()
            left -= len(message.get("body", b""))
            if left < 0:
                raise TooLarge
            return message

        async def noted(message: Message) -> None:
            nonlocal started
            started = True
            await send(message)

        try:
            if _length(scope) > MAX_BODY:
                await _refuse_large(scope, receive, send)
            else:
                await self.app(scope, bounded, noted)
        except Exception as error:
            if started:
                raise
            await _answer_unforeseen(error)(scope, receive, send)


def _length(scope: Scope) -> int:
    for name, value in scope["headers"]:
        if name == b"content-length" and value.isdigit():
            return int(value)
    return 0


async def _refuse_large(scope: Scope, receive: Receive, send: Send) -> None:
    error = TooLarge()
    document = {"code": InvalidRequest.code, "message": error.detail}
    answer = JSONResponse({"format": 1, "error": document}, 413, {"connection": "close"})
    await answer(scope, receive, send)


def _answer_unforeseen(error: Exception) -> JSONResponse:
    number = uuid.uuid4().hex[:8]
    log.error("request failed, error id %s", number, exc_info=error)
    return answer_error(
        OverspanError(f"the daemon failed at this (error {number})", remedy="daemon.log in the state folder has more")
    )

"""Routes for object stores."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Annotated, Any

from fastapi import APIRouter
from fastapi.responses import Response, StreamingResponse
from pydantic import Field

from overspan.bridge.api.authorization import Operator
from overspan.bridge.api.bodies import RequestBody
from overspan.bridge.api.error_responses import describe_error
from overspan.bridge.api.jobs import Ref, answer
from overspan.bridge.controller.controller import Controller
from overspan.bridge.controller.submission.folder_uploads import FolderUpload
from overspan.bridge.model.errors import OverspanError

_NDJSON = "application/x-ndjson"
_LINES: dict[str, Any] = {
    "response_class": StreamingResponse,
    "responses": {200: {"content": {_NDJSON: {}}}},
}
"""What a route says whose answer is a stream of lines."""
_Path = Annotated[str, Field(max_length=4096, pattern=r"^/[^\x00]*$")]
_Text = Annotated[str, Field(min_length=1, max_length=4096, pattern=r"^[^\x00]+$")]


class UrlBody(RequestBody):
    """A place in an object store; `deep`: all that is below it."""

    url: _Text
    deep: bool = False


class TransferBody(RequestBody):
    """A place in an object store, and an absolute path of this machine."""

    url: _Text
    path: _Path


class UploadBody(RequestBody):
    """What a submission's answer has as one of its `uploads`."""

    store: Annotated[str, Field(max_length=63)]
    bucket: Annotated[str, Field(max_length=255)]
    sources: Annotated[tuple[_Path, ...], Field(max_length=1000, strict=False)] = ()
    persistent: bool = True


def build_storage_routes(controller: Controller) -> APIRouter:
    router = APIRouter(prefix="/v1")
    storage = controller.storage

    @router.post("/storage/list", summary="Objects below a URL")
    async def listing(body: UrlBody, by: Operator) -> Response:
        found = await storage.list_objects(body.url, deep=body.deep)
        return answer(objects=[stored._asdict() for stored in found.objects], truncated=found.truncated)

    @router.post("/storage/measure", summary="How much is below a URL")
    async def measure(body: UrlBody, by: Operator) -> Response:
        files, size = await storage.measure(body.url)
        return answer(files=files, size=size)

    @router.post("/storage/remove", summary="Remove objects")
    async def remove(body: UrlBody, by: Operator) -> Response:
        return answer(removed=await storage.remove(body.url, deep=body.deep))

    @router.post("/storage/put", summary="Send a file or folder; its progress, a JSON object a line", **_LINES)
    async def put(body: TransferBody, by: Operator) -> Response:
        return StreamingResponse(_tell(storage.put(body.path, body.url)), media_type=_NDJSON)

    @router.post(
        "/storage/upload", summary="Send what a job is to find in a bucket; progress, a JSON object a line", **_LINES
    )
    async def upload(body: UploadBody, by: Operator) -> Response:
        wanted = FolderUpload(body.store, body.bucket, body.sources, body.persistent)
        return StreamingResponse(_tell(storage.upload(wanted)), media_type=_NDJSON)

    @router.post("/storage/get", summary="Fetch an object or folder; its progress, a JSON object a line", **_LINES)
    async def get(body: TransferBody, by: Operator) -> Response:
        return StreamingResponse(_tell(storage.get(body.url, body.path)), media_type=_NDJSON)

    @router.post("/jobs/{ref}/rescue", summary="Send the data that a job could not")
    async def rescue(ref: Ref, by: Operator) -> Response:
        return answer(**await storage.rescue(ref))

    return router


async def _tell(steps: AsyncIterator[dict[str, Any]]) -> AsyncIterator[bytes]:
    """Each step as a line; the last one says that it is done, or what failed."""
    try:
        async for facts in steps:
            yield json.dumps(facts).encode() + b"\n"
        yield b'{"done": true}\n'
    except OverspanError as error:
        yield json.dumps({"error": describe_error(error)}).encode() + b"\n"

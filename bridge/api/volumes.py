"""Routes for volumes."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter
from fastapi.responses import Response
from pydantic import AfterValidator, Field

from overspan.bridge.api.authorization import Operator
from overspan.bridge.api.bodies import Name, RequestBody, no_nul
from overspan.bridge.api.jobs import answer
from overspan.bridge.controller.controller import Controller
from overspan.bridge.controller.features.volumes import VolumeOrder

MAX_TEXT = 65536


class VolumeBody(RequestBody):
    """Options by the keys of a volume file (empty: not given), the text of one, and the cluster that -M names."""

    name: Name = ""
    type: Name = ""
    infra: Name = ""
    size: Name = ""
    storage_class: Name = ""
    access_mode: Name = ""
    text: Annotated[str, Field(max_length=MAX_TEXT), AfterValidator(no_nul)] = ""
    file: Annotated[str, Field(max_length=4096), AfterValidator(no_nul)] = ""
    cluster: Name = ""

    def read_order(self) -> VolumeOrder:
        config = {"storage_class_name": self.storage_class, "access_mode": self.access_mode}
        values = {"name": self.name, "type": self.type, "infra": self.infra, "size": self.size}
        given = {key: value for key, value in values.items() if value}
        return VolumeOrder(
            {**given, "config": {key: value for key, value in config.items() if value}},
            self.text,
            self.file,
            self.cluster,
        )


class VolumePlaceBody(RequestBody):
    """A cluster, the default one or all where it is empty; for a removal also the volume's name."""

    name: Name = ""
    cluster: Name = ""


def build_volume_routes(controller: Controller) -> APIRouter:
    router = APIRouter(prefix="/v1")
    volumes = controller.volumes

    @router.post("/volumes/apply", summary="Have a volume be there")
    async def apply(body: VolumeBody, by: Operator) -> Response:
        return answer(**await volumes.apply(body.read_order(), by.name))

    @router.post("/volumes/list", summary="The volumes of a cluster, or of all")
    async def listing(body: VolumePlaceBody, by: Operator) -> Response:
        found = await volumes.list(body.cluster)
        return answer(volumes=found.volumes, notes=found.notes)

    @router.post("/volumes/delete", summary="Remove a volume with all that is in it")
    async def delete(body: VolumePlaceBody, by: Operator) -> Response:
        return answer(cluster=await volumes.delete(body.name, body.cluster))

    return router

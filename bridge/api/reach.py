"""Routes for trials of the ways between clusters."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path
from fastapi.responses import Response
from pydantic import Field

from overspan.bridge.api.authorization import Anyone, Reader
from overspan.bridge.api.bodies import Name, RequestBody, Word
from overspan.bridge.api.jobs import answer
from overspan.bridge.controller.controller import Controller
from overspan.bridge.controller.features.reach.trial_job import DEFAULT_PORTS, TrialRequest

MOST_PORTS = 32
Port = Annotated[int, Field(ge=1, le=65535)]
MAX_SECONDS = 86400


class TrialBody(RequestBody):
    """Two clusters, the ports to try (none: the usual one), the image of pods, and how long the trial may wait."""

    clusters: Annotated[list[Name], Field(min_length=2, max_length=2)]
    ports: list[Port] = Field(default_factory=list, max_length=MOST_PORTS)
    image: Word = ""
    host_network: bool = False
    seconds: Annotated[int, Field(ge=1, le=MAX_SECONDS)] = 300


def build_reach_routes(controller: Controller) -> APIRouter:
    router = APIRouter(prefix="/v1")
    reach = controller.reach

    @router.post("/reach/trial", summary="The job file of a trial of the ways between two clusters")
    async def prepare(body: TrialBody, by: Anyone) -> Response:
        ports = tuple(dict.fromkeys(body.ports)) or DEFAULT_PORTS
        request = TrialRequest(tuple(body.clusters), ports, body.image, body.host_network, body.seconds)
        return answer(**(await reach.prepare(request, by.name))._asdict())

    @router.post("/jobs/{ref}/reach", summary="What a trial has found out; it is kept from now on")
    async def conclude(ref: Annotated[str, Path(max_length=300)], by: Reader) -> Response:
        outcome = await reach.conclude(ref)
        findings = [
            {
                "source": finding.source.cluster,
                "target": finding.target.cluster,
                "host_network": finding.source.host_network or finding.target.host_network,
                "port": finding.port,
                "works": finding.works,
                "detail": finding.detail,
            }
            for finding in outcome.findings
        ]
        return answer(findings=findings, gaps=list(outcome.gaps))

    return router

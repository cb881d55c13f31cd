"""Routes for evaluations of checkpoints."""

from __future__ import annotations

from fastapi import APIRouter
from fastapi.responses import Response

from overspan.bridge.api.authorization import Anyone, Owner, Viewer
from overspan.bridge.api.bodies import EvaluationRunBody, SubmissionBody
from overspan.bridge.api.jobs import Ref, answer, read_submission_body
from overspan.bridge.controller.controller import Controller


def build_evaluation_routes(controller: Controller) -> APIRouter:
    router = APIRouter(prefix="/v1")
    evaluations = controller.evaluations

    @router.get("/watches", summary="What is evaluated of the checkpoints of all jobs, newest first")
    async def watches(by: Anyone) -> Response:
        return answer(now=controller.clock(), watches=await evaluations.sum_up(by.within))

    @router.get("/jobs/{ref}/evaluations", summary="What is evaluated of a job's checkpoints, with the results")
    async def listing(ref: Ref, by: Viewer) -> Response:
        return answer(now=controller.clock(), watches=await evaluations.describe(ref))

    @router.post("/jobs/{ref}/evaluations/run", summary="Evaluate a checkpoint once more")
    async def run(ref: Ref, body: EvaluationRunBody, by: Owner) -> Response:
        made = await evaluations.run(ref, body.checkpoint, body.evaluation)
        return answer(evaluations=made)

    @router.post("/jobs/{ref}/evaluations/watch", summary="Evaluate the checkpoints of a job that exists")
    async def watch(ref: Ref, body: SubmissionBody, by: Owner) -> Response:
        name, notes = await evaluations.watch(ref, read_submission_body(body, by))
        return answer(name=name, notes=list(notes))

    return router

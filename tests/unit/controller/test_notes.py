"""What a job asks for that its cluster carries out without effect is told at the submission."""

from __future__ import annotations

from tests.unit.controller.fakes import Bench, play

from overspan.bridge.config.settings import ClusterSettings, Settings
from overspan.bridge.controller.submission.submitter import ParsedSubmission
from overspan.bridge.model.spec import JobSpec, TaskSpec
from overspan.bridge.readers.submission import Submission


async def _notes(bench: Bench, cluster: str) -> tuple[str, ...]:
    spec = JobSpec(name="one", tasks=(TaskSpec("a", run="true", on_preemption="save"),), clusters=(cluster,))
    bench.reader = lambda submission, kinds, now: ParsedSubmission(spec, {"wait": False})
    await bench.start()
    answer = await bench.controller.submit(Submission("script", "one", user="me"))
    return tuple(answer.notes)


def test_a_hook_for_preemption_is_for_pods_alone() -> None:
    async def scene(bench: Bench) -> None:
        bench.settings = Settings(clusters={"lab": ClusterSettings(kind="kubernetes")})
        await bench.kill()
        (note,) = await _notes(bench, "local")
        assert "on_preemption has no effect on local" in note
        await bench.kill()
        assert await _notes(bench, "lab") == ()

    play(scene)

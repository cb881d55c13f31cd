"""What a job was sent as: what its cluster keeps, else what would be sent now; and it is said which."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.controller.fakes import Bench, FakeCluster, end, play, start_job, until

from overspan.adapters.abilities import KeptForm
from overspan.bridge.controller.views.sent_forms import FORGOTTEN, list_variables
from overspan.bridge.model.errors import InvalidRequest, NotFound, OverspanError, Unreachable
from overspan.bridge.model.job import Job, new_job
from overspan.bridge.readers.submission import Submission, read_submission


class PlanningCluster(FakeCluster):
    """A cluster that can render a job, and nothing else."""

    def plan(self, job: Job) -> str:
        """One line."""
        return f"run {job.spec.tasks[0].run}\n"


class SilentCluster(FakeCluster):
    """A cluster that can tell nothing of what it is sent."""

    plan = None  # type: ignore[assignment]


class KeepingCluster(PlanningCluster):
    """A cluster that keeps what it was sent, until it forgets it or fails."""

    kept: KeptForm | OverspanError | None = KeptForm("#!/bin/sh\nexport HF_TOKEN=abc\n", "as it has it")

    async def read_sent(self, handle: str) -> KeptForm | None:
        """What is kept of any launch."""
        if isinstance(self.kept, OverspanError):
            raise self.kept
        return self.kept


def read_job(text: str) -> Job:
    given = Submission("job_file", text, "f.yaml", environment={"HOME": "/h", "MY_TOKEN": "t"})
    return new_job(1, read_submission(given, now=1.0), 1.0)


def test_what_the_cluster_keeps_is_told_as_sent() -> None:
    async def scene(bench: Bench) -> None:
        await start_job(bench)
        found = await bench.controller.sent_forms.read("1")
        assert found == {"text": "#!/bin/sh\nexport HF_TOKEN=abc\n", "was_sent": True, "source": "as it has it"}

    play(scene, KeepingCluster())


@pytest.mark.parametrize(
    ("kept", "why"), [(None, FORGOTTEN), (Unreachable("no route to the cluster"), "no route to the cluster")]
)
def test_what_nobody_can_tell_is_rendered_anew_and_said_to_be(kept: Any, why: str) -> None:
    async def scene(bench: Bench) -> None:
        bench.cluster.kept = kept  # type: ignore[attr-defined]
        await start_job(bench)
        found = await bench.controller.sent_forms.read("1")
        assert found["was_sent"] is False and found["text"].startswith("run ")
        assert found["source"] == f"rendered anew, as it would be sent now: {why}"

    play(scene, KeepingCluster())


def test_a_cluster_that_keeps_nothing_has_it_rendered() -> None:
    async def scene(bench: Bench) -> None:
        await start_job(bench)
        assert FORGOTTEN in (await bench.controller.sent_forms.read("1"))["source"]

    play(scene, PlanningCluster())


def test_a_job_that_was_not_sent_shows_what_would_be() -> None:
    async def scene(bench: Bench) -> None:
        bench.cluster.down = True
        await bench.submit("one", hold=True)
        found = await bench.controller.sent_forms.read("1")
        assert found["was_sent"] is False and found["source"] == "not sent yet: this would be sent now"

    play(scene, KeepingCluster())


def test_errors_are_told_as_such() -> None:
    async def scene(bench: Bench) -> None:
        await bench.submit("one")
        with pytest.raises(NotFound):
            await bench.controller.sent_forms.read("7")
        with pytest.raises(InvalidRequest, match="cannot show what it is sent"):
            await bench.controller.sent_forms.read("1")

    play(scene, SilentCluster())


def test_an_ended_launch_still_tells() -> None:
    async def scene(bench: Bench) -> None:
        await start_job(bench)
        bench.cluster.tell("1.0", *end(bench.job(1), bench.clock.now))
        await until(lambda: bench.job(1).over)
        assert (await bench.controller.sent_forms.read("1"))["was_sent"]

    play(scene, KeepingCluster())


def test_a_batch_script_has_the_submitter_s_variables() -> None:
    given = Submission("script", "#!/bin/sh\ntrue\n", "s.sh", argv=("--export=ALL,A=1", "s.sh"), environment={"B": "2"})
    found = list_variables(new_job(1, read_submission(given, now=1.0), 1.0))
    assert {(each.name, each.value, each.origin) for each in found} >= {
        ("A", "1", "submission"),
        ("B", "2", "submission"),
    }
    assert {each.origin for each in found} == {"submission"}


def test_variables_by_task_and_origin_without_secrets() -> None:
    job = read_job("""\
name: pair
---
name: a
envs: {B: "2", HF_TOKEN: abc}
secrets: {KEYED: abc}
run: 'true'
---
name: b
run: 'true'
""")
    found = [(each.task, each.name, each.value, each.origin) for each in list_variables(job)]
    assert found[:3] == [("a", "B", "2", "task"), ("a", "HF_TOKEN", "***", "task"), ("a", "KEYED", "***", "secret")]
    assert ("", "HOME", "/h", "submission") in found and ("", "MY_TOKEN", "***", "submission") in found
    assert not [each for each in list_variables(job, "b") if each.task]
    assert all("abc" not in each.value for each in list_variables(job))

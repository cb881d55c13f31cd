"""Submissions and their way to the cluster."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest
from tests.unit.controller.fakes import START, Bench, FakeCluster, begin, end, play, start_job, turn, until

from overspan.adapters.contract import Accepted, Launch, Node, Refusal
from overspan.bridge.controller.orders.requests import CancelRequest
from overspan.bridge.controller.submission import submitter
from overspan.bridge.controller.submission.folder_uploads import FolderUpload
from overspan.bridge.controller.submission.notes import note_size
from overspan.bridge.controller.submission.resubmission import ResubmitRequest
from overspan.bridge.controller.submission.submitter import ParsedSubmission
from overspan.bridge.controller.views.listing import Selection
from overspan.bridge.model.durations import format_timestamp
from overspan.bridge.model.errors import InvalidRequest, NotFound, Rejected, StoreFailed
from overspan.bridge.model.job import Job, new_job
from overspan.bridge.model.resources import Resources
from overspan.bridge.model.spec import JobSpec, TaskSpec
from overspan.bridge.readers.submission import Submission


def test_a_job_from_submission_to_end() -> None:
    async def scene(bench: Bench) -> None:
        job_id = await start_job(bench)
        bench.clock.now += 5
        bench.cluster.tell("1.0", *end(bench.job(), bench.clock.now))
        await until(lambda: bench.state() == "COMPLETED")
        assert bench.repository.jobs[job_id].cursor == "4"
        assert bench.repository.rows == {} and len(bench.controller.recorder.outbox) == 0
        assert bench.job().spec.partition == "local"
        assert bench.controller.recorder.registry.watched("local") == {}
        rows = await bench.controller.timeline("1")
        assert [row.end for row in rows if not row.task] == ["PENDING", "CONFIGURING", "RUNNING", "COMPLETED"]

    play(scene)


class EagerCluster(FakeCluster):
    """A cluster that tells a launch's grant with its acceptance."""

    def _take(self, launch: Launch) -> Accepted | Refusal:
        answer = super()._take(launch)
        assert isinstance(answer, Accepted)
        if not self.journals[answer.handle]:
            self.tell(answer.handle, *begin(launch.job, START)[:1])
        return replace(answer, report=self._report(answer.handle, ""))


def test_a_report_that_comes_with_the_acceptance_is_stored_with_it_and_counts_once() -> None:
    async def scene(bench: Bench) -> None:
        await bench.submit()
        await until(lambda: bench.job().granted_at is not None)
        # The insertion is version 0.
        assert bench.job().version == 1 and bench.repository.jobs[1].cursor == "1"
        bench.cluster.tell("1.0", *begin(bench.job(), START)[1:])
        await until(lambda: bench.state() == "RUNNING")
        bench.cluster.tell("1.0", *end(bench.job(), START))
        await until(lambda: bench.state() == "COMPLETED")
        assert bench.job().late == 0

    play(scene, EagerCluster())


def test_jobs_of_one_spec_share_it_and_others_do_not() -> None:
    async def scene(bench: Bench) -> None:
        for text in ("one", "one", "a b", "one"):
            # Each request is decoded anew.
            await bench.submit(text, user="".join(["m", "e"]))
        first, second, other, last = (bench.job(number) for number in (1, 2, 3, 5))
        assert first.spec is second.spec and first.spec == last.spec != other.spec
        one, two = (bench.controller.recorder.registry.get(number) for number in (1, 2))
        assert one is not None and two is not None and one.user is two.user
        assert [task.name for task in other.tasks] == ["a", "b"]

    play(scene)


def test_the_answer_comes_after_the_commit_and_with_the_submission_owed() -> None:
    async def scene(bench: Bench) -> None:
        answer = await bench.controller.submit(Submission("script", "a b c", user="me"))
        assert (answer.id, answer.task_ids, answer.cluster) == (1, ("1+0", "1+1", "1+2"), "local")
        assert [row.kind for row in bench.repository.rows.values()] == ["submit"]
        assert await bench.submit() == 4

    play(scene)


def test_a_submission_that_is_sent_again_makes_one_job() -> None:
    async def scene(bench: Bench) -> None:
        sent = Submission("script", "a b", user="me", token="0a1b")
        first = await bench.controller.submit(sent)
        # Its cluster would not have it any more; it has it.
        bench.cluster.impossible = "Requested node configuration is not available"
        assert await bench.controller.submit(sent) == first
        await bench.kill()
        await bench.start()
        assert await bench.controller.submit(sent) == first
        bench.cluster.impossible = ""
        others = (replace(sent, token="0a1c"), replace(sent, user="you", token="0a1d"), replace(sent, token=""))
        assert len({(await bench.controller.submit(other)).id for other in others}) == 3
        assert len(bench.repository.jobs) == 4

    play(scene)


@pytest.mark.parametrize("uploads", ["", "ask"])
def test_a_submission_that_is_sent_again_sends_no_folder_again(monkeypatch: pytest.MonkeyPatch, uploads: str) -> None:
    async def scene(bench: Bench) -> None:
        sent: list[FolderUpload] = []

        async def send_all(uploads: list[FolderUpload]) -> None:
            sent.extend(uploads)

        folder = FolderUpload("minio", "code", ("/home/me/code/",))
        monkeypatch.setattr(submitter, "list_uploads", lambda spec: [folder])
        monkeypatch.setattr(bench.controller.submitter.uploads, "send_all", send_all)
        submission = Submission("script", "one", user="me", token="0a1b", uploads=uploads)
        if uploads:
            asked = await bench.controller.submit(submission)
            assert asked.uploads == (folder,)
            first = await bench.controller.submit(replace(submission, uploads="done"))
        else:
            first = await bench.controller.submit(submission)
            assert sent == [folder]
        sent.clear()
        again = await bench.controller.submit(submission)
        assert (again.id, again.uploads, sent) == (first.id, (), [])
        assert len(bench.repository.jobs) == 1

    play(scene)


def test_a_resubmission_that_is_sent_again_makes_one_job() -> None:
    async def scene(bench: Bench) -> None:
        await bench.submit()
        resubmit = bench.controller.resubmitter.resubmit
        first = await resubmit(ResubmitRequest("1", token="0a1b"))
        assert await resubmit(ResubmitRequest("1", token="0a1b")) == first
        assert (await resubmit(ResubmitRequest("1", token="0a1c"))).id != first.id

    play(scene)


def test_a_full_disk_refuses_the_submission_as_a_whole() -> None:
    async def scene(bench: Bench) -> None:
        bench.repository.broken = True
        with pytest.raises(StoreFailed):
            await bench.submit()
        assert bench.repository.jobs == {} and len(bench.controller.recorder.registry) == 0

    play(scene)


def test_what_is_refused_is_not_written() -> None:
    async def scene(bench: Bench) -> None:
        with pytest.raises(InvalidRequest, match="cannot carry out event_callback"):
            await bench.submit("one later")
        with pytest.raises(NotFound, match="no cluster 'moon'"):
            await bench.submit(cluster="moon")
        bench.cluster.impossible = "Requested node configuration is not available"
        with pytest.raises(Rejected, match=r"^Batch job submission failed: Requested node configuration"):
            await bench.submit()
        bench.cluster.impossible = "invalid partition specified: nope"
        with pytest.raises(Rejected) as caught:
            await bench.submit()
        assert caught.value.message.splitlines() == [
            "invalid partition specified: nope",
            "Batch job submission failed: Invalid partition name specified",
        ]
        bench.cluster.impossible = "Memory specification can not be satisfied\nRequested node configuration"
        with pytest.raises(Rejected) as caught:
            await bench.submit()
        assert caught.value.message.splitlines() == [
            "Memory specification can not be satisfied",
            "Batch job submission failed: Requested node configuration",
        ]
        bench.cluster.impossible = "Invalid generic resource (gres) specification"
        with pytest.raises(Rejected, match=r"^Invalid generic"):
            await bench.submit()
        assert bench.repository.transactions == 0

    play(scene)


def test_of_several_partitions_the_first_that_takes_the_job() -> None:
    async def scene(bench: Bench) -> None:
        submitter = bench.controller.submitter
        read = submitter.reader

        def read_listed(*given: Any) -> ParsedSubmission:
            reading = read(*given)
            return replace(reading, spec=replace(reading.spec, partition="short,long,last"))

        async def admit(job: Job) -> Refusal | None:
            return Refusal("", "too long") if job.spec.partition == "short" else None

        submitter.reader, bench.cluster.admit = read_listed, admit  # type: ignore[method-assign]
        await bench.submit()
        assert bench.job().spec.partition == "long"

    play(scene)


def test_a_name_takes_the_id() -> None:
    async def scene(bench: Bench) -> None:
        named = []

        async def admit(job: Job) -> Refusal | None:
            named.append(job.spec.name)
            return None

        bench.cluster.admit = admit  # type: ignore[method-assign]
        await bench.submit("a b", name="x-{id}")
        assert bench.job().spec.name == "x-1"
        assert named and all(re.fullmatch("x-[0-9]+", name) for name in named)
        with pytest.raises(InvalidRequest):
            await bench.submit(name="x-{what}")

    play(scene)


def test_refused_for_now_is_tried_again_with_the_reason_shown() -> None:
    async def scene(bench: Bench) -> None:
        bench.cluster.refusals = [Refusal("", "too many jobs", transient=True, reason="QOSMaxSubmitJobPerUserLimit")]
        await bench.submit()
        await until(lambda: bench.job().reason == "QOSMaxSubmitJobPerUserLimit")
        document = await bench.controller.job("1")
        assert bench.clock.now < document["next_start"] <= bench.clock.now + 1.2
        await until(lambda: bool([row for row in bench.repository.rows.values() if row.tries == 1]))
        await turn()
        assert bench.cluster.submits == 1
        bench.clock.advance(2)
        await until(lambda: bench.controller.recorder.registry.watched("local") != {})
        assert (await bench.controller.job("1"))["next_start"] is None

    play(scene)


def test_what_keeps_a_job_waiting_is_told_where_the_reason_alone_would_not_tell() -> None:
    async def scene(bench: Bench) -> None:
        bench.cluster.refusals = [Refusal("", "cannot be written: No space left on device\n#2", True, "Resources")]
        await bench.submit()
        await until(lambda: bench.job().reason == "Resources: cannot be written: No space left on device")

    play(scene)


def test_a_final_refusal_ends_the_job_in_the_clusters_words() -> None:
    async def scene(bench: Bench) -> None:
        bench.cluster.refusals = [Refusal("", "Invalid account")]
        await bench.submit()
        await until(lambda: bench.state() == "FAILED")
        assert "Invalid account" in [row.text for row in await bench.controller.timeline("1")]
        assert bench.repository.rows == {}

    play(scene)


def test_an_unreachable_cluster_is_stale_and_nothing_fails() -> None:
    async def scene(bench: Bench) -> None:
        await start_job(bench)
        bench.cluster.fail(True)
        await bench.submit("two")
        cluster = bench.controller.clusters.get("local")
        await until(lambda: cluster.stale_since is not None)
        why = f"cluster local has not answered since {format_timestamp(START)}: no route to the cluster"
        answer = await bench.controller.submit(Submission("script", "three", user="me"))
        assert answer.notes == (f"the job waits: {why}",)
        assert (await bench.controller.orders.cancel(CancelRequest(("1",)))).note == f"what was asked waits: {why}"
        # Nobody there knows of it, so it has ended.
        assert (await bench.controller.orders.cancel(CancelRequest((str(answer.id),)))).note == ""
        assert bench.state(answer.id) == "CANCELLED"
        bench.clock.advance(600)
        await turn()
        assert (bench.state(1), bench.state(2)) == ("RUNNING", "PENDING")
        assert b'"stale": [{"cluster": "local"' in bench.controller.queue(Selection())
        assert (await bench.controller.job("1"))["stale_since"] is not None
        bench.cluster.fail(False)
        bench.clock.advance(600)
        await until(lambda: len(bench.cluster.launched) == 2)
        await until(lambda: cluster.stale_since is None)

    play(scene)


def test_new_submissions_do_not_hammer_a_cluster_that_does_not_answer() -> None:
    async def scene(bench: Bench) -> None:
        bench.cluster.fail(True)
        await bench.submit()
        await until(lambda: bench.cluster.submits == 1)
        for _ in range(20):
            await bench.submit()
        await turn()
        assert bench.cluster.submits == 1

    play(scene)


class NotingCluster(FakeCluster):
    """A cluster with a note for every job, and nodes that it has seen."""

    def notes(self, job: Job) -> tuple[str, ...]:
        return ("pods end after 14 days",)

    def state(self) -> dict[str, Any]:
        return {"known_nodes": self.known_nodes}

    def known_nodes(self) -> tuple[Node, ...]:
        return (Node("n1", "pods", "idle", cpus=4, cpus_used=0, memory=8000, memory_used=0),)


def test_a_note_that_holds_for_every_job_is_told_once_a_day() -> None:
    async def scene(bench: Bench) -> None:
        async def submit(user: str) -> tuple[str, ...]:
            return (await bench.controller.submit(Submission("script", "one", user=user))).notes

        assert await submit("me") == ("pods end after 14 days",)
        assert await submit("me") == ()
        assert await submit("ada") == ("pods end after 14 days",)
        # The job keeps what its submitter was told another day.
        assert bench.job(2).spec.notes == ("pods end after 14 days",)
        bench.clock.now += 86400
        assert await submit("me") == ("pods end after 14 days",)

    play(scene, cluster=NotingCluster())


def test_who_asks_for_more_words_is_told_it_each_time() -> None:
    async def scene(bench: Bench) -> None:
        submitter = bench.controller.submitter
        read = submitter.reader

        def read_verbose(*given: Any) -> ParsedSubmission:
            return replace(read(*given), options={"verbose": True})

        submitter.reader = read_verbose
        for _ in range(2):
            answer = await bench.controller.submit(Submission("script", "one", user="me"))
            assert answer.notes == ("pods end after 14 days",)

    play(scene, cluster=NotingCluster())


def test_what_no_node_is_large_enough_for_is_noted() -> None:
    async def scene(bench: Bench) -> None:
        cluster = bench.controller.clusters.get("local")

        def note(**asked: Any) -> tuple[str, ...]:
            task = TaskSpec("main", resources=Resources(**asked))
            return note_size(new_job(1, JobSpec("j", (task,)), START), cluster)

        assert note(cpus=4) == note() == ()
        assert note(cpus=64) == (
            "no node has 64 CPUs for main: the largest, n1, has 4 CPUs, 8000 MiB; "
            "the job waits until there is such a node",
        )

    play(scene, cluster=NotingCluster())

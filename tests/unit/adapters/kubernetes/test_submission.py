"""Submitting: what is made exists once, whatever is lost; what is refused leaves nothing."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.fakes.kubernetes_objects import Key
from tests.unit.adapters.kubernetes.bench import INSTALLATION, Bench, make_job, play, solo

from overspan.adapters.contract import NOT_HERE, Accepted, Launch, Refusal, Unsent
from overspan.adapters.kubernetes import cluster as cluster_module
from overspan.adapters.kubernetes.api.calls import CREATORS
from overspan.bridge.model.errors import OverspanError, Unreachable
from overspan.bridge.model.events import NodeEnded
from overspan.bridge.model.job import Job
from overspan.bridge.model.spec import TaskSpec


def test_a_group_is_its_anchor_its_name_and_its_pods(bench: Bench) -> None:
    async def story() -> None:
        async with bench.open() as cluster:
            (answer,) = await bench.submit(cluster, make_job())
            assert isinstance(answer, Accepted)
            assert answer.handle == f"default/{INSTALLATION}-7-0"
        assert bench.names("services") == ["demo"]
        assert bench.pods() == ["demo-rollout-0-a0", "demo-rollout-1-a0", "demo-trainer-0-a0"]
        owners = [bench.pod(name)["metadata"]["ownerReferences"][0]["uid"] for name in bench.pods()]
        assert set(owners) == {answer.native_id}

    play(story)


@pytest.mark.parametrize("path", ["configmaps$", "services$", "pods$", "configmaps/"])
def test_a_reply_that_is_lost_after_the_commit_is_found_again(bench: Bench, path: str) -> None:
    async def story() -> None:
        job = make_job()
        async with bench.open() as cluster:
            bench.api.lose_reply("PATCH" if path.endswith("/") else "POST", path)
            try:
                answers = await bench.submit(cluster, job)
            except OverspanError as error:
                assert error.transient
                answers = await bench.submit(cluster, job)
            uids = [bench.pod(name)["metadata"]["uid"] for name in bench.pods()]
            assert await bench.submit(cluster, job) == answers
        assert isinstance(answers[0], Accepted)
        assert [bench.pod(name)["metadata"]["uid"] for name in bench.pods()] == uids
        assert len(uids) == 3

    play(story)


def test_another_process_finds_what_the_first_one_made(bench: Bench) -> None:
    async def story() -> None:
        job = make_job()
        async with bench.open() as cluster:
            bench.api.drop("POST", "pods$")
            with pytest.raises(OverspanError):
                await bench.submit(cluster, job)
            made = bench.pods()
            assert len(made) < 3
        async with bench.open() as cluster:
            (answer,) = await bench.submit(cluster, job)
            assert isinstance(answer, Accepted)
        assert len(bench.pods()) == 3

    play(story)


def test_nothing_is_made_of_a_launch_that_nobody_wants_any_more(bench: Bench) -> None:
    async def story() -> None:
        job = make_job()
        launch = Launch(f"{INSTALLATION}-7-0", job, wanted=False)
        async with bench.open() as cluster:
            assert await cluster.submit([launch]) == [Refusal(launch.token, NOT_HERE)]
            assert bench.left() == []
            # A try that broke off after its anchor has started nothing, and goes.
            bench.api.drop("POST", "pods$")
            with pytest.raises(OverspanError):
                await cluster.submit([replace(launch, wanted=True)])
        async with bench.open() as cluster:
            assert bench.left() != []
            assert await cluster.submit([launch]) == [Refusal(launch.token, NOT_HERE)]
            assert bench.left() == []
            # What is whole is found.
            (answer,) = await bench.submit(cluster, job)
            assert await cluster.submit([launch]) == [answer]

    play(story)


def test_silence_before_anything_is_made_is_told_as_such(bench: Bench) -> None:
    async def story() -> None:
        async with bench.open() as cluster:
            bench.api.drop("GET", "namespaces", times=50)
            bench.api.drop("POST", "reviews", times=50)
            bench.api.drop("GET", "nodes", times=50)
            with pytest.raises(Unsent):
                await bench.submit(cluster, make_job())
        assert bench.left() == []

    play(story)


def test_a_launch_that_is_over_is_not_made_again(bench: Bench) -> None:
    async def story() -> None:
        job = solo()
        async with bench.open() as cluster:
            handle = await bench.start(cluster, job)
            (name,) = bench.pods()
            bench.api.pods.finish(name)
            await bench.until_told(cluster, handle, NodeEnded)
            await bench.until(cluster, lambda: not bench.pods(), "the ended pod goes")
        async with bench.open() as cluster:
            (answer,) = await bench.submit(cluster, job)
            assert isinstance(answer, Accepted) and answer.handle == handle
        assert bench.pods() == []

    play(story)


def test_a_name_that_is_taken_is_refused_with_the_remedy(bench: Bench) -> None:
    async def story() -> None:
        bench.api.objects.create(Key("", "services", "default"), {"metadata": {"name": "demo"}, "spec": {}})
        refusal = await refused(bench, make_job())
        assert not refusal.transient
        assert "demo is taken" in refusal.message and "--name" in refusal.remedy and "x-{id}" in refusal.remedy
        assert bench.left() == ["services demo"]

    play(story)


def test_an_earlier_launch_of_the_same_job_gives_its_name_up(bench: Bench) -> None:
    async def story() -> None:
        async with bench.open() as cluster:
            first = make_job()
            await bench.submit(cluster, first)
            again = replace(first, launch=1)
            answers = await bench.submit(cluster, again)
            for _ in range(5):
                if isinstance(answers[0], Accepted):
                    break
                assert answers[0].transient, answers
                answers = await bench.submit(cluster, again)
            assert isinstance(answers[0], Accepted)
        tokens = {bench.pod(name)["metadata"]["labels"]["overspan.io/launch"] for name in bench.pods()}
        assert tokens == {f"{INSTALLATION}-7-1"}

    play(story)


def test_an_invalid_pod_takes_the_rest_with_it(bench: Bench) -> None:
    async def story() -> None:
        bench.api.refuse("POST", "pods$", 422, 'Pod "x" is invalid: spec.nodeName: Invalid value', reason="Invalid")
        refusal = await refused(bench, make_job())
        assert not refusal.transient and "Invalid value" in refusal.message
        assert bench.left() == []

    play(story)


def make_wide(nodes: int) -> Job:
    """A group of one task."""
    return make_job(TaskSpec(name="rank", run="true", num_nodes=nodes), name="wide")


@pytest.mark.parametrize(("nodes", "late"), [(16, False), (17, True)])
def test_the_name_of_many_pods_is_made_when_they_are_there(bench: Bench, nodes: int, late: bool) -> None:
    async def story() -> None:
        async with bench.open() as cluster:
            (answer,) = await bench.submit(cluster, make_wide(nodes))
            assert isinstance(answer, Accepted)
        pods = [place for place, _ in bench.sent("POST", "/pods")]
        ((service, _),) = bench.sent("POST", "/services")
        assert service > max(pods) if late else service < min(pods)
        assert len(bench.pods()) == nodes
        (owner,) = bench.api.objects.get(Key("", "services", "default", "wide"))["metadata"]["ownerReferences"]
        assert owner["uid"] == answer.native_id

    play(story)


def test_the_name_of_a_group_that_has_ended_is_free_soon(bench: Bench) -> None:
    async def story() -> None:
        async with bench.open() as cluster:
            await bench.start(cluster, make_job())
            for name in bench.pods():
                bench.api.pods.finish(name)
            (found,) = cluster.launches.watched.values()
            await bench.until(cluster, lambda: all(pod.ended for pod in cluster.launches.pods(found)), "its end")
            (refusal,) = await bench.submit(cluster, make_job(job_id=8))
            assert isinstance(refusal, Refusal) and refusal.transient and "is being removed" in refusal.message

    play(story)


def test_many_pods_are_not_made_for_a_name_that_is_taken(bench: Bench) -> None:
    async def story() -> None:
        bench.api.objects.create(Key("", "services", "default"), {"metadata": {"name": "wide"}, "spec": {}})
        refusal = await refused(bench, make_wide(20))
        assert not refusal.transient and "wide is taken" in refusal.message
        assert not list(bench.sent("POST", "/pods"))
        assert bench.left() == ["services wide"]

    play(story)


@pytest.mark.parametrize("path", ["services$", "pods$"])
def test_many_pods_that_were_made_in_part_are_found_again(bench: Bench, path: str) -> None:
    async def story() -> None:
        async with bench.open() as cluster:
            bench.api.lose_reply("POST", path)
            with pytest.raises(OverspanError):
                await bench.submit(cluster, make_wide(30))
            uids = {bench.pod(name)["metadata"]["uid"] for name in bench.pods()}
        async with bench.open() as cluster:
            (answer,) = await bench.submit(cluster, make_wide(30))
            assert isinstance(answer, Accepted)
        assert bench.names("services") == ["wide"]
        assert uids <= {bench.pod(name)["metadata"]["uid"] for name in bench.pods()}
        assert len(bench.pods()) == 30

    play(story)


def test_one_refusal_ends_the_making_of_many(bench: Bench) -> None:
    async def story() -> None:
        bench.api.objects.quotas["default"] = 2
        refusal = await refused(bench, make_wide(100))
        assert refusal.transient and "exceeded quota" in refusal.message
        # Each thread learns of it from its own refusal at the latest.
        assert len(list(bench.sent("POST", "/pods"))) <= 2 + CREATORS
        assert bench.left() == []

    play(story)


def test_what_this_login_may_not_do_is_said(bench: Bench) -> None:
    async def story() -> None:
        bench.api.denied.add(("create", "pods"))
        refusal = await refused(bench, make_job())
        assert not refusal.transient and "cannot create" in refusal.message and "span check" in refusal.remedy
        assert bench.left() == []

    play(story)


def test_a_full_quota_is_waited_for_and_nothing_is_held_meanwhile(bench: Bench) -> None:
    async def story() -> None:
        bench.api.objects.quotas["default"] = 2
        job = make_job()
        refusal = await refused(bench, job)
        assert refusal.transient and refusal.reason == "AssocGrpJobsLimit" and "exceeded quota" in refusal.message
        assert refusal.waiting_reason == f"AssocGrpJobsLimit: {refusal.message}" and "describe quota" in refusal.remedy
        assert bench.left() == []
        bench.api.objects.quotas["default"] = 3
        async with bench.open() as cluster:
            (answer,) = await bench.submit(cluster, job)
            assert isinstance(answer, Accepted)

    play(story)


def test_a_server_that_is_down_refuses_nothing(bench: Bench) -> None:
    async def story() -> None:
        async with bench.open() as cluster:
            bench.api.stop()
            with pytest.raises(Unreachable):
                await bench.submit(cluster, make_job())
            bench.api.start()
            (answer,) = await bench.submit(cluster, make_job())
            assert isinstance(answer, Accepted)

    play(story)


def test_a_name_that_is_none_for_dns_is_refused_before_anything_is_made(bench: Bench) -> None:
    async def story() -> None:
        refusal = await refused(bench, make_job(name="x" * 80))
        assert not refusal.transient and "80 letters" in refusal.message
        assert not list(bench.sent("POST", "configmaps"))

    play(story)


async def refused(bench: Bench, job: Job) -> Refusal:
    """The refusal of a job."""
    async with bench.open() as cluster:
        (answer,) = await bench.submit(cluster, job)
        assert isinstance(answer, Refusal), answer
        return answer


@pytest.mark.parametrize("verb", ["get", "list", "watch", "patch", "delete"])
def test_a_login_that_could_not_follow_its_pods_makes_none(bench: Bench, verb: str) -> None:
    async def story() -> None:
        bench.api.denied.add((verb, "pods"))
        refusal = await refused(bench, solo())
        assert not refusal.transient and f"may not {verb} pods in default" in refusal.message
        assert bench.left() == []
        async with bench.open() as cluster:
            early = await cluster.admit(solo())
            assert early is not None and early.message == refusal.message
            bench.api.denied.clear()
            # A right that is granted counts at once.
            assert await cluster.admit(solo()) is None
            (answer,) = await bench.submit(cluster, solo())
            assert isinstance(answer, Accepted)

    play(story)


@pytest.mark.parametrize(
    ("status", "message", "words"),
    [
        (404, 'namespaces "default" not found', "the namespace default does not exist"),
        (403, "unable to create new content in namespace default because it is being terminated", "is being deleted"),
    ],
)
def test_a_namespace_that_is_not_there_refuses_at_the_submission(
    bench: Bench, status: int, message: str, words: str
) -> None:
    async def story() -> None:
        # As who may not read it, and as who may.
        bench.api.denied.add(("get", "namespaces"))
        fault = bench.api.refuse("POST", "/configmaps", status, message)
        async with bench.open() as cluster:
            refusal = await cluster.admit(solo())
            assert refusal is not None and words in refusal.message and not fault.times
            bench.api.denied.clear()
            bench.api.objects.replace(
                Key("", "namespaces", "", "default"), lambda one: {**one, "status": {"phase": "Terminating"}}
            )
            refusal = await cluster.admit(solo())
            assert refusal is not None and "is being deleted" in refusal.message
            bench.api.objects.delete(Key("", "namespaces", "", "default"), {})
            refusal = await cluster.admit(solo())
            assert refusal is not None and "does not exist" in refusal.message
            assert "create namespace default" in refusal.remedy

    play(story)


def test_a_namespace_that_goes_under_a_daemon_refuses_the_next_submission(bench: Bench) -> None:
    async def story() -> None:
        async with bench.open() as cluster:
            assert await cluster.admit(solo()) is None
            bench.api.objects.delete(Key("", "namespaces", "", "default"), {})
            # What was seen a moment ago is believed, until the cluster says otherwise.
            assert await cluster.admit(solo()) is None
            bench.api.refuse("POST", "/configmaps", 404, 'namespaces "default" not found')
            (refusal,) = await bench.submit(cluster, solo())
            assert isinstance(refusal, Refusal) and "`namespace` of this cluster" in refusal.remedy
            early = await cluster.admit(solo())
            assert early is not None and "does not exist" in early.message

    play(story)


def test_a_cluster_that_does_not_answer_keeps_no_submitter(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        monkeypatch.setattr(cluster_module, "ASK_SECONDS", 0.05)
        held = bench.api.hold("GET", "/namespaces/default$")
        async with bench.open() as cluster:
            assert await cluster.admit(solo()) is None
            held.free.set()

    play(story)


def test_groups_of_one_name_wait_for_each_other(bench: Bench) -> None:
    async def story() -> None:
        async with bench.open() as cluster:
            handle = await bench.start(cluster, make_job())
            second = make_job(job_id=8)
            assert await cluster.admit(second) is None
            (refusal,) = await bench.submit(cluster, second)
            assert isinstance(refusal, Refusal) and refusal.transient and "waits for job 7" in refusal.message
            for name in bench.pods():
                bench.api.pods.finish(name)
            await cluster.release("bench", [], [])
            for name in bench.pods():
                bench.api.pods.gone(name)
            assert handle not in bench.pods()
            (answer,) = await bench.submit(cluster, second)
            assert isinstance(answer, Accepted)

    play(story)


def test_a_name_of_another_daemon_refuses_at_the_submission_while_its_group_lives(bench: Bench) -> None:
    async def story() -> None:
        async with bench.open() as other:
            handle = await bench.start(other, make_job())
            async with bench.open() as cluster:
                await cluster.release("mine", [], [])
                early = await cluster.admit(make_job(job_id=3))
                assert early is not None and "demo is taken in this namespace: job 7" in early.message
                (refusal,) = await cluster.submit([Launch("mine-3-0", make_job(job_id=3))])
                assert isinstance(refusal, Refusal) and not refusal.transient and refusal.message == early.message
                # It ends, and its daemon has not removed it yet.
                for name in bench.pods():
                    bench.api.pods.finish(name)
                await bench.until_told(other, handle, NodeEnded)
                assert await cluster.admit(make_job(job_id=3)) is None
                (refusal,) = await cluster.submit([Launch("mine-3-0", make_job(job_id=3))])
                assert isinstance(refusal, Refusal) and refusal.transient and "is being removed" in refusal.message

    play(story)

"""Jobs whose alternatives ask for other things in other places: no cluster is ever asked for another one's."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import replace

import pytest
from tests.unit.controller.fakes import Bench, FakeCluster, begin, play, turn, until

from overspan.adapters.contract import Accepted, Decider, Launch, Node, Refusal
from overspan.bridge.config.settings import Settings
from overspan.bridge.controller.core.clusters import Clusters
from overspan.bridge.controller.orders.requests import Update
from overspan.bridge.controller.submission.gpu_defaults import fill_gpu_defaults
from overspan.bridge.controller.submission.submitter import ParsedSubmission
from overspan.bridge.model import events
from overspan.bridge.model.documents import decode, encode
from overspan.bridge.model.job import Job
from overspan.bridge.model.resources import Gpus, Resources
from overspan.bridge.model.spec import JobSpec, TaskSpec
from overspan.bridge.readers.submission import JOB_FILE, Submission, read_submission

Scene = Callable[[Bench, FakeCluster, FakeCluster], Awaitable[None]]
NEVER = "Requested node configuration is not available"


class Small(FakeCluster):
    """A cluster that refuses more than two CPUs, only when it is given a launch, and does not tell its nodes."""

    async def nodes(self) -> list[Node]:
        return []

    def _take(self, launch: Launch) -> Accepted | Refusal:
        if (demand(launch.job)[1] or 0) > 2:
            return Refusal(launch.token, NEVER)
        return super()._take(launch)


class Racer(FakeCluster):
    """A cluster whose launches wait for the daemon."""

    decider = Decider.DAEMON

    def find_obstacle(self, job: Job) -> str:
        return ""

    async def release(self, installation: str, handles: Collection[str], tokens: Collection[str]) -> None:
        pass


PLACES = """
name: one
resources:
  ordered:
    - {infra: near, accelerators: "A100:8", cpus: 4, memory: 16}
    - {infra: far, accelerators: "H100:8", cpus: 8, memory: 64}
run: "true"
"""
WAITS = f"failover_after: 1m{PLACES}"
SAME = """
name: one
resources: {any_of: [{cpus: 64}, {cpus: 8}, {cpus: 2}]}
run: "true"
"""
ASKED = {"near": ("A100:8", 4, 16384), "far": ("H100:8", 8, 65536)}


def read(submission: Submission, kinds: Mapping[str, str], now: float) -> ParsedSubmission:
    """Everything is a job file."""
    return ParsedSubmission(read_submission(replace(submission, kind=JOB_FILE), kinds, now))


def watch(scene: Scene, near: FakeCluster, far: FakeCluster, kind: str = "local") -> None:
    """Play with two clusters; at the end neither was given what the other one is asked for."""

    def prepare(bench: Bench) -> None:
        bench.reader = read
        bench.others = {"near": near, "far": far}
        clusters = {"near": {"kind": kind, "root": "/near"}, "far": {"kind": kind, "root": "/far"}}
        bench.settings = Settings.model_validate({"clusters": clusters, "default_cluster": "near"})

    async def run(bench: Bench) -> None:
        await scene(bench, near, far)

    play(run, prepare=prepare)


def demand(job: Job) -> tuple[str, float | None, int | None]:
    """What a job with one task asks for: GPUs, CPUs, memory."""
    resources = job.spec.tasks[0].resources
    return ",".join(map(str, resources.gpus)), resources.cpus, resources.memory_mib


def check(*clusters: FakeCluster) -> None:
    for cluster in clusters:
        assert {demand(job) for job in cluster.launched} <= {ASKED[cluster.name]}


async def again(bench: Bench) -> None:
    """Kill the daemon, and start another."""
    await bench.kill()
    await bench.start()
    bench.clock.advance(0)


@pytest.mark.parametrize("refuses", [False, True])
def test_the_chosen_cluster_is_asked_for_what_its_alternative_says(refuses: bool) -> None:
    async def scene(bench: Bench, near: FakeCluster, far: FakeCluster) -> None:
        near.impossible = NEVER if refuses else ""
        chosen = far if refuses else near
        await bench.submit(PLACES)
        await until(lambda: bool(chosen.launched))
        assert demand(bench.job()) == demand(chosen.launched[0]) == ASKED[chosen.name]
        check(near, far)

    watch(scene, FakeCluster("near"), FakeCluster("far"))


def test_a_plan_is_of_what_the_chosen_cluster_is_asked_for() -> None:
    planned: list[Job] = []

    async def scene(bench: Bench, near: FakeCluster, far: FakeCluster) -> None:
        near.impossible = NEVER
        far.plan = lambda job: planned.append(job) or ""  # type: ignore[method-assign, func-returns-value]
        await bench.controller.submitter.plan(Submission(JOB_FILE, PLACES, user="me"))
        assert [demand(job) for job in planned] == [ASKED["far"]]

    watch(scene, FakeCluster("near"), FakeCluster("far"))


@pytest.mark.parametrize("crash", range(6))
def test_the_next_cluster_is_asked_for_its_own_also_after_a_crash(crash: int) -> None:
    async def scene(bench: Bench, near: FakeCluster, far: FakeCluster) -> None:
        async def step(number: int) -> None:
            if crash == number:
                await again(bench)

        await bench.submit(WAITS)
        await step(0)
        await until(lambda: "1.0" in near.journals)
        await step(1)
        bench.clock.advance(60)
        await step(2)
        await until(lambda: len(near.orders) == 1)
        await step(3)
        near.tell("1.0", near.orders[0].event)
        await until(lambda: demand(bench.job()) == ASKED["far"])
        await step(4)
        await until(lambda: "1.1" in far.journals)
        await step(5)
        far.tell("1.1", *begin(bench.job(), bench.clock.now))
        await until(lambda: bench.state() == "RUNNING")
        assert (len(near.launched), len(far.launched), demand(bench.job())) == (1, 1, ASKED["far"])
        check(near, far)

    watch(scene, FakeCluster("near"), FakeCluster("far"))


def test_a_race_asks_each_cluster_for_its_own() -> None:
    async def scene(bench: Bench, near: FakeCluster, far: FakeCluster) -> None:
        await bench.submit(f"race: true{PLACES}")
        await until(lambda: "1.0" in near.journals and "1.1" in far.journals)
        check(near, far)
        far.tell("1.1", events.Granted(bench.clock.now, (("one", 0, "me", "127.1.0.1", ()),)))
        await until(lambda: bench.job().granted_at is not None)
        assert demand(bench.job()) == ASKED["far"]
        await again(bench)
        assert demand(bench.job()) == ASKED["far"]

    watch(scene, Racer("near"), Racer("far"), kind="slow")


RACE_TWICE = """
name: one
race: true
resources:
  any_of: [{infra: near, cpus: 1}, {infra: far, cpus: 64}, {infra: far, cpus: 2}]
run: "true"
"""


def test_in_a_race_a_refusal_leads_to_the_next_alternative_of_that_cluster() -> None:
    async def scene(bench: Bench, near: FakeCluster, far: FakeCluster) -> None:
        far.refusals = [Refusal("", NEVER)]
        await bench.submit(RACE_TWICE)
        await until(lambda: bool(far.launched) and bool(near.launched))
        assert [demand(job)[1] for job in (*near.launched, *far.launched)] == [1, 2]
        assert [(bid.cluster, bid.candidate) for bid in bench.job().bids] == [("far", 2)]

    watch(scene, Racer("near"), Racer("far"), kind="slow")


def test_of_several_alternatives_on_one_cluster_the_first_that_can_ever_fit_is_taken() -> None:
    async def scene(bench: Bench, near: FakeCluster, far: FakeCluster) -> None:
        async def admit(job: Job) -> Refusal | None:
            return Refusal("", NEVER) if (demand(job)[1] or 0) > 2 else None

        near.admit = admit  # type: ignore[method-assign]
        answer = await bench.controller.submit(Submission(JOB_FILE, SAME, user="me"))
        await until(lambda: bool(near.launched))
        assert (answer.cluster, demand(bench.job())[1]) == ("near", 2)
        assert [demand(job)[1] for job in near.launched] == [2]

    watch(scene, FakeCluster("near"), FakeCluster("far"))


@pytest.mark.parametrize("crash", [False, True])
def test_a_refusal_at_the_launch_leads_to_the_next_alternative_of_the_same_cluster(crash: bool) -> None:
    async def scene(bench: Bench, near: FakeCluster, far: FakeCluster) -> None:
        await bench.submit(SAME)
        if crash:
            await again(bench)
        await until(lambda: bool(near.launched))
        await turn()
        assert [demand(job)[1] for job in near.launched] == [2]
        await until(lambda: bench.job().offered_at is not None)
        assert (bench.job().restarts, far.submits) == (0, 0)
        texts = [row.text for row in await bench.controller.timeline("1")]
        assert texts.count(f"goes to the cluster near: {NEVER}") == 2

    watch(scene, Small("near"), FakeCluster("far"))


def test_what_an_operator_changes_counts_wherever_the_job_goes() -> None:
    async def scene(bench: Bench, near: FakeCluster, far: FakeCluster) -> None:
        await bench.submit(f"hold: true\n{WAITS}")
        await bench.controller.orders.update("1", Update({"memory": 2048}, "me"))
        assert demand(bench.job()) == ("A100:8", 4, 2048)
        spec = bench.job().spec
        assert [spec.take(one).tasks[0].resources.memory_mib for one in spec.candidates] == [2048, 2048]

    watch(scene, FakeCluster("near"), FakeCluster("far"))


def test_what_is_stored_of_a_list_is_read_back() -> None:
    kinds = {"near": "local", "far": "slurm"}
    spec = read_submission(Submission(JOB_FILE, PLACES, user="me"), kinds)
    assert len(spec.candidates) == 2 and decode(JobSpec, encode(spec)) == spec


def submit(text: str, kind: str = JOB_FILE, argv: tuple[str, ...] = ()) -> tuple[Job, tuple[str, ...]]:
    """The job that the near cluster is given, and the notes."""
    found: list[tuple[Job, tuple[str, ...]]] = []

    async def scene(bench: Bench, near: FakeCluster, far: FakeCluster) -> None:
        bench.controller.submitter.reader = lambda submission, kinds, now: ParsedSubmission(
            read_submission(submission, kinds, now)
        )
        answer = await bench.controller.submit(Submission(kind, text, argv=argv, user="me"))
        await until(lambda: bool(near.launched))
        found.append((near.launched[0], answer.notes))

    watch(scene, FakeCluster("near"), FakeCluster("far"))
    return found[0]


def test_gpus_bring_cpus_and_memory_with_them_and_a_note_says_so() -> None:
    job, notes = submit("name: one\nresources: {gpus: 2}\nrun: x\n")
    need = job.spec.tasks[0].resources.need()
    assert (need.cpu_milli, need.memory_mib) == (8000, 32768)
    assert notes == (
        "one names no CPUs and no memory: it gets 4 CPUs for each GPU and 4G of memory for each CPU, at most its GPUs'"
        " share of a node (gpu_defaults of the cluster near)",
    )


def test_what_a_file_names_is_not_added_to() -> None:
    job, notes = submit("name: one\nresources: {gpus: 2, cpus: 1, memory: 2}\nrun: x\n")
    need = job.spec.tasks[0].resources.need()
    assert (need.cpu_milli, need.memory_mib, notes) == (1000, 2048, ())


def test_a_batch_script_keeps_slurms_own_defaults() -> None:
    job, notes = submit("#!/bin/sh\ntrue\n", "script", ("--gres=gpu:2",))
    need = job.spec.tasks[0].resources.need()
    assert (need.cpu_milli, need.memory_mib, notes) == (1000, None, ())


def test_each_cluster_has_defaults_of_its_own() -> None:
    text = "name: one\nresources: {gpus: 1, any_of: [{infra: near}, {infra: far}]}\nrun: x\n"

    async def scene(bench: Bench) -> None:
        bench.others["near"].impossible = NEVER
        await bench.submit(text)
        await until(lambda: bool(bench.others["far"].launched))
        need = bench.others["far"].launched[0].spec.tasks[0].resources.need()
        assert (need.cpu_milli, need.memory_mib) == (2000, None)

    def prepare(bench: Bench) -> None:
        bench.reader = read
        bench.others = {"near": FakeCluster("near"), "far": FakeCluster("far")}
        own = {"cpus_per_gpu": 2, "memory_per_cpu": 0}
        clusters = {"near": {"kind": "local"}, "far": {"kind": "local", "gpu_defaults": own}}
        bench.settings = Settings.model_validate({"clusters": clusters, "default_cluster": "near"})

    play(scene, prepare=prepare)


def test_tasks_of_a_group_across_have_the_defaults_of_their_own_clusters() -> None:
    settings = Settings.model_validate(
        {
            "clusters": {
                "near": {"kind": "local", "gpu_defaults": {"cpus_per_gpu": 2, "memory_per_cpu": 0}},
                "far": {"kind": "local", "gpu_defaults": {"cpus_per_gpu": 8, "memory_per_cpu": 0}},
            }
        }
    )
    gpus = Resources(gpus=(Gpus(1),))
    tasks = tuple(TaskSpec(name, run="x", cluster=name, resources=gpus) for name in ("near", "far"))
    filled = fill_gpu_defaults(JobSpec("j", tasks, clusters=("near+far",), group=True), Clusters(settings, "/state"))
    assert [task.resources.need().cpu_milli for task in filled.tasks] == [2000, 8000]


def test_what_no_node_could_ever_hold_is_passed_over_where_the_cluster_would_take_it_and_wait() -> None:
    async def scene(bench: Bench, near: FakeCluster, far: FakeCluster) -> None:
        # Its one node has two CPUs, and like Slurm it takes any job.
        answer = await bench.controller.submit(Submission(JOB_FILE, SAME, user="me"))
        await until(lambda: bool(near.launched))
        assert demand(bench.job())[1] == 2
        lacks = [f"near: no node has {cpus} CPUs for one: the largest, me, has 2 CPUs, 1000 MiB" for cpus in (64, 8)]
        assert answer.notes == ("; ".join([*lacks, "it goes to near"]),)

    watch(scene, FakeCluster("near"), FakeCluster("far"))

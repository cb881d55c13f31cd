"""What is known of the ways between clusters: refusals, notes and plans of groups over them, and trials."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace

import pytest
from tests.unit.controller.fakes import START, Bench, FakeCluster, play, turn, until

from overspan.adapters.contract import LogPart, LogRequest
from overspan.bridge.config.settings import ClusterSettings, Settings
from overspan.bridge.controller.features.reach.results import draw_findings, read_results
from overspan.bridge.controller.features.reach.trial_job import TASKS, TrialRequest, write_trial
from overspan.bridge.controller.orders.requests import CancelRequest
from overspan.bridge.controller.submission.submitter import ParsedSubmission
from overspan.bridge.model.errors import InvalidRequest, NotFound, Rejected
from overspan.bridge.model.job import Job, Placement, new_job
from overspan.bridge.model.reach import ReachFinding, ReachSide
from overspan.bridge.model.spec import JobSpec, Origin, TaskSpec
from overspan.bridge.readers.submission import Submission, read_submission

LEO, KUBE, HOST = ReachSide("leo"), ReachSide("kube"), ReachSide("kube", True)
CLOSED = ReachFinding(LEO, KUBE, 8000, False, "n1 to 10.1.0.2: No route to host", START)
ON_HOST = {"kubernetes": {"host_network": True}}


class GatedCluster(FakeCluster):
    """A cluster that may have a part of a group across; its log is that of a trial's side."""

    said = b""

    def find_obstacle(self, job: Job) -> str:
        return ""

    async def logs(self, request: LogRequest) -> LogPart:
        return LogPart(self.said, 0, len(self.said))


class PodCluster(GatedCluster):
    """One whose tasks may be on the host network."""

    def uses_host_network(self, job: Job, task: TaskSpec) -> bool:
        return bool(task.native.get("kubernetes", {}).get("host_network"))


def group(ports: tuple[str, ...] = (), native: Mapping[str, Mapping[str, object]] | None = None) -> JobSpec:
    trainer = TaskSpec("trainer", run="true", cluster="leo")
    server = TaskSpec("server", run="true", cluster="kube", ports=ports, native=native or {})
    return JobSpec("g", (trainer, server), group=True)


class Lab:
    """A controller with two clusters; `send` submits a spec."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.leo, self.kube = GatedCluster("leo"), PodCluster("kube")
        bench.others = {"leo": self.leo, "kube": self.kube}
        bench.settings = Settings(
            clusters={"leo": ClusterSettings(kind="slurm"), "kube": ClusterSettings(kind="kubernetes")},
            default_cluster="leo",
        )

    @property
    def known(self) -> Callable[..., Awaitable[None]]:
        return self.bench.controller.known_reach.keep

    async def send(self, spec: JobSpec, user: str = "me") -> tuple[str, ...]:
        spec = replace(spec, origin=Origin(user=user))
        self.bench.controller.submitter.reader = lambda submission, *given: ParsedSubmission(
            read_trial(submission) if submission.kind == "job_file" else spec
        )
        return (await self.bench.controller.submit(Submission("script", "x", user=user))).notes

    async def plan(self, spec: JobSpec) -> str:
        spec = replace(spec, origin=Origin(user="me"))
        self.bench.controller.submitter.reader = lambda *given: ParsedSubmission(spec)
        return (await self.bench.controller.plan(Submission("script", "x", user="me")))[0]


def read_trial(submission: Submission) -> JobSpec:
    """The spec of a trial that the daemon submits by itself."""
    spec = read_submission(submission, {"leo": "slurm", "kube": "kubernetes"}, START)
    return replace(spec, origin=Origin(user=submission.user))


def play_lab(scene: Callable[[Lab], Awaitable[None]]) -> None:
    labs: list[Lab] = []
    play(lambda bench: scene(labs[0]), prepare=lambda bench: labs.append(Lab(bench)))


def test_a_group_whose_ways_are_not_known_starts_with_a_note_and_the_command() -> None:
    async def scene(lab: Lab) -> None:
        (note,) = await lab.send(group())
        assert note == "whether kube and leo reach each other is not known: `span check --across kube leo`"
        plan = await lab.plan(group())
        assert plan.startswith("# reach: leo to kube is not known\n# reach: kube to leo is not known\n")

    play_lab(scene)


def test_a_task_with_ports_that_is_not_reached_is_refused_with_what_was_tried_and_what_helps() -> None:
    async def scene(lab: Lab) -> None:
        await lab.known("me", [CLOSED])
        with pytest.raises(Rejected) as caught:
            await lab.send(group(("8000",)))
        assert caught.value.message.startswith(
            "leo does not reach kube on port 8000 (n1 to 10.1.0.2: No route to host)"
        )
        assert caught.value.remedy == "`span check --across leo kube` tries it again, with the host network of pods too"
        works = [CLOSED._replace(target=HOST, works=True), ReachFinding(HOST, LEO, 8000, True, "", START)]
        await lab.known("me", works)
        with pytest.raises(Rejected) as caught:
            await lab.send(group(("8000",)))
        assert "write `kubernetes: {host_network: true}` in the tasks on kube" in caught.value.remedy
        assert await lab.send(group(("8000",), ON_HOST)) == ()
        await lab.known("me", [works[0]._replace(works=False)])
        for native in (None, ON_HOST):
            with pytest.raises(Rejected) as caught:
                await lab.send(group(("8000",), native))
            assert caught.value.remedy.startswith("have the network opened")
        assert len(lab.bench.repository.jobs) == 1

    play_lab(scene)


def test_a_way_that_nobody_needs_is_a_note_and_what_others_found_refuses_nothing() -> None:
    async def scene(lab: Lab) -> None:
        await lab.known("eve", [CLOSED, CLOSED._replace(source=KUBE, target=LEO)])
        assert len(await lab.send(group(("8000",)))) == 1
        await lab.known("me", [CLOSED, ReachFinding(KUBE, LEO, 8000, True, "n2 to 10.0.0.1", START)])
        (note,) = await lab.send(group())
        assert "leo does not reach kube on port 8000" in note and "connect the other way" in note
        assert "# reach: kube reaches leo on port 8000 (n2 to 10.0.0.1), as of 20" in await lab.plan(group())

    play_lab(scene)


def test_a_later_daemon_knows_it_and_one_trial_more_forgets_it() -> None:
    async def scene(lab: Lab) -> None:
        await lab.known("me", [CLOSED, CLOSED._replace(target=HOST)])
        await lab.bench.kill()
        await lab.bench.start()
        known = lab.bench.controller.known_reach
        assert known.list_findings("me") == (CLOSED, CLOSED._replace(target=HOST))
        reach = lab.bench.controller.reach
        prepared = await reach.prepare(TrialRequest(("leo", "kube"), host_network=True), "me")
        assert not prepared.has_host_network and known.list_findings("me") == (CLOSED,)
        prepared = await reach.prepare(TrialRequest(("leo", "kube")), "me")
        assert prepared.has_host_network and known.list_findings("me") == ()
        for wrong, error in ((("leo", "leo"), InvalidRequest), (("leo", "moon"), NotFound)):
            with pytest.raises(error):
                await reach.prepare(TrialRequest(wrong), "me")
        await lab.bench.repository.set_meta("reach", "}{")
        await known.load()

    play_lab(scene)


def test_the_job_of_a_trial_is_read_and_its_findings_are_kept() -> None:
    async def scene(lab: Lab) -> None:
        text = write_trial(TrialRequest(("leo", "kube"), (8000,), "py:3", host_network=True), ["kube"])
        kinds = {"leo": "slurm", "kube": "kubernetes"}
        spec = read_submission(Submission("job_file", text, user="me"), kinds, START)
        assert [(task.name, task.cluster, task.ports) for task in spec.tasks] == [
            (TASKS[0], "leo", ("8000",)),
            (TASKS[1], "kube", ("8000",)),
        ]
        # It waits for as long as whoever asked does, and a little more.
        assert spec.deadline is not None and 590 <= spec.deadline - START - (spec.tasks[0].time or 0) <= 610
        assert spec.tasks[1].image == "py:3" and spec.tasks[1].native == ON_HOST and not spec.tasks[0].native
        await lab.send(spec)
        await lab.send(group())
        with pytest.raises(InvalidRequest, match="is no trial"):
            await lab.bench.controller.reach.conclude("3")
        lab.leo.said = said(CONNECTS | {"works": False, "detail": "no answer"}, LISTENS)
        lab.kube.said = b"noise\n" + said(LISTENS, CONNECTS)
        entry = lab.bench.controller.recorder.registry.get(1)
        assert entry is not None
        await until(lambda: bool(entry.handle))
        outcome = await lab.bench.controller.reach.conclude("1")
        assert [(each.source, each.target, each.works) for each in outcome.findings] == [
            (LEO, HOST, False),
            (HOST, LEO, True),
        ]
        assert outcome.gaps == () and lab.bench.controller.known_reach.list_findings("me") == outcome.findings

    play_lab(scene)


LISTENS = {"reach": "listens", "port": 8000, "works": True, "address": "", "detail": ""}
CONNECTS = {"reach": "connects", "port": 8000, "works": True, "address": "10.1.0.2", "detail": ""}


def said(*lines: Mapping[str, object]) -> bytes:
    return b"".join(json.dumps(line).encode() + b"\n" for line in lines)


def test_a_port_that_is_taken_and_a_side_that_ended_say_nothing_of_the_way() -> None:
    job = replace(new_job(1, group(), START), placements=(Placement("trainer", 0, "n1"), Placement("server", 0, "k2")))
    sides = {"trainer": LEO, "server": KUBE}
    taken = LISTENS | {"works": False, "detail": "Address already in use"}
    results = {
        "trainer": read_results(said(LISTENS, CONNECTS | {"works": False, "detail": "another program answers there"})),
        "server": read_results(said(taken)),
    }
    outcome = draw_findings(job, sides, results, START)
    assert outcome.findings == ()
    assert outcome.gaps == (
        "kube cannot listen on port 8000 of k2: Address already in use",
        "kube did not try port 8000: its task ended before",
    )
    results["server"] = read_results(said(LISTENS, CONNECTS))
    found = [each.detail for each in draw_findings(job, sides, results, START).findings]
    assert found == ["n1 to 10.1.0.2: another program answers there", "k2 to 10.1.0.2"]


async def wait_for_trial(lab: Lab) -> int:
    """The job of the trial that the daemon has begun by itself."""
    await until(lambda: any(job.job.spec.tasks[0].name == TASKS[0] for job in lab.bench.repository.jobs.values()))
    (number,) = [number for number, job in lab.bench.repository.jobs.items() if job.job.spec.tasks[0].name == TASKS[0]]
    return number


async def send_trying(lab: Lab, *specs: JobSpec) -> int:
    """Submit groups of which nothing is known; gives the job of the trial."""
    for spec in specs:
        await lab.send(spec)
    return await wait_for_trial(lab)


def test_a_group_with_ports_waits_for_a_trial_and_starts_when_the_ways_are_open() -> None:
    async def scene(lab: Lab) -> None:
        trial = await send_trying(lab, group(("8000-8010",)), group(("8000",)))
        await until(lambda: "1.0" not in lab.leo.journals and f"{trial}.0" in lab.leo.journals)
        for _ in range(3):
            lab.bench.clock.advance(30)
            await turn(200)
        assert lab.bench.job().reason == (
            f"Resources: whether kube and leo reach each other is not known; job {trial} tries it"
        )
        lab.leo.said = lab.kube.said = said(LISTENS, CONNECTS)
        await lab.bench.controller.orders.cancel(CancelRequest((str(trial),)))
        await until(lambda: len(lab.bench.repository.jobs) == len(lab.leo.journals) == len(lab.kube.journals) == 3)
        # What was found counts for the next ones; a week later it is tried anew.
        await lab.send(group(("8000",)))
        await until(lambda: len(lab.bench.repository.jobs) == len(lab.leo.journals) == 4)
        lab.bench.clock.advance(8 * 86400)
        assert lab.bench.controller.known_reach.list_findings("me") == ()

    play_lab(scene)


def test_a_group_is_refused_before_its_start_where_the_trial_finds_a_closed_way() -> None:
    async def scene(lab: Lab) -> None:
        trial = await send_trying(lab, group(("8000",)))
        lab.leo.said = said(CONNECTS | {"works": False, "detail": "no answer"}, LISTENS)
        lab.kube.said = said(LISTENS, CONNECTS)
        await until(lambda: f"{trial}.0" in lab.leo.journals)
        await lab.bench.controller.orders.cancel(CancelRequest((str(trial),)))
        await until(lambda: lab.bench.job().over)
        ending = lab.bench.job().ending
        assert ending is not None and "leo does not reach kube on port 8000" in ending.message
        assert "with the host network of pods too" in ending.message
        assert "1.0" not in lab.leo.journals and "1.0" not in lab.kube.journals

    play_lab(scene)


def test_a_trial_that_finds_out_nothing_keeps_nobody_waiting_and_is_not_repeated_at_once() -> None:
    async def scene(lab: Lab) -> None:
        trial = await send_trying(lab, group(("8000",)))
        await until(lambda: f"{trial}.0" in lab.leo.journals)
        await lab.bench.controller.orders.cancel(CancelRequest((str(trial),)))
        await until(lambda: "1.0" in lab.leo.journals)
        await lab.send(group(("8000",)))
        await until(lambda: len(lab.bench.repository.jobs) == len(lab.leo.journals) == 3)

    play_lab(scene)

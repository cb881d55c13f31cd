"""What Slurm can wait for exactly as Overspan would, how it is told, and when it is not told."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from tests.unit.adapters.slurm import watch_bench
from tests.unit.adapters.slurm.links import Link
from tests.unit.adapters.slurm.records import record
from tests.unit.adapters.slurm.samples import NOW, read_file, read_script
from tests.unit.adapters.slurm.watch_bench import make_orderer

from overspan.adapters.contract import Awaited, ClusterConfig, Launch, Order, Refusal, Unmet
from overspan.adapters.slurm import SlurmCluster
from overspan.adapters.slurm.commands.queries import Site
from overspan.adapters.slurm.groups.handles import GroupPart, make_group_handle
from overspan.adapters.slurm.handles import make_handle
from overspan.adapters.slurm.observation.watch import Watch
from overspan.adapters.slurm.orders.delivered import DeliveredOrders
from overspan.adapters.slurm.rendering.renderer import Renderer
from overspan.adapters.slurm.settings import Settings
from overspan.adapters.slurm.submission.dependencies import (
    SiteRules,
    find_problem,
    is_retryable,
    name_needs,
    read_rules,
    render_dependency,
)
from overspan.adapters.slurm.submission.predecessors import Predecessors
from overspan.bridge.model import events
from overspan.bridge.model.documents import encode
from overspan.bridge.model.job import Element, Job
from overspan.bridge.model.spec import Dependency, DependencyKind, JobNeed

OK = JobNeed(DependencyKind.AFTEROK, 12)
AFTER = JobNeed(DependencyKind.AFTER, 13, delay=120)
ELEMENT = JobNeed(DependencyKind.AFTERNOTOK, 14, element=3)
SINGLETON = JobNeed(DependencyKind.SINGLETON)
CONFIG = {"MinJobAge": "300 sec", "JobRequeue": "1", "PreemptType": "preempt/none"}
SITE = Site((22, 5), CONFIG, "ada", "/h")
RULES = SiteRules(True, True, True)
SCRIPT = "#!/bin/bash\n#SBATCH --job-name=x\ntrue\n"
JOB = replace(read_script(SCRIPT, number=20), dependency=Dependency((OK,)))
FIRST = read_script(SCRIPT, number=12)
GROUP = read_file("name: g\nexecution: parallel\n---\nname: a\nrun: a\n---\nname: b\nrun: b\n", 30)
SET = read_file("name: g\nexecution: parallel\n---\nname: a\nrestart: task\nrun: a\n---\nname: b\nrun: b\n", 30)


def awaited(job: Job = FIRST, native: int = 1012) -> Awaited:
    return Awaited(job, str(make_handle(job, native)))


def element(index: int = 3, native: int = 1014) -> Awaited:
    return awaited(replace(FIRST, id=15, element=Element(14, index)), native)


def unmet(need: JobNeed = OK, *jobs: Awaited) -> Unmet:
    return Unmet(need, jobs or (awaited(),))


class TestRules:
    def test_a_usual_site(self) -> None:
        assert read_rules(CONFIG, True) == (True, True, True)

    @pytest.mark.parametrize(
        ("changed", "rules"),
        [
            ({"MinJobAge": "2 sec"}, (False, True)),
            ({"MinJobAge": "0 sec"}, (True, True)),
            ({"MinJobAge": ""}, (False, True)),
            ({"JobRequeue": "0"}, (True, False)),
            ({"PreemptType": "preempt/qos"}, (True, False)),
        ],
    )
    def test_others(self, changed: dict[str, str], rules: tuple[bool, bool]) -> None:
        assert read_rules({**CONFIG, **changed}, False) == (*rules, False)

    def test_what_may_get_another_id(self) -> None:
        assert not is_retryable(FIRST, RULES)
        assert is_retryable(FIRST, RULES._replace(requeues=False))
        assert not is_retryable(read_script("#!/bin/sh\n#SBATCH --no-requeue\n"), RULES._replace(requeues=False))
        assert is_retryable(replace(FIRST, spec=replace(FIRST.spec, clusters=("a", "b"))), RULES)
        assert is_retryable(
            read_file("name: x\nresources: {job_recovery: {max_restarts_on_errors: 2}}\nrun: x\n"), RULES
        )
        assert is_retryable(GROUP, RULES)


@pytest.mark.parametrize(
    "need",
    [
        unmet(),
        unmet(AFTER),
        unmet(JobNeed(DependencyKind.AFTERANY, 12)),
        unmet(ELEMENT, element()),
        unmet(SINGLETON, awaited(), awaited(replace(FIRST, id=11), 1011)),
    ],
)
def test_a_live_predecessor_that_cannot_be_retried_is_slurms_business(need: Unmet) -> None:
    assert find_problem(JOB, (need,), RULES) == ""
    assert find_problem(replace(GROUP, spec=replace(GROUP.spec, name=FIRST.spec.name)), (need,), RULES) == ""


class TestExactness:
    @pytest.mark.parametrize(
        ("need", "why"),
        [
            (Unmet(OK), "not live"),
            (unmet(replace(AFTER, delay=90)), "no such dependency"),
            (unmet(JobNeed(DependencyKind.AFTERCORR, 12)), "no such dependency"),
            (unmet(JobNeed(DependencyKind.AFTERBURSTBUFFER, 12)), "no such dependency"),
            (unmet(replace(OK, task=1)), "no such dependency"),
            # The number of an element's own job may be that of the whole array, and the other way round.
            (unmet(OK, element()), "not one job"),
            (unmet(ELEMENT), "not one job"),
            (unmet(OK, Awaited(GROUP, str(make_group_handle(GROUP, "/r", [GroupPart(1030)])))), "another id"),
            (unmet(SINGLETON, awaited(replace(FIRST, labels={"name": "y"}))), "another name"),
            (unmet(SINGLETON, awaited(replace(FIRST, spec=replace(FIRST.spec, name="y")))), "another name"),
        ],
    )
    def test_what_overspan_waits_for(self, need: Unmet, why: str) -> None:
        assert why in find_problem(JOB, (need,), RULES)
        assert why in find_problem(JOB, (unmet(), need), RULES)

    def test_who_is_not_one_job_there(self) -> None:
        assert find_problem(replace(JOB, element=Element(19, 0)), (unmet(),), RULES)
        assert find_problem(SET, (unmet(),), RULES)
        assert find_problem(GROUP, (unmet(),), RULES._replace(hetjobs=False))
        assert find_problem(JOB, (unmet(),), RULES._replace(remembers=False))


class TestWords:
    def test_as_sbatch_reads_them(self) -> None:
        needs = (unmet(), unmet(AFTER, awaited(native=1013)), unmet(ELEMENT, element()), unmet(SINGLETON))
        native = name_needs(needs)
        assert native == {OK: "1012", AFTER: "1013", ELEMENT: "1014_3", SINGLETON: ""}
        whole = Dependency((OK, AFTER, ELEMENT, SINGLETON))
        assert render_dependency(whole, native) == "afterok:1012,after:1013+2,afternotok:1014_3,singleton"
        assert render_dependency(replace(whole, any=True), {OK: "1", AFTER: "2"}) == "afterok:1?after:2+2"
        assert render_dependency(whole, {}) == ""

    @pytest.mark.parametrize("job", [JOB, GROUP, read_file("name: one\nrun: x\n")])
    def test_a_launch_is_rendered_with_what_it_waits_for(self, job: Job) -> None:
        job = replace(job, dependency=Dependency((AFTER, OK)))
        rendered = Renderer(Settings(), "/r", "rig").render(Launch("i-1-0", job, needs=(unmet(),)), SITE)
        text = " ".join(rendered.call.argv) + rendered.call.stdin.decode()
        assert text.count("--dependency=afterok:1012") == 1 and "after:" not in text


class Asked(watch_bench.Asked):
    """A cluster with these native jobs."""

    def __init__(self, states: dict[int, str]) -> None:
        super().__init__(Link())
        self.records = {number: record(number, "t", state, 0) for number, state in states.items()}
        self.config = CONFIG

    async def site(self) -> Site:
        self._site = replace(SITE, config=self.config)
        return self._site


class TestTheLastLook:
    @pytest.mark.parametrize(
        ("states", "open_there"),
        [
            ({1012: "PENDING"}, True),
            ({1012: "RUNNING"}, True),
            ({1012: "COMPLETING"}, True),
            # How long it stays known is not known.
            ({1012: "COMPLETED"}, False),
            ({1012: "FAILED"}, False),
            ({}, False),
        ],
    )
    def test_slurm_decides_about_what_is_live_there(self, states: dict[int, str], open_there: bool) -> None:
        asked = Asked(states)
        found = asyncio.run(Predecessors(asked).list_open([(), (unmet(),), (Unmet(OK),)]))
        assert found == [True, open_there, False] and asked.asked == 1

    def test_nothing_is_asked_for_those_that_wait_for_nothing(self) -> None:
        asked = Asked({})
        assert asyncio.run(Predecessors(asked).list_open([(), ()])) == [True, True]
        assert asyncio.run(Predecessors(asked).list_open([(Unmet(OK),)])) == [False]
        assert asked.asked == 0

    def test_a_site_that_is_not_known_yet_is_a_usual_one(self) -> None:
        asked = Asked({1012: "RUNNING"})
        asked.config = {**CONFIG, "MinJobAge": "2 sec"}
        predecessors = Predecessors(asked)
        assert predecessors.waits_for(JOB, ()) and not predecessors.waits_for(JOB, (Unmet(OK),))
        assert predecessors.waits_for(JOB, (unmet(),))
        # The submission is put off, and from then on it is known.
        assert asyncio.run(predecessors.list_open([(unmet(),)])) == [False]
        assert predecessors.waits_for(JOB, ()) and not predecessors.waits_for(JOB, (unmet(),))
        assert SlurmCluster(ClusterConfig("rig", "slurm")).traits.waits_for is not None


class TestChange:
    def order(self, states: dict[int, str], *needs: Unmet) -> tuple[Refusal | None, list[tuple[str, ...]]]:
        """What becomes of an order for a new dependency of the job 1020, and what Slurm is told."""
        asked, orders = Asked(states), DeliveredOrders()
        event = events.SetDependency(NOW, encode(Dependency((OK,))))
        order = Order("t", str(make_handle(JOB, 1020)), event, needs)
        (answer,) = asyncio.run(make_orderer(asked, orders, Watch(asked, orders, 1.0)).order([order]))
        return answer, asked.link.commands

    def test_slurm_is_told(self) -> None:
        for states, needs, value in (({1012: "RUNNING"}, (unmet(),), "afterok:1012"), ({}, (), "")):
            words = ("scontrol", "update", "JobId=1020", f"Dependency={value}")
            assert self.order(states, *needs) == (None, [words])

    def test_not_while_it_is_not_known_to_be_live(self) -> None:
        refusal, told = self.order({1012: "COMPLETED"}, unmet())
        assert refusal is not None and (refusal.transient, refusal.reason, told) == (True, "Dependency", [])

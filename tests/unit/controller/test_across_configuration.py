"""The configuration of one side of a group across changes under it: its part is known again, and found nowhere else."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence

import pytest
from tests.unit.controller.fakes import Bench, FakeCluster, play, turn, until

from overspan.adapters.abilities import Trace
from overspan.adapters.contract import Decider
from overspan.bridge.config.settings import ClusterSettings, Settings
from overspan.bridge.controller.core import releases
from overspan.bridge.controller.orders.requests import CancelRequest
from overspan.bridge.controller.submission.submitter import ParsedSubmission
from overspan.bridge.model import events
from overspan.bridge.model.job import Job, Placement
from overspan.bridge.model.spec import JobSpec, TaskSpec
from overspan.bridge.readers.submission import Submission

SPEC = JobSpec("g", (TaskSpec("a", run="true", cluster="leo"), TaskSpec("b", run="true", cluster="kube")), group=True)


class Side(FakeCluster):
    """One of the clusters, by an address; what is not wanted any more is in `removed`."""

    decider = Decider.DAEMON

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.address = name
        self.removed: set[str] = set()

    def place(self) -> str:
        return self.address

    async def tell_members(self, handle: str, members: Sequence[Placement], further: Sequence[Placement]) -> None:
        pass

    def find_obstacle(self, job: Job) -> str:
        return ""

    async def release(self, installation: str, handles: Collection[str], tokens: Collection[str]) -> None:
        self.removed |= {handle for token, handle in self.handles.items() if not {handle, token} & {*handles, *tokens}}

    async def find_traces(self) -> list[Trace]:
        return [Trace(token, "native.7", token.partition("-")[0], 1, 0, (), running=1) for token in self.handles]

    async def remove_traces(self, traces: Sequence[Trace]) -> None:
        raise AssertionError("nobody asked for that")


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(releases, "GATHER_SECONDS", 0)


def configure(bench: Bench, **sides: FakeCluster) -> None:
    """Have these clusters and no others, beside `local`."""
    bench.settings = Settings(clusters={name: ClusterSettings(kind="fake") for name in sides})
    bench.others = sides


async def restart(bench: Bench, **sides: FakeCluster) -> None:
    """End the daemon, change the file, and begin another."""
    await bench.kill()
    configure(bench, **sides)
    await bench.start()


Story = Callable[[Bench, Mapping[str, Side]], Awaitable[None]]


def tell(story: Story, running: bool = True) -> None:
    """Play a story after the start of a group on `leo` and `kube`."""
    sides = {name: Side(name) for name in ("leo", "kube")}

    def prepare(bench: Bench) -> None:
        configure(bench, **sides)
        bench.reader = read

    def read(submission: Submission, kinds: Mapping[str, str], now: float) -> ParsedSubmission:
        return ParsedSubmission(SPEC, {"wait": False})

    async def scene(bench: Bench) -> None:
        if running:
            await bench.submit()
            await start(bench, sides)
        await story(bench, sides)

    play(scene, prepare=prepare)


async def start(bench: Bench, sides: Mapping[str, Side]) -> None:
    await until(lambda: all("1.0" in side.journals for side in sides.values()))
    for name, task in (("leo", "a"), ("kube", "b")):
        sides[name].tell("1.0", events.Granted(bench.clock.now, ((task, 0, "n", "10.0.0.1", ()),)))
    await until(lambda: all(len(side.orders) == 1 for side in sides.values()))
    for name, task in (("leo", "a"), ("kube", "b")):
        sides[name].tell("1.0", events.NodeStarted(bench.clock.now, task, 0, 0))
    await until(lambda: bench.state() == "RUNNING")


async def finish(bench: Bench, sides: Mapping[str, Side]) -> None:
    for name, task in (("leo", "a"), ("kube", "b")):
        sides[name].tell("1.0", events.NodeEnded(bench.clock.now, task, 0, 0, 0))
    await until(lambda: bench.state() == "COMPLETED")
    assert [len(side.handles) for side in sides.values()] == [1, 1]


def test_a_side_by_another_address_is_known_by_its_part() -> None:
    async def story(bench: Bench, sides: Mapping[str, Side]) -> None:
        sides["leo"].address = "login2"
        await restart(bench, **sides)
        await until(lambda: not bench.controller.problems)
        await finish(bench, sides)

    tell(story)


def test_a_side_by_another_name_is_left_alone_until_it_is_named_again() -> None:
    """The new name leads to the same place, where nothing of the group is taken for a leftover."""

    async def story(bench: Bench, sides: Mapping[str, Side]) -> None:
        asked = len(sides["kube"].orders)
        await restart(bench, lion=sides["leo"], kube=sides["kube"])
        for _ in range(5):
            bench.clock.advance(600)
            await turn(100)
        assert "does not name the cluster leo" in " ".join(bench.controller.problems)
        assert (bench.state(), len(sides["kube"].orders)) == ("RUNNING", asked)
        assert not any(side.removed for side in sides.values())
        await restart(bench, **sides)
        await finish(bench, sides)

    tell(story)


def test_sides_that_have_exchanged_their_names_are_asked_nothing() -> None:
    async def story(bench: Bench, sides: Mapping[str, Side]) -> None:
        leo, kube = sides.values()
        orders = len(leo.orders), len(kube.orders)
        await restart(bench, leo=kube, kube=leo)
        for _ in range(5):
            bench.clock.advance(600)
            await turn(100)
        assert "jobs of leo are at fake leo" in " ".join(bench.controller.problems)
        assert (bench.state(), len(leo.orders), len(kube.orders)) == ("RUNNING", *orders)

    tell(story)


@pytest.mark.parametrize("restarted", [False, True])
def test_a_side_that_was_away_for_hours_has_its_whole_grace_period_when_it_is_back(restarted: bool) -> None:
    """Also where another daemon has begun meanwhile."""

    async def story(bench: Bench, sides: Mapping[str, Side]) -> None:
        leo, kube = sides.values()
        kube.fail(True)
        leo.tell("1.0", events.NodeEnded(bench.clock.now, "a", 0, 0, 0))
        await bench.controller.orders.cancel(CancelRequest(("1",)))
        for _ in range(36):
            bench.clock.advance(300)
            await turn(30)
        assert bench.state() == "COMPLETING" and bench.job().task("b").state.value == "COMPLETING"
        if restarted:
            await restart(bench, **sides)
        kube.fail(False)
        bench.clock.advance(60)
        await until(lambda: len(kube.orders) > 1)
        (told,) = (order.event for order in kube.orders[1:])
        assert isinstance(told, events.Terminate) and told.kill_at == bench.clock.now + SPEC.task("b").grace_period
        bench.clock.advance(SPEC.task("b").grace_period - 1)
        await turn(50)
        assert len(kube.orders) == 2
        for _ in range(3):
            bench.clock.advance(60)
            await turn(50)
        assert isinstance(kube.orders[2].event, events.Kill) and len(kube.orders) == 3

    tell(story)


def test_a_part_in_doubt_is_not_sent_to_another_place() -> None:
    """A daemon dies while one side has its part and the other has not answered; then the former is somewhere else."""

    async def story(bench: Bench, sides: Mapping[str, Side]) -> None:
        await bench.submit()
        await start(bench, sides)
        await finish(bench, sides)
        sides["leo"].gate = asyncio.Event()
        number = await bench.submit()
        await until(lambda: f"{number}.0" in sides["kube"].journals)
        await bench.kill()
        sides["leo"].gate = None
        other = Side("elsewhere")
        configure(bench, leo=sides["leo"], kube=other)
        await bench.start()
        for _ in range(5):
            bench.clock.advance(600)
            await turn(100)
        assert other.handles == {}
        await restart(bench, **sides)
        await until(lambda: bench.controller.recorder.registry.get(number).launched)  # type: ignore[union-attr]
        assert len(sides["kube"].handles) == 2

    tell(story, running=False)

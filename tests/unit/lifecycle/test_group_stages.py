"""Stages of a group: what waits for ends asks for resources at its turn, and all ends as without stages."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.lifecycle.world import StageWorld, World, auxiliary, kinds, lost, primary

from overspan.bridge.lifecycle.failover import list_next
from overspan.bridge.lifecycle.order_effects import is_fatal
from overspan.bridge.lifecycle.readiness import describe_wait, reason_of
from overspan.bridge.lifecycle.stages import carry, list_deferred, split_stages
from overspan.bridge.model import events
from overspan.bridge.model.causes import Cause
from overspan.bridge.model.job import Job, list_stages, new_job
from overspan.bridge.model.spec import JobSpec, Need, NeedKind, OnFailure, RetryPolicy, Start, TaskSpec
from overspan.bridge.model.states import State


def group(*tasks: TaskSpec, **fields: object) -> JobSpec:
    """A group whose file says nothing of its start."""
    return JobSpec("g", tasks, group=True, **{"start": Start.TURNS, **fields})  # type: ignore[arg-type]


def after(*names: str, kind: NeedKind = NeedKind.OK) -> tuple[Need, ...]:
    """The needs of a task that comes after these."""
    return tuple(Need(name, kind) for name in names)


def carried(job: Job) -> list[str]:
    """The names of the tasks that the present launch carries."""
    return [task.name for task in carry(job).spec.tasks]


def start(*tasks: TaskSpec) -> StageWorld:
    """A group whose first stage runs."""
    world = StageWorld(group(*tasks))
    world.grant()
    world.begin()
    return world


def play_stage(spec: JobSpec) -> StageWorld:
    """The first stage of a group as its launch carries it, which runs."""
    world = StageWorld(spec)
    world.job = carry(world.job)
    world.run()
    return world


PREPARE = (
    auxiliary("prepare"),
    primary("train", needs=after("prepare")),
    auxiliary("buffer", needs=after("prepare")),
    primary("judge", needs=after("train", "buffer", kind=NeedKind.ENDED)),
)


def test_an_auxiliary_may_be_the_first_stage() -> None:
    world = start(*PREPARE[:3])
    assert carried(world.job) == ["prepare"] and carry(world.job).spec.start is Start.TOGETHER
    world.end("prepare")
    assert world.states() == "PENDING/None prepare=COMPLETED/None train=PENDING/None buffer=PENDING/None"
    assert carried(world.job) == ["train", "buffer"]
    assert [task.needs for task in carry(world.job).spec.tasks] == [(), ()]
    assert kinds(world.grant()) == ["Launch train", "Launch buffer"]
    world.begin()
    world.end("train")
    world.stop_all()
    assert world.states() == "COMPLETED/None prepare=COMPLETED/None train=COMPLETED/None buffer=COMPLETED/PrimariesDone"
    assert world.replayed() == world.job


def test_the_launch_of_an_auxiliary_stage_ends_with_it() -> None:
    """The supervisor knows of no primary; the launch is over all the same."""
    world = StageWorld(group(*PREPARE[:3]))
    beside = StageWorld(world.job.spec)
    beside.job = carry(world.job)
    beside.run()
    assert not beside.job.over
    beside.end("prepare")
    assert beside.job.state is State.COMPLETED


def test_the_success_of_a_stages_primaries_leaves_its_auxiliaries_alone_while_primaries_follow() -> None:
    world = start(*PREPARE)
    world.end("prepare")
    beside = StageWorld(world.job.spec)
    beside.job = carry(world.job)
    beside.run()
    assert kinds(beside.end("train")) == [] and not beside.job.over
    beside.end("buffer")
    assert beside.job.state is State.COMPLETED


def test_an_auxiliary_that_a_later_primary_cannot_do_without_fails_its_stage_at_once() -> None:
    tasks = (auxiliary("prepare"), primary("fetch"), primary("train", needs=after("prepare", "fetch")))
    world = StageWorld(group(*tasks))
    beside = StageWorld(world.job.spec)
    beside.job = carry(world.job)
    beside.run()
    assert kinds(beside.end("prepare", 1)) == ["Terminate fetch"]
    for event in beside.journal:
        assert world.apply(event)
    beside.stop_all()
    assert beside.job.state is State.FAILED


@pytest.mark.parametrize(("kind", "fails"), [(NeedKind.OK, True), (NeedKind.ENDED, False), (NeedKind.NOT_OK, False)])
def test_only_what_a_later_primary_waits_for_in_vain_fails_its_stage(kind: NeedKind, fails: bool) -> None:
    waits = after("a", kind=kind) + after("beside", kind=NeedKind.ENDED)
    spec = group(auxiliary("a"), auxiliary("beside"), auxiliary("b", needs=waits), primary("c", needs=after("b")))
    assert kinds(play_stage(spec).end("a", 1)) == ["Terminate beside"] * fails


def test_a_server_that_is_skipped_never_becomes_ready() -> None:
    waits = after("a") + after("beside", kind=NeedKind.ENDED)
    tasks = (auxiliary("a"), auxiliary("beside"), auxiliary("b", needs=waits))
    world = play_stage(group(*tasks, primary("c", needs=after("b", kind=NeedKind.READY))))
    assert kinds(world.end("a", 1)) == ["Terminate beside"]


def test_a_stage_ends_when_what_was_to_follow_is_not_needed() -> None:
    """Else a server that never ends would hold its nodes for a task that never comes."""
    waits = after("fit", kind=NeedKind.NOT_OK) + after("serve", kind=NeedKind.ENDED)
    world = play_stage(group(primary("fit"), auxiliary("serve"), primary("mend", needs=waits)))
    assert kinds(world.end("fit")) == ["Notice serve", "Terminate serve"]
    world.stop_all()
    assert world.job.state is State.COMPLETED and [task.name for task in world.job.tasks] == ["fit", "serve"]


def test_a_success_that_a_later_primary_cannot_do_with_ends_the_stage() -> None:
    waits = after("fit", kind=NeedKind.NOT_OK) + after("serve", kind=NeedKind.ENDED)
    tasks = (primary("fit"), auxiliary("serve"), auxiliary("mend", needs=waits))
    world = play_stage(group(*tasks, primary("judge", needs=after("mend"))))
    assert kinds(world.end("fit")) == ["Terminate serve"]
    world.stop_all()
    assert world.job.state is State.CANCELLED


def test_what_is_skipped_once_is_not_judged_again() -> None:
    """`mend` is spared when `fit` succeeds: that `show` fails later does not fail the group for it."""
    waits = (*after("fit", kind=NeedKind.NOT_OK), *after("show"), *after("long", kind=NeedKind.ENDED))
    tasks = (primary("long"), auxiliary("fit"), auxiliary("show"), primary("mend", needs=waits))
    world = play_stage(group(*tasks))
    assert world.job.stage is not None and world.job.stage.followed
    world.end("fit")
    assert world.job.stage is not None and not world.job.stage.followed
    assert kinds(world.end("show", 1)) == []
    world.end("long")
    assert world.job.state is State.COMPLETED


def test_followers_of_a_failed_task_never_start_and_say_so() -> None:
    world = start(primary("fit"), primary("judge", needs=after("fit")), auxiliary("show", needs=after("fit")))
    world.end("fit", 3)
    assert world.states() == (
        "FAILED/NonZeroExitCode fit=FAILED/NonZeroExitCode judge=CANCELLED/PrimaryFailed show=CANCELLED/PrimaryFailed"
    )
    assert (world.job.exit_code, world.job.launch) == (3, 0)


def test_a_task_that_is_skipped_is_no_part_of_its_stage() -> None:
    world = start(auxiliary("a"), auxiliary("b", needs=after("a")), primary("c", needs=after("a", kind=NeedKind.ENDED)))
    world.end("a", 1)
    assert world.task("b").state is State.CANCELLED
    assert carried(world.job) == ["c"]
    assert kinds(world.grant()) == ["Launch c"]


def test_a_spared_task_is_no_stage() -> None:
    world = start(primary("fit"), primary("mend", needs=after("fit", kind=NeedKind.NOT_OK)))
    world.end("fit")
    assert world.job.state is State.COMPLETED and world.job.launch == 0


def test_later_tasks_wait_with_slurms_reason() -> None:
    world = start(primary("fit"), primary("judge", needs=after("fit")), auxiliary("show", needs=after("fit")))
    assert [reason_of(world.job, task) for task in world.job.tasks] == ["None", "Dependency", "Dependency"]
    assert describe_wait(world.job, world.task("show")) == "show waits for fit to succeed"


def test_a_lost_stage_repeats_its_tasks_alone() -> None:
    world = start(*PREPARE[:3])
    world.end("prepare")
    world.grant()
    world.begin()
    world.apply(lost(world, Cause.NODE))
    assert [task.state for task in world.job.tasks] == [State.COMPLETED, State.PENDING, State.PENDING]
    assert world.task("train").recoveries == 1 and carried(world.job) == ["train", "buffer"]


def test_a_lost_stage_without_primaries_is_charged_to_what_it_carries() -> None:
    world = StageWorld(group(*PREPARE[:3]))
    world.grant()
    world.begin()
    world.apply(lost(world, Cause.NODE))
    assert world.task("prepare").recoveries == 1 and world.job.state is State.PENDING
    never = StageWorld(group(*PREPARE[:3]))
    never.apply(lost(never, Cause.NODE))
    assert never.task("prepare").recoveries == 1


def test_a_retry_stays_in_its_stage() -> None:
    world = start(primary("fit", retry=RetryPolicy(max_restarts_on_errors=1)), auxiliary("show", needs=after("fit")))
    world.end("fit", 1)
    assert (world.job.launch, carried(world.job)) == (0, ["fit"])
    assert kinds(world.advance(10)) == ["Launch fit"]


def test_a_cancelled_later_auxiliary_is_skipped_and_a_primary_ends_the_group() -> None:
    world = start(*PREPARE)
    assert not is_fatal(world.job, events.Cancel(world.now, "buffer"))
    assert is_fatal(world.job, events.Cancel(world.now, "train"))
    # It runs, and later primaries need its success.
    assert is_fatal(world.job, events.Cancel(world.now, "prepare"))
    world.order(events.Cancel(world.now, "buffer"))
    assert world.job.state is State.RUNNING
    # Nothing of the group has begun on the next stage's account.
    world.end("prepare")
    assert carried(world.job) == ["train"]


def test_a_cancelled_auxiliary_of_the_stage_that_runs_is_fatal_where_a_later_primary_needs_it() -> None:
    world = start(auxiliary("a"), auxiliary("b"), primary("c", needs=(*after("a"), *after("b", kind=NeedKind.ENDED))))
    assert [is_fatal(world.job, events.Cancel(world.now, name)) for name in ("a", "b", "", "nobody")] == [
        True,
        False,
        False,
        False,
    ]


def test_a_task_cancelled_before_the_first_stage_leaves_the_choice_of_clusters() -> None:
    world = StageWorld(group(*PREPARE[:3], clusters=("a", "b")))
    world.job = replace(world.job, cluster="a")
    world.order(events.Cancel(world.now, "buffer"))
    assert [place.cluster for place in list_next(world.job)] == ["b"]


def test_a_group_that_is_not_to_find_its_members_starts_them_as_it_can_in_each_stage() -> None:
    spec = group(primary("a"), primary("b", needs=after("a")), primary("c", needs=after("a")), start=Start.INDEPENDENT)
    stages = split_stages(World(spec).job)
    assert [stage.spec.start for stage in stages] == [Start.TOGETHER, Start.INDEPENDENT]


def test_a_group_of_the_version_before_keeps_what_it_has_booked() -> None:
    """Its stored start is `together`, and its present launch carries all."""
    world = World(group(primary("fit"), primary("judge", needs=after("fit")), start=Start.TOGETHER))
    assert world.job.stage is None
    world.run()
    assert kinds(world.end("fit")) == ["Launch judge"]
    world.begin()
    world.end("judge")
    assert world.job.state is State.COMPLETED


@st.composite
def graphs(draw: st.DrawFn) -> tuple[JobSpec, dict[str, tuple[int, int]]]:
    """A group, and for each task how long it runs and its exit code."""
    names = "abcde"[: draw(st.integers(2, 5))]
    tasks, lives = [], {}
    for place, name in enumerate(names):
        needed = draw(st.lists(st.sampled_from(names[:place]), unique=True, max_size=3)) if place else []
        kinds = [
            draw(st.sampled_from([NeedKind.OK] * 4 + [NeedKind.ENDED, NeedKind.NOT_OK, NeedKind.STARTED]))
            for _ in needed
        ]
        tasks.append(
            TaskSpec(
                name,
                run="true",
                primary=place == len(names) - 1 or draw(st.booleans()),
                needs=tuple(map(Need, needed, kinds)),
                termination_delay=draw(st.sampled_from([0, 4])),
                on_failure=draw(st.sampled_from(OnFailure)),
                retry=RetryPolicy(max_restarts_on_errors=draw(st.integers(0, 1))),
            )
        )
        lives[name] = (draw(st.integers(1, 9)), draw(st.sampled_from([0, 0, 0, 1])))
    return group(*tasks), lives


MANY = 1000
"""More events than any launch of the graphs can have."""


class Player:
    """Plays programs that run so long, end so, and obey TERM at once; a cluster that grants at once."""

    def __init__(self, job: Job, now: float, lives: dict[str, tuple[int, int]]) -> None:
        self.world = StageWorld(job.spec, now)
        self.world.job = job
        self.lives = lives

    def play(self) -> Job:
        """The job as it stands when its launch is over, or nothing more can happen."""
        world, launch = self.world, self.world.job.launch
        world.grant()
        world.begin()
        while not world.job.over and world.job.launch == launch and self._step():
            assert len(world.journal) < MANY
        return world.job

    def _step(self) -> bool:
        world, ends = self.world, []
        for task in world.job.tasks:
            attempt = task.current
            if attempt is not None and attempt.live:
                seconds, code = self.lives[task.name]
                stopped = attempt.stop is not None
                due = world.now if stopped else (attempt.started_at or world.now) + seconds
                ends.append((due, task.name, 0 if stopped else code, 15 if stopped else 0))
        first = min(ends, default=None)
        if world.wake_at is not None and (first is None or world.wake_at < first[0]):
            world.now = world.wake_at
            world.decide()
        elif first is None:
            return False
        else:
            world.now = first[0]
            world.end(first[1], first[2], signal=first[3])
        world.begin()
        return True


@pytest.mark.parametrize("daemon_decides", [False, True])
@settings(max_examples=300)
@given(graphs())
def test_a_group_ends_as_if_all_had_been_booked_at_the_start(
    daemon_decides: bool, made: tuple[JobSpec, dict[str, tuple[int, int]]]
) -> None:
    """Each launch is decided beside the work by what it carries alone, or by the daemon; the daemon knows the whole."""
    spec, lives = made
    expected = Player(World(replace(spec, start=Start.TOGETHER)).job, 1000.0, lives).play()
    world = StageWorld(spec)
    for _ in range(len(list_stages(spec)) or 1):
        if world.job.over:
            break
        if daemon_decides:
            player = Player(world.job, world.now, lives)
            world.job, world.now = player.play(), player.world.now
            continue
        before = world.job.launch
        player = Player(carry(world.job), world.now, lives)
        left = player.play()
        for event in player.world.journal:
            assert world.apply(event), event
        world.now = player.world.now
        assert left.over or not any(task.live for task in left.tasks)
        assert world.job.over == (left.over and world.job.launch == before)
    assert world.job.over
    if not starts_early(expected, spec):
        assert plain(world.job) == plain(expected)


def starts_early(job: Job, spec: JobSpec) -> bool:
    """Whether a task started before its stage's turn, because one in between was skipped."""
    stages = list_stages(spec)
    lives = [[attempt for name in names for attempt in job.task(name).attempts] for names in stages]
    ends = [max((attempt.ended_at or 0.0 for attempt in live), default=0.0) for live in lives]
    starts = [min((attempt.launched_at for attempt in live), default=math.inf) for live in lives]
    return any(start < end for place, start in enumerate(starts) for end in ends[:place])


def plain(job: Job) -> object:
    """How all of it ended."""
    tasks = [(task.name, task.state, task.reason, len(task.attempts), task.ended_at) for task in job.tasks]
    return job.state, job.reason, job.exit_code, job.ended_at, tasks


SERVER = auxiliary("server")
TRAIN, JUDGE = primary("train"), primary("judge", needs=after("train"))


@pytest.mark.parametrize(
    ("fields", "deferred"),
    [
        ({}, ("judge",)),
        ({"start": Start.INDEPENDENT}, ("judge",)),
        ({"start": Start.TOGETHER}, ()),
        ({"race": True}, ()),
    ],
)
def test_a_task_that_waits_for_an_end_is_deferred(fields: dict[str, object], deferred: tuple[str, ...]) -> None:
    assert list_deferred(new_job(1, group(SERVER, TRAIN, JUDGE, **fields), 0.0)) == deferred


def test_a_task_is_deferred_within_its_stage_too() -> None:
    prepare = primary("prepare")
    later = (replace(SERVER, needs=after("prepare")), replace(TRAIN, needs=after("prepare")), JUDGE)
    first, second = split_stages(new_job(1, group(prepare, *later), 0.0))
    assert list_deferred(first) == () and list_deferred(second) == ("judge",)
    assert [task.name for task in second.spec.tasks] == ["server", "train", "judge"]


def test_what_is_left_of_a_lost_launch_is_asked_for_at_once() -> None:
    """The trainer is done, so nothing defers the judge any more."""
    world = World(group(SERVER, TRAIN, JUDGE))
    world.grant()
    world.begin()
    world.end("train")
    world.apply(lost(world, Cause.NEVER_STARTED))
    assert world.job.state is State.PENDING and world.job.task("train").state is State.COMPLETED
    assert list_deferred(world.job) == ()

"""Which launch goes to which worker: order, fit, shares, and that a large job is never starved."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import hypothesis.strategies as st
from hypothesis import given

from overspan.adapters.bookings import BookedMember, Bookings, Capacity
from overspan.adapters.pool.dispatch import STARVE_AFTER, Assignment, PoolQueue, WorkerRoom, assign, find_outdated
from overspan.adapters.pool.requests import (
    WorkerRequest,
    WorkerSize,
    change_time,
    find_job_seconds,
    find_refusal,
    list_members,
    measure_size,
    read_request,
    restore_booking,
)
from overspan.bridge.model.elastic import Elastic
from overspan.bridge.model.events import SetTime
from overspan.bridge.model.job import Job, Placement, new_job
from overspan.bridge.model.pools import WorkerLife
from overspan.bridge.model.ranks import Rank
from overspan.bridge.model.resources import Gpus, NodeNeed, Resources
from overspan.bridge.model.spec import Form, JobSpec, Need, NeedKind, TaskSpec
from overspan.bridge.runtime.pool.exchanges import FEATURES


class QueuedLaunch(NamedTuple):
    """A launch in the queue."""

    handle: str
    rank: Rank
    request: WorkerRequest
    task: str = "t"
    since: float = 0.0


ONE = WorkerRequest((NodeNeed(1000),))
GPU = WorkerRequest((NodeNeed(1000, gpu_milli=1000),))


def queued(handle: str, request: WorkerRequest = ONE, *, behind: int = 0, since: float = 0.0) -> QueuedLaunch:
    return QueuedLaunch(handle, Rank(behind, 0.0, int(handle)), request, "t", since)


def play(
    waiting: Sequence[QueuedLaunch], rooms: dict[str, Bookings], now: float = 0.0
) -> tuple[list[Assignment], PoolQueue]:
    """Assign once, and book what was found."""
    queue = PoolQueue()
    for launch in waiting:
        queue.add(launch)
    features = frozenset(FEATURES)
    found = assign(queue, {name: WorkerRoom(room, features=features) for name, room in rooms.items()}, now)
    by_handle = {launch.handle: launch for launch in waiting}
    for one in found:
        queue.remove(by_handle[one.handle])
        rooms[one.worker].restore(one.handle, one.booking)
    return found, queue


def places(found: Sequence[Assignment]) -> dict[str, str]:
    return {one.handle: one.worker for one in found}


def job(resources: Resources, form: Form = Form.RUN, nodes: int = 1) -> Job:
    return new_job(1, JobSpec("j", (TaskSpec("t", form, resources=resources, num_nodes=nodes),)), 0.0)


def test_by_priority_then_first_come() -> None:
    rooms = {"w": Bookings(Capacity(2000, 1 << 40))}
    found, queue = play([queued("1"), queued("2"), queued("3", behind=-5)], rooms)
    assert [one.handle for one in found] == ["3", "1"] and [each.handle for each in queue] == ["2"]


def test_sizes_are_numbers_and_no_texts() -> None:
    small, large = Bookings(Capacity(8000, 1 << 40)), Bookings(Capacity(16000, 1 << 40))
    found, _ = play([queued("1", WorkerRequest((NodeNeed(16000),)))], {"a": small, "b": large})
    assert places(found) == {"1": "b"}
    found, _ = play([queued("1", WorkerRequest((NodeNeed(16000),)))], {"a": small})
    assert not found
    found, _ = play([queued("1", WorkerRequest((NodeNeed(4000),)))], {"b": Bookings(Capacity(16000, 1 << 40))})
    assert places(found) == {"1": "b"}


def test_eight_jobs_of_one_gpu_fill_a_worker_with_a_device_each() -> None:
    rooms = {"w": Bookings(Capacity(32000, 1 << 40, ("H100",) * 8))}
    found, queue = play([queued(str(number), GPU) for number in range(1, 10)], rooms)
    assert sorted(one.booking.gpus[0] for one in found) == [(index,) for index in range(8)]
    assert [launch.handle for launch in queue] == ["9"]


def test_two_halves_share_a_device() -> None:
    half = WorkerRequest((NodeNeed(1000, gpu_milli=500),))
    found, _ = play([queued("1", half), queued("2", half)], {"w": Bookings(Capacity(8000, 1 << 40, ("", "")))})
    assert [one.booking.gpus[0] for one in found] == [(0,), (0,)]


def test_either_kind_of_alternatives_and_the_preferred_one_first() -> None:
    either = WorkerRequest(
        (NodeNeed(1000, gpu_milli=1000, gpu_kind="H100"), NodeNeed(1000, gpu_milli=1000, gpu_kind="H200"))
    )
    rooms = {
        "a": Bookings(Capacity(4000, 1 << 40, ("H200",))),
        "b": Bookings(Capacity(4000, 1 << 40, ("H100",))),
        "c": Bookings(Capacity(4000, 1 << 40, ("A100",))),
    }
    found, queue = play([queued(str(number), either) for number in range(1, 4)], rooms)
    assert places(found) == {"1": "b", "2": "a"} and len(queue) == 1


def test_jobs_without_gpus_leave_the_workers_that_have_some() -> None:
    rooms = {"a": Bookings(Capacity(4000, 1 << 40, ("",))), "b": Bookings(Capacity(4000, 1 << 40))}
    assert places(play([queued("1")], rooms)[0]) == {"1": "b"}


def test_a_job_file_without_resources_takes_a_whole_worker_and_a_script_one_cpu() -> None:
    whole, script = read_request(job(Resources())), read_request(job(Resources(), Form.BATCH))
    assert whole.whole and script == WorkerRequest((NodeNeed(1000),))
    rooms = {"w": Bookings(Capacity(8000, 1 << 40, ("", "")))}
    found, queue = play([queued("1", whole), queued("2", whole)], rooms)
    assert found[0].booking.gpus == ((0, 1),) and [each.handle for each in queue] == ["2"]
    assert not play([queued("3", script)], rooms)[0]


def test_what_fits_no_worker_is_refused_with_both_sizes() -> None:
    there = [measure_size(job(Resources(cpus=8, gpus=(Gpus(2, "H100"),))).spec.tasks[0])]
    assert there == [WorkerSize(Capacity(8000, 1 << 40, ("H100", "H100")))]
    assert find_refusal(job(Resources(cpus=16)), there) == (
        "no worker of the pool can have it: wanted 16 CPU; a worker has 8 CPU, 2 H100 GPU"
    )
    assert "wanted 1 CPU, 1 A100 GPU" in find_refusal(job(Resources(gpus=(Gpus(1, "A100"),))), there)
    assert not find_refusal(job(Resources(cpus=8)), there)
    assert "one node" in find_refusal(job(Resources(cpus=1), Form.BATCH, nodes=2), there)


def test_a_large_job_lets_small_ones_pass_until_it_has_waited_too_long() -> None:
    large = queued("1", WorkerRequest((NodeNeed(4000),)), since=0.0)
    room = Bookings(Capacity(4000, 1 << 40))
    play([queued("9")], {"w": room})
    found, _ = play([large, queued("2", since=1.0)], {"w": room.copy()}, now=STARVE_AFTER - 1)
    assert places(found) == {"2": "w"}
    found, _ = play([large, queued("2", since=1.0)], {"w": room.copy()}, now=STARVE_AFTER)
    assert not found
    room.release("9")
    found, _ = play([large, queued("2", since=1.0)], {"w": room}, now=STARVE_AFTER)
    assert places(found) == {"1": "w"}


def test_one_worker_is_kept_and_the_others_go_on() -> None:
    rooms = {name: Bookings(Capacity(4000, 1 << 40)) for name in "ab"}
    for name, handle in (("a", "8"), ("b", "9")):
        play([queued(handle)], {name: rooms[name]})
    large = queued("1", WorkerRequest((NodeNeed(4000),)), since=0.0)
    found, _ = play([large, *(queued(str(number), since=1.0) for number in range(2, 9))], rooms, now=STARVE_AFTER)
    assert len(found) == 3 and len({one.worker for one in found}) == 1


needs = st.builds(
    NodeNeed,
    cpu_milli=st.sampled_from([500, 1000, 3000, 8000]),
    memory_mib=st.sampled_from([None, 0, 100, 4000]),
    gpu_milli=st.sampled_from([0, 0, 500, 1000, 2000]),
    gpu_kind=st.sampled_from(["", "H100", "A100"]),
)
alternatives = st.lists(needs, min_size=1, max_size=2)
groups = st.lists(alternatives, min_size=2, max_size=3).map(
    lambda tasks: tuple(
        tuple(BookedMember(f"t{number}", 0, need) for number, need in enumerate(chosen))
        for chosen in itertools.product(*tasks)
    )
)
requests = st.one_of(
    st.tuples(alternatives.map(tuple), st.booleans()).map(lambda found: WorkerRequest(*found)),
    groups.map(lambda found: WorkerRequest((), groups=found)),
)
capacities = st.builds(
    Capacity,
    st.sampled_from([1000, 4000, 16000]),
    st.sampled_from([1000, 8000, 1 << 40]),
    st.lists(st.sampled_from(["H100", "A100", ""]), max_size=3).map(tuple),
)
waiting = st.lists(st.tuples(requests, st.integers(-2, 2), st.sampled_from([0.0, 90.0])), max_size=12).map(
    lambda found: [
        queued(str(number), request, behind=behind, since=since)
        for number, (request, behind, since) in enumerate(found, 1)
    ]
)


@given(waiting, st.lists(capacities, max_size=4), st.floats(0, 200))
def test_laws(launches: list[QueuedLaunch], sizes: list[Capacity], now: float) -> None:
    rooms = {f"w{number}": Bookings(size) for number, size in enumerate(sizes)}
    queue = PoolQueue()
    for launch in launches:
        queue.add(launch)
    features = frozenset(FEATURES)
    found = assign(queue, {name: WorkerRoom(room, features=features) for name, room in rooms.items()}, now)
    assert len(queue) == len(launches) and not any(len(room) for room in rooms.values()), "nothing is changed"
    assert len({one.handle for one in found}) == len(found), "each goes to one worker"
    by_handle = {launch.handle: launch for launch in launches}
    for one in found:
        launch, room = by_handle[one.handle], rooms[one.worker]
        # What is booked fits beside what was booked before it, so nothing is given twice.
        assert room.book(one.handle, [one.booking.members]) is not None
        assert one.booking.members in list_members(launch.request, launch.task, room.capacity)
    started = {one.handle for one in found}
    for launch in launches:
        # Of those that ask for the same, nobody overtakes.
        before = [other for other in launches if other.request == launch.request and other.rank < launch.rank]
        assert launch.handle not in started or all(other.handle in started for other in before)
    left = [launch for launch in launches if launch.handle not in started]
    if all(now - launch.since < STARVE_AFTER for launch in launches):
        for launch in left:
            # Whoever still waits fits nowhere.
            fitting = [room.fits(list_members(launch.request, launch.task, room.capacity)) for room in rooms.values()]
            assert not any(fitting)


@given(st.lists(st.tuples(st.integers(1, 20), st.integers(-3, 3), st.booleans()), max_size=40))
def test_the_queue_has_what_was_added_and_not_removed(steps: list[tuple[int, int, bool]]) -> None:
    queue, model = PoolQueue(), dict[str, QueuedLaunch]()
    for number, behind, add in steps:
        handle = str(number)
        launch = queued(handle, ONE if number % 2 else GPU, behind=behind)
        before = model.get(handle)
        if add:
            model[handle] = before or launch
            queue.add(model[handle])
        else:
            assert queue.remove(before or launch) == (model.pop(handle, None) is not None)
            assert not queue.remove(launch)
        assert {each.handle: each for each in queue} == model and len(queue) == len(model)
        for line in queue.lines():
            assert line == sorted(line, key=lambda launch: (launch.rank, launch.handle))


# --- workers with a time limit ---------------------------------------------------------------------------------------


def test_a_job_is_for_a_worker_that_outlives_it() -> None:
    queue = PoolQueue()
    for number, seconds in enumerate((100, 40, None)):
        queue.add(queued(str(number), ONE._replace(seconds=seconds)))
    old = WorkerRoom(Bookings(Capacity(4000, 1 << 40)), WorkerLife(ends_at=150.0, renew_at=90.0))
    assert places(assign(queue, {"old": old}, 50.0)) == {"0": "old", "1": "old", "2": "old"}
    assert places(assign(queue, {"old": old}, 60.0)) == {"1": "old", "2": "old"}
    assert places(assign(queue, {"old": old}, 95.0)) == {"1": "old"}
    young = WorkerRoom(Bookings(Capacity(4000, 1 << 40)))
    assert places(assign(queue, {"old": old, "young": young}, 95.0))["0"] == "young"


def test_no_worker_is_kept_for_a_job_that_it_does_not_outlive() -> None:
    queue = PoolQueue()
    queue.add(queued("0", WorkerRequest((NodeNeed(4000),), seconds=100), since=0.0))
    queue.add(queued("1", ONE))
    room = Bookings(Capacity(4000, 1 << 40))
    members = list_members(ONE, "t", room.capacity)
    assert room.book("other", members) is not None
    now = STARVE_AFTER + 1
    kept = {"w": WorkerRoom(room, WorkerLife(now + 1000, now + 900))}
    assert assign(queue, kept, now) == []
    dying = {"w": WorkerRoom(room, WorkerLife(now + 50, now + 40))}
    assert places(assign(queue, dying, now)) == {"1": "w"}


def test_a_job_that_no_worker_outlives_is_refused_with_both_times() -> None:
    task = TaskSpec("t", Form.RUN, resources=Resources(cpus=1), time=3600, grace_period=60)
    long = new_job(1, JobSpec("j", (task,)), 0.0)
    hour = [measure_size(TaskSpec("w", resources=Resources(cpus=1), time=3600))]
    told = find_refusal(long, hour)
    assert "it may take 1:01:00 with its grace period; a worker lives 1:00:00" in told
    assert find_refusal(replace(long, tasks=(replace(long.tasks[0], time=1800),)), hour) == ""
    assert find_refusal(long, [*hour, measure_size(TaskSpec("w", resources=Resources(cpus=1)))]) == ""
    untimed = new_job(1, JobSpec("j", (replace(task, time=None),)), 0.0)
    assert find_refusal(untimed, hour) == ""


# --- groups ----------------------------------------------------------------------------------------------------------


def group(*tasks: TaskSpec) -> Job:
    return new_job(1, JobSpec("rl", tasks, group=True), 0.0)


TRAINER = TaskSpec("trainer", resources=Resources(cpus=2, gpus=(Gpus(1, "H100"),)), time=600, grace_period=10)
SERVER = TaskSpec("server", num_nodes=2, primary=False, termination_delay=5, grace_period=20)


def test_one_worker_has_all_members_of_a_group() -> None:
    launch = queued("1", read_request(group(TRAINER, SERVER)))
    small, large = Bookings(Capacity(3000, 1 << 40, ("H100",))), Bookings(Capacity(4000, 1 << 40, ("H100",)))
    assert not play([launch], {"small": small})[0]
    found, _ = play([launch], {"small": small, "large": large})
    assert [one.worker for one in found] == ["large"]
    members = {(each.task, each.node): each.need.cpu_milli for each in found[0].booking.members}
    assert members == {("trainer", 0): 2000, ("server", 0): 1000, ("server", 1): 1000}
    assert found[0].booking.gpus == ((0,), (), ())


def test_a_group_that_no_worker_has_room_for_is_refused_with_what_its_members_ask_for_together() -> None:
    there = [measure_size(TaskSpec("w", resources=Resources(cpus=3, memory_mib=1024, gpus=(Gpus(1, "H100"),))))]
    assert find_refusal(group(TRAINER, SERVER), there) == (
        "no worker of the pool can have it: wanted 4 CPU, 1 H100 GPU for its 3 members on one worker; "
        "a worker has 3 CPU, 1G memory, 1 H100 GPU"
    )
    assert find_refusal(group(TRAINER, replace(SERVER, num_nodes=1)), there) == ""
    grown = replace(SERVER, elastic=Elastic(1, 4, 1, None), num_nodes=1)
    assert "elastic tasks do not run in a pool" in find_refusal(group(TRAINER, grown), there)


def test_a_group_takes_as_long_as_its_primary_tasks_and_the_delay_of_the_others() -> None:
    job = group(TRAINER, replace(TRAINER, name="second", time=100), SERVER)
    assert find_job_seconds(job) == 610 + 25
    assert find_job_seconds(change_time(job, SetTime(0.0, 1000, "second"))) == 1010 + 25
    assert find_job_seconds(change_time(job, SetTime(0.0, None, "trainer"))) is None
    in_turn = replace(TRAINER, name="second", time=100, needs=(Need("trainer", NeedKind.OK),))
    assert find_job_seconds(group(TRAINER, in_turn, SERVER)) == 610 + 110 + 25


def test_a_group_of_an_earlier_daemon_is_booked_with_the_devices_that_each_member_has() -> None:
    request = read_request(group(TRAINER, SERVER))
    places = (Placement("server", 1, "w", ""), Placement("trainer", 0, "w", "", (3,)))
    booking = restore_booking(request, "trainer", places, Capacity(8000, 1 << 40, ("H100",) * 4))
    assert booking.gpus == ((3,), (), ()) and [each.task for each in booking.members] == ["trainer", "server", "server"]


def test_a_worker_is_outdated_where_its_version_alone_keeps_a_group_from_it_and_no_other_has_it() -> None:
    queue, pair = PoolQueue(), read_request(group(replace(SERVER, primary=True)))
    pairs = [queued(str(number), pair, since=since) for number, since in ((1, 30.0), (2, 20.0))]
    for launch in pairs:
        queue.add(launch)
    queue.add(queued("3", ONE, since=0.0))
    large, small = Capacity(4000, 1 << 40), Capacity(1000, 1 << 40)
    features = frozenset(FEATURES)
    rooms = {"old": WorkerRoom(Bookings(large)), "small": WorkerRoom(Bookings(small), features=features)}
    assert find_outdated(queue, rooms) == {"old": 20.0}
    assert find_outdated(queue, rooms | {"new": WorkerRoom(Bookings(large), features=features)}) == {}
    for launch in pairs:
        queue.remove(launch)
    assert find_outdated(queue, rooms) == {}

from __future__ import annotations

from dataclasses import replace

import hypothesis.strategies as st
import pytest
from hypothesis import example, given, settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from tests.examples import count_examples

from overspan.adapters.local.queue.booking import (
    BookedMember,
    Booking,
    Bookings,
    Variant,
    WaitingQueue,
    is_kind,
    list_variants,
)
from overspan.adapters.local.queue.capacity import Capacity
from overspan.bridge.model.job import Element, Job, new_job
from overspan.bridge.model.ranks import Rank, rank_job
from overspan.bridge.model.resources import MILLI, Gpus, Gres, NodeNeed, Resources
from overspan.bridge.model.spec import Form, JobSpec, Need, NeedKind, TaskSpec

KINDS = ("", "A100-SXM4-80GB", "H100")
MACHINE = Capacity(4000, 8192, ("A100-SXM4-80GB", "A100-SXM4-80GB", "H100"))


def members(*needs: NodeNeed) -> Variant:
    return tuple(BookedMember("t", node, need) for node, need in enumerate(needs))


def job(*tasks: TaskSpec, number: int = 1, at: float = 0.0, **changes: int) -> Job:
    return new_job(number, JobSpec("j", tasks, **changes), at)  # type: ignore[arg-type]


needs = st.builds(
    NodeNeed,
    cpu_milli=st.sampled_from([1, 10, 300, 1000, 2500, 5000]),
    memory_mib=st.sampled_from([None, None, 0, 1, 100, 3000, 9000]),
    gpu_milli=st.sampled_from([0, 0, 1, 250, 500, 1000, 1500, 2000, 3000]),
    gpu_kind=st.sampled_from(["", "A100", "h100", "H100"]),
)
jobs = st.lists(needs, min_size=1, max_size=4).map(lambda found: members(*found))


def booked_shares(bookings: list[Booking], devices: int) -> list[int]:
    """What each device carries, counted from the bookings alone."""
    carried = [0] * devices
    for booking in bookings:
        for member, indices in zip(booking.members, booking.gpus, strict=True):
            whole, rest = divmod(member.need.gpu_milli, MILLI)
            shares = [MILLI] * whole + ([rest] if rest else [])
            assert len(set(indices)) == len(indices) == len(shares)
            for index, share in zip(indices, shares, strict=True):
                carried[index] += share
    return carried


def test_the_tasks_of_a_pipeline_take_turns() -> None:
    all_of_it = Resources(cpus=4, memory_mib=8192, gpus=(Gpus(3),))
    first = TaskSpec("a", resources=all_of_it)
    second = TaskSpec("b", resources=all_of_it, needs=(Need("a", NeedKind.OK),))
    third = TaskSpec("c", resources=Resources(cpus=1), needs=(Need("b", NeedKind.ENDED),))
    ledger = Bookings(MACHINE)
    assert ledger.book("pipeline", list_variants(job(first, second, third), MACHINE)) is not None
    assert (ledger.cpu_milli, ledger.memory_mib, ledger.gpu_milli) == (4000, 8192, 3000)
    ledger.release("pipeline")
    assert (ledger.cpu_milli, ledger.memory_mib, ledger.gpu_milli) == (0, 0, 0)
    # They are not sure to take turns where one needs only the start of the other.
    early = replace(second, needs=(Need("a", NeedKind.STARTED),))
    assert ledger.book("group", list_variants(job(first, early), MACHINE)) is None


class Books(RuleBasedStateMachine):
    """Whatever comes and goes, nothing is booked twice and everything is given back."""

    def __init__(self) -> None:
        super().__init__()
        self.ledger = Bookings(MACHINE)
        self.bookings: dict[str, Booking] = {}
        self.count = 0

    @rule(variants=st.lists(jobs, min_size=1, max_size=3))
    def book(self, variants: list[Variant]) -> None:
        self.count += 1
        booking = self.ledger.book(str(self.count), variants)
        if booking is not None:
            assert booking.members in variants
            self.bookings[str(self.count)] = booking

    @precondition(lambda self: self.bookings)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from(sorted(self.bookings)))
        del self.bookings[key]
        assert self.ledger.release(key)
        assert not self.ledger.release(key)

    @invariant()
    def never_over(self) -> None:
        held = [member.need for booking in self.bookings.values() for member in booking.members]
        assert self.ledger.cpu_milli == sum(need.cpu_milli for need in held) <= MACHINE.cpu_milli
        memory = sum(MACHINE.memory_mib if need.memory_mib == 0 else need.memory_mib or 0 for need in held)
        assert self.ledger.memory_mib == memory <= MACHINE.memory_mib
        carried = booked_shares(list(self.bookings.values()), len(MACHINE.gpus))
        assert all(share <= MILLI for share in carried)
        assert self.ledger.gpu_milli == sum(carried)

    @invariant()
    def kinds_are_kept(self) -> None:
        for booking in self.bookings.values():
            for member, indices in zip(booking.members, booking.gpus, strict=True):
                kind = member.need.gpu_kind
                assert all(not kind or is_kind(kind, MACHINE.gpus[index]) for index in indices)

    def teardown(self) -> None:
        for key in self.bookings:
            self.ledger.release(key)
        assert (self.ledger.cpu_milli, self.ledger.memory_mib, self.ledger.gpu_milli, len(self.ledger)) == (0, 0, 0, 0)


TestBooks = Books.TestCase
TestBooks.settings = settings(max_examples=count_examples(40), deadline=None)


@given(jobs)
def test_what_fits_an_idle_machine_fits_it_again_later(asked: Variant) -> None:
    ledger = Bookings(MACHINE)
    first = ledger.book("a", [asked])
    if first is not None:
        ledger.release("a")
        assert ledger.book("b", [asked]) == first


gpu_needs = st.builds(
    NodeNeed,
    cpu_milli=st.just(1),
    gpu_milli=st.sampled_from([250, 500, 750, 1000, 1500]),
    gpu_kind=st.sampled_from(["", "A100", "H100"]),
)


@example([(NodeNeed(1, gpu_milli=750), False)] * 4)
@given(st.lists(st.tuples(gpu_needs, st.booleans()), max_size=12))
def test_no_device_carries_more_than_itself(steps: list[tuple[NodeNeed, bool]]) -> None:
    ledger = Bookings(MACHINE)
    bookings: dict[str, Booking] = {}
    for key, (need, release) in enumerate(steps):
        if release and bookings:
            ledger.release(bookings.popitem()[0])
        booking = ledger.book(str(key), [members(need)])
        if booking is not None:
            bookings[str(key)] = booking
        assert all(share <= MILLI for share in booked_shares(list(bookings.values()), len(MACHINE.gpus)))


def test_a_gang_is_booked_whole_or_not_at_all() -> None:
    ledger = Bookings(MACHINE)
    assert ledger.book("a", [members(NodeNeed(3000))]) is not None
    assert ledger.book("b", [members(NodeNeed(1000), NodeNeed(1000))]) is None
    assert ledger.cpu_milli == 3000


def test_fractions_share_a_device_and_whole_ones_do_not() -> None:
    ledger = Bookings(Capacity(9000, 0, ("", "")))
    half = members(NodeNeed(1000, gpu_milli=500))
    first, second = ledger.book("a", [half]), ledger.book("b", [half])
    assert first is not None and second is not None
    assert first.gpus == second.gpus == ((0,),)
    whole = ledger.book("c", [members(NodeNeed(1000, gpu_milli=1000))])
    assert whole is not None and whole.gpus == ((1,),)
    assert ledger.book("d", [members(NodeNeed(1000, gpu_milli=1))]) is None


def test_the_second_accelerator_is_taken_when_the_first_is_not_there() -> None:
    task = TaskSpec("t", resources=Resources(gpus=(Gpus(1, "V100"), Gpus(1, "A100"))))
    booking = Bookings(MACHINE).book("a", list_variants(job(task), MACHINE))
    assert booking is not None and booking.members[0].need.gpu_kind == "A100"


def test_other_resources_are_not_there() -> None:
    assert Bookings(MACHINE).book("a", [members(NodeNeed(1, gres=(Gres("license"),)))]) is None


def test_all_memory_is_the_machine() -> None:
    ledger = Bookings(MACHINE)
    assert ledger.book("a", [members(NodeNeed(1, 0))]) is not None
    assert ledger.memory_mib == MACHINE.memory_mib
    assert ledger.book("b", [members(NodeNeed(1, 1))]) is None


def test_a_sharing_task_books_its_own_cpus() -> None:
    tasks = (
        TaskSpec("a", resources=Resources(cpus=2)),
        TaskSpec("b", resources=Resources(cpus=1.5), share="a"),
    )
    (variant,) = list_variants(job(*tasks), MACHINE)
    assert [member.need.cpu_milli for member in variant] == [2000, 1500]


def test_nodes_without_a_number_book_one_cpu_but_never_too_many() -> None:
    few = list_variants(job(TaskSpec("t", num_nodes=2)), MACHINE)[0]
    assert [member.need.cpu_milli for member in few] == [1000, 1000]
    many = list_variants(job(TaskSpec("t", num_nodes=16)), MACHINE)
    assert many[0][0].need.cpu_milli == 250
    assert Bookings(MACHINE).book("a", many) is not None


@pytest.mark.parametrize(
    ("task", "cpus"),
    [
        (TaskSpec("t", form=Form.BATCH, ntasks=3), 3000),
        (TaskSpec("t", form=Form.BATCH, ntasks=3, num_nodes=2), 2000),
        (TaskSpec("t", form=Form.BATCH, ntasks_per_node=2, cpus_per_task=2), 4000),
        (TaskSpec("t", form=Form.BATCH, cpus_per_task=2), 2000),
    ],
)
def test_slurm_tasks_count_as_cpus(task: TaskSpec, cpus: int) -> None:
    assert list_variants(job(task), MACHINE)[0][0].need.cpu_milli == cpus


def test_a_key_is_booked_once() -> None:
    ledger = Bookings(MACHINE)
    ledger.book("a", [members(NodeNeed(1))])
    with pytest.raises(ValueError, match="booked already"):
        ledger.book("a", [members(NodeNeed(1))])


def test_priority_less_nice_goes_before_age() -> None:
    old = rank_job(job(TaskSpec("t"), number=1, at=1.0))
    new = rank_job(job(TaskSpec("t"), number=2, at=2.0))
    urgent = rank_job(job(TaskSpec("t"), number=3, at=3.0, priority=5))
    humble = rank_job(job(TaskSpec("t"), number=5, at=0.0, priority=5, nice=6))
    nice = rank_job(job(TaskSpec("t"), number=4, at=0.0, nice=10))
    assert sorted([nice, new, urgent, old, humble]) == [urgent, old, new, humble, nice]


def test_elements_go_by_their_array_and_their_index() -> None:
    at = 5.0
    before, after = job(TaskSpec("t"), number=9, at=at), job(TaskSpec("t"), number=11, at=at)
    elements = [replace(job(TaskSpec("t"), number=n, at=at), element=Element(10, i)) for n, i in ((20, 3), (30, 1))]
    order = sorted([after, *elements, before], key=rank_job)
    assert [found.id for found in order] == [9, 30, 20, 11]


class Waiting(RuleBasedStateMachine):
    """The queue against a plain sorted list."""

    def __init__(self) -> None:
        super().__init__()
        self.queue = WaitingQueue()
        self.model: dict[str, Rank] = {}

    @rule(number=st.integers(1, 9), behind=st.integers(-2, 2), at=st.integers(0, 3))
    def add(self, number: int, behind: int, at: int) -> None:
        self.model[str(number)] = Rank(behind, at, number)
        self.queue.add(str(number), self.model[str(number)])

    @rule(number=st.integers(1, 9))
    def remove(self, number: int) -> None:
        assert self.queue.remove(str(number)) == (self.model.pop(str(number), None) is not None)

    @invariant()
    def same_order(self) -> None:
        assert list(self.queue) == sorted(self.model, key=lambda key: self.model[key])
        assert self.queue.head == next(iter(self.queue), "")
        assert len(self.queue) == len(self.model)


TestWaiting = Waiting.TestCase

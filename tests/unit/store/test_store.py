"""What the store keeps, answers and refuses, on a real file."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from overspan.bridge.lifecycle.timeline import Transition
from overspan.bridge.model.errors import Conflict, InvalidRequest, StoreFailed
from overspan.bridge.model.job import Attempt, Element, Job, NodeRun, Placement
from overspan.bridge.model.states import State
from overspan.bridge.model.storage import MountMode, StorageMount
from overspan.bridge.store.records import Change, HistoryRows, JobQuery, NewJob, OutboxRow, Receipt
from overspan.bridge.store.store import Store

MakeJob = Callable[..., Job]
StartOf = Callable[[Job], NewJob]


def running(job: Job) -> Job:
    """The job one version later, running."""
    attempt = Attempt(0, State.RUNNING, 1001.0, (NodeRun(0, 0, 1002.0),), 1002.0)
    tasks = (replace(job.tasks[0], state=State.RUNNING, attempts=(attempt,)), *job.tasks[1:])
    places = (Placement("t0", 0, "node", "127.0.0.2", (0, 1)),)
    return replace(job, state=State.RUNNING, tasks=tasks, placements=places, version=job.version + 1)


def ended(job: Job, at: float, state: State = State.COMPLETED) -> Job:
    """The job one version later, ended."""
    return replace(job, state=state, ended_at=at, version=job.version + 1)


def test_job_comes_back_as_it_went_in_after_a_restart(tmp_path: Path, make_job: MakeJob, start_of: StartOf) -> None:
    job = make_job(7, tasks=2)
    job = replace(job, spec=replace(job.spec, comment="bytes \udcff and \x00 and ä"), labels={"a": "b"})
    store = Store.open(tmp_path / "span.db")
    asyncio.run(store.insert([start_of(job)]))
    asyncio.run(store.apply([Change(running(job), 0, handle="7.0", native_id="99", cursor="123")]))
    store.close()

    again = Store.open(tmp_path / "span.db")
    (stored,) = asyncio.run(again.load_live())
    again.close()
    assert stored.job == running(job)
    assert (stored.cluster, stored.handle, stored.native_id, stored.cursor) == ("local", "7.0", "99", "123")
    assert stored.user == "ada"


def test_jobs_of_one_text_have_one_spec_and_others_their_own(
    tmp_path: Path, make_job: MakeJob, start_of: StartOf
) -> None:
    """Of a damaged row and those around it each job has what was written for it."""
    jobs = [make_job(number, name=name) for number, name in enumerate("aabxba", 1)]
    store = Store.open(tmp_path / "span.db")
    asyncio.run(store.insert([start_of(job) for job in jobs]))
    store.close()
    with closing(sqlite3.connect(tmp_path / "span.db")) as connection:
        connection.execute("UPDATE spec SET document = '{' WHERE job_id = 4")
        connection.commit()
    again = Store.open(tmp_path / "span.db")
    loaded = asyncio.run(again.load_live())
    again.close()
    assert [stored.job for stored in loaded] == [job for job in jobs if job.id != 4]
    first, second, third, fifth, _ = (stored.job.spec for stored in loaded)
    assert first is second and third is fifth
    # And one task, as long as nothing has happened to it.
    assert loaded[0].job.tasks[0] is loaded[1].job.tasks[0]


def test_a_spec_is_written_again_only_where_a_change_has_one(
    tmp_path: Path, make_job: MakeJob, start_of: StartOf
) -> None:
    job = make_job(7)
    amended = replace(job, spec=replace(job.spec, qos="high"), version=1)
    store = Store.open(tmp_path / "span.db")
    asyncio.run(store.insert([start_of(job)]))
    assert asyncio.run(store.apply([Change(amended, 4, spec=amended.spec)])) == [False]
    assert asyncio.run(store.load_live())[0].job.spec == job.spec
    asyncio.run(store.apply([Change(amended, 0, spec=amended.spec)]))
    other = replace(job.spec, qos="low")
    asyncio.run(store.apply([Change(replace(amended, spec=other, version=2), 1)]))
    store.close()
    again = Store.open(tmp_path / "span.db")
    (stored,) = asyncio.run(again.load_live())
    again.close()
    assert stored.job == replace(amended, version=2)


def test_change_with_a_wrong_version_writes_nothing(store: Store, make_job: MakeJob, start_of: StartOf) -> None:
    job = make_job(1)
    moved = Transition(5.0, "", "PENDING", "RUNNING", "None", "", "")
    late = OutboxRow("late", 1, "local", "order", {}, 5.0)

    async def go() -> None:
        await store.insert([start_of(job)])
        assert await store.apply([Change(running(job), 0)]) == [True]
        stale = Change(ended(job, 9.0), 0, timeline=(moved,), outbox_add=(late,), outbox_done=("1.0",))
        missing = Change(running(make_job(2)), 0, timeline=(moved,))
        good = Change(ended(running(job), 10.0), 1, timeline=(moved,))
        assert await store.apply([stale, missing, good]) == [False, False, True]
        assert [row.token for row in await store.outbox()] == ["1.0"]
        assert [row.text for row in await store.timeline(1)] == ["submitted", ""]
        (found,) = await store.find(JobQuery())
        assert found.job == ended(running(job), 10.0)

    asyncio.run(go())


def test_two_changes_of_one_job_in_one_call_follow_each_other(
    store: Store, make_job: MakeJob, start_of: StartOf
) -> None:
    first = running(make_job(1))

    async def go() -> None:
        await store.insert([start_of(make_job(1))])
        assert await store.apply([Change(first, 0), Change(ended(first, 3.0), 1)]) == [True, True]
        assert await store.load_live() == []

    asyncio.run(go())


def test_change_must_raise_the_version(store: Store, make_job: MakeJob) -> None:
    with pytest.raises(ValueError, match="version"):
        asyncio.run(store.apply([Change(make_job(1), 0)]))


def test_none_leaves_a_column_and_empty_text_clears_it(store: Store, make_job: MakeJob, start_of: StartOf) -> None:
    first = running(make_job(1))

    async def go() -> None:
        await store.insert([start_of(make_job(1))])
        await store.apply([Change(first, 0, handle="1.0", cursor="5", cluster="slurm")])
        await store.apply([Change(replace(first, version=2), 1, handle="")])
        (stored,) = await store.load_live()
        assert (stored.handle, stored.cursor, stored.cluster) == ("", "5", "slurm")

    asyncio.run(go())


def test_requeued_job_is_live_again(store: Store, make_job: MakeJob, start_of: StartOf) -> None:
    over = ended(make_job(1), 5.0)
    again = replace(over, state=State.PENDING, version=2)  # its earlier end stays a fact

    async def go() -> None:
        await store.insert([start_of(make_job(1))])
        await store.apply([Change(over, 0)])
        assert await store.load_live() == []
        await store.apply([Change(again, 1)])
        assert [stored.job for stored in await store.load_live()] == [again]
        assert await store.forget(1e12) == 0

    asyncio.run(go())


def test_insert_is_all_or_none(store: Store, make_job: MakeJob, start_of: StartOf) -> None:
    async def go() -> None:
        await store.insert([start_of(make_job(1))])
        with pytest.raises(Conflict):
            await store.insert([start_of(make_job(2)), start_of(make_job(1))])
        assert [stored.job.id for stored in await store.load_live()] == [1]
        assert [row.job_id for row in await store.events(0)] == [1]

    asyncio.run(go())


def test_a_bad_unit_fails_alone(store: Store, make_job: MakeJob, start_of: StartOf) -> None:
    async def go() -> list[object]:
        await store.insert([start_of(make_job(1))])
        bad = replace(start_of(make_job(50)), cluster="\udcff")
        wishes = [store.insert([start_of(make_job(n))]) for n in range(2, 40)]
        wishes[10:10] = [store.insert([bad]), store.insert([start_of(make_job(1))])]
        return list(await asyncio.gather(*wishes, return_exceptions=True))

    results = asyncio.run(go())
    assert [type(result) for result in results if result is not None] == [InvalidRequest, Conflict]
    jobs = asyncio.run(store.load_live())
    assert [stored.job.id for stored in jobs] == list(range(1, 40))
    assert store.trouble is None
    assert asyncio.run(store.timeline(50)) == []


def test_jobs_are_loaded_in_parts_and_equal_specs_are_one_object(
    store: Store, make_job: MakeJob, start_of: StartOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("overspan.bridge.store.store._LOADED_AT_ONCE", 3)
    odd = replace(make_job(2).spec, comment="odd")
    jobs = [make_job(n) if n % 2 else replace(make_job(n), spec=odd) for n in range(1, 10)]
    asyncio.run(store.insert([start_of(job) for job in jobs]))
    found = asyncio.run(store.load_live())
    assert [stored.job.id for stored in found] == list(range(1, 10))
    assert len({id(stored.job.spec) for stored in found}) == 2
    assert len({id(stored.cluster) for stored in found}) == 1


def test_apply_with_a_token_that_exists_writes_none_of_its_changes(
    store: Store, make_job: MakeJob, start_of: StartOf
) -> None:
    token = (OutboxRow("1.0", 2, "local", "order", {}, 5.0),)

    async def go() -> None:
        await store.insert([start_of(make_job(1)), start_of(make_job(2))])
        with pytest.raises(Conflict):
            await store.apply([Change(running(make_job(1)), 0), Change(running(make_job(2)), 0, outbox_add=token)])
        assert [stored.job.version for stored in await store.load_live()] == [0, 0]

    asyncio.run(go())


def test_ids_are_drawn_once_and_never_again(tmp_path: Path, make_job: MakeJob, start_of: StartOf) -> None:
    store = Store.open(tmp_path / "span.db")

    async def draw() -> list[int]:
        firsts = await asyncio.gather(*(store.next_ids(3) for _ in range(20)))
        await store.insert([start_of(make_job(firsts[-1], tasks=3))])
        await store.apply([Change(ended(make_job(firsts[-1], tasks=3), 5.0), 0, outbox_done=(f"{firsts[-1]}.0",))])
        assert await store.forget(6.0) == 1
        return firsts

    assert asyncio.run(draw()) == list(range(1, 61, 3))
    store.close()
    again = Store.open(tmp_path / "span.db")
    # Behind all three ids of the group, although its row is gone.
    assert asyncio.run(again.next_ids(1)) == 61
    again.close()


def test_outbox_is_kept_in_order_and_settled(store: Store, make_job: MakeJob, start_of: StartOf) -> None:
    order = OutboxRow("1.0.1", 1, "slurm", "order", {"launch": 0, "event": {"event": "Cancel", "at": 1.0}}, 0.5)

    async def go() -> None:
        await store.insert([start_of(make_job(1))])
        await store.apply([Change(running(make_job(1)), 0, outbox_add=(order,))])
        assert [row.token for row in await store.outbox()] == ["1.0", "1.0.1"]
        assert await store.outbox("slurm") == [order]
        assert await store.defer("1.0.1", 60.0, "no \udcff answer")
        assert await store.outbox("slurm") == [order._replace(tries=1, next_try_at=60.0, error="no ? answer")]
        assert not await store.defer("gone", 60.0, "")
        assert await store.settle(["1.0", "gone"]) == 1
        assert [row.token for row in await store.outbox()] == ["1.0.1"]

    asyncio.run(go())


def test_token_added_and_done_in_one_group_is_done(store: Store, make_job: MakeJob, start_of: StartOf) -> None:
    job = make_job(1)

    async def go() -> None:
        wishes = [
            store.insert([start_of(job)]),
            store.apply([Change(running(job), 0, outbox_done=("1.0",))]),
        ]
        await asyncio.gather(*wishes)
        assert await store.outbox() == []

    asyncio.run(go())


def test_events_resume_from_a_position(store: Store, make_job: MakeJob, start_of: StartOf) -> None:
    async def go() -> None:
        await store.insert([start_of(make_job(n)) for n in range(1, 6)])
        assert store.last_seq == 5
        rows = await store.events(2, limit=2)
        assert [(row.seq, row.job_id) for row in rows] == [(3, 3), (4, 4)]

    asyncio.run(go())


def test_positions_go_on_after_everything_was_forgotten(tmp_path: Path, make_job: MakeJob, start_of: StartOf) -> None:
    store = Store.open(tmp_path / "span.db")

    async def go() -> None:
        await store.insert([replace(start_of(ended(make_job(1), 5.0)), outbox=())])
        assert await store.forget(6.0) == 1
        assert (await store.find(JobQuery()), await store.timeline(1)) == ([], [])

    asyncio.run(go())
    store.close()
    again = Store.open(tmp_path / "span.db")
    assert again.last_seq == 1
    asyncio.run(again.insert([start_of(make_job(2))]))
    assert [row.seq for row in asyncio.run(again.events(0))] == [2]
    again.close()


def test_forget_keeps_live_young_and_owing_jobs(store: Store, make_job: MakeJob, start_of: StartOf) -> None:
    async def go() -> None:
        done = [replace(start_of(ended(make_job(n), float(n))), outbox=()) for n in range(1, 500)]
        await store.insert([*done, start_of(ended(make_job(500), 1.0)), start_of(make_job(501))])
        assert await store.forget(450.0) == 449
        assert [stored.job.id for stored in await store.find(JobQuery())] == list(range(450, 502))

    asyncio.run(go())


@pytest.mark.parametrize(
    ("query", "ids"),
    [
        (JobQuery(), [1, 2, 3, 4]),
        (JobQuery(limit=2), [3, 4]),
        (JobQuery(since=150.0), [2, 3, 4]),
        (JobQuery(until=200.0), [1, 4]),
        (JobQuery(since=300.0, until=301.0), [2, 3, 4]),
        (JobQuery(since=310.0, until=400.0), [3, 4]),
        (JobQuery(since=300.0, users=("ada",)), [2, 4]),
        (JobQuery(names=("eval",)), [3]),
        (JobQuery(states=("FAILED", "PENDING")), [3, 4]),
        (JobQuery(over=False), [4]),
        (JobQuery(over=True, limit=1), [3]),
        (JobQuery(ids=(3, 1, 77)), [1, 3]),
        (JobQuery(ids=(1, 2), since=150.0), [2]),
        (JobQuery(clusters=("slurm",)), []),
    ],
)
def test_find(store: Store, make_job: MakeJob, query: JobQuery, ids: list[int]) -> None:
    jobs = [
        ended(make_job(1, at=0.0), 100.0),
        ended(make_job(2, at=200.0), 300.0),
        ended(make_job(3, at=300.0, user="bob", name="eval"), 400.0, State.FAILED),
        make_job(4, at=50.0),
    ]
    asyncio.run(store.insert([NewJob(job, "local") for job in jobs]))
    assert [stored.job.id for stored in asyncio.run(store.find(query))] == ids


def test_find_jobs_that_write_to_object_stores(store: Store, make_job: MakeJob) -> None:
    def mount(number: int, mode: MountMode) -> NewJob:
        job = ended(make_job(number, at=0.0), 100.0)
        task = replace(job.spec.tasks[0], storage=(StorageMount("/out", "s3://lab/run", mode, "s3"),))
        return NewJob(replace(job, spec=replace(job.spec, tasks=(task,))), "local")

    jobs = [NewJob(ended(make_job(1), 100.0), "local"), mount(2, MountMode.COPY), mount(3, MountMode.MOUNT_CACHED)]
    asyncio.run(store.insert(jobs))
    for query in (JobQuery(writes=True), JobQuery(writes=True, over=True, clusters=("local",))):
        assert [stored.job.id for stored in asyncio.run(store.find(query))] == [3]


def test_single_values(store: Store) -> None:
    async def go() -> None:
        assert await store.meta("epoch") is None
        await store.set_meta("epoch", "mine")  # must not touch the fencing number
        await store.set_meta("epoch", "mine too")
        assert await store.meta("epoch") == "mine too"

    asyncio.run(go())


def test_a_receipt_is_written_once_with_its_job_and_goes_by_age(
    tmp_path: Path, make_job: MakeJob, start_of: StartOf
) -> None:
    receipt = Receipt("a1", "ada", 1000.0, job_id=1)

    async def write(store: Store) -> None:
        await store.insert([start_of(make_job(1))], receipt=receipt)
        with pytest.raises(Conflict):
            await store.insert([start_of(make_job(2))], receipt=receipt._replace(job_id=2))
        assert [found.job.id for found in await store.find(JobQuery())] == [1]

    async def read(store: Store) -> None:
        assert await store.find_receipt("a1", "ada") == receipt
        assert await store.find_receipt("a1", "bob") is None
        await store.forget(1001.0)
        assert await store.find_receipt("a1", "ada") is None

    for scene in (write, read):
        store = Store.open(tmp_path / "span.db")
        asyncio.run(scene(store))
        store.close()


def test_a_job_that_is_withdrawn_leaves_nothing_but_its_number(
    tmp_path: Path, make_job: MakeJob, start_of: StartOf
) -> None:
    store = Store.open(tmp_path / "span.db")

    async def go() -> None:
        live, over = make_job(1), make_job(2)
        await store.insert([start_of(live)], receipt=Receipt("a1", "ada", 1000.0, job_id=1))
        await store.insert([start_of(over)], receipt=Receipt("a2", "ada", 1000.0, job_id=2))
        assert not await store.withdraw(2)
        assert await store.apply([Change(ended(over, 2000.0, State.FAILED), over.version)]) == [True]
        # A call is owed still.
        assert not await store.withdraw(2)
        await store.settle([row.token for row in await store.outbox() if row.job_id == 2])
        seq = store.last_seq
        assert await store.withdraw(2)
        assert [found.job.id for found in await store.find(JobQuery())] == [1]
        assert await store.timeline(2) == [] and await store.find_receipt("a2", "ada") is None
        assert await store.find_receipt("a1", "ada") is not None
        assert (store.last_seq, await store.next_ids(1)) == (seq, 3)

    asyncio.run(go())
    store.close()


def test_closed_store_refuses(tmp_path: Path, make_job: MakeJob, start_of: StartOf) -> None:
    store = Store.open(tmp_path / "span.db")
    store.close()
    store.close()
    with pytest.raises(StoreFailed, match="closed"):
        asyncio.run(store.insert([start_of(make_job(1))]))


def test_closing_writes_what_was_asked_before(tmp_path: Path, make_job: MakeJob, start_of: StartOf) -> None:
    store = Store.open(tmp_path / "span.db")

    async def go() -> None:
        wishes = [asyncio.ensure_future(store.insert([start_of(make_job(n))])) for n in range(1, 30)]
        await asyncio.sleep(0)
        store.close()
        await asyncio.gather(*wishes)

    asyncio.run(go())
    again = Store.open(tmp_path / "span.db")
    assert len(asyncio.run(again.load_live())) == 29
    again.close()


def test_memory_store_needs_no_file(make_job: MakeJob, start_of: StartOf) -> None:
    store = Store.open(":memory:")
    asyncio.run(store.insert([start_of(make_job(1))]))
    assert len(asyncio.run(store.load_live())) == 1
    store.close()


def test_an_account_stands_with_the_end_alone_and_jobs_are_listed_in_order(
    store: Store, make_job: MakeJob, start_of: StartOf
) -> None:
    jobs = [make_job(1), make_job(2), make_job(3), make_job(4)]
    jobs[3] = replace(jobs[3], element=Element(2, 0))
    asyncio.run(store.insert([start_of(job) for job in jobs]))
    asyncio.run(store.apply([Change(ended(job, 9.0), 0, handle="0:h", account=b"\x00row") for job in jobs[:2]]))
    assert asyncio.run(store.find_ids(JobQuery())) == [1, 4, 2, 3]
    assert asyncio.run(store.find_ids(JobQuery(limit=2))) == [4, 3]
    assert asyncio.run(store.history_rows([1, 2, 4])) == [
        HistoryRows(1, None, "local", "0:h", b"\x00row"),
        HistoryRows(4, 2, "local", "", None),
        HistoryRows(2, None, "local", "0:h", b"\x00row"),
    ]
    again = replace(ended(jobs[0], 9.0), state=State.PENDING, version=2)
    asyncio.run(store.apply([Change(again, 1)]))
    asyncio.run(store.keep_history_rows([(1, 1, b"old"), (3, 0, b"new")]))
    assert [account.rows for account in asyncio.run(store.history_rows([1, 3]))] == [None, b"new"]

"""What a version leaves is opened by this one: its database, handles, cursors, plans and journals. No daemon runs."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.upgrade.corpus import BOOT_ID, CORPUS, DATABASE, restore

from overspan.adapters.contract import Decider
from overspan.adapters.kubernetes.launches import launches as kubernetes_launches
from overspan.adapters.kubernetes.observation import projection as kubernetes_facts
from overspan.adapters.kubernetes.observation.launch_summaries import summarize_launch
from overspan.adapters.local.files import journals, launch_files
from overspan.adapters.slurm import handles as slurm_handles
from overspan.adapters.slurm.groups import handles as slurm_groups
from overspan.adapters.slurm.observation.journals import JournalChunk, read_orders
from overspan.bridge.controller.core.registry import split_handle
from overspan.bridge.lifecycle.reduction import reduce
from overspan.bridge.model.documents import decode
from overspan.bridge.model.events import Event
from overspan.bridge.model.job import Job, new_job
from overspan.bridge.model.states import State
from overspan.bridge.runtime.core import node_records
from overspan.bridge.store.migrations import REVISIONS
from overspan.bridge.store.records import JobQuery, OutboxRow, StoredJob, TimelineRow
from overspan.bridge.store.schedule_records import StoredSchedule
from overspan.bridge.store.store import Store

SAID: Mapping[str, Any] = json.loads((CORPUS / "said.json").read_text())
JOBS: Mapping[str, int] = SAID["jobs"]


class Opened:
    """All that today's store reads of the corpus."""

    def __init__(self, root: Path) -> None:
        self.root = root
        restore(root, time.time())
        asyncio.run(self._read())

    async def _read(self) -> None:
        store = Store.open(self.root / DATABASE)
        try:
            self.jobs = {stored.job.id: stored for stored in await store.find(JobQuery())}
            self.live = {stored.job.id for stored in await store.load_live()}
            self.outbox: list[OutboxRow] = await store.outbox()
            self.timeline: list[TimelineRow] = await store.events(0)
            self.schedules: list[StoredSchedule] = await store.schedules.load()
            self.next_id = await store.next_ids(1)
            self.damages = store.damages
        finally:
            store.close()

    def job(self, name: str) -> StoredJob:
        """A job by the name that the corpus has for it."""
        return self.jobs[JOBS[name]]

    def on(self, cluster: str) -> list[StoredJob]:
        """The jobs that a cluster has, or had, with the handle as its adapter wrote it."""
        found = [stored for stored in self.jobs.values() if stored.cluster == cluster and stored.handle]
        return [replace(stored, handle=split_handle(stored.handle)[1]) for stored in found]


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Opened:
    """The corpus as the store reads it."""
    return Opened(tmp_path_factory.mktemp("corpus"))


def list_tables(path: Path) -> set[tuple[str, str]]:
    """Tables with their columns, and indexes."""
    connection = sqlite3.connect(path)
    names = connection.execute("select type, name from sqlite_master where name != 'alembic_version'").fetchall()
    columns = {
        (name, row[1])
        for kind, name in names
        if kind == "table"
        for row in connection.execute(f"pragma table_info({name})")
    }
    connection.close()
    return columns | set(names)


def test_migrations_bring_the_store_forward(opened: Opened, tmp_path: Path) -> None:
    Store.open(tmp_path / "fresh.db").close()
    assert list_tables(opened.root / DATABASE) == list_tables(tmp_path / "fresh.db")
    connection = sqlite3.connect(opened.root / DATABASE)
    ((revision,),) = connection.execute("select version_num from alembic_version").fetchall()
    connection.close()
    assert revision == REVISIONS[-1]


def test_nothing_is_set_aside_as_damaged(opened: Opened) -> None:
    recorded = (CORPUS / "overspan.sql").read_text()
    assert opened.damages == []
    assert len(opened.jobs) == recorded.count('INSERT INTO "job" VALUES') > len(JOBS)
    assert len(opened.outbox) == recorded.count('INSERT INTO "outbox" VALUES') > 0
    assert len(opened.timeline) == recorded.count('INSERT INTO "timeline" VALUES')
    assert [schedule.facts.name for schedule in opened.schedules] == ["nightly"]
    assert opened.next_id > max(job for job in opened.jobs)


def test_each_job_has_the_state_that_the_old_version_told(opened: Opened) -> None:
    told = {line.split("|")[0]: line.split("|")[3] for line in SAID["accounts"]}
    found = {name: state.value for stored in opened.jobs.values() for name, state in list_states(stored.job)}
    assert {name: found.get(name) for name in told} == told
    assert opened.live == {job for job, stored in opened.jobs.items() if not stored.job.over}


def list_states(job: Job) -> list[tuple[str, State]]:
    """The rows that accounts have of a job: N, N_i or one for each task."""
    if job.element is not None:
        return [(f"{job.element.array}_{job.element.index}", job.state)]
    if len(job.tasks) > 1:
        return [(f"{job.id}+{place}", task.state) for place, task in enumerate(job.tasks)]
    return [(str(job.id), job.state)]


# --- handles and cursors ---------------------------------------------------------------------------------------------


def test_handles_and_cursors_of_slurm_are_read(opened: Opened) -> None:
    forms = set()
    raced = [(bid.handle, bid.cursor) for bid in opened.job("race").job.bids if bid.cluster == "slurm"]
    for text, place in [*((stored.handle, stored.cursor) for stored in opened.on("slurm")), *raced]:
        handle = slurm_handles.parse_any(text)
        if isinstance(handle, slurm_handles.Handle):
            assert str(handle) == text and str(slurm_handles.parse_cursor(place)) == place
            forms.add("element" if handle.array else "single")
            continue
        cursor = slurm_groups.parse_group_cursor(handle, place)
        assert handle.folder.endswith(f"-{handle.job}") and all(part.native for part in handle.parts)
        assert [part.task for part in cursor.parts] == [part.task for part in handle.parts]
        assert cursor.granted is any(part.offset for part in cursor.parts)
        assert slurm_handles.parse_any(str(handle)) == handle
        assert slurm_groups.parse_group_cursor(handle, str(cursor)) == cursor
        forms.add(handle.decider.value)
    assert forms == {"daemon", "supervisor", "element", "single"}


def test_handles_and_cursors_of_kubernetes_are_those_that_this_version_writes(opened: Opened) -> None:
    launched = opened.on("pods")
    raced = [(opened.job("race").job, bid.handle, bid.cursor) for bid in opened.job("race").job.bids]
    told = [(stored.job, stored.handle, stored.cursor) for stored in launched]
    for job, text, cursor in [*told, *(bid for bid in raced if "/" in bid[1] and "|" not in bid[1])]:
        handle = kubernetes_launches.parse_handle(text)
        assert str(handle) == text
        shape = summarize_launch(handle.token, new_job(job.id, job.spec, 0.0))
        assert kubernetes_facts.format_cursor(kubernetes_facts.parse_cursor(cursor, shape), shape) == cursor
    assert len([cursor for _, _, cursor in told if cursor]) >= 5


def test_cursors_of_this_machine_stand_behind_all_that_was_told(opened: Opened) -> None:
    root = str(opened.root / "state/clusters/local")
    for stored in opened.on("local"):
        place = launch_files.parse_handle(root, stored.handle)
        assert journals.read_news(place, stored.cursor) == journals.News((), stored.cursor), stored.job.id
        again = journals.read_news(place, "")
        assert (again.events and again.cursor == stored.cursor) or not stored.cursor, stored.job.id
    assert len(opened.on("local")) > 15


# --- plans and journals ----------------------------------------------------------------------------------------------


def replay(plan: Path, events: Iterator[Event] | list[Event]) -> Job:
    """The job of a plan, with everything that a journal has."""
    job = decode(Job, json.loads(plan.read_text())["job"])
    for event in events:
        job = reduce(job, event)
    return job


def outline(job: Job) -> Any:
    """What a run has come to: the job's state and exit code, and the attempts of each task."""
    tasks = [
        (task.name, task.state, [(one.number, one.state, one.exit_code, one.signal) for one in task.attempts])
        for task in job.tasks
    ]
    return job.state, job.exit_code, job.launch, tasks


def test_plans_and_journals_of_this_machine_are_replayed_to_the_same_states(opened: Opened) -> None:
    root = opened.root / "state/clusters/local"
    seen = set()
    for stored in opened.on("local"):
        place = launch_files.parse_handle(str(root), stored.handle)
        lines = [*journals.read_lines(place.queue), *journals.read_lines(place.journal)]
        assert all("event" not in line or list(journals.read_events([line])) for line in lines), stored.job.id
        job = replay(Path(place.plan), journals.read_events(lines))
        assert outline(job) == outline(stored.job), stored.job.id
        seen.add(job.state)
    assert {State.COMPLETED, State.FAILED, State.CANCELLED, State.TIMEOUT, State.RUNNING, State.PENDING} <= seen


def test_plans_and_journals_of_groups_on_slurm_are_replayed_to_the_same_states(opened: Opened) -> None:
    seen = 0
    for stored in opened.on("slurm"):
        if slurm_groups.find_decider(stored.handle) is Decider.DAEMON or not slurm_groups.is_group_handle(
            stored.handle
        ):
            continue
        handle = slurm_groups.parse_group(stored.handle)
        journal = Path(handle.list_jobs()[0].journal)
        job = replay(Path(handle.folder, f"plan.{handle.launch}.json"), read_journal(journal))
        assert outline(job) == outline(stored.job), stored.job.id
        seen += 1
    assert seen == 3


def test_what_the_supervisors_of_a_set_wrote_is_read(opened: Opened) -> None:
    handle = slurm_groups.parse_group(split_handle(opened.job("slurm-set").handle)[1])
    for part in handle.parts:
        folder = Path(handle.part_folder(part), "0")
        plan = decode(Job, json.loads((folder / "plan.0.json").read_text())["job"])
        orders = (folder / "orders.0.jsonl").read_bytes()
        found = [type(event).__name__ for _, event in read_orders(JournalChunk(len(orders), orders))]
        told = [type(event).__name__ for event in read_journal(folder / "journal.0.jsonl")]
        assert plan.id == handle.job and found == ["Launch"]
        assert told == ["Granted", "Launch", *["NodeStarted"] * part.nodes]


def read_journal(path: Path) -> list[Event]:
    """The events of a journal, each of which is known."""
    lines = journals.read_lines(str(path))
    events = list(journals.read_events(lines))
    assert len(events) == sum("event" in line for line in lines)
    return events


def test_records_of_node_runs_are_read(opened: Opened) -> None:
    seen = 0
    for stored in opened.on("local"):
        folder = opened.root / f"state/clusters/local/runs/{stored.job.id}/nodes"
        for claim in folder.glob("*.claim"):
            record = node_records.read_record(str(folder), claim.stem)
            assert record is not None and record.boot_id == BOOT_ID, claim
            assert record.ended == (folder / f"{claim.stem}.end").exists(), claim
            seen += 1
    assert seen > 20


# --- what is owed ----------------------------------------------------------------------------------------------------


def test_calls_that_are_owed_are_read_with_what_they_carry(opened: Opened) -> None:
    (call,) = opened.outbox
    assert (call.job_id, call.cluster, call.kind, call.payload) == (JOBS["away"], "away", "submit", {"launch": 0})

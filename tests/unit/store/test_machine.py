"""Any mixture of inserts, changes with right and wrong versions and restarts gives what a dictionary would."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from overspan.bridge.lifecycle.timeline import Transition
from overspan.bridge.model.job import Job, new_job
from overspan.bridge.model.spec import JobSpec, TaskSpec
from overspan.bridge.model.states import State
from overspan.bridge.store.records import Change, JobQuery, NewJob
from overspan.bridge.store.store import Store

MOVED = Transition(1.0, "", "PENDING", "RUNNING", "None", "", "")


class StoreMachine(RuleBasedStateMachine):
    """The store beside a dictionary of jobs and a count of transitions."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.store = Store.open(self.folder / "span.db")
        self.jobs: dict[int, Job] = {}
        self.moves = 0
        self.drawn: set[int] = set()

    @initialize()
    def first(self) -> None:
        self.submit(2)

    @rule(tasks=st.integers(1, 3))
    def submit(self, tasks: int) -> None:
        first = asyncio.run(self.store.next_ids(tasks))
        parts = tuple(TaskSpec(name=f"t{k}") for k in range(tasks))
        job = new_job(first, JobSpec("job", parts), 1.0)
        asyncio.run(self.store.insert([NewJob(job, "local", timeline=(MOVED,))]))
        raw = set(range(first, first + tasks))
        assert not raw & self.drawn
        self.drawn |= raw
        self.jobs[first] = job
        self.moves += 1

    @rule(data=st.data())
    def change(self, data: st.DataObject) -> None:
        """Several callers at once, each believing in some version."""
        picks = st.lists(st.tuples(st.sampled_from(sorted(self.jobs)), st.integers(-1, 1)), min_size=1, max_size=6)
        calls = data.draw(st.lists(picks, min_size=1, max_size=3))
        changes, expected = [], []
        for call in calls:
            made, right = [], []
            for job_id, error in call:
                job = self.jobs[job_id]
                seen = job.version + error
                state = data.draw(st.sampled_from([State.PENDING, State.RUNNING, State.FAILED]))
                new = replace(job, version=seen + 1, state=state, ended_at=2.0 if state.terminal else None)
                made.append(Change(new, seen, timeline=(MOVED,)))
                right.append(error == 0)
                if error == 0:
                    self.jobs[job_id] = new
                    self.moves += 1
            changes.append(made)
            expected.append(right)

        async def apply() -> list[list[bool]]:
            return list(await asyncio.gather(*(self.store.apply(made) for made in changes)))

        assert asyncio.run(apply()) == expected

    @rule()
    def restart(self) -> None:
        self.store.close()
        self.store = Store.open(self.folder / "span.db")

    @invariant()
    def same(self) -> None:
        found = asyncio.run(self.store.find(JobQuery()))
        assert {stored.job.id: stored.job for stored in found} == self.jobs
        live = [stored.job.id for stored in asyncio.run(self.store.load_live())]
        assert live == sorted(job.id for job in self.jobs.values() if not job.over)
        assert self.store.last_seq == self.moves

    def teardown(self) -> None:
        self.store.close()
        shutil.rmtree(self.folder)


TestStoreMachine = StoreMachine.TestCase
TestStoreMachine.settings = settings(max_examples=15, stateful_step_count=12, deadline=None)

"""Run by the fault tests in a process of its own: `caller.py VERB PATH ...`."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from overspan.bridge.lifecycle.timeline import Transition
from overspan.bridge.model.errors import Conflict, OverspanError
from overspan.bridge.model.job import new_job
from overspan.bridge.model.schedule import Schedule
from overspan.bridge.model.spec import JobSpec, TaskSpec
from overspan.bridge.store.lease import LeaseHolder, identify, release_lease, take_lease
from overspan.bridge.store.records import JobQuery, NewJob, OutboxRow
from overspan.bridge.store.schedule_records import ScheduleFacts, StoredSchedule
from overspan.bridge.store.store import Store


async def submit(store: Store, size: int = 100) -> int:
    """Insert one job of two tasks, with about `size` bytes of script."""
    job_id = await store.next_ids(2)
    spec = JobSpec("job", (TaskSpec("a", run="x" * size), TaskSpec("b")))
    row = OutboxRow(f"{job_id}.0", job_id, "local", "submit", {"launch": 0}, 1.0)
    moved = Transition(1.0, "", "", "PENDING", "None", "", "")
    await store.insert([NewJob(new_job(job_id, spec, 1.0), "local", outbox=(row,), timeline=(moved,))])
    return job_id


async def insert(path: str) -> None:
    """Submit from eight callers for ever; print each id once it is acknowledged."""
    store = Store.open(path)

    async def caller() -> None:
        while True:
            job_id = await submit(store)
            os.write(1, f"{job_id}\n".encode())

    await asyncio.gather(*(caller() for _ in range(8)))


async def run_schedule(path: str) -> None:
    """Make a schedule's runs for ever, each due 1 s after the one before; print each once it is acknowledged."""
    store = Store.open(path)
    rows = await store.schedules.load()
    if not rows:
        facts = ScheduleFacts("job", "local", Schedule("* * * * *", "UTC"), 0.0, 0.0)
        await store.schedules.add(StoredSchedule(0, 1, "ada", facts))
        rows = await store.schedules.load()
    row = rows[0]
    while True:
        due = row.facts.last_due + 1
        row = replace(row, version=row.version + 1, facts=replace(row.facts, last_due=due))
        job_id = await store.next_ids(1)
        spec = JobSpec("job", (TaskSpec("a", run="true"),), cron=replace(row.facts.schedule, id=row.id, due=due))
        await store.insert([NewJob(new_job(job_id, spec, due), "local")], row)
        os.write(1, f"{int(due)}\n".encode())


async def fail_and_recover(store: Store, mend: Callable[[], None]) -> None:
    """Submit until it fails, undo the cause, submit again, and print what was seen."""
    answer: dict[str, str] = {}
    acknowledged = 0
    try:
        for _ in range(2000):
            await submit(store, 5000)
            acknowledged += 1
    except OverspanError as error:
        answer.update(kind=type(error).__name__, message=str(error), trouble=type(store.trouble).__name__)
    stored = await store.find(JobQuery())
    answer.update(acknowledged=str(acknowledged), stored=str(len(stored)), owed=str(len(await store.outbox())))
    mend()
    for _ in range(20):
        await submit(store)
    answer.update(trouble_after=str(store.trouble), acknowledged_after=str(acknowledged + 20))
    answer["after"] = str(len(await store.find(JobQuery())))
    store.close()
    print(json.dumps(answer))


def fill(folder: str) -> None:
    """Leave about 600 KiB on the file system, then use that up."""
    ballast = Path(folder, "ballast")
    free = os.statvfs(folder).f_bavail * os.statvfs(folder).f_frsize
    ballast.write_bytes(b"\0" * (free - 600 * 1024))
    asyncio.run(fail_and_recover(Store.open(Path(folder, "span.db")), ballast.unlink))


def limit(folder: str) -> None:
    """Let no file grow beyond 400 KiB."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    store = Store.open(Path(folder, "span.db"))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (400 * 1024, hard))
    asyncio.run(fail_and_recover(store, lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))))


def open_only(path: str) -> None:
    """Open and close; print the failure."""
    answer = {"kind": "none", "message": ""}
    try:
        Store.open(path).close()
    except OverspanError as error:
        answer = {"kind": type(error).__name__, "message": str(error)}
    print(json.dumps(answer))


def hold(path: str) -> None:
    """Keep the store open until a line comes."""
    store = Store.open(path)
    print("open", flush=True)
    sys.stdin.readline()
    store.close()


def meet(folder: Path, turn: str, name: str) -> None:
    """Return when both racers are here: spinning, so that they start together."""
    (folder / f"{turn}-{name}").touch()
    deadline = time.monotonic() + 240
    while not all((folder / f"{turn}-{other}").exists() for other in ("one", "two")):
        if time.monotonic() > deadline:
            raise SystemExit("the other racer did not come")


def race(folder: str, rounds: str, name: str) -> None:
    """Take the lease together with another process, round after round; every third lease is left by a dead holder."""
    path, where = Path(folder, "lease"), Path(folder, "turns")
    where.mkdir(exist_ok=True)
    me = identify(name)
    for turn in range(int(rounds)):
        meet(where, f"start{turn}", name)
        try:
            lease = take_lease(path, me, 1.0)
        except Conflict:
            print("refused")
            meet(where, f"end{turn}", name)
            continue
        try:
            (where / f"holder{turn}").touch(exist_ok=False)
            print("held")
        except FileExistsError:
            print("both")
        meet(where, f"end{turn}", name)
        release_lease(path, lease, 1.0)
        if turn % 3 == 0:
            dead = LeaseHolder(me.host, me.pid, me.start_time + 1, me.boot_id, me.pid_space, "dead")
            take_lease(path, dead, 1.0)


VERBS: dict[str, Callable[..., None]] = {
    "insert": lambda path: asyncio.run(insert(path)),
    "schedule": lambda path: asyncio.run(run_schedule(path)),
    "fill": fill,
    "limit": limit,
    "open": open_only,
    "hold": hold,
    "race": race,
}

if __name__ == "__main__":
    VERBS[sys.argv[1]](*sys.argv[2:])

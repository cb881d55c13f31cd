"""Real faults: kill -9 under load, a full disk, a file size limit, a read-only folder, a held lock, racing takers."""

from __future__ import annotations

import asyncio
import json
import random
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from overspan.bridge.model.errors import Conflict
from overspan.bridge.store.records import JobQuery
from overspan.bridge.store.store import Store

PROGRAM = Path(__file__).with_name("caller.py")


def start(*words: str | Path) -> subprocess.Popen[str]:
    """Run caller.py."""
    return subprocess.Popen([sys.executable, PROGRAM, *words], stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True)


def run(*words: str | Path, inside: tuple[str, ...] = ()) -> dict[str, str]:
    """Run caller.py to its end and read the JSON object it prints."""
    done = subprocess.run([*inside, sys.executable, PROGRAM, *words], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    answer: dict[str, str] = json.loads(done.stdout)
    return answer


def kill(child: subprocess.Popen[str], count: int) -> list[int]:
    """Read that many numbers, kill the program, and read the rest: what was printed was acknowledged as well."""
    assert child.stdout is not None and child.stdin is not None
    numbers = [int(child.stdout.readline()) for _ in range(count)]
    child.kill()
    # From the same stream, which may hold half of a line already; a last line may be cut off.
    rest = child.stdout.read()
    child.stdout.close()
    child.stdin.close()
    child.wait()
    return [*numbers, *map(int, rest[: rest.rfind("\n") + 1].split())]


def can_mount() -> bool:
    """Whether a mount namespace of our own may hold a tmpfs."""
    if shutil.which("unshare") is None:
        return False
    words = ["unshare", "--user", "--map-root-user", "--mount", "mount", "-t", "tmpfs", "none", "/mnt"]
    return subprocess.run(words, capture_output=True).returncode == 0


def mounted(folder: Path, then: str = "") -> tuple[str, ...]:
    """The words that run a command with a tmpfs of 2 MiB on `folder`."""
    script = f'mount -t tmpfs -o size=2m,mode=700 none "{folder}" && {then} exec "$@"'
    return ("unshare", "--user", "--map-root-user", "--mount", "sh", "-c", script, "sh")


@pytest.mark.parametrize("seed", range(6))
def test_acknowledged_jobs_survive_kill_9(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    answered: list[int] = []
    for _ in range(3):
        answered += kill(start("insert", tmp_path / "span.db"), chance.randint(1, 150))
    store = Store.open(tmp_path / "span.db")
    found = [stored.job.id for stored in asyncio.run(store.find(JobQuery()))]
    owed = [row.job_id for row in asyncio.run(store.outbox())]
    events = [row.job_id for row in asyncio.run(store.events(0, limit=10**6))]
    free = asyncio.run(store.next_ids(1))
    store.close()
    assert max(Counter(answered).values()) == 1
    assert set(answered) <= set(found)
    assert sorted(owed) == sorted(events) == found
    assert free > max(found) + 1  # each has two tasks


def test_runs_of_a_schedule_survive_kill_9_once_each(tmp_path: Path) -> None:
    chance = random.Random(7)
    answered: list[int] = []
    for _ in range(4):
        answered += kill(start("schedule", tmp_path / "span.db"), chance.randint(1, 60))
    store = Store.open(tmp_path / "span.db")
    jobs = asyncio.run(store.find(JobQuery()))
    (row,) = asyncio.run(store.schedules.load())
    store.close()
    made = [stored.job.spec.cron.due for stored in jobs if stored.job.spec.cron is not None]
    assert made == [float(due) for due in range(1, len(made) + 1)]
    assert row.facts.last_due == made[-1]
    assert set(answered) <= {int(due or 0) for due in made}


def test_full_disk_is_refused_whole_and_recovered_from(tmp_path: Path) -> None:
    if not can_mount():
        pytest.skip("no mount namespace here; the file size limit below covers the same path")
    check_fault(run("fill", tmp_path, inside=mounted(tmp_path)), "the disk is full")


def test_file_size_limit_is_refused_whole_and_recovered_from(tmp_path: Path) -> None:
    check_fault(run("limit", tmp_path), "could not be written")


def check_fault(answer: dict[str, str], words: str) -> None:
    """Refused with a sentence, nothing half written, and the store works again afterwards."""
    assert answer["kind"] == "StoreFailed"
    assert words in answer["message"] and "df" in answer["message"]
    assert answer["trouble"] == "StoreFailed" and answer["trouble_after"] == "None"
    assert answer["stored"] == answer["acknowledged"] == answer["owed"]
    assert answer["after"] == answer["acknowledged_after"]


def test_full_disk_at_the_first_start(tmp_path: Path) -> None:
    if not can_mount():
        pytest.skip("no mount namespace here")
    answer = run("open", tmp_path / "span.db", inside=mounted(tmp_path, f"cat /dev/zero >'{tmp_path}/ballast'; true;"))
    assert answer["kind"] == "StoreFailed"


def test_read_only_folder_is_refused(tmp_path: Path) -> None:
    if not can_mount():
        pytest.skip("no mount namespace here")
    remount = f'mount -o remount,ro "{tmp_path}" &&'
    answer = run("open", tmp_path / "span.db", inside=mounted(tmp_path, remount))
    assert answer["kind"] == "StoreFailed"
    assert "Read-only file system" in answer["message"] and "SPAN_STATE_DIR" in answer["message"]


def test_store_that_became_read_only_is_refused(tmp_path: Path) -> None:
    if not can_mount():
        pytest.skip("no mount namespace here")
    words = " ".join(f"'{word}'" for word in (sys.executable, PROGRAM, "open", tmp_path / "span.db"))
    script = f"{words} >&2 && mount -o remount,ro '{tmp_path}' &&"
    answer = run("open", tmp_path / "span.db", inside=mounted(tmp_path, script))
    assert answer["kind"] == "StoreFailed"
    assert "cannot be opened for writing" in answer["message"]


def test_store_held_by_another_process_is_refused(tmp_path: Path) -> None:
    child = start("hold", tmp_path / "span.db")
    assert child.stdout is not None
    assert child.stdout.readline() == "open\n"
    with pytest.raises(Conflict, match="in use by another process"):
        Store.open(tmp_path / "span.db", wait=0.1)
    child.communicate("\n")
    Store.open(tmp_path / "span.db").close()


def test_two_racing_takers_never_both_hold_the_lease(tmp_path: Path) -> None:
    rounds = 50
    children = [start("race", tmp_path, str(rounds), name) for name in ("one", "two")]
    results = [child.communicate(timeout=300)[0].split() for child in children]
    assert [child.returncode for child in children] == [0, 0]
    # Each round one holds it; both would have failed to make the round's own marker.
    assert all(len(result) == rounds for result in results)
    assert all("both" not in result for result in results)
    held = [pair.count("held") for pair in zip(*results, strict=True)]
    assert held == [1] * rounds

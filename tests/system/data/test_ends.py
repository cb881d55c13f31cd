"""What a trainer relies on at the end of its data, while the store, the mover, the supervisor or the time fails it."""

from __future__ import annotations

import os
import random
import signal
import time
from pathlib import Path

import pytest
from tests.stores import TestStore
from tests.system.conftest import Span
from tests.system.data.storage_jobs import CACHED, left_on_node, movers
from tests.waiting import WaitUntil

STEPS = 6
TRAINER = (
    f"for step in $(seq {STEPS}); do mkdir -p out/$step;"
    " for part in a b c; do head -c 3000000 /dev/urandom > out/$step/$part; done;"
    " sleep 0.3; touch out/$step/.overspan-atomic; done"
)
"""Checkpoints of three files and a marker each."""
WAITING = "run: while [ ! -e go ]; do sleep 0.1; done; echo 1234567 > out/a\n"


def supervisors(span: Span) -> list[int]:
    """The supervisors of this daemon's jobs."""
    found = []
    for comm in Path("/proc").glob("[0-9]*/comm"):
        try:
            if comm.read_text().strip() != "span-supervisor":
                continue
            links = [os.readlink(link) for link in (comm.parent / "fd").iterdir()]
        except OSError:
            continue
        if any(link.startswith(str(span.state)) for link in links):
            found.append(int(comm.parent.name))
    return found


def kill_all(pids: list[int]) -> None:
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue


@pytest.mark.parametrize("victims", ["mover", "supervisor", "both"])
def test_kills_at_any_point_of_a_publication(lab: Span, store: TestStore, victims: str) -> None:
    """Between two kills all goes on; whatever was cut off, no reader sees a marker without its files."""
    job = lab.submit(f"{CACHED}run: {TRAINER}\n")
    choice, kills = random.Random(victims), 0
    kill_at = time.monotonic() + 1
    while lab.job(job)["state"] not in ("COMPLETED", "FAILED"):
        keys = {stored.key for stored in store.open("lab").list_objects("")}
        for step in range(1, STEPS + 1):
            if f"run/{step}/.overspan-atomic" in keys:
                assert all(f"run/{step}/{part}" in keys for part in "abc"), keys
        if time.monotonic() >= kill_at and kills < 8:
            found = [movers(lab)] if victims != "supervisor" else []
            found += [supervisors(lab)] if victims != "mover" else []
            # With both, a moment at which one of them is just being started again is no kill of both.
            if all(found):
                kill_all([pid for pids in found for pid in pids])
                kills += 1
                kill_at = time.monotonic() + choice.uniform(0.2, 2.5)
    assert kills >= 1, f"nothing of {victims} was found to kill"
    assert lab.job(job)["state"] == "COMPLETED", lab.look("show", str(job))
    whole = store.texts("lab")
    assert len(whole) == 4 * STEPS
    assert all(len(data) == (0 if key.endswith("atomic") else 3_000_000) for key, data in whole.items())


def test_with_warn_the_state_is_what_it_would_be_and_the_data_is_told_and_sent_later(
    lab: Span, store: TestStore
) -> None:
    job = lab.submit(f"{CACHED}flush: {{timeout: 5, on_failure: warn}}\n{WAITING}")
    lab.until(job, "RUNNING")
    store.proxy.cut()
    (lab.folder / "go").touch()
    found = lab.until(job, "COMPLETED", timeout=60)
    assert "8 bytes are not in the store" in found["tasks"][0]["attempts"][0]["detail"]
    assert "no more data is sent: 8 bytes are not in the store: flush.timeout" in lab.look("timeline", str(job))
    assert left_on_node(lab, job) == {"a": b"1234567\n"}
    assert f"{job}" in lab.look("data", "ls")
    store.proxy.mend()
    assert "1 file, 8 bytes sent" in lab.run("data", "rescue", str(job)).stderr
    assert store.texts("lab") == {"run/a": b"1234567\n"}
    assert left_on_node(lab, job) == {}


def test_a_requeue_while_data_is_on_its_way_waits_for_it(lab: Span, store: TestStore, wait_until: WaitUntil) -> None:
    run = "if [ -e out/a ]; then cp out/a out/b; else while [ ! -e go ]; do sleep 0.1; done; echo 1 > out/a; fi"
    job = lab.submit(f"{CACHED}run: {run}\n")
    lab.until(job, "RUNNING")
    store.proxy.cut()
    (lab.folder / "go").touch()
    lab.until(job, "COMPLETING")
    lab.run("requeue", str(job))
    time.sleep(1)
    assert lab.job(job)["state"] == "COMPLETING"
    store.proxy.mend()
    lab.until(job, "COMPLETED", timeout=60)
    assert store.texts("lab") == {"run/a": b"1\n", "run/b": b"1\n"}
    assert lab.job(job)["restarts"] == 1


def test_a_time_limit_ends_the_program_and_not_its_data(lab: Span, store: TestStore) -> None:
    job = lab.submit(f"{CACHED}time: 4s\nrun: echo 1 > out/a; while true; do echo 2 > out/b; sleep 0.2; done\n")
    lab.until(job, "RUNNING")
    store.proxy.cut()
    lab.until(job, "COMPLETING", timeout=60)
    time.sleep(6)
    assert lab.job(job)["state"] == "COMPLETING"
    store.proxy.mend()
    lab.until(job, "TIMEOUT", timeout=60)
    assert store.texts("lab") == {"run/a": b"1\n", "run/b": b"2\n"}

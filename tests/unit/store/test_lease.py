"""Who holds the lease, by pid on this host and by heartbeat elsewhere; the clock is the test's."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from overspan.bridge.model.errors import Conflict, StoreFailed
from overspan.bridge.store import lease as leases
from overspan.bridge.store.lease import (
    STALE,
    LeaseHolder,
    holds,
    identify,
    is_alive,
    read_lease,
    release_lease,
    renew_lease,
    take_lease,
)

HERE = LeaseHolder("login1", 10, 100, "boot-a", "pid:[1]", "/run/span.sock")
BESIDE = HERE._replace(pid=11, start_time=200)
THERE = HERE._replace(host="login2", boot_id="boot-b")


def nobody(_: LeaseHolder) -> bool:
    return False


def everybody(_: LeaseHolder) -> bool:
    return True


def test_lease_is_written_for_others_to_read(tmp_path: Path) -> None:
    lease = take_lease(tmp_path / "lease", HERE, 5.0)
    assert read_lease(tmp_path / "lease") == lease
    (file,) = tmp_path.iterdir()
    document = json.loads(file.read_text())
    assert (file.name, document["format"], document["socket"]) == ("lease.1", 1, "/run/span.sock")
    assert file.stat().st_mode & 0o777 == 0o600


def test_live_holder_on_this_host_keeps_it_whatever_its_heartbeat(tmp_path: Path) -> None:
    take_lease(tmp_path / "lease", HERE, 0.0)
    with pytest.raises(Conflict, match="pid 10 on login1") as caught:
        take_lease(tmp_path / "lease", BESIDE, 1e6, alive=everybody)
    assert "login1" in caught.value.remedy


def test_dead_holder_on_this_host_loses_it_at_once(tmp_path: Path) -> None:
    take_lease(tmp_path / "lease", HERE, 0.0)
    lease = take_lease(tmp_path / "lease", BESIDE, 1.0, alive=nobody)
    assert (lease.number, lease.holder) == (2, BESIDE)
    assert [file.name for file in tmp_path.iterdir()] == ["lease.2"]


def test_holder_on_another_host_keeps_it_while_its_heart_beats(tmp_path: Path) -> None:
    lease = take_lease(tmp_path / "lease", HERE, 0.0)
    renew_lease(tmp_path / "lease", lease, 30.0)
    with pytest.raises(Conflict):
        take_lease(tmp_path / "lease", THERE, 30.0 + STALE - 1, alive=nobody)
    assert take_lease(tmp_path / "lease", THERE, 30.0 + STALE, alive=everybody).holder == THERE


@pytest.mark.parametrize(
    ("other", "age", "held"),
    [
        (HERE._replace(boot_id="boot-z"), 0.0, False),  # the host was started anew
        (HERE._replace(pid_space="pid:[2]"), 1.0, True),  # a container on this host: its pids say nothing here
        (HERE._replace(pid_space="pid:[2]"), STALE, False),
        (THERE, -500.0, True),  # its clock is ahead
    ],
)
def test_holds(other: LeaseHolder, age: float, held: bool) -> None:
    lease = leases.Lease(other, 1, 0.0, 1000.0)
    assert holds(lease, BESIDE, 1000.0 + age, everybody) is held


def test_renewing_a_lost_lease_names_the_new_holder(tmp_path: Path) -> None:
    old = take_lease(tmp_path / "lease", HERE, 0.0)
    new = take_lease(tmp_path / "lease", THERE, 100.0)
    with pytest.raises(Conflict, match="login2"):
        renew_lease(tmp_path / "lease", old, 101.0)
    release_lease(tmp_path / "lease", old, 102.0)
    assert read_lease(tmp_path / "lease") == new


def test_renewing_a_lease_whose_file_was_removed_fails(tmp_path: Path) -> None:
    lease = take_lease(tmp_path / "lease", HERE, 0.0)
    (tmp_path / "lease.1").unlink()
    with pytest.raises(Conflict, match="gone"):
        renew_lease(tmp_path / "lease", lease, 1.0)


def test_released_lease_is_free_and_its_number_is_not_used_again(tmp_path: Path) -> None:
    lease = take_lease(tmp_path / "lease", HERE, 0.0)
    release_lease(tmp_path / "lease", lease, 1.0)
    assert not holds(read_lease(tmp_path / "lease"), BESIDE, 1.0, everybody)
    assert take_lease(tmp_path / "lease", THERE, 2.0).number == 2


def test_a_daemon_whose_folder_was_removed_does_not_release_the_next_ones_lease(tmp_path: Path) -> None:
    old = take_lease(tmp_path / "lease", HERE, 0.0)
    (tmp_path / "lease.1").unlink()
    new = take_lease(tmp_path / "lease", BESIDE, 1.0)
    assert new.number == old.number
    release_lease(tmp_path / "lease", old, 10.0)
    assert read_lease(tmp_path / "lease") == new
    assert renew_lease(tmp_path / "lease", new, 11.0).heartbeat == 11.0


def test_slow_taker_with_an_old_listing_never_holds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    take_lease(tmp_path / "lease", HERE, 0.0)
    old = read_lease(tmp_path / "lease")
    take_lease(tmp_path / "lease", THERE, 100.0)
    for _ in range(2):
        lease = take_lease(tmp_path / "lease", THERE, 1000.0)
        release_lease(tmp_path / "lease", lease, 1000.0)
    current = take_lease(tmp_path / "lease", THERE, 1000.0)
    # BESIDE read the lease when number 1 was in force, and goes on from there.
    answers = iter([old])
    monkeypatch.setattr(leases, "read_lease", lambda path: next(answers, current))
    with pytest.raises(Conflict, match="login2"):
        take_lease(tmp_path / "lease", BESIDE, 1001.0, alive=nobody)
    assert [file.name for file in tmp_path.iterdir()] == [f"lease.{current.number}"]


def test_unreadable_lease_is_not_taken_over(tmp_path: Path) -> None:
    (tmp_path / "lease.3").write_text("{")
    with pytest.raises(StoreFailed, match=r"lease\.3"):
        take_lease(tmp_path / "lease", HERE, 0.0)


def test_folder_that_is_a_file_is_a_clear_failure(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("")
    with pytest.raises(StoreFailed, match="cannot be written"):
        take_lease(tmp_path / "state" / "lease", HERE, 0.0)


def test_processes_are_told_apart_by_their_start() -> None:
    me = identify("/run/span.sock")
    assert me.pid == os.getpid() and is_alive(me)
    assert not is_alive(me._replace(start_time=me.start_time + 1))
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    other = identify("", child.pid)
    assert is_alive(other)
    child.kill()
    # Waiting without reaping: a zombie is dead.
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert not is_alive(other)
    child.communicate()

"""Slots: node runs on real processes, one after another in one slot, and what becomes of a slot that is killed."""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from tests.waiting import WaitUntil

from overspan.bridge.runtime.core import isolation, kernel, shim_control
from overspan.bridge.runtime.core.node_records import read_record
from overspan.bridge.runtime.core.shim import NodeLaunch
from overspan.bridge.runtime.core.shim_control import Shim
from overspan.bridge.runtime.core.shortages import is_shortage
from overspan.bridge.runtime.pool import slot
from overspan.bridge.runtime.pool import slots as slots_module
from overspan.bridge.runtime.pool.slots import Slots


@pytest.fixture
def slots() -> Iterator[Slots]:
    made = Slots()
    yield made
    made.close()


def launch(folder: Path, key: str, text: str) -> NodeLaunch:
    return NodeLaunch(
        str(folder), key, ("/bin/sh", "-c", text), {"PATH": os.environ["PATH"]}, str(folder),
        stdout=str(folder / f"{key}.out"), stderr=str(folder / f"{key}.err"),
    )  # fmt: skip


def has_ended(shim: Shim) -> bool:
    """Whether the slot has let go of the node."""
    assert shim.end is not None
    os.set_blocking(shim.end, False)
    try:
        return os.read(shim.end, 1) == b""
    except BlockingIOError:
        return False


def try_probe(slots: Slots) -> isolation.IsolationProbe | None:
    """Ask as the worker does, again with each look while that is a shortage."""
    try:
        return slots.probe()
    except OSError as error:
        assert is_shortage(error)
        return None


def test_a_slot_runs_one_node_after_another(slots: Slots, tmp_path: Path, wait_until: WaitUntil) -> None:
    pids = []
    for key, code in (("a.0.0.0", 0), ("b.0.0.0", 3)):
        shim = slots.spawn(launch(tmp_path, key, f"echo from {key}; pwd; exit {code}"))
        wait_until(partial(has_ended, shim))
        slots.take_back([shim])
        node = shim_control.release(shim)
        assert node.state == shim_control.ENDED and node.record is not None
        assert node.record.exit_code == code and node.record.pid > 0
        assert (tmp_path / f"{key}.out").read_text() == f"from {key}\n{tmp_path}\n"
        pids.append(shim.pid)
    assert pids[0] == pids[1]


def test_a_slot_that_is_in_namespaces_is_given_no_other_node(
    slots: Slots, tmp_path: Path, wait_until: WaitUntil
) -> None:
    probed = isolation.probe()
    if probed.method != isolation.NAMESPACE:
        pytest.skip(f"names by {probed.method} here: {probed.reason}")
    names = isolation.prepare_isolation(str(tmp_path), probed, [("127.81.0.1", ["a-0.g"])])
    for number in range(50):
        # At once, while the slot before is still on its way out.
        shim = slots.spawn(launch(tmp_path, f"a.{number}.0.0", "true")._replace(isolation=names))
        wait_until(partial(has_ended, shim))
        slots.take_back([shim])
        node = shim_control.release(shim)
        assert node.state == shim_control.ENDED and node.record is not None and node.record.exit_code == 0, number


def test_what_gives_names_is_found_out_by_the_source_when_it_can_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wait_until: WaitUntil
) -> None:
    short = tmp_path / "short"

    def probe() -> isolation.IsolationProbe:
        if short.exists():
            raise BlockingIOError(errno.EAGAIN, "no process left")
        return isolation.IsolationProbe(isolation.NSS_WRAPPER, "why", "/lib/x.so")

    # The source is a copy of this process.
    monkeypatch.setattr(slot, "probe", probe)
    short.touch()
    slots = Slots()
    try:
        wait_until(partial(_is_told, slots, "cannot be tried now"))
        short.unlink()
        assert wait_until(partial(try_probe, slots)) == probe()
        os.kill(slots._source_pid, signal.SIGKILL)
        short.touch()
        assert slots.probe().library == "/lib/x.so", "once for all groups"
    finally:
        slots.close()


def _is_told(slots: Slots, words: str) -> bool:
    try:
        slots.probe()
    except OSError as error:
        return is_shortage(error) and words in str(error)
    return False


def test_a_source_that_was_killed_is_replaced_for_a_probe(slots: Slots, wait_until: WaitUntil) -> None:
    os.kill(slots._source_pid, signal.SIGKILL)
    os.waitpid(slots._source_pid, 0)
    assert wait_until(partial(try_probe, slots)) == isolation.probe()


def test_a_probe_that_takes_long_is_a_shortage_meanwhile(slots: Slots, wait_until: WaitUntil) -> None:
    source = slots._source_pid
    os.kill(source, signal.SIGSTOP)
    for _ in range(2):
        assert try_probe(slots) is None
    os.kill(source, signal.SIGCONT)
    assert wait_until(partial(try_probe, slots)) == isolation.probe()
    assert slots._source_pid == source


def test_a_source_that_was_stopped_is_replaced_for_a_probe(
    slots: Slots, monkeypatch: pytest.MonkeyPatch, wait_until: WaitUntil
) -> None:
    monkeypatch.setattr(slots_module, "ANSWER_SECONDS", 0.1)
    source = slots._source_pid
    os.kill(source, signal.SIGSTOP)
    assert try_probe(slots) is None
    assert wait_until(partial(try_probe, slots)) == isolation.probe()
    assert slots._source_pid != source


def test_nodes_at_once_have_slots_of_their_own(slots: Slots, tmp_path: Path, wait_until: WaitUntil) -> None:
    shims = [slots.spawn(launch(tmp_path, f"t.{n}.0.0", "until [ -e go ]; do sleep 0.05; done")) for n in range(3)]
    assert len({shim.pid for shim in shims}) == 3
    (tmp_path / "go").touch()
    wait_until(lambda: all(map(has_ended, shims)))


def test_a_key_starts_once(slots: Slots, tmp_path: Path) -> None:
    slots.spawn(launch(tmp_path, "t.0.0.0", "true"))
    with pytest.raises(FileExistsError):
        slots.spawn(launch(tmp_path, "t.0.0.0", "true"))


def test_a_signal_reaches_the_whole_tree_and_none_reaches_the_next_node(
    slots: Slots, tmp_path: Path, wait_until: WaitUntil
) -> None:
    first = slots.spawn(launch(tmp_path, "t.0.0.0", "sleep 600 & touch up; wait"))
    wait_until((tmp_path / "up").exists)
    slots.retire(first)
    assert shim_control.send(first, signal.SIGTERM)
    wait_until(lambda: has_ended(first))
    shim_control.send(first, signal.SIGTERM)
    slots.take_back([first])
    record = read_record(str(tmp_path), "t.0.0.0")
    assert record is not None and record.signal == signal.SIGTERM
    second = slots.spawn(launch(tmp_path, "t.0.1.0", "sleep 0.2; exit 5"))
    wait_until(lambda: has_ended(second))
    record = read_record(str(tmp_path), "t.0.1.0")
    assert second.pid != first.pid and record is not None and record.exit_code == 5


def test_a_signal_that_comes_before_a_slot_has_begun_is_the_new_node_s(
    slots: Slots, tmp_path: Path, wait_until: WaitUntil
) -> None:
    first = slots.spawn(launch(tmp_path, "t.0.0.0", "true"))
    wait_until(lambda: has_ended(first))
    slots.take_back([first])
    os.kill(first.pid, signal.SIGSTOP)
    second = slots.spawn(launch(tmp_path, "t.0.1.0", "sleep 600"))
    assert second.pid == first.pid and shim_control.send(second, signal.SIGTERM)
    os.kill(first.pid, signal.SIGCONT)
    wait_until(lambda: has_ended(second))
    record = read_record(str(tmp_path), "t.0.1.0")
    assert record is not None and record.signal == signal.SIGTERM


def test_what_a_program_leaves_is_killed_before_the_slot_is_free(
    slots: Slots, tmp_path: Path, wait_until: WaitUntil
) -> None:
    text = "env -i setsid sh -c 'echo $$ > stray; exec sleep 600' & until [ -s stray ]; do sleep 0.02; done"
    shim = slots.spawn(launch(tmp_path, "t.0.0.0", text))
    wait_until(lambda: has_ended(shim))
    assert kernel.read_process(int((tmp_path / "stray").read_text())) is None
    record = read_record(str(tmp_path), "t.0.0.0")
    assert record is not None and record.exit_code == 0 and record.strays_killed >= 1


@pytest.mark.parametrize("program", ["missing", "/dev/null"])
def test_a_program_that_cannot_be_started_says_why(
    slots: Slots, tmp_path: Path, wait_until: WaitUntil, program: str
) -> None:
    shim = slots.spawn(launch(tmp_path, "t.0.0.0", "")._replace(argv=(program,)))
    wait_until(lambda: has_ended(shim))
    record = read_record(str(tmp_path), "t.0.0.0")
    assert record is not None and record.failed_at == "exec" and f"cannot execute {program}" in record.error
    assert f"cannot execute {program}" in (tmp_path / "t.0.0.0.err").read_text()
    slots.take_back([shim])
    after = slots.spawn(launch(tmp_path, "t.0.1.0", "exit 4"))
    wait_until(lambda: has_ended(after))
    record = read_record(str(tmp_path), "t.0.1.0")
    assert record is not None and record.exit_code == 4


def test_a_killed_slot_loses_its_node_and_another_takes_the_next(
    slots: Slots, tmp_path: Path, wait_until: WaitUntil
) -> None:
    shim = slots.spawn(launch(tmp_path, "t.0.0.0", "touch up; exec sleep 600"))
    wait_until((tmp_path / "up").exists)
    wait_until(lambda: (read_record(str(tmp_path), "t.0.0.0") or shim).pid not in (0, shim.pid))
    record = read_record(str(tmp_path), "t.0.0.0")
    assert record is not None
    os.kill(shim.pid, signal.SIGKILL)
    wait_until(lambda: has_ended(shim))
    slots.take_back([shim])
    node = shim_control.adopt(str(tmp_path), "t.0.0.0")
    assert node.state == shim_control.LOST
    wait_until(lambda: shim_control.settle_lost(str(tmp_path), "t.0.0.0", {}) is not None)
    process = kernel.read_process(record.pid)
    assert process is None or process.state in "ZX"
    after = slots.spawn(launch(tmp_path, "t.0.1.0", "exit 4"))
    wait_until(lambda: has_ended(after))
    ended = read_record(str(tmp_path), "t.0.1.0")
    assert after.pid != shim.pid and ended is not None and ended.exit_code == 4


def test_a_killed_source_is_replaced(slots: Slots, tmp_path: Path, wait_until: WaitUntil) -> None:
    os.kill(slots._source_pid, signal.SIGKILL)
    os.waitpid(slots._source_pid, 0)
    shim = slots.spawn(launch(tmp_path, "t.0.0.0", "exit 6"))
    wait_until(lambda: has_ended(shim))
    record = read_record(str(tmp_path), "t.0.0.0")
    assert record is not None and record.exit_code == 6

"""Nodes under real shims: how they start, how they end, what they leave behind, and what a full disk does to them."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from overspan.bridge.runtime.core import kernel, node_records, shim_control
from overspan.bridge.runtime.core.node_records import NodeRecord, read_record
from overspan.bridge.runtime.core.shim import NodeLaunch, spawn
from overspan.bridge.runtime.core.shim_control import adopt, send

if TYPE_CHECKING:
    from tests.system.runtime.conftest import Nodes
    from tests.waiting import WaitUntil

KEY = "trainer.0.0.0"


@pytest.mark.parametrize(
    ("script", "exit_code", "signum"),
    [
        ("exit 0", 0, None),
        ("exit 1", 1, None),
        ("exit 143", 143, None),
        ("kill -TERM $$", None, signal.SIGTERM),
        ("exit 139", 139, None),
        ("kill -SEGV $$", None, signal.SIGSEGV),
        ("kill -KILL $$", None, signal.SIGKILL),
    ],
)
def test_end_is_told_exactly(nodes: Nodes, script: str, exit_code: int | None, signum: int | None) -> None:
    record = nodes.run(KEY, script)
    assert (record.exit_code, record.signal, record.error) == (exit_code, signum, "")
    assert record.ended_at is not None and 0 < record.started_at <= record.ended_at


@pytest.mark.parametrize(
    "script",
    [
        "(setsid sleep 300 &)",
        "set -m; sleep 300 &",
        "sleep 300 &",
        "trap '' TERM HUP; sleep 300 &",
        "(setsid setsid sh -c 'sleep 300; true' > /dev/null &)",
        "sh -c 'kill -STOP $$' &",
    ],
)
def test_strays_are_killed(nodes: Nodes, script: str) -> None:
    record = nodes.run(KEY, script + "\nexit 4")
    assert record.exit_code == 4
    assert record.strays_killed >= 1


def test_nested_strays_are_killed(nodes: Nodes) -> None:
    script = "for i in 1 2 3 4 5; do (setsid sh -c 'sleep 300 & sleep 300' &); done; exit 0"
    assert nodes.run(KEY, script).strays_killed >= 5


def test_flood_of_output_is_not_in_the_way(nodes: Nodes) -> None:
    record = nodes.run(KEY, "(sleep 300 &); head -c 30000000 /dev/zero; exit 3")
    assert record.exit_code == 3
    assert (nodes.folder / "out").stat().st_size == 30_000_000


def test_stopped_program_dies_of_term(nodes: Nodes) -> None:
    shim = nodes.shell(KEY, "kill -STOP $$; exit 5")
    record = nodes.running(KEY)
    nodes.wait_until(lambda: _state(record.pid) == "T", what="the program stops")
    assert send(shim, signal.SIGTERM)
    assert nodes.end(shim).signal == signal.SIGTERM


def _state(pid: int) -> str:
    process = kernel.read_process(pid)
    return process.state if process is not None else ""


def test_term_reaches_groups_and_sessions_below(nodes: Nodes) -> None:
    save = "until [ -e release ]; do sleep 0.02; done; echo saved >> saved; exit 0"
    child = f"trap '{save}' TERM; echo up >> up; while :; do sleep 0.02; done"
    script = f'set -m\n(setsid sh -c "{child}" &)\nsh -c "{child}" &\nsh -c "{child}" &\nwait'
    shim = nodes.shell(KEY, script)
    nodes.wait_until(lambda: (nodes.folder / "up").exists() and len(nodes.text("up").split()) == 3, what="all up")
    send(shim, signal.SIGTERM)
    # The main process dies at once; what it started has its grace period all the same.
    nodes.wait_until(lambda: _record(nodes).ended, what="the main process has ended")
    (nodes.folder / "release").touch()
    assert nodes.end(shim).signal == signal.SIGTERM
    assert nodes.text("saved").split() == ["saved"] * 3


def test_kill_ends_what_ignores_term(nodes: Nodes) -> None:
    shim = nodes.shell(KEY, "sh -c \"trap '' TERM; touch up; while :; do sleep 0.02; done\" & wait")
    nodes.wait_until((nodes.folder / "up").exists, what="up")
    send(shim, signal.SIGTERM)
    nodes.wait_until(lambda: _record(nodes).ended, what="the main process has ended")
    assert adopt(nodes.directory, KEY).state == shim_control.RUNNING
    assert nodes.marked(KEY)
    assert send(shim, signal.SIGKILL)
    assert nodes.end(shim).signal == signal.SIGTERM


def _record(nodes: Nodes, key: str = KEY) -> NodeRecord:
    record = read_record(nodes.directory, key)
    assert record is not None
    return record


def test_kill_reaches_a_tree_below_a_stopped_shim(nodes: Nodes) -> None:
    shim = nodes.shell(KEY, "(setsid sleep 300 &); sleep 300 & wait")
    nodes.wait_until(lambda: len(nodes.sleepers(KEY)) == 2, what="all up")
    os.kill(shim.pid, signal.SIGSTOP)
    nodes.wait_until(lambda: _state(shim.pid) == "T", what="the shim stops")
    assert send(shim, signal.SIGKILL)
    assert nodes.end(shim).signal == signal.SIGKILL


def test_signal_right_after_the_fork_is_not_lost(nodes: Nodes) -> None:
    shim = nodes.shell("term", "sleep 300")
    assert send(shim, signal.SIGTERM)
    assert nodes.end(shim).signal == signal.SIGTERM
    shim = nodes.shell("kill", "sleep 300")
    assert send(shim, signal.SIGKILL)
    record = nodes.end(shim)
    assert record.signal == signal.SIGKILL or record.failed_at == "start"


def test_child_killed_after_its_record_is_a_failed_start(nodes: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
    begin = node_records.begin_record

    def begin_and_die(directory: str, key: str, record: NodeRecord) -> int:
        file = begin(directory, key, record)
        if record.pid == os.getpid():
            os.kill(record.pid, signal.SIGKILL)
        return file

    monkeypatch.setattr(node_records, "begin_record", begin_and_die)
    record = nodes.run(KEY, "touch ran")
    assert (record.failed_at, record.exit_code, record.signal) == ("start", None, None)
    assert not (nodes.folder / "ran").exists()


def test_leader_alone_is_signalled(nodes: Nodes) -> None:
    child = "trap 'touch wrong' USR1; touch up; while :; do sleep 0.02; done"
    shim = nodes.shell(KEY, f"trap 'exit 9' USR1; sh -c \"{child}\" & while :; do sleep 0.02; done")
    nodes.wait_until((nodes.folder / "up").exists, what="up")
    assert send(shim, signal.SIGUSR1, "leader")
    assert nodes.end(shim).exit_code == 9
    assert not (nodes.folder / "wrong").exists()


def test_signal_to_an_ended_node_is_refused(nodes: Nodes) -> None:
    shim = nodes.shell(KEY, "exit 0")
    nodes.end(shim)
    assert not send(shim._replace(pidfd=None), signal.SIGTERM)
    assert not send(shim._replace(pidfd=None), signal.SIGKILL)
    assert not send(shim._replace(pidfd=None), signal.SIGTERM, "leader")


def test_stop_and_continue(nodes: Nodes) -> None:
    # A loop without children: a shell inside vfork is not seen to stop.
    shim = nodes.shell(KEY, "while [ ! -e go ]; do :; done; exit 6")
    record = nodes.running(KEY)
    send(shim, signal.SIGSTOP)
    nodes.wait_until(lambda: _state(record.pid) == "T", what="the program stops")
    (nodes.folder / "go").touch()
    send(shim, signal.SIGCONT)
    assert nodes.end(shim).exit_code == 6


def test_program_starts_with_a_clean_slate(nodes: Nodes) -> None:
    os.mkfifo(nodes.folder / "go")
    script = "grep -E '^Sig(Blk|Ign)' /proc/self/status; echo /proc/$$/fd/*; read line < go"
    reading, writing = os.pipe()
    os.set_inheritable(writing, True)
    old = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
    try:
        shim = nodes.shell(KEY, script, umask=0o027)
        nodes.running(KEY)
        nodes.wait_until(lambda: "/fd/" in nodes.text(), what="the program has told")
        assert _identify(os.fstat(writing)) not in _open_files(shim.pid)
        assert Path(f"/proc/{shim.pid}/comm").read_text() == "span-shim\n"
    finally:
        signal.signal(signal.SIGHUP, old)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGUSR1})
        os.close(reading)
        os.close(writing)
    lines = nodes.text().splitlines()
    assert lines[0].split() == ["SigBlk:", "0" * 16]
    # 32 and 33 are the C library's own; its posix_spawn, which make uses, leaves them ignored in all descendants.
    name, ignored = lines[1].split()
    assert (name, int(ignored, 16) & ~(0b11 << 31)) == ("SigIgn:", 0)
    # 3 is the shell's own look at the folder.
    assert [Path(name).name for name in lines[2].split()] == ["0", "1", "2", "3"]
    assert (nodes.folder / "out").stat().st_mode & 0o777 == 0o640


def _identify(file: os.stat_result) -> tuple[int, int]:
    return file.st_dev, file.st_ino


def _open_files(pid: int) -> list[tuple[int, int]]:
    """What a process has open; it may be closing some."""
    found = []
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            found.append(_identify(entry.stat()))
    return found


def test_supervisor_keeps_its_signals(nodes: Nodes) -> None:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    nodes.run(KEY, "exit 0")
    assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == before


def test_output_files(nodes: Nodes) -> None:
    (nodes.folder / "log").write_text("old\n")
    nodes.run("a", "echo out; echo err >&2", stdout="log", stderr="log", append=True)
    assert nodes.text("log") == "old\nout\nerr\n"
    nodes.run("b", "cat", stdin="log", stdout="copy", stderr="")
    assert nodes.text("copy") == "old\nout\nerr\n"
    nodes.run("c", "echo new", stdout="log")
    assert nodes.text("log") == "new\n"


@pytest.mark.parametrize(
    ("argv", "number"),
    [(("no-such-program",), errno.ENOENT), (("./plain",), errno.EACCES), ((), errno.ENOENT), (("a\0b",), errno.EINVAL)],
)
def test_exec_failure_is_not_the_users_127(nodes: Nodes, argv: tuple[str, ...], number: int) -> None:
    (nodes.folder / "plain").write_text("text")
    record = nodes.end(nodes.start(KEY, *argv))
    assert (record.failed_at, record.errno, record.exit_code, record.signal) == ("exec", number, None, None)
    assert record.error.startswith(("cannot execute", "the command is empty"))
    assert record.error in nodes.text("err")
    assert nodes.run("other", "exit 127").exit_code == 127


@pytest.mark.parametrize(
    ("options", "step", "words"),
    [
        ({"cwd": "/no/such/folder"}, "directory", "cannot enter the working directory /no/such/folder: No such file"),
        ({"stdout": "logs/out"}, "output", "cannot open the output file logs/out: No such file"),
        ({"stderr": "/proc/nothing"}, "output", "cannot open the output file /proc/nothing: No such file"),
        ({"stdin": "data"}, "input", "cannot open the input file data: No such file"),
    ],
)
def test_failed_start_says_why(nodes: Nodes, options: dict[str, str], step: str, words: str) -> None:
    record = nodes.run(KEY, "touch ran", **options)
    assert (record.failed_at, record.errno, record.exit_code) == (step, errno.ENOENT, None)
    assert record.error.startswith(words)
    assert not (nodes.folder / "ran").exists()


SmallDisk = Callable[[Callable[[str], None], str], None]


def _fill(folder: str) -> None:
    fd = os.open(os.path.join(folder, "filler"), os.O_WRONLY | os.O_CREAT)
    with pytest.raises(OSError, match="No space left"):
        while True:
            os.write(fd, b"x" * 4096)
    os.close(fd)


def test_full_disk_refuses_a_start(small_disk: SmallDisk) -> None:
    def run(folder: str) -> None:
        _fill(folder)
        shim = spawn(NodeLaunch(folder, KEY, ("touch", "ran"), dict(os.environ), folder))
        _, status = os.waitpid(shim.pid, 0)
        assert os.WEXITSTATUS(status) == errno.ENOSPC
        assert adopt(folder, KEY).state == shim_control.UNSTARTED
        assert sorted(os.listdir(folder)) == ["filler", KEY + ".claim"]

    small_disk(run, "size=64k")


def test_full_disk_refuses_a_claim(small_disk: SmallDisk) -> None:
    def run(folder: str) -> None:
        os.mkdir(os.path.join(folder, "last"))
        with pytest.raises(OSError, match="No space left"):
            spawn(NodeLaunch(folder, KEY, ("true",), dict(os.environ), folder))
        assert adopt(folder, KEY).state == shim_control.ABSENT

    small_disk(run, "size=64k,nr_inodes=2")


def test_full_disk_loses_no_end(small_disk: SmallDisk, wait_until: WaitUntil) -> None:
    def run(folder: str) -> None:
        script = "while [ ! -e go ]; do sleep 0.02; done; (setsid sleep 300 &); exit 11"
        shim = spawn(NodeLaunch(folder, KEY, ("sh", "-c", script), dict(os.environ), folder))
        wait_until(lambda: read_record(folder, KEY), what="the start is on record")
        _fill(folder)
        os.mkdir(os.path.join(folder, "go"))
        os.waitpid(shim.pid, 0)
        node = adopt(folder, KEY)
        assert node.state == shim_control.ENDED and node.record is not None
        assert node.record.exit_code == 11 and node.record.strays_killed >= 1

    small_disk(run, "size=64k")


def test_end_waits_for_a_disk_that_refuses_it(nodes: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
    full, refused = nodes.folder / "full", nodes.folder / "refused"
    update = node_records.update_record

    def refuse(fd: int, record: NodeRecord) -> None:
        # As on a file system that copies on write.
        if record.ended and full.exists():
            refused.touch()
            raise OSError(errno.ENOSPC, "No space left on device")
        update(fd, record)

    monkeypatch.setattr(node_records, "update_record", refuse)
    full.touch()
    shim = nodes.shell(KEY, "exit 12")
    nodes.wait_until(refused.exists, what="the end is refused")
    assert adopt(nodes.directory, KEY).state == shim_control.RUNNING
    full.unlink()
    assert nodes.end(shim).exit_code == 12

"""Faults of the state folder and of the daemon's start: a clear sentence, and nothing is lost."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import sqlite3
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

SPAN = str(Path(sys.executable).with_name("span"))
LONGEST = 300
"""Seconds for a command, on a machine that has much else to do."""


def start_daemon(span: Any) -> subprocess.Popen[str]:
    """A daemon of the installation as a service manager would start it."""
    return subprocess.Popen([SPAN, "daemon"], env=span.environment, stderr=subprocess.PIPE, text=True, cwd=span.folder)


def refuse_daemon(span: Any) -> str:
    """What a daemon says that must not start; one line, exit code 1."""
    with start_daemon(span) as daemon:
        try:
            _, words = daemon.communicate(timeout=LONGEST)
        finally:
            daemon.kill()
    assert daemon.returncode == 1, words
    said = [line for line in words.splitlines() if line.startswith("span: error: ")]
    assert len(said) == 1 and "Traceback" not in words, words
    return said[0].removeprefix("span: error: ")


# --- a full or read-only disk --------------------------------------------------------------------------------------


class Mounted:
    """The commands inside a mount namespace where the state folder is a small tmpfs of its own."""

    def __init__(self, span: Any, size: str) -> None:
        self.span = span
        span.state.mkdir(mode=0o700)
        script = f'mount -t tmpfs -o size={size},mode=700 none "{span.state}" && echo ready && exec sleep 3600'
        self.keeper = subprocess.Popen(["unshare", "--mount", "sh", "-c", script], stdout=subprocess.PIPE, text=True)
        assert self.keeper.stdout is not None
        assert self.keeper.stdout.readline() == "ready\n"
        self.enter = ("nsenter", f"--mount=/proc/{self.keeper.pid}/ns/mnt", f"--wd={span.folder}")

    def sh(self, script: str) -> None:
        """Run a shell command in there."""
        subprocess.run([*self.enter, "sh", "-c", script], check=True, timeout=LONGEST)

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run `span WORDS` in there."""
        done = subprocess.run(
            [*self.enter, SPAN, *words], env=self.span.environment, capture_output=True, text=True, timeout=LONGEST
        )
        assert "Traceback" not in done.stderr, done.stderr
        return done

    def close(self) -> None:
        """End what runs in there; the mount ends with its last process."""
        self.run("scancel", "--me")
        self.span.wait_until(lambda: not self.run("squeue", "--noheader").stdout.strip(), 40, "all jobs to end")
        self.run("shutdown")
        self.keeper.kill()
        self.keeper.wait()
        assert self.keeper.stdout is not None
        self.keeper.stdout.close()


@contextmanager
def mounted(span: Any, size: str) -> Iterator[Mounted]:
    """A small disk for the state folder, or a skip by name."""
    if os.geteuid() != 0 or subprocess.run(["unshare", "--mount", "true"], capture_output=True).returncode:
        pytest.skip("full disk: needs the right to mount a tmpfs")
    disk = Mounted(span, size)
    try:
        yield disk
    finally:
        disk.close()
        # The state folder itself stayed empty: nothing may be started in it when the test ends.
        shutil.rmtree(span.state)


@pytest.mark.parametrize("left", ["0", "1M"])
def test_full_disk_refuses_whole_submissions_and_works_again_with_space(span: Any, left: str) -> None:
    ran = span.folder / "ran"
    with mounted(span, "12m") as disk:
        before = int(disk.run("sbatch", "--parsable", "--wrap", f"echo before >> {ran}").stdout)
        span.wait_until(lambda: ran.exists(), 20, "the first job")
        disk.sh(f"cat /dev/zero > '{span.state}/ballast' 2>/dev/null; truncate -s -{left} '{span.state}/ballast'")
        answered, refused = submit_many(disk, ran)
        assert refused, "the disk never was full"
        for done in refused:
            check_refusal(done)
        # The end of a job may still find its place, and then all is well until the next write.
        span.wait_until(lambda: is_told(disk, ran, answered), 60, "ping to tell of the full disk")
        disk.sh(f"rm '{span.state}/ballast'")
        after = int(disk.run("sbatch", "--parsable", "--wrap", f"echo after >> {ran}").stdout)
        known = {before, after, *answered}
        for job in known:
            assert disk.run("wait", str(job), "--timeout", "240").returncode == 0, disk.run("show", str(job)).stdout
        assert disk.run("ping").returncode == 0
        listed = json.loads(disk.run("sacct", "--json").stdout)["jobs"]
        assert {int(job["job_id"]) for job in listed} == known
        words = ran.read_text().split()
        assert sorted(words) == sorted(["before", "after", *answered.values()])


def submit_many(disk: Mounted, ran: Path) -> tuple[dict[int, str], list[subprocess.CompletedProcess[str]]]:
    """Submit until the disk refuses three times; ids that were answered, with their words, and the refusals."""
    answered: dict[int, str] = {}
    refused: list[subprocess.CompletedProcess[str]] = []
    for _ in range(60):
        done = submit_long(disk, ran, answered)
        if done.returncode != 0:
            refused.append(done)
            if len(refused) == 3:
                break
    return answered, refused


def submit_long(disk: Mounted, ran: Path, answered: dict[int, str]) -> subprocess.CompletedProcess[str]:
    """Submit a long script, so that the store needs space for it; one that is taken is noted."""
    word = f"w{len(answered)}"
    done = disk.run("sbatch", "--parsable", "--wrap", f"echo {word} >> {ran} # {'x' * 100_000}")
    if done.returncode == 0:
        answered[int(done.stdout)] = word
    return done


def check_refusal(done: subprocess.CompletedProcess[str]) -> None:
    """A full disk is told, and nothing else."""
    assert done.returncode == 1 and done.stdout == ""
    assert done.stderr.startswith("sbatch: error: ") and "disk is full" in done.stderr, done.stderr


def is_told(disk: Mounted, ran: Path, answered: dict[int, str]) -> bool:
    """Whether the daemon tells of the disk after it has refused a submission."""
    done = submit_long(disk, ran, answered)
    if done.returncode != 0:
        check_refusal(done)
    ping = disk.run("ping")
    return ping.returncode == 1 and "problem: " in ping.stdout and "full" in ping.stdout


FULL = "the disk of the state folder {} is full: 0 bytes of {} are free; the daemon needs 256.0 KiB there to start"


def kill_daemon(disk: Mounted) -> None:
    """Kill it; its lease and its socket stay."""
    pid = int(json.loads(disk.run("ping", "--json").stdout)["pid"])
    os.kill(pid, signal.SIGKILL)
    disk.span.wait_until(lambda: not Path(f"/proc/{pid}").exists(), 20, "the daemon's end")


def fill(disk: Mounted) -> None:
    """Leave no byte."""
    disk.sh(f"cat /dev/zero > '{disk.span.state}/ballast' 2>/dev/null || true")


def test_a_daemon_that_has_no_room_to_start_says_so_and_starts_with_the_next_command(span: Any) -> None:
    """Also where its log takes no word; and what it has written by then is no obstacle."""
    with mounted(span, "12m") as disk:
        words = FULL.format(span.state, "12.0 MiB")
        fill(disk)
        check_start_refused(disk, words)
        # One file is the start's whole room, then the log's and the lease's, then some of the store's.
        for left in ("4K", "8K", "64K"):
            disk.sh(f"truncate -s -{left} '{span.state}/ballast'")
            done = disk.run("ping")
            assert done.returncode == 3 and "is full" in done.stderr and "df -h" in done.stderr, done.stderr
            fill_again(disk)
        disk.sh(f"rm '{span.state}/ballast'")
        go = span.folder / "go"
        job = int(disk.run("sbatch", "--parsable", "--wrap", f"until [ -e {go} ]; do sleep 0.05; done").stdout)
        span.wait_until(lambda: "RUNNING" in disk.run("show", str(job)).stdout, 20, "the job to run")
        kill_daemon(disk)
        fill(disk)
        check_start_refused(disk, words)
        go.touch()
        disk.sh(f"rm '{span.state}/ballast'")
        assert disk.run("wait", str(job), "--timeout", "240").returncode == 0
        assert not [name for name in os.listdir(f"/proc/{disk.keeper.pid}/root{span.state}") if "room" in name]


def fill_again(disk: Mounted) -> None:
    """Leave no byte, without a start's files."""
    disk.sh(f"cat /dev/zero >> '{disk.span.state}/ballast' 2>/dev/null || true")


def check_start_refused(disk: Mounted, words: str) -> None:
    """Commands and the daemon itself say it with the codes of their classes."""
    for verb, code in (("ping", 3), ("squeue", 1), ("daemon", 1)):
        done = disk.run(verb)
        assert done.returncode == code and words in done.stderr and "df -h" in done.stderr, done.stderr
        assert done.stdout == "" and len(done.stderr.splitlines()) <= 3


def test_a_daemon_that_was_killed_on_a_full_disk_starts_from_its_reserve_and_cancels(span: Any) -> None:
    with mounted(span, "96m") as disk:
        job = int(disk.run("sbatch", "--parsable", "--wrap", "sleep 600").stdout)
        span.wait_until(lambda: "RUNNING" in disk.run("show", str(job)).stdout, 20, "the job to run")
        reserve = Path(f"/proc/{disk.keeper.pid}/root{span.state}/daemon.reserve")
        span.wait_until(lambda: reserve.exists() and reserve.stat().st_size == 1 << 20, 20, "the reserve")
        fill(disk)
        second = disk.run("daemon")
        assert second.returncode == 1 and "another daemon holds this state folder" in second.stderr
        assert reserve.exists(), "one that does not start has no use for it"
        kill_daemon(disk)
        assert disk.run("scancel", str(job)).returncode == 0
        span.wait_until(lambda: "CANCELLED" in disk.run("show", str(job)).stdout, 40, "the job's end")
        assert not reserve.exists()
        log = Path(f"/proc/{disk.keeper.pid}/root{span.state}/daemon.log").read_text()
        assert "the daemon starts from its reserve" in log
        # Spent once: the next one has none, and says so.
        kill_daemon(disk)
        fill_again(disk)
        check_start_refused(disk, FULL.format(span.state, "96.0 MiB"))
        disk.sh(f"rm '{span.state}/ballast'")
        assert disk.run("ping").returncode == 0
        span.wait_until(reserve.exists, 20, "another reserve")


def test_read_only_state_folder_is_a_sentence(span: Any) -> None:
    with mounted(span, "12m") as disk:
        disk.sh(f"mount -o remount,ro '{span.state}'")
        done = disk.run("sbatch", "--wrap", "true")
        assert done.returncode == 1 and str(span.state) in done.stderr and "Read-only" in done.stderr, done.stderr
        done = disk.run("daemon")
        assert done.returncode == 1 and "Read-only" in done.stderr, done.stderr
        disk.sh(f"mount -o remount,rw '{span.state}'")
        assert disk.run("ping").returncode == 0


# --- sockets, owners, versions ---------------------------------------------------------------------------------------


def test_stale_socket_is_no_obstacle(span: Any) -> None:
    (span.state / "run").mkdir(parents=True)
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(span.state / "run" / "span.sock"))
    assert span.run("ping").returncode == 0


def test_something_else_at_the_sockets_place_is_named(span: Any) -> None:
    (span.state / "run").mkdir(parents=True)
    place = span.state / "run" / "span.sock"
    place.write_text("mine")
    done = span.run("ping", check=False)
    assert done.returncode == 3 and str(place) in done.stderr, done.stderr
    assert place.read_text() == "mine"
    place.unlink()


def test_state_folder_of_another_user_is_refused(span: Any) -> None:
    if os.geteuid() != 0:
        pytest.skip("a folder of another user: needs root to make one")
    span.state.mkdir(mode=0o700)
    os.chown(span.state, 4321, 4321)
    try:
        done = span.run("sbatch", "--wrap", "true", check=False)
        assert "belongs to another user" in done.stderr and "SPAN_STATE_DIR" in done.stderr
        assert done.returncode == 1
        assert span.run("ping", check=False).returncode == 5
        assert "belongs to another user" in refuse_daemon(span)
        assert list(span.state.iterdir()) == []
    finally:
        shutil.rmtree(span.state)


def test_state_folder_that_is_a_file(span: Any) -> None:
    span.state.write_text("a file")
    done = span.run("ping", check=False)
    span.state.unlink()
    assert done.returncode in (1, 3) and f"{span.state}" in done.stderr and "directory" in done.stderr, done.stderr


def test_open_state_folder_is_closed_to_others(span: Any) -> None:
    span.state.mkdir()
    span.state.chmod(0o777)
    span.run("ping")
    assert stat.S_IMODE(span.state.stat().st_mode) == 0o700


OTHER = b'{"format": 7, "version": "9.9.9", "pid": 1, "error_free": true}'


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(OTHER), OTHER), "another version"),
        (b"HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\n\r\n{}", "another version"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", "another version"),
        (b"SSH-2.0-OpenSSH_9.6\r\n", "cannot talk to the daemon"),
        (b"", "went away"),
    ],
    ids=["newer-format", "unknown-route", "not-json", "not-http", "closes"],
)
def test_daemon_of_another_version_is_named(span: Any, answer: bytes, words: str) -> None:
    (span.state / "run").mkdir(parents=True)
    place = span.state / "run" / "span.sock"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(place))
        server.listen()
        thread = threading.Thread(target=serve, args=(server, answer))
        thread.start()
        try:
            for verb in (("ping",), ("squeue",), ("sbatch", "--wrap", "true"), ("show", "1")):
                done = span.run(*verb, check=False)
                assert done.returncode in (1, 3) and words in done.stderr, done.stderr
                assert len(done.stderr.splitlines()) <= 3
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join(LONGEST)
    place.unlink()


def serve(server: socket.socket, answer: bytes) -> None:
    """Give every request the same answer until the socket is shut down."""
    while True:
        try:
            connection, _ = server.accept()
        except OSError:
            return
        with connection:
            try:
                connection.settimeout(LONGEST)
                connection.recv(65536)
                connection.sendall(answer)
            except OSError:
                continue


# --- one daemon ----------------------------------------------------------------------------------------------------


# The command `span`, with more time for the start of a daemon that shares the machine with all of them.
PATIENT = """
import sys
from overspan.bridge.cli import main
from overspan.bridge.client import autostart

autostart.START_SECONDS = 300.0
sys.exit(main())
"""


def test_twenty_commands_at_once_start_one_daemon(span: Any) -> None:
    words = [sys.executable, "-c", PATIENT, "ping", "--json"]
    commands = [
        subprocess.Popen(words, env=span.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(20)
    ]
    answers = [command.communicate(timeout=LONGEST) for command in commands]
    assert [command.returncode for command in commands] == [0] * 20, answers
    assert len({json.loads(out)["pid"] for out, _ in answers}) == 1
    log = (span.state / "daemon.log").read_text()
    assert log.count("listening on") == 1


def test_a_second_daemon_is_refused_by_the_holders_name(span: Any) -> None:
    pid = span.daemon
    words = refuse_daemon(span)
    assert (
        words.startswith("another daemon holds this state folder") and f"pid {pid} on {socket.gethostname()}" in words
    )
    assert span.daemon == pid


def test_a_wrong_configuration_is_named_with_its_place(span: Any) -> None:
    span.config.write_text("retention: 5d\nclusters:\n  local: {kind: local, cpuz: 3}\n")
    words = span.run("sbatch", "--wrap", "true", check=False)
    assert words.returncode != 0 and "cpuz" in words.stderr, words.stderr
    span.run("shutdown", check=False)
    span.config.write_text("retention: 5d\nticks: {observe: soon}\n")
    done = span.run("ping", check=False)
    assert done.returncode == 3
    assert f"{span.config}:2:" in done.stderr and "ticks.observe" in done.stderr, done.stderr
    assert f"{span.config}:2:" in refuse_daemon(span)
    span.config.write_text("clusters: [\n")
    assert f"{span.config}:" in span.run("ping", check=False).stderr
    span.config.write_bytes(b"\xff\xfe\x00")
    assert "UTF-8" in span.run("ping", check=False).stderr
    span.config.unlink()
    assert span.run("ping").returncode == 0


HOUR = 3600


def foreign_lease(span: Any, heartbeat: float) -> Path:
    """A lease that another host holds: one that was heard of in the last minute counts, and so does one from ahead."""
    span.state.mkdir(mode=0o700, exist_ok=True)
    document = {
        "format": 1,
        "host": "elsewhere.example.org",
        "pid": 4711,
        "start_time": 1,
        "boot_id": "b",
        "pid_space": "p",
        "socket": "/run/elsewhere/span.sock",
        "since": heartbeat - 100,
        "heartbeat": heartbeat,
        "released": False,
    }
    file: Path = span.state / "daemon.lease.7"
    file.write_text(json.dumps(document))
    return file


def test_lease_of_another_host_is_respected_and_named(span: Any) -> None:
    lease = foreign_lease(span, time.time() + HOUR)
    before = lease.read_text()
    words = refuse_daemon(span)
    assert "pid 4711 on elsewhere.example.org" in words and "ssh elsewhere.example.org" in words
    done = span.run("sbatch", "--wrap", "true", check=False)
    assert done.returncode == 1 and "elsewhere.example.org" in done.stderr, done.stderr
    assert lease.read_text() == before
    lease.unlink()


def test_lease_of_another_host_that_has_gone_silent_is_taken_over(span: Any) -> None:
    foreign_lease(span, time.time() - HOUR)
    assert span.run("ping").returncode == 0
    assert sorted(path.name for path in span.state.glob("daemon.lease.*")) == ["daemon.lease.8"]


def test_daemon_that_loses_its_lease_ends_and_its_jobs_go_on(span: Any) -> None:
    go = span.folder / "go"
    job = span.wrap(f"until [ -e {go} ]; do sleep 0.05; done; echo done")
    pid = span.daemon
    span.until(job, "RUNNING")
    lease = foreign_lease(span, time.time() + HOUR)
    span.wait_until(lambda: not Path(f"/proc/{pid}").exists(), 25, "the daemon's end")
    lease.unlink()
    assert span.job(job)["state"] == "RUNNING"
    go.touch()
    assert span.run("wait", str(job)).returncode == 0
    assert span.log(job) == "done\n"


def test_unreadable_database_is_a_sentence_and_is_not_touched(span: Any) -> None:
    span.state.mkdir(mode=0o700)
    database = span.state / "overspan.db"
    database.write_bytes(b"this is no database, but long enough to be read as one" * 100)
    before = database.read_bytes()
    done = span.run("sbatch", "--wrap", "true", check=False)
    assert done.returncode == 1 and "overspan.db" in done.stderr, done.stderr
    assert database.read_bytes() == before
    database.unlink()


def test_daemon_stopped_by_a_signal_is_a_timeout_not_a_hang(span: Any) -> None:
    pid = span.daemon
    os.kill(pid, signal.SIGSTOP)
    try:
        code = (
            "from overspan import Client\nfrom overspan.bridge.model.errors import Unreachable\n"
            "try: Client(timeout=0.5).ping()\nexcept Unreachable as error: print(error.message)"
        )
        words = [sys.executable, "-c", code]
        done = subprocess.run(words, env=span.environment, capture_output=True, text=True, timeout=LONGEST)
        assert done.stdout == "the daemon did not answer within 0.5 s\n", done.stderr
    finally:
        os.kill(pid, signal.SIGCONT)
    assert span.daemon == pid


def test_a_lost_database_gives_no_number_again_and_is_told(span: Any) -> None:
    last = [span.wrap("true") for _ in range(3)][-1]
    span.run("wait", str(last))
    span.run("shutdown")
    for file in span.state.glob("overspan.db*"):
        file.unlink()
    number = span.wrap("echo again")
    assert number == last + 1
    span.run("wait", str(number))
    assert span.log(number) == "again\n"
    told = span.run("ping", check=False)
    assert f"runs of jobs up to {last} that the database does not know" in told.stdout + told.stderr
    assert f"new jobs begin at {last + 1}" in told.stdout + told.stderr


def test_a_damaged_row_keeps_no_daemon_from_starting_and_no_work_from_running(span: Any) -> None:
    """R11: set aside and named, without its values; the other jobs, and its own processes, go on."""
    go = span.folder / "go"
    bad, good = (span.wrap(f"until [ -e {go} ]; do sleep 0.05; done; echo done", "-J", name) for name in ("hush", "b"))
    for job in (bad, good):
        span.until(job, "RUNNING")
    span.run("shutdown")
    with contextlib.closing(sqlite3.connect(span.state / "overspan.db")) as database, database:
        database.execute('update job set facts = \'{"secrets": "hush"\' where id = ?', (bad,))
    pings = span.run("ping", check=False)
    told = f"the record of job {bad} in the store cannot be read"
    assert told in pings.stdout + pings.stderr and "hush" not in pings.stdout + pings.stderr
    checked = span.run("fsck", "local", check=False)
    assert checked.returncode == 1 and told in checked.stderr
    shown = span.run("show", str(bad), check=False)
    assert shown.returncode != 0 and told in shown.stderr and "hush" not in shown.stderr
    assert "hush" not in (span.state / "daemon.log").read_text()
    go.touch()
    assert span.run("wait", str(good)).returncode == 0
    assert span.wrap("true") > good
    span.wait_until((span.folder / f"slurm-{bad}.out").read_text, 20, "the end of what runs")

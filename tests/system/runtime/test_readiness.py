"""Readiness: what a task waits for of another, observed on real services."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from overspan.bridge.model.spec import Backoff, Need, NeedKind, Ready, ReadyKind, RetryPolicy, TaskSpec
from overspan.bridge.model.states import State

if TYPE_CHECKING:
    from tests.system.runtime.conftest import Hosts

AFTER_READY = (Need("server", NeedKind.READY),)
SERVE = """
import http.server, os, time
while not os.path.exists("open"):
    time.sleep(0.02)
class Pages(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200 if self.path == "/health" and os.path.exists("healthy") else 503)
        self.end_headers()
    def log_message(self, *words):
        open("asked", "w").close()
http.server.HTTPServer((os.environ["OVERSPAN_ADDR"], int(os.environ["PORT"])), Pages).serve_forever()
"""


def _server(hosts: Hosts, port: int, ready: Ready) -> TaskSpec:
    (hosts.work / "serve.py").write_text(SERVE)
    run = f"exec {hosts.python} -S serve.py"
    return TaskSpec("server", run=run, env={"PORT": str(port)}, primary=False, ready=ready, grace_period=5)


def test_open_port(hosts: Hosts, port: int) -> None:
    server = _server(hosts, port, Ready(ReadyKind.TCP, str(port), period=0.05))
    launched = hosts.add(TaskSpec("client", run="exit 0", needs=AFTER_READY), server)
    hosts.start(launched.host)
    launched.until("NodeStarted", "server")
    assert not launched.events("Launch", "client")
    (hosts.work / "open").touch()
    assert hosts.finish(launched).state is State.COMPLETED
    ready, launch = launched.events("TaskReady")[0]["at"], launched.events("Launch", "client")[0]["at"]
    assert ready <= launch


def test_page_that_answers_well(hosts: Hosts, port: int) -> None:
    server = _server(hosts, port, Ready(ReadyKind.HTTP, f"{port}/health", period=0.05))
    launched = hosts.add(TaskSpec("client", run="exit 0", needs=AFTER_READY), server)
    (hosts.work / "open").touch()
    hosts.start(launched.host)
    hosts.wait_until((hosts.work / "asked").exists, 20, "a probe that is refused")
    assert not launched.events("TaskReady")
    (hosts.work / "healthy").touch()
    assert hosts.finish(launched).state is State.COMPLETED


@pytest.mark.parametrize(
    "ready",
    [
        Ready(ReadyKind.FILE, "made", period=0.05),
        Ready(ReadyKind.COMMAND, 'test -e made && test "$OVERSPAN_TASK" = server', period=0.05),
    ],
)
def test_file_and_command(hosts: Hosts, ready: Ready) -> None:
    server = TaskSpec("server", run=": > up; exec sleep 300", primary=False, ready=ready, grace_period=5)
    launched = hosts.add(TaskSpec("client", run="exit 0", needs=AFTER_READY), server)
    hosts.start(launched.host)
    hosts.wait_until((hosts.work / "up").exists, 20, "the server")
    assert not launched.events("TaskReady")
    (hosts.work / "made").touch()
    assert hosts.finish(launched).state is State.COMPLETED


def test_started_is_enough_where_no_more_is_asked(hosts: Hosts) -> None:
    server = TaskSpec("server", run="exec sleep 300", primary=False, grace_period=5)
    launched = hosts.run(TaskSpec("client", run="exit 0", needs=(Need("server"),)), server)
    started, launch = launched.events("NodeStarted", "server")[0]["at"], launched.events("Launch", "client")[0]["at"]
    assert started <= launch


def test_new_attempt_is_probed_anew_after_a_crash_too(hosts: Hosts) -> None:
    server = TaskSpec(
        "server",
        run='echo x >> "ready.$OVERSPAN_ATTEMPT"; until [ -e fail ]; do sleep 0.02; done; rm fail; exit 1',
        primary=False,
        ready=Ready(ReadyKind.COMMAND, 'test -e "allow.$OVERSPAN_ATTEMPT"', period=0.05),
        retry=RetryPolicy(max_restarts_on_errors=1, backoff=Backoff(first=0.05)),
        grace_period=5,
    )
    launched = hosts.add(TaskSpec("client", run="exit 0", needs=AFTER_READY), server)
    hosts.start(launched.host)
    launched.until("NodeStarted", "server")
    (hosts.work / "fail").touch()
    launched.until("NodeStarted", "server", 2)
    (hosts.work / "allow.0").touch()
    hosts.kill(launched.host)
    hosts.start(launched.host)
    (hosts.work / "allow.1").touch()
    assert hosts.finish(launched).state is State.COMPLETED
    assert [line["attempt"] for line in launched.events("TaskReady")] == [1]


# Gives a probe less time than the default.
IMPATIENT = """
import sys
from overspan.bridge.runtime.local import supervisor
from overspan.bridge.runtime.core import readiness
readiness.TRY_SECONDS = 0.3
sys.exit(supervisor.main(sys.argv[1:]))
"""


def test_probe_that_hangs_holds_nothing_up(hosts: Hosts) -> None:
    hangs = Ready(ReadyKind.COMMAND, "echo $$ >> probes; test -e fine || exec sleep 300", period=0.05)
    server = TaskSpec("server", run="exec sleep 300", primary=False, ready=hangs, grace_period=5)
    launched = hosts.add(TaskSpec("client", run="exit 0", needs=AFTER_READY), server)
    hosts.start(launched.host, IMPATIENT)
    probes = hosts.work / "probes"
    hosts.wait_until(lambda: probes.exists() and len(probes.read_text().split()) > 1, 20, "a second try")
    assert not _lives(probes.read_text().split()[0])
    (hosts.work / "fine").touch()
    assert hosts.finish(launched).state is State.COMPLETED


def test_probe_does_not_outlive_its_task(hosts: Hosts) -> None:
    hangs = Ready(ReadyKind.COMMAND, "echo $$ >> probe; exec sleep 300", period=0.05)
    launched = hosts.add(TaskSpec("server", run="until [ -s probe ]; do sleep 0.02; done", ready=hangs))
    hosts.start(launched.host)
    assert hosts.finish(launched).state is State.COMPLETED
    assert not [pid for pid in (hosts.work / "probe").read_text().split() if _lives(pid)]


def _lives(pid: str) -> bool:
    return Path(f"/proc/{pid}").exists()

"""A group whose server does not become ready: what each command says, and how it ends."""

from __future__ import annotations

from tests.system.conftest import Span

FILE = """
name: g
execution: parallel
primary_tasks: [t]
---
name: t
run: "true"
needs: s
---
name: s
run: sleep 600
ready: {tcp: 9999, timeout: TIMEOUT}
on_failure: fail_group
grace_period: 1
"""


def submit(span: Span, timeout: str) -> str:
    return str(span.submit(FILE.replace("TIMEOUT", timeout)))


def test_whoever_waits_says_for_whom_and_what_the_probe_met(span: Span) -> None:
    job = submit(span, "10m")
    words = "t waits for s: tcp s-0:9999, "
    span.wait_until(lambda: words in span.run("show", job).stdout, 30, "an answer of the probe")
    shown = next(line for line in span.run("show", job).stdout.splitlines() if line.startswith(words))
    assert shown.endswith("connection refused")
    assert span.run("squeue", "-h", "-o", "%i %T %r").stdout.splitlines() == [
        f"{job}+0 PENDING Dependency",
        f"{job}+1 RUNNING None",
    ]
    assert words in span.run("timeline", job).stdout
    span.run("scancel", job)


def test_a_server_that_is_not_ready_in_time_fails_the_group_and_says_why(span: Span) -> None:
    job = submit(span, "1s")
    span.until(job, "FAILED", timeout=60)
    shown = span.run("show", job).stdout
    assert "s attempt 0: FAILED not_ready" in shown
    assert "not ready within 1 s: tcp s-0:9999, " in shown and "connection refused" in shown

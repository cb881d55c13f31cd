"""The end of a probe, whatever it has come to."""

from __future__ import annotations

import os
import signal

import pytest

from overspan.bridge.supervisor import probes


def fork_waiter(own_group: bool) -> int:
    """A child that waits, as a probe that hangs; one that was just forked is in its parent's group."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(300)
        if own_group:
            os.setsid()
        os.close(writing)
        os.close(reading)
        while True:
            signal.pause()
    os.close(writing)
    # To the end of file: the child has come so far.
    os.read(reading, 1)
    os.close(reading)
    return pid


@pytest.mark.parametrize("own_group", [False, True])
def test_it_is_killed_before_it_has_a_group_of_its_own_too(own_group: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    statuses: list[int] = []
    wait = os.waitpid

    def note(pid: int, options: int) -> tuple[int, int]:
        done, status = wait(pid, options)
        statuses.append(status)
        return done, status

    pid = fork_waiter(own_group)
    monkeypatch.setattr(os, "waitpid", note)
    probes._end(probes._Trial(pid, 0.0))
    assert [os.WTERMSIG(status) for status in statuses] == [signal.SIGKILL]

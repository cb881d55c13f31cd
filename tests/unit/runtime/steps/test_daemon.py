"""What a step daemon hears of the client that holds an allocation."""

from __future__ import annotations

import socket

import pytest

from overspan.bridge.runtime.srun import channel as wire
from overspan.bridge.runtime.srun.channel import Channel
from overspan.bridge.runtime.srun.step_daemon import await_release, first_frame


@pytest.fixture
def sides() -> tuple[Channel, Channel]:
    ours, theirs = socket.socketpair()
    return Channel(ours), Channel(theirs)


@pytest.mark.timeout(120)
def test_a_release_that_comes_with_the_hold_is_heard(sides: tuple[Channel, Channel]) -> None:
    client, node = sides
    client.send(wire.HOLD)
    client.send(wire.RELEASE, b"7")
    frame = first_frame(node)
    assert frame is not None and frame.kind == wire.HOLD
    assert await_release(node) == "7"
    client.close()
    node.close()


@pytest.mark.timeout(120)
def test_a_client_that_goes_without_a_word_is_lost(sides: tuple[Channel, Channel]) -> None:
    client, node = sides
    client.send(wire.HOLD)
    assert first_frame(node) is not None
    client.close()
    assert await_release(node) == "lost"
    node.close()

"""Who watches a step: what they get, early, late and at the end."""

from __future__ import annotations

import os
import select
from collections.abc import Callable
from pathlib import Path

import pytest

from overspan.bridge.runtime.srun import channel as wire
from overspan.bridge.runtime.srun.channel import Channel, Frame
from overspan.bridge.runtime.srun.sattach import Attachment
from overspan.bridge.runtime.srun.viewers import Viewers, connect_step


def _output(rank: int, text: str, kind: bytes = wire.OUTPUT) -> Frame:
    return Frame(kind, wire.pack_rank(rank, text.encode()))


def _join(viewers: Viewers, folder: Path) -> Channel:
    """A viewer that has been let in."""
    channel = connect_step(os.fspath(folder), 3)
    ready, _, _ = select.select(list(viewers.waits), [], [], 5)
    for fd in ready:
        viewers.receive(fd)
    return channel


def _read(channel: Channel, until: bytes = wire.DONE) -> list[Frame]:
    frames: list[Frame] = []
    while not channel.closed and not any(frame.kind == until for frame in frames):
        assert select.select([channel], [], [], 5)[0], "nothing came"
        frames += channel.receive()
    return frames


def test_a_viewer_gets_what_was_written_and_what_is(tmp_path: Path) -> None:
    viewers = Viewers(os.fspath(tmp_path), 3, 2)
    viewers.show(_output(0, "before\n"))
    channel = _join(viewers, tmp_path)
    viewers.show(_output(1, "after\n", wire.ERROR))
    viewers.close(4)
    frames = _read(channel)
    assert frames == [
        Frame(wire.STARTED, b'{"count": 2}'),
        _output(0, "before\n"),
        _output(1, "after\n", wire.ERROR),
        Frame(wire.DONE, b"4"),
    ]
    channel.close()
    with pytest.raises(OSError, match="No such file"):
        connect_step(os.fspath(tmp_path), 3)


def test_as_much_is_kept_as_slurm_keeps(tmp_path: Path) -> None:
    viewers = Viewers(os.fspath(tmp_path), 3, 1)
    for number in range(200):
        viewers.show(_output(0, f"{number}\n"))
    channel = _join(viewers, tmp_path)
    viewers.close(0)
    shown = [frame for frame in _read(channel) if frame.kind == wire.OUTPUT]
    assert (len(shown), shown[0]) == (128, _output(0, "72\n"))
    channel.close()


def test_a_viewer_that_takes_nothing_is_let_go(tmp_path: Path) -> None:
    viewers = Viewers(os.fspath(tmp_path), 3, 1)
    channel = _join(viewers, tmp_path)
    for _ in range(100):
        viewers.show(_output(0, "x" * 65536))
    assert len(viewers.waits) == 1
    viewers.close(0)
    channel.close()


def test_a_viewer_that_goes_is_forgotten_and_its_words_are_given(tmp_path: Path) -> None:
    viewers = Viewers(os.fspath(tmp_path), 3, 1)
    channel = _join(viewers, tmp_path)
    channel.send(wire.SIGNAL, b"10")
    (fd,) = select.select(list(viewers.waits), [], [], 5)[0]
    assert viewers.receive(fd) == [Frame(wire.SIGNAL, b"10")]
    channel.close()
    viewers.receive(fd)
    assert len(viewers.waits) == 1
    viewers.close(0)


def test_a_long_path_is_no_hindrance(tmp_path: Path) -> None:
    folder = tmp_path / ("a" * 100) / ("b" * 100)
    folder.mkdir(parents=True)
    viewers = Viewers(os.fspath(folder), 3, 1)
    _join(viewers, folder).close()
    viewers.close(0)
    assert list(folder.iterdir()) == []


def test_without_a_folder_there_are_no_viewers(tmp_path: Path) -> None:
    viewers = Viewers(os.fspath(tmp_path / "gone"), 3, 1)
    viewers.show(_output(0, "x"))
    assert viewers.waits == {}
    viewers.close(0)


@pytest.mark.parametrize(
    ("options", "output", "errors"),
    [
        ({}, "a\nb", "e\n"),
        ({"label": ""}, " 0: a\n11: b\n", "11: e\n"),
        ({"output": "0"}, "a\n", ""),
        ({"output": "0", "error": "11"}, "a\n", "e\n"),
        ({"error": "0", "label": ""}, " 0: a\n11: b\n", ""),
    ],
)
def test_what_sattach_writes(
    options: dict[str, str], output: str, errors: str, tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    viewers = Viewers(os.fspath(tmp_path), 3, 12)
    channel = _join(viewers, tmp_path)
    frames = [_output(0, "a\n"), _output(11, "b"), _output(11, "e\n", wire.ERROR), _output(11, "768", wire.ENDED)]
    for frame in [*frames, _output(0, "9", wire.ENDED)]:
        viewers.show(frame)
    viewers.close(3)
    assert Attachment(options).follow(channel) == 3
    written = capfdbinary.readouterr()
    end = "sattach: error: task 11 exited with exit code 3\n"
    assert (written.out.decode(), written.err.decode()) == (output, errors + end)


def test_a_lost_connection_is_told(tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    viewers = Viewers(os.fspath(tmp_path), 3, 1)
    channel = _join(viewers, tmp_path)
    drop: Callable[[int], None] = viewers._drop
    drop(max(viewers.waits))
    assert Attachment({}).follow(channel) == 1
    assert b"Connection to the step is lost" in capfdbinary.readouterr().err
    viewers.close(0)

"""The lines between supervisor and agent."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from overspan.bridge.runtime.slurm import channel
from overspan.bridge.runtime.slurm.channel import LineReader, RemoteLaunch, decode_launch, encode_launch, encode_line

LAUNCH = RemoteLaunch(
    key="train.0.0.0",
    argv=("/bin/bash", "a b"),
    environment={"NAME": "caf\udce9\n"},
    cwd="/work",
    umask=0o22,
    members=(("10.0.0.1", ("train-0.rl", "train-0")),),
    grace=5.0,
)


def test_a_launch_travels_whole() -> None:
    (message,) = LineReader().feed(encode_launch(LAUNCH))
    assert decode_launch(message["launch"]) == LAUNCH


def test_fields_of_a_later_version_are_dropped_and_missing_ones_refused() -> None:
    (message,) = LineReader().feed(encode_launch(LAUNCH))
    assert decode_launch({**message["launch"], "later": 1}) == LAUNCH
    with pytest.raises(ValueError, match="not a launch"):
        decode_launch({"key": "k"})
    with pytest.raises(ValueError, match="not a launch"):
        decode_launch(None)


@given(st.lists(st.dictionaries(st.text(), st.integers()), max_size=5), st.integers(1, 40))
def test_lines_arrive_whole_however_they_are_cut(messages: list[dict[str, int]], size: int) -> None:
    data = b"".join(map(encode_line, messages))
    reader = LineReader()
    found = [message for at in range(0, len(data), size) for message in reader.feed(data[at : at + size])]
    assert found == messages


def test_noise_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    reader = LineReader()
    assert reader.feed(b'hello\n[1]\n\xff\n{"a":1}\n{"b"') == [{"a": 1}]
    monkeypatch.setattr(channel, "LONGEST_LINE", 8)
    with pytest.raises(ValueError, match="no end"):
        reader.feed(b"x" * 9)

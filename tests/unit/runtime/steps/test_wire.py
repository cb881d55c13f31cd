"""Frames, proofs, multi-prog files and output: the parts of a step without processes."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable

import pytest

from overspan.bridge.model.patterns import FilenameFields
from overspan.bridge.runtime.core.allocation import draw_step
from overspan.bridge.runtime.srun import channel as wire
from overspan.bridge.runtime.srun.channel import AuthenticationError, Channel, Codec, greet, welcome
from overspan.bridge.runtime.srun.messages import code_of, describe_end
from overspan.bridge.runtime.srun.multi_prog import ProgramError, read_programs
from overspan.bridge.runtime.srun.output import Sink, choose_target, fold_ranks

KEY = b"k" * 32


def test_frames_survive_any_cut() -> None:
    sender, receiver = Codec(b"a", b"b"), Codec(b"b", b"a")
    data = sender.encode(wire.RUN, b"{}") + sender.encode(wire.INPUT, wire.pack_rank(3, b"x" * 1000))
    frames = [frame for place in range(len(data)) for frame in receiver.decode(data[place : place + 1])]
    assert [frame.kind for frame in frames] == [wire.RUN, wire.INPUT]
    assert wire.unpack_rank(frames[1].body) == (3, b"x" * 1000)


@pytest.mark.parametrize(
    "change",
    [
        lambda first, second: first[:-1] + b"!" + second,
        lambda first, second: second + first,
        lambda first, second: first + first,
    ],
)
def test_frames_that_were_changed_moved_or_repeated_are_refused(change: Callable[[bytes, bytes], bytes]) -> None:
    sender, receiver = Codec(b"a"), Codec(b"", b"a")
    data = change(sender.encode(wire.SIGNAL, b"15"), sender.encode(wire.SIGNAL, b"9"))
    with pytest.raises(AuthenticationError):
        receiver.decode(data)


def test_a_frame_without_end_is_refused() -> None:
    with pytest.raises(AuthenticationError):
        Codec().decode(b"\xff\xff\xff\xff")


def meet(client_key: bytes, node_key: bytes) -> tuple[list[Channel], list[Exception]]:
    """Both sides of a greeting."""
    ours, theirs = socket.socketpair()
    channels: list[Channel] = []
    errors: list[Exception] = []

    def answer() -> None:
        try:
            channels.append(welcome(theirs, node_key, 60))
        except (AuthenticationError, OSError) as error:
            errors.append(error)
            theirs.close()

    thread = threading.Thread(target=answer)
    thread.start()
    try:
        channels.append(greet(ours, client_key, 60))
    except (AuthenticationError, OSError) as error:
        errors.append(error)
        ours.close()
    thread.join()
    return channels, errors


def test_both_sides_prove_the_key() -> None:
    channels, errors = meet(KEY, KEY)
    assert not errors
    channels[0].send(wire.DONE)
    assert [frame.kind for frame in channels[1].receive()] == [wire.DONE]
    for channel in channels:
        channel.close()


def test_neither_side_talks_to_one_without_the_key() -> None:
    channels, errors = meet(KEY, b"other")
    assert not channels
    assert any(isinstance(error, AuthenticationError) for error in errors)


def test_programs_of_ranks() -> None:
    text = "# comment\n0-1,4 server --rank %t \\\n  --place %o\n\n* 'a b' %t\n"
    assert read_programs(text, 5) == [
        ("server", "--rank", "0", "--place", "0"),
        ("server", "--rank", "1", "--place", "1"),
        ("a b", "2"),
        ("a b", "3"),
        ("server", "--rank", "4", "--place", "2"),
    ]


def test_words_behind_a_program_file_go_to_every_rank() -> None:
    assert read_programs("* a %t\n", 2, "conf", ["-l"]) == [("a", "0", "-l"), ("a", "1", "-l")]
    with pytest.raises(ProgramError, match="Configuration file conf invalid, no record for task id 1"):
        read_programs("0 a\n", 2, "conf")


@pytest.mark.parametrize("text", ["0 a\n", "0\n", "x a\n", "0-1 'a\n"])
def test_bad_program_files(text: str) -> None:
    with pytest.raises(ProgramError):
        read_programs(text, 2)


def written(*, whole_lines: bool, label_width: int = 0) -> bytes:
    reading, writing = os.pipe()
    sink = Sink(writing, whole_lines=whole_lines, label_width=label_width)
    sink.write(0, b"one\ntw")
    sink.write(10, b"other\n")
    sink.write(0, b"o\nrest")
    sink.finish(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as file:
        return file.read()


def test_lines_of_ranks_are_kept_whole() -> None:
    assert written(whole_lines=True) == b"one\nother\ntwo\nrest"
    assert written(whole_lines=False) == b"one\ntwother\no\nrest"
    assert written(whole_lines=True, label_width=2) == b" 0: one\n10: other\n 0: two\n 0: rest\n"


FIELDS = FilenameFields(job=7, task=3, step="2", host="n1")


@pytest.mark.parametrize(
    ("pattern", "labelled", "name", "path"),
    [
        ("", False, "|", ""),
        ("all", False, "|", ""),
        ("none", False, "", ""),
        ("3", False, "|", ""),
        ("4", False, "", ""),
        ("out.%j", False, "|", "out.%j"),
        ("out.%j.%2t", False, "/work/out.7.03", ""),
        ("out.%t", True, "|", "out.%t"),
        ("%%t.%s", False, "|", "%%t.%s"),
    ],
)
def test_where_a_stream_goes(pattern: str, labelled: bool, name: str, path: str) -> None:
    target = choose_target(pattern, labelled)
    assert (target.name(3, FIELDS, "/work"), target.path) == (name, path)


def test_ranks_in_short() -> None:
    assert fold_ranks([7, 0, 2, 1]) == "0-2,7"


@pytest.mark.parametrize(
    ("status", "text", "code"),
    [(0, "", 0), (3 << 8, "Exited with exit code 3", 3), (9, "Killed", 137), (15, "Terminated", 143)],
)
def test_ends(status: int, text: str, code: int) -> None:
    assert (describe_end(status), code_of(status)) == (text, code)


def test_step_numbers_count_up(tmp_path: os.PathLike[str]) -> None:
    assert [draw_step(os.fspath(tmp_path), 0) for _ in range(3)] == [0, 1, 2]
    assert draw_step(os.fspath(tmp_path), 1) == 0

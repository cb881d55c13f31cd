"""A program's output and its file as messages, and a launch by the paths of its node."""

from __future__ import annotations

import base64
import os
from pathlib import Path
from typing import Any

import pytest

from overspan.bridge.runtime.slurm.channel import RemoteLaunch, decode_launch, encode_launch
from overspan.bridge.runtime.slurm.node_staging import FOLDER_PLACEHOLDER, stage_launch
from overspan.bridge.runtime.slurm.output_tails import FileWait, OutputTails, tail_streams

NOTHING = FileWait("", 0.0)
OUT, ERR = "logs/t.0.0.0.out", "logs/t.0.0.0.err"


def tail(output: Path | str, error: Path | str, append: bool = False) -> OutputTails:
    launch = RemoteLaunch("t.0.0.0", (), {}, "/", stdout=str(output), stderr=str(error), append=append)
    return OutputTails(tail_streams(launch), NOTHING)


def read(messages: list[dict[str, Any]]) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    for message in messages:
        stream = message["part"]["file"]
        found[stream] = found.get(stream, b"") + base64.b64decode(message["part"]["data"])
    return found


def drain(mirror: OutputTails) -> dict[str, bytes]:
    found: list[dict[str, Any]] = []
    while messages := mirror.finish():
        found += messages
    return read(found)


def test_what_is_written_is_told_once_and_all_of_it(tmp_path: Path) -> None:
    out, err = tmp_path / "out", tmp_path / "err"
    mirror = tail(out, err)
    assert mirror.look() == []
    out.write_bytes(b"\xffone\n")
    err.write_bytes(b"two\n")
    assert drain(mirror) == {OUT: b"\xffone\n", ERR: b"two\n"}
    assert mirror.pause is None


def test_much_output_comes_in_turns(tmp_path: Path) -> None:
    out = tmp_path / "out"
    data = os.urandom(3 << 20)
    out.write_bytes(data)
    mirror = tail(out, out)
    first = mirror.look()
    assert 0 < len(read(first)[OUT]) < len(data) and mirror.pause == 0.0
    assert read(first)[OUT] + drain(mirror)[OUT] == data


def test_a_file_is_told_once_when_it_is_there(tmp_path: Path) -> None:
    mirror = OutputTails((), FileWait(str(tmp_path / "up"), 0.0))
    assert mirror.look() == [] and mirror.pause == 0.0
    (tmp_path / "up").touch()
    (message,) = mirror.finish()
    assert list(message) == ["ready"]
    assert mirror.finish() == [] and mirror.pause is None


def test_a_file_is_looked_for_no_oftener_than_asked(tmp_path: Path) -> None:
    arrival = FileWait(str(tmp_path / "up"), 3600.0)
    assert arrival.look() == []
    (tmp_path / "up").touch()
    assert arrival.look() == [] and 3000 < (arrival.pause or 0) <= 3600


@pytest.mark.parametrize(("append", "told"), [(True, b"new"), (False, b"oldnew")])
def test_what_an_earlier_attempt_wrote_is_not_told_again(tmp_path: Path, append: bool, told: bytes) -> None:
    out = tmp_path / "out"
    out.write_bytes(b"old")
    mirror = tail(out, "", append)
    with out.open("ab") as file:
        file.write(b"new")
    assert drain(mirror) == {OUT: told}


def test_a_launch_brings_its_files_to_the_agents_folder(tmp_path: Path) -> None:
    source = tmp_path / "data"
    source.mkdir()
    folder = tmp_path / "agent"
    folder.mkdir()
    launch = RemoteLaunch(
        "t.0.0.0",
        ("/bin/sh", f"{FOLDER_PLACEHOLDER}/t.run", "a@FOLDER@"),
        {"OVERSPAN_RUN_DIR": FOLDER_PLACEHOLDER, "WORD": FOLDER_PLACEHOLDER},
        str(tmp_path),
        stdout=f"{FOLDER_PLACEHOLDER}/out",
        stderr="/elsewhere/err",
        marker=f"{FOLDER_PLACEHOLDER}/failed",
        awaited=f"{FOLDER_PLACEHOLDER}/up",
        files={"t.run": "echo \udcff"},
        mounts={"link": str(source)},
        streamed=True,
    )
    (line,) = encode_launch(launch).splitlines()
    import json

    settled = stage_launch(decode_launch(json.loads(line)["launch"]), str(folder))
    assert settled.argv == ("/bin/sh", f"{folder}/t.run", "a@FOLDER@")
    assert (settled.stdout, settled.stderr, settled.marker) == (f"{folder}/out", "/elsewhere/err", f"{folder}/failed")
    assert settled.awaited == f"{folder}/up"
    assert settled.environment == {"OVERSPAN_RUN_DIR": str(folder), "WORD": FOLDER_PLACEHOLDER}
    assert (folder / "t.run").read_bytes() == b"echo \xff" and (folder / "t.run").stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "link").resolve() == source

"""The sbatch reader under arbitrary input: by Hypothesis always, by atheris where it is installed."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.fuzz.sbatch_target import VARIABLES, read_bytes

from overspan.bridge.model.options.sbatch import OPTIONS, Argument

VALUES = st.sampled_from(
    [
        *("", "0", "1", "-1", "4", "1-3", "3-1", "1-2:3%4", "1:2", "2-00:00:05", "UNLIMITED", "now+1hour", "noon"),
        *("gpu", "gpu:1", "gpu:a100:2", "a:1,b:2", "none", "NONE", "ALL", "ALL,A=1", "help", "4G", "1.5", "50%"),
        *("afterok:1,2", "after:1+5?singleton", "singleton", "n[1-3]", "n[1-", "B:USR1@60", "a&b", "[a|b]", "yes"),
        *("local", "hpc", "all", "mars", "TOP", "append", "block:cyclic", "%j-%x.out", "\\%j", "/dev/null", "é", "'"),
    ]
) | st.text(max_size=12)


@st.composite
def option_words(draw: st.DrawFn) -> list[str]:
    """One option as a user may write it: whole, shortened, by its letter, with a value or without."""
    option = draw(st.sampled_from(OPTIONS))
    value = draw(VALUES)
    form = draw(st.integers(0, 4))
    if form == 0 and option.letter:
        return [f"-{option.letter}", value]
    if form == 1 and option.letter:
        return [f"-{option.letter}{value}"]
    name = option.name[: draw(st.integers(1, len(option.name)))] if form == 2 else option.name
    if option.argument is Argument.NONE and form != 3:
        return [f"--{name}"]
    return [f"--{name}={value}"] if form != 4 else [f"--{name}", value]


ARGV = st.lists(option_words() | st.sampled_from([[":"], ["--"], ["-"], ["job.sh"]]), max_size=3)
LINES = st.lists(
    option_words().map(lambda words: "#SBATCH " + " ".join(words))
    | st.sampled_from(["#SBATCH hetjob", "#SBATCH", "# words", "", "#PBS -l x", "#SBATCH-n4", "#SBATCH :", "echo"])
    | st.text(max_size=20).map(lambda text: f"#SBATCH {text}"),
    max_size=4,
)
SHELLS = st.sampled_from(["#!/bin/sh\n", "#!/bin/sh\n", "#!/bin/sh\n", "", "#!", "\n#!/bin/sh\n", "#!/bin/sh\r\n"])


def pack(argv: list[list[str]], variables: list[tuple[str, str]], script: str) -> bytes:
    words = [word for part in argv for word in part]
    shown = [f"\t{chr(VARIABLES.index(name))}{value}" for name, value in variables]
    kept = [word for word in [*shown, *words] if word and "\0" not in word]
    return ("\0".join(kept) + "\0\0" + script).encode("utf-8", "surrogatepass")


@settings(max_examples=600, deadline=None)
@given(ARGV, st.lists(st.tuples(st.sampled_from(VARIABLES), VALUES), max_size=2), SHELLS, LINES)
def test_any_options_are_read_or_refused(
    argv: list[list[str]], variables: list[tuple[str, str]], shell: str, lines: list[str]
) -> None:
    read_bytes(pack(argv, variables, shell + "\n".join(lines)))


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=300))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    read_bytes(data)


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=300))
def test_any_bytes_after_a_shell_are_read_or_refused(data: bytes) -> None:
    read_bytes(b"job.sh\0\0#!/bin/sh\n#SBATCH " + data)


def test_the_generator_reaches_both_answers() -> None:
    assert read_bytes(pack([["-n", "4"]], [("SBATCH_ACCOUNT", "x")], "#!/bin/sh\n#SBATCH -t 5\n"))
    assert not read_bytes(pack([["-n", "0"]], [], "#!/bin/sh\n"))
    assert not read_bytes(pack([], [("SBATCH_TIMELIMIT", "x")], "#!/bin/sh\n"))


@pytest.mark.skipif(find_spec("atheris") is None, reason="atheris is not installed")
def test_atheris_finds_nothing(tmp_path: Path) -> None:
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    (corpus / "plain").write_bytes(pack([["-n", "4"]], [], "#!/bin/sh\n#SBATCH -t 5 --gres=gpu:1\n"))
    words = [sys.executable, str(Path(__file__).with_name("sbatch_target.py")), str(corpus), "-max_total_time=10"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=600, cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-4000:]

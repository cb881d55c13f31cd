"""What the command line changes about a job file."""

from __future__ import annotations

from pathlib import Path

import pytest

from overspan.bridge.cli.arguments import make_parser
from overspan.bridge.cli.invocation import Invocation
from overspan.bridge.cli.jobs.env_files import read_env_file
from overspan.bridge.cli.jobs.job_file_options import FileChanges, add_file_options, read_changes
from overspan.bridge.model.errors import InvalidRequest


def change(*words: str, **environment: str) -> FileChanges:
    call = Invocation("submit", words, environment)
    parser = make_parser(call, "")
    add_file_options(parser)
    return read_changes(call, parser.parse_args(words))


@pytest.mark.parametrize(
    ("words", "overrides"),
    [
        (["--num-nodes", "3"], ["*.num_nodes=3"]),
        (["--gpus", "H100:8"], ["*.resources.*.gpus=", '*.resources.*.accelerators="H100:8"']),
        (
            ["--infra", "*/eu"],
            [*(f"*.resources.*.{key}=" for key in ("cloud", "region", "zone")), '*.resources.*.infra="*/eu"'],
        ),
        (["--num-jobs", "4", "-y"], ["array=0-3"]),
        (["--set", "num_nodes=2", "--num-nodes", "5"], ["*.num_nodes=5", "num_nodes=2"]),
    ],
)
def test_skypilots_options_are_overrides(words: list[str], overrides: list[str]) -> None:
    assert change(*words) == (overrides, {}, {})


@pytest.mark.parametrize("words", [["--num-jobs", "0"], ["--num-nodes", "two"], ["--env", "NAME"]])
def test_words_that_are_refused(words: list[str]) -> None:
    with pytest.raises(InvalidRequest):
        change(*words)


ENV_FILE = r"""
# of the lab
export SEED=7
NAME = plain words   # a comment
SINGLE='as $it ${SEED} is'
DOUBLE="two\nlines of \"${SEED}\""
HERE=${HOME}/x
ELSE=${MISSING:-other}
HASH=a#b
EMPTY=
"""
VALUES = {
    "SEED": "7",
    "NAME": "plain words",
    "SINGLE": "as $it ${SEED} is",
    "DOUBLE": 'two\nlines of "7"',
    "HERE": "/home/u/x",
    "ELSE": "other",
    "HASH": "a#b",
    "EMPTY": "",
}


def test_a_file_of_variables(tmp_path: Path) -> None:
    file = tmp_path / ".env"
    file.write_text(ENV_FILE)
    assert read_env_file(str(file), {"HOME": "/home/u"}) == VALUES
    found = change("--env-file", str(file), "--env", "SEED=8", HOME="/home/u").env
    assert found == {**VALUES, "SEED": "8"}


@pytest.mark.parametrize(("text", "line"), [("A=1\nB\n", 2), ("1X=2\n", 1), ('A="open\n', 1), ("A='a' b\n", 1)])
def test_a_line_that_is_none_is_refused_with_its_number(text: str, line: int, tmp_path: Path) -> None:
    file = tmp_path / ".env"
    file.write_text(text)
    with pytest.raises(InvalidRequest) as caught:
        read_env_file(str(file), {})
    assert caught.value.place == (str(file), line, 0)


def test_a_file_that_is_missing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="Unable to open file"):
        change("--env-file", str(tmp_path / "none"))

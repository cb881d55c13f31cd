"""sbatch's own part of a submission: what it answers itself, and what it sends."""

from __future__ import annotations

import re
from pathlib import Path
from unittest.mock import Mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from overspan.bridge.cli.invocation import Invocation
from overspan.bridge.cli.slurm import sbatch
from overspan.bridge.cli.slurm.sbatch import scan
from overspan.bridge.cli.slurm.sbatch_help import HELP, USAGE
from overspan.bridge.client import Accepted, Outcome, Submission
from overspan.bridge.model.errors import InvalidRequest
from overspan.bridge.model.options.sbatch import ALIASES, BY_LETTER, BY_NAME, OWN, match_names


def call(*words: str, **environment: str) -> Invocation:
    return Invocation("sbatch", words, environment)


def sent(*words: str) -> Submission:
    return sbatch.make_submission(call(*words), scan(words))


def test_help_names_every_option() -> None:
    named = set(re.findall(r"--([a-z][a-z-]*)", HELP))
    assert named == set(BY_NAME)
    letters = set(re.findall(r"^  -([A-Za-z]), --|(?<=  )-V(?=,)", HELP, re.MULTILINE)) - {""}
    assert letters | {"h", "V"} == set(BY_LETTER)
    assert max(map(len, HELP.splitlines())) <= 120
    assert USAGE in HELP
    assert set(ALIASES) < named


@pytest.mark.parametrize(
    ("words", "output"),
    [
        (("--help",), HELP),
        (("-n4", "-h"), HELP),
        (("--usage",), USAGE),
        (("-V", "--help"), "slurm 24.05.8\n"),
        (("--gres=help",), "Valid gres options are:\ngpu[[:type]:count]\n"),
    ],
)
def test_options_that_submit_nothing(words: tuple[str, ...], output: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert sbatch.run(call(*words)) == 0
    assert capsys.readouterr().out == output


@pytest.mark.parametrize(
    ("words", "code", "errors"),
    [
        (("--unk=3",), 255, "sbatch: unrecognized option '--unk=3'\nTry \"sbatch --help\" for more information\n"),
        (("-n",), 255, "sbatch: option requires an argument -- 'n'\nTry \"sbatch --help\" for more information\n"),
        (("nofile.sh",), 1, "sbatch: error: Unable to open file nofile.sh\n  No such file or directory: nofile.sh\n"),
        (("-",), 1, "sbatch: error: Unable to open file -\n  No such file or directory: -\n"),
        (("-v", "-Q", "x"), 1, "sbatch: error: don't specify both --verbose (-v) and --quiet (-Q)\n"),
        (
            ("-F", "nofile", "--wrap=ls"),
            1,
            "sbatch: error: slurm_allocate_resources error opening file nofile, No such file or directory\n",
        ),
    ],
)
def test_mistakes(
    words: tuple[str, ...], code: int, errors: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    import os

    before = os.getcwd()
    os.chdir(tmp_path)
    try:
        assert sbatch.run(call(*words)) == code
        assert sbatch.run(call(*words, SLURM_EXIT_ERROR="7")) == (7 if code == 1 else code)
    finally:
        os.chdir(before)
    assert capsys.readouterr().err == errors * 2


def test_errors_have_slurms_words_first(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    from overspan.bridge.model.errors import Place

    def run(error: InvalidRequest) -> int:
        monkeypatch.setattr(sbatch, "make_submission", Mock(side_effect=error))
        return sbatch.run(call())

    error = InvalidRequest("Invalid --time specification", remedy="write minutes", place=Place("x.sh", 2, 9))
    assert run(error) == 1
    assert capsys.readouterr().err == "sbatch: error: Invalid --time specification\n  x.sh:2:9: write minutes\n"
    fatal = InvalidRequest("sbatch: fatal: no", place=Place("x.sh", 2))
    fatal.exit_code = 255
    assert run(fatal) == 255
    assert capsys.readouterr().err == "sbatch: fatal: no\n  x.sh:2\n"


def test_hosts_in_a_file(tmp_path: Path) -> None:
    hosts = tmp_path / "hosts"
    hosts.write_text("n1\nn[2-3]\n")
    script = tmp_path / "j.sh"
    script.write_text("#!/bin/sh\n")
    added = "--nodelist=n1,n[2-3]"
    assert sent("-F", str(hosts), str(script), "-x").argv == ("-F", str(hosts), added, str(script), "-x")
    assert sent("-w", str(hosts), "--wrap=ls").argv == ("-w", str(hosts), "--wrap=ls", added)
    assert sent("-w", str(hosts), "--", str(script)).argv == ("-w", str(hosts), added, "--", str(script))
    assert sent("-w", "n1", str(script)).argv == ("-w", "n1", str(script))
    assert sent(str(tmp_path)).text == ""


@pytest.mark.parametrize(
    ("options", "printed"),
    [
        ({}, "Submitted batch job 7\n"),
        ({"clusters": "a"}, "Submitted batch job 7 on cluster a\n"),
        ({"parsable": True}, "7\n"),
        ({"parsable": True, "clusters": "a"}, "7;a\n"),
        ({"quiet": True}, ""),
        ({"quiet": True, "parsable": True}, "7\n"),
    ],
)
def test_the_line_that_is_printed(options: dict[str, object], printed: str) -> None:
    assert sbatch.submitted_line(Accepted(7, cluster="a"), options) == printed


@pytest.mark.parametrize(
    ("outcome", "code"),
    [
        (Outcome(True, "COMPLETED"), 0),
        (Outcome(True, "FAILED", 3), 3),
        (Outcome(True, "FAILED", 0, 9), 1),
        (Outcome(True, "CANCELLED"), 1),
    ],
)
def test_the_code_of_wait(outcome: Outcome, code: int) -> None:
    assert sbatch.exit_code(outcome) == code


def test_own_options_make_no_beginning_ambiguous() -> None:
    assert scan(["--hol"]).options == (("hold", ""),)
    assert scan(["--job=x"]).options == (("job-name", "x"),)
    assert scan(["--job-g=3"]).options == (("job-group", "3"),)
    for name in OWN:
        assert match_names(name) == [name]


@given(st.lists(st.text(st.sampled_from("-=nNtjobhl :x"), max_size=8), max_size=6))
def test_any_words_are_taken_apart(words: list[str]) -> None:
    try:
        found = scan(words)
    except InvalidRequest as error:
        assert "option" in error.message
    else:
        assert list(found.args) == (words[len(words) - len(found.args) :] if found.args else [])

"""Command lines of srun and salloc."""

from __future__ import annotations

import pytest

from overspan.bridge.model.errors import InvalidRequest
from overspan.bridge.model.options.srun import OPTIONS, Part, allocation_words, parse_words


def test_options_end_at_the_command() -> None:
    (part,) = parse_words("srun", ["-n2", "--label", "-K1", "--nodes", "3", "prog", "-n", "9"])
    assert part == Part(
        (("ntasks", "2"), ("label", ""), ("kill-on-bad-exit", "1"), ("nodes", "3")), ("prog", "-n", "9")
    )
    assert parse_words("srun", ["-lu", "--", "-prog"])[0].command == ("-prog",)


def test_components() -> None:
    parts = parse_words("srun", ["-n1", "a", "x", ":", "-n2", "b"])
    assert [(part.last("ntasks"), part.command) for part in parts] == [("1", ("a", "x")), ("2", ("b",))]


def test_unique_prefixes_and_second_names() -> None:
    (part,) = parse_words("srun", ["--lab", "--unb", "--tasks-per-node=2", "--pack-group=1", "x"])
    assert [name for name, _ in part.options] == ["label", "unbuffered", "ntasks-per-node", "het-group"]


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--foo"], "unrecognized option '--foo'"),
        (["-Y"], "invalid option -- 'Y'"),
        (["--label=1"], "option '--label' doesn't allow an argument"),
        (["-n"], "option requires an argument -- 'n'"),
        (["--ntasks"], "option '--ntasks' requires an argument"),
        (["--gpu=1"], "option '--gpu=1' is ambiguous"),
    ],
)
def test_wrong_words_in_getopts_words(words: list[str], text: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        parse_words("srun", words)
    assert caught.value.message.startswith(text)


def test_each_verb_has_its_own() -> None:
    assert parse_words("salloc", ["-KINT", "--no-shell"])[0].options == (("kill-command", "INT"), ("no-shell", ""))
    with pytest.raises(InvalidRequest):
        parse_words("salloc", ["--pty"])
    with pytest.raises(InvalidRequest):
        parse_words("srun", ["--no-shell", "x"])


def test_what_an_allocation_is_asked_for() -> None:
    parts = parse_words("srun", ["-N2", "--exclusive", "-l", "-o", "x", "--mem=1G", "a"])
    assert allocation_words(parts) == ("--nodes=2", "--exclusive", "--mem=1G")


def test_the_table_has_no_doubles() -> None:
    names = [option.name for option in OPTIONS]
    assert len(names) == len(set(names))

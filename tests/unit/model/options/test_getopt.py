"""Command lines by getopt's rules."""

from __future__ import annotations

import pytest

from overspan.bridge.model.options.getopt import OPTIONAL, VALUE, Found, Option, WrongWord, parse, scan

_TABLE = (
    Option("format", "o", VALUE),
    Option("long", "l"),
    Option("lines", "", VALUE, stands_for="rows"),
    Option("rows", "r", VALUE),
    Option("nice", "N", OPTIONAL),
    Option("node", "", VALUE),
    Option("noheader", "h"),
    Option("nodes", "n", VALUE, own=True),
    Option("sort", "S", VALUE),
    Option("only", "", own=True),
)


def test_options_and_other_words_may_mix() -> None:
    read = parse(["-hl", "-S", "-p", "--form=%i", "x", "-o%i %t", "--nice", "y", "-", "--", "-z"], _TABLE)
    assert read.rest == ("x", "y", "-", "-z")
    assert read.has("noheader") and read.has("long") and not read.has("only")
    assert (read.last("sort"), read.last("format"), read.last("rows", "none")) == ("-p", "%i %t", "none")
    assert read.options.count(("nice", "")) == 1


def test_the_first_other_word_may_end_the_options() -> None:
    assert parse(["-l", "x", "-h"], _TABLE, permute=False) == ((("long", ""),), ("x", "-h"))
    assert parse(["-l", "--", "-h"], _TABLE, permute=False) == ((("long", ""),), ("-h",))


def test_lists_add_up() -> None:
    assert parse(["-n1,2", "--nodes=,3"], _TABLE).listed("nodes") == ("1", "2", "3")


def test_an_optional_value_never_takes_the_next_word() -> None:
    found = scan(["-N", "1", "-N2", "--nice", "--nice=", "--nice=3"], _TABLE)
    assert [option.value for option in found.found] == [None, "2", None, "", "3"]
    assert found.others == (1,)


def test_where_each_option_stands() -> None:
    read = scan(["-lh", "x", "-o", "-l", "--lines=4", "--", "-l"], _TABLE)
    assert read.found == (
        Found("long", None, 0),
        Found("noheader", None, 0),
        Found("format", "-l", 2),
        Found("rows", "4", 4),
    )
    assert (read.others, read.end) == ((1,), 6)


def test_own_options_make_no_beginning_ambiguous() -> None:
    assert parse(["--nod=a"], _TABLE).last("node") == "a"
    assert parse(["--on"], _TABLE).has("only")


@pytest.mark.parametrize(
    ("words", "message", "at"),
    [
        (["--nope=1"], "unrecognized option '--nope=1'", 0),
        (["-l", "--no=1"], "option '--no=1' is ambiguous; possibilities: '--node' '--noheader'", 1),
        (["--lon=1"], "option '--long' doesn't allow an argument", 0),
        (["x", "--sort"], "option '--sort' requires an argument", 1),
        (["-lS"], "option requires an argument -- 'S'", 0),
        (["-lZ"], "invalid option -- 'Z'", 0),
    ],
)
def test_mistakes_in_getopts_words(words: list[str], message: str, at: int) -> None:
    with pytest.raises(WrongWord) as caught:
        parse(words, _TABLE)
    assert (caught.value.message, caught.value.at) == (message, at)


def test_second_names_make_no_beginning_ambiguous() -> None:
    table = (Option("tasks", "", VALUE), Option("tasks-old", "", VALUE, stands_for="tasks"))
    assert parse(["--ta=1", "--tasks-old=2"], table).options == (("tasks", "1"), ("tasks", "2"))

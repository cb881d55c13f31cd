"""sbatch's options taken apart as getopt_long does, and quoting in #SBATCH lines."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from overspan.bridge.model.errors import InvalidRequest, Place, error_from_document
from overspan.bridge.model.options.sbatch import ALIASES, BY_LETTER, BY_NAME, OPTIONS
from overspan.bridge.readers.sbatch.arguments import SbatchCall, parse_sbatch, split_directive
from overspan.bridge.readers.sbatch.errors import SbatchUsage


def parse(*argv: str, **environment: str) -> SbatchCall:
    return parse_sbatch(argv, environment)


def values(call: SbatchCall) -> dict[str, str | None]:
    return {name: given.value for name, given in call.options.items()}


def test_the_table_names_every_option_once() -> None:
    assert len(BY_NAME) == len(OPTIONS)
    letters = [option.letter for option in OPTIONS if option.letter]
    assert len(letters) == len(set(letters)) == len(BY_LETTER)
    assert "".join(sorted(letters)) == "ABCDFGHJLMNOQSVWabcdehikmnopqstvwx"
    assert set(ALIASES) < set(BY_NAME)


@pytest.mark.parametrize(
    ("argv", "found"),
    [
        (("-n4",), {"ntasks": "4"}),
        (("-n", "4"), {"ntasks": "4"}),
        (("--ntasks=4",), {"ntasks": "4"}),
        (("--ntasks", "4"), {"ntasks": "4"}),
        (("-Hn4",), {"hold": None, "ntasks": "4"}),
        (("-Hn", "4"), {"hold": None, "ntasks": "4"}),
        (("--part=x",), {"partition": "x"}),
        (("--job", "a b"), {"job-name": "a b"}),
        (("--tasks-per-node=2",), {"ntasks-per-node": "2"}),
        (("--nice",), {"nice": None}),
        (("--nice=5",), {"nice": "5"}),
        (("--exclusive", "--hold"), {"exclusive": None, "hold": None}),
        (("-k",), {"no-kill": None}),
        (("-n1", "-n2"), {"ntasks": "2"}),
        (("--comment=",), {"comment": ""}),
        (("--export", "-x"), {"export": "-x"}),
    ],
)
def test_forms_of_options(argv: tuple[str, ...], found: dict[str, str | None]) -> None:
    assert values(parse(*argv)) == found
    call = parse(*argv, "job.sh", "-n9", "--hold")
    assert (call.script, call.arguments, values(call)) == ("job.sh", ("-n9", "--hold"), found)


def test_the_script_ends_the_options() -> None:
    assert parse("--", "-n").script == "-n"
    assert parse().script is None
    assert parse("-").script == "-"
    assert parse("--wrap", "echo hi").wrap == "echo hi"


def test_flags_of_the_command() -> None:
    assert parse("--parsable", "-Q", "-W", "--test-only", "x").flags == {"parsable", "quiet", "wait", "test-only"}
    assert parse("-V").flags == {"version"}
    assert parse("x", SBATCH_WAIT="1").flags == {"wait"}


def test_variables_stand_below_the_command_line() -> None:
    call = parse("-p", "b", SBATCH_PARTITION="a", SBATCH_ACCOUNT="lab", SBATCH_NO_REQUEUE="1")
    assert values(call) == {"partition": "b", "account": "lab", "no-requeue": None}
    assert call.options["account"].place == Place("SBATCH_ACCOUNT")
    assert values(parse(SLURM_CLUSTERS="x")) == {"clusters": "x"}
    assert values(parse(SLURM_CLUSTERS="x", SBATCH_CLUSTERS="y")) == {"clusters": "y"}
    assert values(parse(SLURM_CPUS_PER_TASK="3")) == {}


def test_components_are_separated() -> None:
    call = parse("-n1", ":", "-n2", ":", "-n3", "job.sh", ":", "x")
    assert [part["ntasks"].value for part in call.components] == ["1", "2", "3"]
    assert (call.script, call.arguments) == ("job.sh", (":", "x"))


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (("--x",), "sbatch: unrecognized option '--x'"),
        (("--no",), "sbatch: option '--no' is ambiguous; possibilities: '--no-kill' '--no-requeue' "),
        (("-Z",), "sbatch: invalid option -- 'Z'"),
        (("-n",), "sbatch: option requires an argument -- 'n'"),
        (("--ntasks",), "sbatch: option '--ntasks' requires an argument"),
        (("--hold=1",), "sbatch: option '--hold' doesn't allow an argument"),
        (("-Hé",), "sbatch: invalid option -- 'é'"),
    ],
)
def test_errors_are_sbatchs(argv: tuple[str, ...], message: str) -> None:
    with pytest.raises(SbatchUsage) as caught:
        parse(*argv)
    assert caught.value.message.startswith(message)
    assert caught.value.message.endswith('\nTry "sbatch --help" for more information')
    assert caught.value.exit_code == 255


def test_an_error_keeps_its_exit_code_on_its_way() -> None:
    with pytest.raises(SbatchUsage) as caught:
        parse("--x")
    document = caught.value.to_document()
    assert document["exit_code"] == 255
    error = error_from_document(document)
    assert (type(error), error.exit_code, error.message) == (InvalidRequest, 255, caught.value.message)
    assert "exit_code" not in InvalidRequest("x").to_document()
    assert InvalidRequest("x").exit_code == 2


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (" -n4 --mem=2G", ["-n4", "--mem=2G"]),
        ("\t-J 'a b'", ["-J", "a b"]),
        (' --comment="a # b" # note', ["--comment=a # b"]),
        (" -n4#note", ["-n4"]),
        (" -o out\\#1 x", ["-o", "out#1", "x"]),
        (" -J $HOME", ["-J", "$HOME"]),
        (" --comment='it\"s'", ['--comment=it"s']),
        (" ''", [""]),
        ("   ", []),
    ],
)
def test_directives_are_split(line: str, words: list[str]) -> None:
    assert [word.text for word in split_directive(line, Place("f", 1, 8))] == words


def test_words_of_directives_have_columns() -> None:
    assert [word.place for word in split_directive(" -n 4", Place("f", 3, 8))] == [Place("f", 3, 9), Place("f", 3, 12)]


def test_an_open_quote_is_an_error() -> None:
    with pytest.raises(ValueError, match="Unmatched"):
        list(split_directive(" -J 'a", Place("f")))


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.text(st.sampled_from("-=:nHtJmpx4 "), max_size=6) | st.sampled_from([f"--{name}" for name in BY_NAME]))
)
def test_any_command_line_is_read_or_refused(argv: list[str]) -> None:
    try:
        call = parse(*argv)
    except SbatchUsage as error:
        assert error.exit_code == 255
    else:
        assert list(call.arguments) == argv[len(argv) - len(call.arguments) :]

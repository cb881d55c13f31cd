from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis import given
from tests.unit.adapters.slurm.samples import read_file

from overspan.adapters.slurm.commands.options import (
    ReservedOption,
    check_native,
    lay_over,
    native_options,
    read_command,
    render_directives,
    render_option,
    render_words,
)
from overspan.bridge.model.errors import Place
from overspan.bridge.model.options.sbatch import BY_NAME, Argument, Treatment
from overspan.bridge.readers.sbatch.arguments import scan_options, split_directive


@pytest.mark.parametrize(
    "name", ["job-name", "output", "error", "chdir", "wrap", "uid", "gid", "array", "parsable", "wait"]
)
def test_reserved_options_are_refused_by_name(name: str) -> None:
    with pytest.raises(ReservedOption) as refused:
        check_native({"constraint": "a100", name: "x"}, "trainer")
    assert refused.value.option == name
    assert f"--{name} " in refused.value.message and "'trainer'" in refused.value.message and refused.value.remedy


def test_any_other_option_of_sbatch_passes() -> None:
    passing = [name for name, option in BY_NAME.items() if option.treatment in (Treatment.NOTED, Treatment.MAPPED)]
    own = {
        "job-name",
        "output",
        "error",
        "chdir",
        "wrap",
        "array",
        "clusters",
        "hold-on-failure",
        "job-group",
        "no-job-group",
        "pool",
    }
    check_native({name: "" for name in passing if name not in own})
    check_native({"site-plugin": "on"})


def test_partition_qos_account_of_the_task_win_over_the_header() -> None:
    job = read_file(
        "name: g\nexecution: parallel\nslurm: {partition: all, qos: low, reservation: r}\n---\n"
        "name: a\nslurm: {partition: gpu, account: lab}\nrun: a\n---\nname: b\nrun: b\n"
    )
    a, b = job.spec.tasks
    assert native_options(job.spec, a).options == {
        "partition": "gpu",
        "qos": "low",
        "reservation": "r",
        "account": "lab",
    }
    assert native_options(job.spec, b).options["partition"] == "all"


@pytest.mark.parametrize(
    ("below", "above", "options", "conflicts"),
    [
        ({"mem": "8G"}, {"mem": "10G"}, {"mem": "10G"}, 1),
        ({"mem": "8G"}, {"mem": "8G"}, {"mem": "8G"}, 0),
        ({"mem": "8G"}, {"mem-per-cpu": "1G"}, {"mem-per-cpu": "1G"}, 1),
        ({"gres": "gpu:2"}, {"gpus-per-node": "a100:2"}, {"gpus-per-node": "a100:2"}, 1),
        ({"gres": "gpu:2,shard:1"}, {"gpus": "4"}, {"gres": "shard:1", "gpus": "4"}, 1),
        ({"gres": "gpu:2"}, {"gres": "craynetwork:1"}, {"gres": "gpu:2,craynetwork:1"}, 0),
        ({"gres": "gpu:2"}, {"gres": "gpu:a100:4"}, {"gres": "gpu:a100:4"}, 1),
        ({"requeue": ""}, {"no-requeue": ""}, {"no-requeue": ""}, 1),
        ({"nodes": "2"}, {"exclusive": ""}, {"nodes": "2", "exclusive": ""}, 0),
    ],
)
def test_upper_options_replace_their_rivals(
    below: dict[str, str], above: dict[str, str], options: dict[str, str], conflicts: int
) -> None:
    laid = lay_over(below, above, "`slurm:`")
    assert laid.options == options
    assert len(laid.conflicts) == conflicts


def test_words_of_a_command_line_are_read_as_sbatch_does() -> None:
    words = ["sbatch", "-t5", "-p", "gpu", "--me=4G", "--exclusive", "-Q", "--wait", "-M", "rig", "--nice", ":", "-N2"]
    words += ["train.sh", "-x", ":"]
    assert read_command(words) == [
        {"time": "5", "partition": "gpu", "mem": "4G", "exclusive": "", "nice": ""},
        {"nodes": "2"},
    ]
    assert read_command([]) == [{}]
    assert read_command(["sbatch", "--wrap", "echo -t 5", "-t", "3", "-t", "4"]) == [{"time": "4"}]


def test_an_empty_value_is_written_where_one_is_wanted() -> None:
    assert render_option("dependency", "") == "--dependency="
    assert render_option("exclusive", "") == "--exclusive"
    assert render_option("hold", "") == "--hold"
    assert render_option("exclusive", "user") == "--exclusive=user"


letters = st.sampled_from("ab \"'\\#:=,\t\n") | st.characters(exclude_categories=["Cs"], exclude_characters="\0")
values = st.text(letters, max_size=20)
names = st.sampled_from([name for name, option in BY_NAME.items() if option.argument is Argument.REQUIRED])


@given(st.dictionaries(names, values, max_size=6))
def test_directives_read_back_as_they_were(options: dict[str, str]) -> None:
    lines, rest = render_directives(options)
    words = []
    for line in lines:
        assert "\n" not in line
        words += list(split_directive(line.removeprefix("#SBATCH"), Place("script", 1)))
    found, _ = scan_options(words, stop=False)
    expected = {("ntasks-per-node" if name == "tasks-per-node" else name): value for name, value in options.items()}
    if "tasks-per-node" in options and "ntasks-per-node" in options:
        return
    assert {name: given.value for name, given in found.items()} | {
        ("ntasks-per-node" if name == "tasks-per-node" else name): value for name, value in rest.items()
    } == expected
    assert all(any(letter < " " or letter == "\x7f" for letter in value) for value in rest.values())


mapped = [
    n for n, o in BY_NAME.items() if o.treatment in (Treatment.NOTED, Treatment.MAPPED) and n not in ("uid", "gid")
]
left_out = ("wrap", "clusters", "tasks-per-node", "hold-on-failure", "job-group", "no-job-group", "pool")


@given(st.dictionaries(st.sampled_from([n for n in mapped if n not in left_out]), values, max_size=6))
def test_words_read_back_as_they_were(options: dict[str, str]) -> None:
    options = {name: "" if BY_NAME[name].argument is Argument.NONE else value for name, value in options.items()}
    assert read_command(["sbatch", *render_words(options), "script"]) == [options]

"""Batch scripts: precedence, values, components."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.readers.scripts import CONTEXT, read, task_of

from overspan.bridge.model.documents import decode, encode
from overspan.bridge.model.errors import InvalidRequest
from overspan.bridge.model.ids import ArraySpec, IndexRange
from overspan.bridge.model.options.sbatch import BY_NAME, OPTIONS, Argument
from overspan.bridge.model.spec import (
    Dependency,
    DependencyKind,
    Form,
    JobNeed,
    JobSpec,
    SignalBefore,
)
from overspan.bridge.readers.sbatch.arguments import parse_sbatch
from overspan.bridge.readers.sbatch.batch_script import read_batch_script


def test_a_plain_script() -> None:
    job = read()
    (task,) = job.tasks
    assert (job.name, job.group, job.requeue, job.notes) == ("job.sh", False, None, ())
    assert (task.name, task.form, task.primary, task.num_nodes) == ("batch", Form.BATCH, True, 1)
    assert task.run.endswith("echo hi\n")
    assert task.workdir == "/home/u/50%"
    assert task.streams.output == "/home/u/50%%/slurm-%j.out"
    assert (task.streams.error, task.streams.input, task.streams.append) == ("", "", False)
    assert task.env == dict(CONTEXT.environment)
    assert (task.resources.cpus, task.resources.memory_mib, task.time) == (None, None, None)
    assert decode(JobSpec, json.loads(json.dumps(encode(job)))) == job


def test_precedence() -> None:
    context = replace(CONTEXT, environment={"SBATCH_ACCOUNT": "env", "SBATCH_QOS": "env"})
    job = read("-A script -q script -p script", "-A", "line", context=context)
    assert (job.account, job.qos, job.partition) == ("line", "env", "script")


@pytest.mark.parametrize(
    ("directives", "expected"),
    [
        ("-J 'a b'", {"name": "a b"}),
        ("-p gpu,cpu", {"partition": "gpu,cpu"}),
        ("-A lab -q high --comment='x y'", {"account": "lab", "qos": "high", "comment": "x y"}),
        ("-H", {"hold": True}),
        ("--priority=0", {"hold": True, "priority": None}),
        ("--priority=9", {"priority": 9}),
        ("--nice", {"nice": 100}),
        ("--begin=2001-01-01", {"begin": None}),
        ("--requeue", {"requeue": True}),
        ("--requeue\n--no-requeue", {"requeue": False}),
        ("--no-requeue\n--requeue", {"requeue": True}),
        ("--begin=now+1hour", {"begin": CONTEXT.now + 3600}),
        ("--deadline=now+2hours", {"deadline": CONTEXT.now + 7200}),
        ("-M hpc,local", {"clusters": ("hpc", "local")}),
        ("-a 0-9:3%2", {"array": ArraySpec((IndexRange(0, 9, 3),), 2)}),
        ("-d afterok:7", {"dependency": Dependency((JobNeed(DependencyKind.AFTEROK, 7),))}),
        ("-d ''", {"dependency": Dependency()}),
    ],
)
def test_fields_of_the_job(directives: str, expected: dict[str, Any]) -> None:
    job = read(directives)
    assert {name: getattr(job, name) for name in expected} == expected


@pytest.mark.parametrize(
    ("directives", "nodes", "ntasks", "cpus"),
    [
        ("-N 2", 2, None, None),
        ("-N 2-4", 2, None, None),
        ("-n 4", 1, 4, 4),
        ("-n 4 -c 2", 1, 4, 8),
        ("-N 2 -n 5", 2, 5, 3),
        ("-N 2 --ntasks-per-node=3", 2, None, 3),
        ("-n 6 --ntasks-per-node=2", 3, 6, 2),
        ("-c 3", 1, None, 3),
        ("-N 4 -n 2", 2, 2, 1),
    ],
)
def test_nodes_and_tasks(directives: str, nodes: int, ntasks: int | None, cpus: float | None) -> None:
    task = task_of(directives)
    assert (task.num_nodes, task.ntasks, task.resources.cpus) == (nodes, ntasks, cpus)


@pytest.mark.parametrize(
    ("directives", "gpus", "gres"),
    [
        ("--gres=gpu", ["1"], []),
        ("--gres=gpu:a100:2,fpga:1", ["a100:2"], ["fpga:1"]),
        ("--gpus-per-node=2", ["2"], []),
        ("-N 2 -G 4", ["2"], []),
        ("-N 2 --gpus=h100:3", ["h100:2"], []),
        ("-n 4 --gpus-per-task=1", ["4"], []),
        ("--gres=none", [], []),
    ],
)
def test_gpus(directives: str, gpus: list[str], gres: list[str]) -> None:
    need = task_of(directives).resources
    assert [str(choice) for choice in need.gpus] == gpus
    assert [str(entry) for entry in need.gres] == gres


def test_memory_time_and_signal() -> None:
    task = task_of("--mem=2G -t 90 --signal=B:USR1@40")
    assert (task.resources.memory_mib, task.time, task.signal) == (2048, 5400, SignalBefore("USR1", 40, True))
    assert task_of("--mem-per-cpu=100").resources.memory_mib_per_cpu == 100
    assert task_of("--mem=0").resources.memory_mib == 0
    assert task_of("--mem-per-gpu=1G -G 2").resources.memory_mib == 2048
    assert task_of("-t 0:30").time == 60
    assert task_of("-t UNLIMITED").time is None
    assert task_of("--signal=USR2").signal == SignalBefore("USR2", 60, False)
    # The command line's kind of memory replaces the script's.
    assert task_of("--mem=2G", "--mem-per-cpu=1G").resources.memory_mib is None


def test_files_resolve_against_chdir() -> None:
    streams = task_of("-D out -o %x-%j.log -e /abs/%j -i none --open-mode=append").streams
    assert streams.output == "/home/u/50%%/out/%x-%j.log"
    assert (streams.error, streams.input, streams.append) == ("/abs/%j", "/dev/null", True)
    assert task_of("-a 1-2").streams.output.endswith("/slurm-%A_%a.out")


def test_names_of_jobs() -> None:
    def name(script: str, *argv: str) -> str:
        call = parse_sbatch(argv, {})
        return read_batch_script("#!/bin/sh\n", script, call=call, context=CONTEXT).name

    assert name("x/y.sh", "x/y.sh") == "y.sh"
    assert name("") == "sbatch"
    assert name("/dev/stdin", "/dev/stdin") == "stdin"
    assert name("", "--wrap=ls") == "wrap"
    assert name("", "--wrap=ls", "-J", "z") == "z"


def test_any_component_may_have_the_command() -> None:
    call = parse_sbatch(["-n1", ":", "-n2", "--wrap=ls"], {})
    job = read_batch_script("", "", call=call, context=CONTEXT)
    assert (job.name, [task.ntasks for task in job.tasks]) == ("wrap", [1, 2])
    assert job.tasks[0].run.endswith("\nls\n")


def test_wrapped_commands_and_arguments() -> None:
    call = parse_sbatch(["--wrap", "echo $1"], {})
    (task,) = read_batch_script("", "", call=call, context=CONTEXT).tasks
    assert task.run.startswith("#!/bin/sh\n")
    assert task.run.endswith("\necho $1\n")
    call = parse_sbatch(["job.sh", "-n", "x y"], {})
    assert read_batch_script("#!/bin/sh\n", "job.sh", call=call, context=CONTEXT).tasks[0].args == ("-n", "x y")


def test_components_inherit_what_sbatch_says() -> None:
    job = read("-J het -t 5 -n 1 -p a\nhetjob\n-n 2 -t 9\npackjob\n-n 3 --mem=1G")
    assert [task.name for task in job.tasks] == ["het-0", "het-1", "het-2"]
    assert [task.ntasks for task in job.tasks] == [1, 2, 3]
    assert [task.time for task in job.tasks] == [300, 540, 540]
    assert [task.primary for task in job.tasks] == [True, False, False]
    assert [bool(task.run) for task in job.tasks] == [True, False, False]
    assert (job.name, job.partition) == ("het", "a")
    named = read("-J echo-0\nhetjob\n-J echo-1")
    assert (named.name, [task.name for task in named.tasks]) == ("echo-0", ["echo-0", "echo-1"])
    assert [task.name for task in read("-J a_b\nhetjob\n-J a-b").tasks] == ["het-0", "het-1"]
    two = read("-n 1", "-n2", ":", "-n3")
    assert [task.ntasks for task in two.tasks] == [2, 3]


def test_cpus_of_a_node_are_at_least_as_many_as_wished() -> None:
    assert task_of("--mincpus=4").resources.cpus == 4
    assert task_of("--mincpus=4 -n 6").resources.cpus == 6


def test_options_of_slurm_are_kept_and_noted() -> None:
    job = read("--constraint=a&b --exclusive --mail-type=END")
    assert job.tasks[0].native["slurm"] == {"constraint": "a&b", "exclusive": "", "mail-type": "END"}
    assert job.notes == ("accepted without effect outside Slurm: --constraint --exclusive --mail-type",)
    assert read("--constraint=a -M hpc").notes == ()
    # The local cluster checks them itself.
    assert read("--nodelist=me").notes == ()
    pods = replace(CONTEXT, clusters={"pods": "kubernetes"})
    assert read("--nodelist=me", context=pods).notes == ("accepted without effect outside Slurm: --nodelist",)
    assert read("--no-requeue").tasks[0].retry.max_recoveries == 0


INSIDE = {"OVERSPAN_JOB_ID": "7", "OVERSPAN_GROUP": "rlhf"}


@pytest.mark.parametrize(
    ("environment", "argv", "parent"),
    [
        ({}, [], None),
        (INSIDE, [], 7),
        ({**INSIDE, "OVERSPAN_GROUP": ""}, [], None),
        ({**INSIDE, "OVERSPAN_JOB_ID": "x"}, [], None),
        (INSIDE, ["--no-job-group"], None),
        (INSIDE, ["--job-group=9"], 9),
        ({}, ["--job-group", "9"], 9),
        (INSIDE, ["--job-group=9", "--no-job-group"], None),
        (INSIDE, ["--no-job-group", "--job-group=9"], 9),
        ({**INSIDE, "OVERSPAN_JOB_GROUP": "none"}, [], None),
        ({"OVERSPAN_JOB_GROUP": "8"}, [], 8),
        ({"OVERSPAN_JOB_GROUP": "8"}, ["--no-job-group"], None),
    ],
)
def test_the_group_that_a_job_joins(environment: dict[str, str], argv: list[str], parent: int | None) -> None:
    assert read("", *argv, context=replace(CONTEXT, environment=environment)).parent == parent


def test_a_container_is_for_slurm() -> None:
    assert read("--container=/x -M hpc").tasks[0].native["slurm"] == {"container": "/x"}


def test_wrap_takes_no_script() -> None:
    with pytest.raises(InvalidRequest, match="not permitted with --wrap"):
        read("", "--wrap=ls")


def test_after_with_commas_is_as_weak_as_slurms() -> None:
    job = read("-d afterok:1,2")
    kinds = DependencyKind
    assert job.dependency == Dependency((JobNeed(kinds.AFTEROK, 1), JobNeed(kinds.AFTERANY, 2)))
    weak = Dependency((JobNeed(kinds.AFTER, 3, delay=300), JobNeed(kinds.SINGLETON)), any=True)
    assert read("-d after:3+5?singleton").dependency == weak
    listed = tuple(JobNeed(kinds.AFTEROK, 4, element=index) for index in (1, 2, 5))
    assert read("-d afterok:4_[1-2,5]").dependency == Dependency(listed)
    both = (JobNeed(kinds.AFTEROK, 4, element=2), JobNeed(kinds.AFTEROK, 5, task=1))
    assert read("-d afterok:4_2:5+1").dependency == Dependency(both)


TRIED = [option for option in OPTIONS if option.argument is not Argument.NONE]


@settings(max_examples=400, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(TRIED),
            st.text(st.sampled_from("0123456789:-,%@=+xBGn[]' \\#"), max_size=8)
            | st.sampled_from(["now", "gpu", "ALL"]),
        ),
        max_size=4,
    ),
    st.text(max_size=30),
)
def test_any_script_is_read_or_refused(given_options: list[tuple[Any, str]], tail: str) -> None:
    lines = "\n".join(f"#SBATCH --{option.name}={value}" for option, value in given_options)
    call = parse_sbatch(["job.sh"], {})
    try:
        job = read_batch_script(f"#!/bin/sh\n{lines}\n{tail}", "job.sh", call=call, context=CONTEXT)
    except InvalidRequest as error:
        assert error.exit_code in (1, 255) or "group" in error.message
    else:
        assert decode(JobSpec, json.loads(json.dumps(encode(job)))) == job


def test_every_option_has_a_known_treatment() -> None:
    for name in ("time", "nodes", "wrap", "array", "signal", "export"):
        assert BY_NAME[name].treatment.value == "mapped"

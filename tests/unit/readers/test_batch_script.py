"""Batch scripts: directives, precedence, values, and what sbatch refuses."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from overspan.bridge.model.documents import decode, encode
from overspan.bridge.model.errors import InvalidRequest
from overspan.bridge.model.ids import ArraySpec, IndexRange
from overspan.bridge.model.sbatch_options import BY_NAME, OPTIONS, Argument
from overspan.bridge.model.spec import (
    Dependency,
    DependencyKind,
    Form,
    JobNeed,
    JobSpec,
    Origin,
    SignalBefore,
    TaskSpec,
)
from overspan.bridge.readers.batch_script import read_batch_script, scan_directives
from overspan.bridge.readers.context import ReadContext
from overspan.bridge.readers.export import select_environment
from overspan.bridge.readers.sbatch_arguments import parse_sbatch

CONTEXT = ReadContext(
    directory="/home/u/50%",
    environment={"PATH": "/bin", "SLURM_CONF": "/c"},
    clusters={"local": "local", "hpc": "slurm"},
    origin=Origin(user="ann", uid=1000),
    now=1_800_000_000.0,
)
SCRIPT = "#!/bin/bash\n{}\necho hi\n"


def read(directives: str = "", *argv: str, context: ReadContext = CONTEXT) -> JobSpec:
    call = parse_sbatch([*argv, "dir/job.sh"], context.environment)
    text = SCRIPT.format("\n".join(f"#SBATCH {line}" for line in directives.splitlines()))
    return read_batch_script(text, "dir/job.sh", call=call, context=context)


def task_of(directives: str = "", *argv: str) -> TaskSpec:
    (task,) = read(directives, *argv).tasks
    return task


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


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("#!/bin/sh\n#SBATCH -n4\n", ["ntasks"]),
        ("#!/bin/sh\n#SBATCH\t-n4 -t 5\n", ["ntasks", "time"]),
        ("#!/bin/sh\n #SBATCH -n4\n", []),
        ("#!/bin/sh\n# SBATCH -n4\n##SBATCH -n4\n#sbatch -n4\n", []),
        ("#!/bin/sh\n#SBATCH-n4\n   # words\n#SBATCH -t5\n", ["ntasks", "time"]),
        ("#!/bin/sh\n#SBATCH -n\n#SBATCH 4\n", ["ntasks"]),
        ("#!/bin/sh\n#SBATCH --wrap=ls --help -V -n 4\n", ["ntasks"]),
        ("#!/bin/sh\n\n   \n# words\n#SBATCH -n4\n", ["ntasks"]),
        ("#!/bin/sh\necho\n#SBATCH -n4\n", []),
        ("#!/bin/sh\n#SBATCH -n4 # -t 5\n", ["ntasks"]),
        ("#SBATCH -n4\n", ["ntasks"]),
    ],
)
def test_directive_lines(text: str, names: list[str]) -> None:
    found = scan_directives(text, "f")
    assert [sorted(part) for part in found.components] == [sorted(names)]


def test_lines_of_other_systems_are_noted() -> None:
    found = scan_directives("#!/bin/sh\n#PBS -l nodes=2\n#SBATCH -n 4\n", "f")
    assert found.notes == ["f:2: #PBS lines are not read; write #SBATCH"]


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


REFUSALS: list[tuple[str, int, str]] = [
    ("--x", 255, "sbatch: unrecognized option '--x'"),
    ("-t soon", 255, "sbatch: error: Invalid --time specification"),
    ("-t 1h", 255, "sbatch: error: Invalid --time specification"),
    ("--mem=1.5G", 255, "sbatch: error: Invalid --mem specification"),
    ("--begin=whenever", 255, "sbatch: error: Invalid --begin specification"),
    ("--signal=NOPE", 255, "sbatch: error: Invalid --signal specification"),
    ("--open-mode=x", 255, "sbatch: error: Invalid --open-mode specification"),
    ("-n x", 1, 'sbatch: error: Invalid numeric value "x" for --ntasks.'),
    ("-n 0", 1, 'sbatch: error: Invalid numeric value "0" for --ntasks.'),
    ("-N 9999999", 1, "Batch job submission failed: Node count specification invalid"),
    ("-p ''", 1, "sbatch: error: invalid partition specified: (null)"),
    ("--gres=", 1, "Batch job submission failed: Invalid Trackable RESource (TRES) specification"),
    ("--deadline=now+2days -b now+3days", 1, "sbatch: error: Incompatible begin and deadline time specification"),
    ("--gid=5", 255, "sbatch: error: --gid only permitted by root user"),
    ("-N 4-2", 255, "sbatch: error: Maximum node count 2 is less than minimum node count 4"),
    ("-N 2-x", 255, 'sbatch: error: "x" is not a valid node count'),
    ("-n 9000000 --ntasks-per-node=1", 1, "Node count specification invalid"),
    ("--gpus=x:y", 1, "sbatch: error: Invalid generic resource (gres) specification"),
    ("--gres=gpu::", 1, "sbatch: error: Invalid generic resource (gres) specification"),
    ("stray", 255, "sbatch: error: Invalid directive found in batch script: stray"),
    ("-n4 -- -t 5", 255, "sbatch: error: Invalid directive found in batch script: -t"),
    ("stray --unknown", 255, "sbatch: unrecognized option '--unknown'"),
    ("-n1 : -n2", 1, "sbatch: fatal: job.sh: line 2: Unexpected `:` in ["),
    ("--mem=1G\n--mem-per-cpu=2G", 1, "sbatch: fatal: --mem, --mem-per-cpu, and --mem-per-gpu are mutually exclusive."),
    ("--deadline=2001-01-01", 1, "Requested time limit is invalid"),
    ("-t 10 --time-min=20", 1, "Invalid time-min specification (exceeds job's time or other limits)"),
    ("--job-group=x", 2, "'x' is not the id of a group"),
    ("--nice=-5", 1, "sbatch: error: Batch job submission failed: Invalid --nice value"),
    ("--reboot", 1, "sbatch: error: rebooting of nodes is only allowed for admins"),
    ("-d expand:5", 1, "Batch job submission failed: Requested operation not supported on this system"),
    ("-d 'afterok:5 '", 1, "Job dependency problem"),
    ("--nice=x", 255, "sbatch: error: Invalid --nice value"),
    ("--priority=-1", 255, "sbatch: error: Priority must be >= 0"),
    ("-a 3-1", 1, "sbatch: error: Batch job submission failed: Invalid job array specification"),
    ("-d none", 1, "sbatch: error: Batch job submission failed: Job dependency problem"),
    ("-d afterok:1,2?3", 1, "Job dependency problem"),
    ("--mem=1G --mem-per-cpu=1G", 1, "mutually exclusive"),
    ("--gres=gpu:1g", 1, "Invalid generic resource (gres) specification"),
    ("--gpus-per-task=999999999 -n 9", 1, "Invalid generic resource (gres) specification"),
    ("--gpus=a:1,b:1", 1, "Invalid generic resource (gres) specification"),
    ("--uid=5", 255, "sbatch: error: --uid only permitted by root user"),
    ("--container=x", 1, "--container is not supported"),
    ("-M mars", 1, "'mars' can't be reached now"),
    ("-n 4 -J 'a b", 1, "sbatch: fatal: job.sh: line 2: Unmatched `'` in [ 'a b]"),
    ("-a 1-2\nhetjob\n-n 2", 1, "Invalid job array specification"),
]


@pytest.mark.parametrize(("directives", "code", "message"), REFUSALS)
def test_refused_options(directives: str, code: int, message: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        read(directives)
    assert message in caught.value.message
    assert caught.value.exit_code == code


def test_refused_options_are_located() -> None:
    with pytest.raises(InvalidRequest) as caught:
        read("-n 4\n-N 1 -t soon")
    assert str(caught.value.place) == "dir/job.sh:3:14"
    assert "write" in caught.value.remedy


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "Batch script is empty!"),
        (" \n\n", "Batch script contains only whitespace!"),
        ("echo hi\n", "This does not look like a batch script."),
        (" #!/bin/sh\n", "This does not look like a batch script."),
        ("#!/bin/sh\r\necho\r\n", "Batch script contains DOS line breaks (\\r\\n)"),
        ("#!/bin/sh\n\0", "NULL character"),
        ("#!/bin/sh\n" + "x" * (4 * 1024 * 1024), "exceeds size"),
    ],
    ids=lambda value: repr(value)[:30],
)
def test_refused_scripts(text: str, message: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        read_batch_script(text, "job.sh", call=parse_sbatch(["job.sh"], {}), context=CONTEXT)
    assert caught.value.message.startswith(f"sbatch: error: {message}") or message in caught.value.message
    assert caught.value.exit_code == 1


def test_a_job_file_is_for_another_command() -> None:
    with pytest.raises(InvalidRequest) as caught:
        read_batch_script("name: x\n", "x.yaml", call=parse_sbatch(["x.yaml"], {}), context=CONTEXT)
    assert caught.value.remedy == "for a job file: span submit x.yaml"


def test_a_wrong_line_counts_although_the_command_line_replaces_it() -> None:
    with pytest.raises(InvalidRequest, match="Invalid --time specification"):
        read("-t soon", "-t", "5")
    context = replace(CONTEXT, environment={"SBATCH_TIMELIMIT": "soon"})
    with pytest.raises(InvalidRequest, match="Invalid --time specification"):
        read("", "-t", "5", context=context)


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


SUBMITTED = {"PATH": "/bin", "SLURM_CONF": "/c", "A": "1", "HOME": "/h", "SHELL": ""}
FRESH = {"SLURM_CONF": "/c", "SLURM_GET_USER_ENV": "1", "HOME": "/h"}


@pytest.mark.parametrize(
    ("export", "expected"),
    [
        (None, SUBMITTED),
        ("ALL", SUBMITTED),
        ("all", SUBMITTED),
        ("", SUBMITTED),
        ("NONE", {**FRESH, "SLURM_EXPORT_ENV": "NONE"}),
        ("NIL", {**FRESH, "SLURM_EXPORT_ENV": "NIL"}),
        ("A,B=2,C", {**FRESH, "A": "1", "B": "2", "SLURM_EXPORT_ENV": "A,B=2,C"}),
        ("ALL,B=a=b", {**SUBMITTED, "B": "a=b", "SLURM_GET_USER_ENV": "1", "SLURM_EXPORT_ENV": "ALL,B=a=b"}),
        ("B='x,y'", {**FRESH, "B": "'x,y'", "SLURM_EXPORT_ENV": "B='x,y'"}),
    ],
)
def test_export(export: str | None, expected: dict[str, str]) -> None:
    assert select_environment(export, SUBMITTED) == expected


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

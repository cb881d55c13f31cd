"""Job files that are refused: every rule, with the place that its message names."""

from __future__ import annotations

import pytest

from overspan.bridge.model.errors import InvalidRequest
from overspan.bridge.model.spec import JobSpec
from overspan.bridge.readers.job_file import read_job_file
from overspan.bridge.readers.read_context import ReadContext

LOCAL = ReadContext(
    directory="/home/u/work",
    environment={"HOME": "/home/u"},
    clusters={"local": "local", "hpc": "slurm", "gpu-cloud": "kubernetes"},
    now=1_800_000_000.0,
)


def read(text: str, context: ReadContext = LOCAL) -> JobSpec:
    return read_job_file(text, "job.yaml", context=context)


def refusal(text: str, context: ReadContext = LOCAL) -> str:
    with pytest.raises(InvalidRequest) as caught:
        read(text, context)
    assert caught.value.exit_code == 2
    return str(caught.value)


GROUP = "name: g\nexecution: parallel\n"
A = "---\nname: a\nrun: x\n"
B = "---\nname: b\nrun: x\n"


HEADER_FAULTS: list[tuple[str, str]] = [
    (GROUP + "primry_tasks: [a]\n" + A, "job.yaml:3:1: unknown key 'primry_tasks'; did you mean 'primary_tasks'?"),
    (GROUP + "name: h\n" + A, "job.yaml:3:1: the key 'name' is given twice; the first is at job.yaml:1:1"),
    (GROUP + "name2: h\n" + A, "job.yaml:3:1: unknown key 'name2'; did you mean 'name'?"),
    (
        "name: g\nexecution: paralel\n" + A,
        "job.yaml:2:12: 'paralel' is none of parallel, serial; did you mean 'parallel'?",
    ),
    ("name: g\nexection: parallel\n" + A, "unknown key 'exection'; did you mean 'execution'?"),
    ("name: g\nprimary_tasks: [a]\n" + A, "the header has no `execution`"),
    ("execution: parallel\n" + A, "job.yaml:1:1: the header has no name"),
    (GROUP, "a header and no task"),
    ("name: g\nprimary_tasks: [a]\n", "the group has no task"),
    (GROUP + "resources: {cpus: 1}\n" + A, "job.yaml:3:1: the key 'resources' does not belong in the header"),
    (GROUP + "primary_tasks: a\n" + A, "job.yaml:3:16: a list is wanted here"),
    (GROUP + "primary_tasks: {a: 1}\n" + A, "a list is wanted here, not a mapping"),
    (GROUP + "primary_tasks: [b]\n" + A, "job.yaml:3:17: primary_tasks names 'b', which is no task"),
    (GROUP + "termination_delay: 1m30s\n" + A, "job.yaml:3:20: '1m30s' is not a delay"),
    (GROUP + "termination_delay: 1.5\n" + A, "1.5 is not a delay"),
    (GROUP + "termination_delay: -1\n" + A, "-1 is not a delay"),
    (GROUP + "termination_delay: 400d\n" + A, "longer than a year"),
    (GROUP + "termination_delay: [1]\n" + A, "a single value or a mapping is wanted here, not a list"),
    (GROUP + "termination_delay: {c: 1s}\n" + A, "job.yaml:3:24: termination_delay names 'c', which is no task"),
    (GROUP + "termination_delay: {default: 1s}\n---\nname: default\n", "job.yaml:5:7: a task is called 'default'"),
    (GROUP + "inter_connection: yes\n" + A, "true or false is wanted here, not the text 'yes'"),
    (GROUP + "array: 0-3\n" + A, "an array of a job with several tasks is refused"),
    (GROUP + "start: now\n" + A, "'now' is none of turns, together, independent"),
    (GROUP + "priority: 1.5\n" + A, "a whole number is wanted here"),
    (GROUP + "cluster: nowhere\n" + A, "job.yaml:3:10: there is no cluster named 'nowhere'"),
    (GROUP + "race: true\n" + A, "race needs several clusters"),
    (GROUP + "needs: afterokay:1\n" + A, "'afterokay' in 'afterokay:1' is not a kind of dependency"),
    (GROUP + "cron: '* * *'\n" + A, "is not a schedule"),
    (GROUP + "begin: yesterdayish\n" + A, "is not a point in time"),
    (GROUP + "on_checkpoint: {path: x}\n" + A, "on_checkpoint needs the key 'pattern'"),
    (GROUP + "slurm: {chdir: /x}\n" + A, "the sbatch option --chdir is reserved"),
    (GROUP + "slurm: --output=x\n" + A, "the sbatch option --output is reserved"),
    ("name: a.b\nexecution: parallel\n" + A, "job.yaml:1:7: the name 'a.b' has '.' in it"),
    (f"name: {'g' * 64}\nexecution: parallel\n" + A, "shorten it"),
    ("name: g-{job}\nexecution: parallel\n" + A, "brace"),
]

NAME_FAULTS: list[tuple[str, str]] = [
    (GROUP + "---\nrun: x\n", "job.yaml:4:1: task 1 has no name"),
    (GROUP + A + "---\nname: a b\n", "job.yaml:7:7: task 2: the name 'a b' has ' ' in it"),
    (GROUP + A + "---\nname: a.b\n", "task 2: the name 'a.b' has '.' in it"),
    (GROUP + A + A, "job.yaml:7:7: task 2: the name 'a' is taken by task 1 at job.yaml:4:7"),
    (GROUP + "---\nname: a_b\n---\nname: A-b\n", "task 2: 'A-b' and 'a_b' of task 1"),
    (GROUP + "---\nname: -a\n", "task 1"),
    (GROUP + f"---\nname: {'a' * 62}\n", "host name takes at most 63"),
    (GROUP + f"---\nname: {'a' * 61}\nnum_nodes: 11\n", "host name takes at most 63"),
    (GROUP + "".join(f"---\nname: t{n}\n" for n in range(129)), "the job has 129 tasks; the limit is 128"),
    (GROUP + "---\nname: [a]\n", "task 1"),
]

TASK_FAULTS: list[tuple[str, str]] = [
    ("runn: x\n", "unknown key 'runn'; did you mean 'run'?"),
    ("depends_on: [a]\n", "unknown key 'depends_on'"),
    ("primary_tasks: [a]\n", "does not belong in a task"),
    ("num_nodes: 0\n", "0 is out of range; it must be from 1 to 10000"),
    ("num_nodes: 10001\n", "out of range"),
    ("num_nodes: two\n", "a whole number is wanted here, not the text 'two'"),
    ("run: [a, b]\n", "text is wanted here, not a list"),
    ("run: true\n", 'write "true" with quotes'),
    ("resources: [x]\n", "a mapping"),
    ("resources: {cpu: 1}\n", "unknown key 'cpu'; did you mean 'cpus'?"),
    ("resources: {cpus: 4-}\n", "is not a number of CPUs"),
    ("resources: {memory: lots}\n", "is not an amount of memory"),
    ("resources: {accelerators: H100:x}\n", "is not an accelerator"),
    ("resources: {accelerators: H100, gpus: A100}\n", "the same key"),
    ("resources: {infra: aws/us-east-1}\n", "'aws' is no cluster that Overspan knows"),
    ("resources: {infra: slurm/hpx}\n", "there is no slurm cluster named 'hpx'; did you mean 'hpc'?"),
    ("resources: {infra: kubernetes, cloud: aws}\n", "infra says what cloud"),
    ("resources: {infra: slurm, any_of: [{cpus: 1}], ordered: [{cpus: 1}]}\n", "exclude each other"),
    ("resources: {any_of: [{cpuz: 1}]}\n", "unknown key 'cpuz'"),
    ("resources: {ports: 70000}\n", "ports go from 1 to 65535"),
    ("resources: {ports: [x]}\n", "is not a port"),
    ("resources: {priority: 2000}\n", "out of range"),
    ("resources: {job_recovery: {recover_on_exit_codes: 256}}\n", "256 is out of range"),
    ("resources: {job_recovery: {max_restarts_on_errors: 1}}\nmax_restarts_on_errors: 2\n", "differs"),
    ("envs: {A: }\n", "A has no value"),
    ('envs: {A: "x\\0"}\n', "no program can be given a NUL character"),
    ('setup: "a\\0b"\n', "no program can be given a NUL character"),
    ("envs: {A b: 1}\n", "'A b' is not the name of a variable"),
    ("secrets: [TOKEN]\n", "TOKEN has no value"),
    ("envs: {T: 1}\nsecrets: {T: 2}\n", "T is in envs and in secrets"),
    ("managed_secrets: [a]\n", "'managed_secrets' is not supported"),
    ("file_mounts: {/x: {mode: FUSE}}\n", "'FUSE' is not a mode"),
    ("file_mounts: {/x: {bucket: a}}\n", "unknown key 'bucket'"),
    ("volumes: {data: x}\n", "is not a path"),
    ("workdir: {ref: main}\n", "workdir needs the key 'url'"),
    ("config: {slurm: {sbatch_options: {uid: 0}}}\n", "--uid is reserved"),
    ("config: {kubernetes: {pod_config: 3}}\n", "config.kubernetes.pod_config is a mapping"),
    ("login: true\nrun: '#!/bin/sh'\n", "login is for the shell"),
    ("time: 1h30m\n", "is not a wall time"),
    ("time: 5.5\n", "is not a wall time"),
    ("grace_period: soon\n", "is not a delay"),
    ("signal: USR9@3\n", "is not a signal"),
    ("restart: all\n", "'all' is none of task, group, node"),
    ("on_failure: ignore\n", "is for auxiliary tasks"),
    ("notice_signal: USR1\n", "is for auxiliary tasks"),
    ("backoff: {first: 10, limit: 5}\n", "longer than the limit"),
    ("backoff: {jitter: 2}\n", "out of range"),
    ("backoff: {factor: .inf}\n", "a number is wanted here"),
    ("ready: {tcp: 80, http: 80/}\n", "exactly one of"),
    ("ready: {}\n", "exactly one of"),
    ("ready: {http: health}\n", "is not PORT/path"),
    ("ready: {tcp: 0}\n", "out of range"),
    ("ready: {tcp: 80, period: 0}\n", "out of range"),
    ("share: c\n", "shares the nodes of 'c', which is no task"),
    ("share: b\n", "shares its own nodes"),
    ("share: a\nspread: true\n", "share and spread exclude each other"),
    ("share: a\nnum_nodes: 2\n", "b has 2 nodes and shares those of a, which has 1"),
    ("needs: c\n", "b needs 'c', which is no task"),
    ("needs: b\n", "b needs itself"),
    ("needs: {task: a, until: ready}\n", "a does not say when it is ready"),
    ("needs: okay:a\n", "'okay' is not a kind of need"),
    ("needs: {task: a, until: up}\n", "'up' is none of"),
    ("needs: {until: ok}\n", "a need needs the key 'task'"),
    ("kubernetes: [x]\n", "a part of a pod manifest is wanted here"),
    ("slurm: {time: {a: 1}}\n", "one value is wanted for --time"),
    ("slurm: {time: }\n", "needs a value"),
    ("slurm: exclusive\n", "is not an option of sbatch"),
    ("cluster: [hpc, mars]\n", "there is no cluster named 'mars'"),
    ("cluster: hpc\nresources: {infra: kubernetes}\n", "cluster and infra name different clusters"),
]


@pytest.mark.parametrize(("text", "message"), HEADER_FAULTS + NAME_FAULTS, ids=lambda value: value[-40:])
def test_refused_files(text: str, message: str) -> None:
    assert message in refusal(text)


@pytest.mark.parametrize(("keys", "message"), TASK_FAULTS, ids=lambda value: value[:50])
def test_refused_tasks(keys: str, message: str) -> None:
    shown = refusal(GROUP + A + "---\nname: b\n" + keys)
    assert message in shown
    assert "job.yaml:" in shown.splitlines()[0]


def test_a_group_of_one_without_a_program() -> None:
    job = read(GROUP + "---\nname: a\n")
    assert (job.group, job.task("a").run, job.task("a").primary) == (True, "", True)


def test_a_file_of_faults_is_given_up_early() -> None:
    keys = "".join(f"kez{n}: 1\n" for n in range(9_000))
    shown = refusal(GROUP + A + keys)
    assert "and 79 more" in shown
    assert len(shown) < 20_000
    assert len(refusal(f"time: {'x' * 100_000}\nrun: x\n")) < 1000


def test_variables_cannot_grow_without_bound() -> None:
    text = f"envs: {{A: {'x' * 100_000}}}\nworkdir: {'$A' * 2000}\nrun: x\n"
    assert "more than 4096 characters" in refusal(text)


def test_cycles_of_needs_are_refused() -> None:
    text = GROUP + A + "needs: c\n" + B + "needs: a\n---\nname: c\nneeds: b\n"
    assert "the tasks wait for each other: a -> c -> b -> a" in refusal(text)


def test_shares_do_not_chain() -> None:
    assert "b has no nodes of its own" in refusal(GROUP + A + B + "share: a\n---\nname: c\nshare: b\n")


def test_all_faults_are_reported_with_the_first_in_front() -> None:
    with pytest.raises(InvalidRequest) as caught:
        read(GROUP + "---\nname: a\nnum_nodes: 0\ntime: soon\nrestrt: task\n")
    lines = caught.value.message.splitlines()
    assert caught.value.place is not None
    assert (caught.value.place.line, len(lines)) == (5, 3)
    assert lines[1].startswith("job.yaml:6:7: 'soon'")
    assert lines[2] == "job.yaml:7:1: unknown key 'restrt'; did you mean 'restart'?"

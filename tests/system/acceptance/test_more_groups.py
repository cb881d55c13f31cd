"""More of job groups on the local cluster: wrong files, lost nodes, crashes. Rows JG of docs/acceptance.md."""

from __future__ import annotations

import json
import os
import signal
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.shared_daemon

SERVE = (
    "trap 'echo term; exit 0' TERM; echo up; touch $OVERSPAN_RUN_DIR/$OVERSPAN_TASK.up; while :; do sleep 0.05; done"
)
AFTER_SERVER = "until [ -e $OVERSPAN_RUN_DIR/server.up ]; do sleep 0.05; done; "
UNTIL_STOP = "echo pid $$; while [ ! -e $OVERSPAN_RUN_DIR/stop ]; do sleep 0.05; done"
TELL_SHIM = "echo shim $PPID pid $$; "

SKYPILOT = """\
---
name: policy-loop
execution: parallel
primary_tasks: [learner]
termination_delay: {default: 1s, memory-bank: 2s}
---
name: sampler
num_nodes: 2
resources:
  accelerators: A10G:1
  memory: 24+
  infra: kubernetes
envs:
  MODEL: tiny
setup: echo ready > /dev/null
run: |
  echo "${MODEL} ${SKYPILOT_NODE_RANK} of ${SKYPILOT_NUM_NODES}"; touch up-${SKYPILOT_NODE_RANK}; sleep 600
---
name: memory-bank
resources: {cpus: 4+, memory: 32+, infra: kubernetes}
run: sleep 600
---
name: learner
resources:
  cpus: 8+
  accelerators: {H100: 8, A100: 8}
  infra: kubernetes
run: |
  getent hosts sampler-1.${SKYPILOT_JOBGROUP_NAME} > /dev/null && echo found
  until [ -e up-0 ] && [ -e up-1 ]; do sleep 0.1; done
"""


def group(tasks: dict[str, dict[str, Any]], **header: Any) -> str:
    """A job group from plain data; JSON documents are YAML."""
    documents = [{"name": "g", "execution": "parallel", **header}]
    documents += [{"name": name, "resources": {"cpus": 0.1}, **task} for name, task in tasks.items()]
    return "\n---\n".join(map(json.dumps, documents))


def refusal(span: Any, text: str) -> str:
    """What `span submit` says of a wrong file, without the file's folder; nothing was submitted."""
    file = span.folder / "wrong.yaml"
    file.write_text(text)
    before = span.look("squeue", "--noheader", "-t", "all")
    done = span.run("submit", str(file), check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert span.look("squeue", "--noheader", "-t", "all") == before
    words: str = done.stderr
    return words.replace(f"{span.folder}/", "")


def find_supervisors(state: Path) -> list[int]:
    """Supervisors that run for a state directory."""
    return [int(name) for name in os.listdir("/proc") if name.isdigit() and is_supervisor(Path("/proc", name), state)]


def is_supervisor(process: Path, state: Path) -> bool:
    try:
        name = (process / "comm").read_text().strip()
        return name.startswith("span-supervis") and str(state).encode() in (process / "cmdline").read_bytes()
    except OSError:
        return False


def test_a_skypilot_group_runs_unedited_with_its_sizes_scaled(span: Any) -> None:
    smaller = ["*.resources.cpus=0.1", "*.resources.memory=", "*.resources.accelerators="]
    job = span.submit(SKYPILOT, "-M", "local", *(word for text in smaller for word in ("--set", text)))
    assert span.run("wait", str(job)).returncode == 0
    assert span.log(job, "sampler", "--node", "1") == "tiny 1 of 2\n"
    shown = span.job(job)
    assert [task["state"] for task in shown["tasks"]] == ["COMPLETED"] * 3


HEADER = "name: g\nexecution: parallel\n"
TASK = "---\nname: a\nrun: echo\n"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (f"{HEADER}primary_task: [a]\n{TASK}", "wrong.yaml:3:1: unknown key 'primary_task'; did you mean"),
        (f"name: g\nexecution: sideways\n{TASK}", "wrong.yaml:2:12: 'sideways' is none of parallel, serial"),
        (f"{HEADER}name: h\n{TASK}", "wrong.yaml:3:1: "),
    ],
    ids=["unknown key", "bad execution", "duplicate key"],
)
def test_a_wrong_header_is_refused_with_key_and_line(span: Any, text: str, said: str) -> None:
    words = refusal(span, text)
    assert said in words
    assert any(key in words for key in ("primary_task", "sideways", "'name'"))


@pytest.mark.parametrize(
    ("task", "said"),
    [
        ("name: my task", "wrong.yaml:7:7: task 2: the name 'my task' has ' ' in it"),
        ("name: my.task", "wrong.yaml:7:7: task 2: the name 'my.task' has '.' in it"),
        ("name: a", "wrong.yaml:7:7: task 2: the name 'a' is taken by task 1"),
        ("num_nodes: 1", "wrong.yaml:7:1: task 2 has no name"),
    ],
    ids=["space", "dot", "duplicate", "missing"],
)
def test_wrong_names_are_refused_with_the_members_position(span: Any, task: str, said: str) -> None:
    assert said in refusal(span, f"{HEADER}{TASK}---\n{task}\nrun: echo\n")


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("[a, trainr]", "primary_tasks names 'trainr', which is no task"),
        ("a", "a list is wanted here"),
        ("{a: 1}", "a list is wanted here"),
    ],
    ids=["unknown", "text", "mapping"],
)
def test_wrong_primaries_are_refused(span: Any, value: str, said: str) -> None:
    words = refusal(span, f"{HEADER}primary_tasks: {value}\n{TASK}")
    assert words.startswith("span: error: wrong.yaml:3:") and said in words


def test_an_empty_list_of_primaries_means_all(span: Any) -> None:
    job = span.submit(group({"a": {"run": "true"}, "b": {"run": "exit 3"}}, primary_tasks=[]))
    assert span.run("wait", str(job), check=False).returncode == 3
    assert all(task["primary"] for task in span.job(job)["tasks"])


def test_a_failing_primary_ends_auxiliaries_without_their_delay(span: Any) -> None:
    job = span.submit(
        group(
            {"trainer": {"run": AFTER_SERVER + "exit 1"}, "server": {"run": SERVE}},
            primary_tasks=["trainer"],
            termination_delay="2h",
        )
    )
    assert span.run("wait", str(job), check=False).returncode == 1
    ends = {task["name"]: task["ended_at"] for task in span.job(job)["tasks"]}
    assert ends["server"] - ends["trainer"] < 300


def test_the_delay_survives_a_crash_of_supervisor_and_daemon(span: Any) -> None:
    job = span.submit(
        group(
            {"trainer": {"run": AFTER_SERVER}, "server": {"run": SERVE}},
            primary_tasks=["trainer"],
            termination_delay="12s",
        )
    )
    span.until(job, "COMPLETED", task="trainer")
    supervisors = find_supervisors(span.state)
    assert supervisors
    span.kill_daemon()
    for pid in supervisors:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    assert span.run("wait", str(job)).returncode == 0
    tasks = {task["name"]: task for task in span.job(job)["tasks"]}
    assert 11.9 <= tasks["server"]["ended_at"] - tasks["trainer"]["ended_at"] < 72
    # Told once, and of the end of the delay that began before the crash.
    (notice,) = (run_dir(span, job) / "notice").read_text().splitlines()
    assert json.loads(notice)["deadline"] - tasks["trainer"]["ended_at"] == pytest.approx(12, abs=0.01)
    assert len(tasks["server"]["attempts"]) == 1
    assert span.log(job, "server").split()[:2] == ["up", "term"]


def lose_server(span: Any, **header: Any) -> int:
    """A running group whose server's node has just been lost."""
    job: int = span.submit(
        group(
            {
                "trainer": {"run": UNTIL_STOP},
                "server": {"run": TELL_SHIM + SERVE, "backoff": {"first": 0.1}},
            },
            primary_tasks=["trainer"],
            **header,
        )
    )
    span.wait_until(lambda: "up" in span.log(job, "server"), 20, "the server")
    os.kill(int(span.log(job, "server").split()[1]), signal.SIGKILL)
    span.wait_until(lambda: len(span.task(job, "server")["attempts"]) == 2, 20, "a second attempt")
    span.until(job, "RUNNING", task="server")
    return job


def run_dir(span: Any, job: int) -> Path:
    """The folder that all tasks of a job share."""
    return Path(span.state) / f"clusters/local/runs/{job}"


def finish(span: Any, job: int) -> None:
    """Let the trainer end, and the job with it."""
    (run_dir(span, job) / "stop").touch()
    assert span.run("wait", str(job)).returncode == 0


def test_a_lost_node_brings_its_task_back_and_leaves_the_siblings_alone(span: Any) -> None:
    job = lose_server(span)
    lost = span.task(job, "server")["attempts"][0]
    assert lost["state"] == "NODE_FAIL"
    assert len(span.task(job, "trainer")["attempts"]) == 1
    span.wait_until(lambda: "pid" in span.log(job, "trainer"), 10, "the trainer")
    assert os.path.exists(f"/proc/{span.log(job, 'trainer').split()[1]}")
    finish(span, job)


def test_a_lost_node_restarts_the_group_where_the_file_says_so(span: Any) -> None:
    job = lose_server(span, restart="group")
    span.wait_until(lambda: len(span.task(job, "trainer")["attempts"]) == 2, 20, "the trainer's second attempt")
    span.until(job, "RUNNING", task="trainer")
    finish(span, job)
    assert [len(task["attempts"]) for task in span.job(job)["tasks"]] == [2, 2]


def test_a_restarted_member_is_found_under_its_old_name(span: Any) -> None:
    if span.run("check", "local", "--json", check=False).stdout.count('"env"'):
        pytest.skip("names: neither namespaces nor libnss_wrapper work on this machine")
    reach = "getent hosts server-0.g && getent hosts server-0.g > /dev/null && echo same;"
    job = span.submit(
        group(
            {
                "trainer": {"run": f"while [ ! -e $OVERSPAN_RUN_DIR/stop ]; do {reach} sleep 0.2; done"},
                "server": {"run": SERVE},
            },
            primary_tasks=["trainer"],
        )
    )
    span.wait_until(lambda: "same" in span.log(job, "trainer"), 20, "the name")
    span.until(job, "RUNNING", task="server")
    span.run("restart", str(job), "server")
    span.wait_until(lambda: len(span.task(job, "server")["attempts"]) == 2, 10, "a second attempt")
    span.until(job, "RUNNING", task="server")
    size = len(span.log(job, "trainer"))
    span.wait_until(lambda: "same" in span.log(job, "trainer")[size:], 10, "the name after the restart")
    finish(span, job)


def test_twenty_groups_do_not_keep_a_single_job_waiting(span: Any) -> None:
    text = group({"a": {"run": "sleep 3600"}, "b": {"run": "sleep 3600"}})
    groups = [span.submit(text, "--name", f"g{number}") for number in range(20)]
    for job in groups:
        span.until(job, "RUNNING")
    assert span.run("wait", str(span.wrap("true")), "--timeout", "120").returncode == 0
    assert all(span.job(job)["state"] == "RUNNING" for job in groups)
    span.run("scancel", *map(str, groups))

"""Sets at a site where the machines share no folder: each native job has a relay and a folder of its own node."""

from __future__ import annotations

from typing import Any

from tests.system.conftest import Span
from tests.system.slurm.conftest import Site
from tests.system.slurm.fillers import fill
from tests.system.slurm.groups import SERVE, start, until_said
from tests.system.slurm.relays import kill_relay, until_clean
from tests.system.slurm.sets import make_set, natives, until_nothing_left

FIND = "for host in trainer-0.g server-0.g; do getent hosts $host || exit 9; done"
WAIT = "until rm /tmp/go 2>/dev/null; do sleep 0.1; done"
RECOVERY = {"cpus": 1, "memory": "100M", "job_recovery": {"max_restarts_on_errors": 2}}


def let_go(site: Site, node: str) -> None:
    """Let the task that waits on a node go on."""
    assert site.rig.run(["touch", "/tmp/go"], on=node).rc == 0


def test_a_lost_node_costs_one_task_its_attempt_and_names_and_files_follow(unshared: Span, unshared_site: Site) -> None:
    source = unshared.folder / "data"
    source.mkdir()
    (source / "name").write_text("mine\n")
    follow = "while [ ! -e /tmp/go ]; do getent ahostsv4 server-0.g; sleep 0.2; done; rm /tmp/go"
    job = start(
        unshared,
        make_set(
            {
                "trainer": {"run": f"{FIND}; {follow}", "slurm": {"nodelist": "node1"}},
                "server": {
                    "run": f"echo at $SLURMD_NODENAME in $SLURM_JOB_ID; cat data/name; {SERVE}",
                    "file_mounts": {"data": str(source)},
                    "slurm": {"exclude": "node1"},
                },
            },
            primary_tasks=["trainer"],
        ),
    )
    until_said(unshared, job, "server", "up")
    until_said(unshared, job, "trainer", "server-0.g")
    assert "mine" in unshared.log(job, "server")
    node, before = unshared.task(job, "server")["node_list"], natives(unshared, unshared_site, job)
    # The replacement has the files as they were.
    (source / "name").write_text("changed\n")
    update = ["scontrol", "update", f"NodeName={node}"]
    for state in ("DRAIN", "DOWN"):
        assert unshared_site.rig.run([*update, f"State={state}", "Reason=test"], user="root").rc == 0
    try:
        unshared.wait_until(lambda: len(unshared.task(job, "server")["attempts"]) == 2, 30, "a second attempt")
        until_said(unshared, job, "server", "up")
    finally:
        unshared_site.rig.run([*update, "State=RESUME"], user="root")
    moved, text = unshared.task(job, "server")["node_list"], unshared.log(job, "server")
    assert moved != node and f"at {moved}" in text and "mine" in text
    after = natives(unshared, unshared_site, job)
    assert after["trainer"] == before["trainer"] and len(after["server"]) == 2
    unshared.wait_until(lambda: len(find_addresses(unshared, job)) == 2, 30, "the new address")
    let_go(unshared_site, "node1")
    unshared.until(job, "COMPLETED", timeout=60)
    until_nothing_left(unshared, unshared_site, job)
    until_clean(unshared, unshared_site)


def find_addresses(span: Span, job: int) -> set[str]:
    """The addresses of the server that the trainer has found."""
    lines = span.log(job, "trainer").splitlines()
    return {line.split()[0] for line in lines if "STREAM" in line and "server-0.g" in line}


def test_an_attempt_after_an_error_has_the_same_native_job(unshared: Span, unshared_site: Site) -> None:
    once = f"echo in $SLURM_JOB_ID; [ $OVERSPAN_ATTEMPT -gt 0 ] || exit 4; {WAIT}"
    tasks: dict[str, dict[str, Any]] = {"trainer": {"run": once, "resources": RECOVERY}, "server": {"run": SERVE}}
    job = start(unshared, make_set(tasks, primary_tasks=["trainer"]))
    unshared.until(job, "RUNNING", task="trainer")
    unshared.wait_until(lambda: len(unshared.task(job, "trainer")["attempts"]) == 2, 30, "a second attempt")
    kill_relay(unshared, unshared_site, job)
    until_said(unshared, job, "trainer", "in ")
    let_go(unshared_site, unshared.task(job, "trainer")["node_list"])
    shown = unshared.until(job, "COMPLETED", timeout=60)
    trainer = next(task for task in shown["tasks"] if task["name"] == "trainer")
    assert [attempt["exit_code"] for attempt in trainer["attempts"]] == [4, 0]
    assert [len(jobs) for jobs in natives(unshared, unshared_site, job).values()] == [1, 1]
    until_nothing_left(unshared, unshared_site, job)
    until_clean(unshared, unshared_site)


def test_a_set_that_does_not_come_together_gives_its_nodes_back(unshared: Span, unshared_site: Site) -> None:
    """The supervisor that waits at the start gate leaves by an agreement with its relay."""
    with fill(unshared_site, unshared.wait_until, "-w", "node2", "--exclusive", "--output=/dev/null", "--chdir=/tmp"):
        tasks: dict[str, dict[str, Any]] = {
            "a": {"run": "echo ran", "slurm": {"nodelist": "node1"}},
            "b": {"run": "echo ran", "slurm": {"nodelist": "node2"}},
        }
        job = start(unshared, make_set(tasks, start_timeout="10s"))
        unshared.wait_until(lambda: len(natives(unshared, unshared_site, job).get("b", [])) >= 2, 60, "another try")
        assert any("did not start in time" in row["text"] for row in unshared.timeline(job)), unshared.timeline(job)
    shown = unshared.until(job, "COMPLETED", timeout=60)
    assert [len(task["attempts"]) for task in shown["tasks"]] == [1, 1]
    assert unshared.log(job, "a") == "ran\n"
    until_nothing_left(unshared, unshared_site, job)
    until_clean(unshared, unshared_site)


def test_a_cancel_and_a_shell_reach_members_of_a_set(unshared: Span, unshared_site: Site) -> None:
    tell = "echo $OVERSPAN_TASK $KEY $SLURM_JOB_ID; getent hosts a-0.g b-0.g"
    polite = "trap 'echo bye; exit 0' TERM; echo up; while :; do sleep 0.05; done"
    job = start(unshared, make_set({"a": {"run": polite, "secrets": {"KEY": "s3cret"}}, "b": {"run": polite}}))
    for task in ("a", "b"):
        until_said(unshared, job, task, "up")
    done = unshared.run("shell", f"{job}.a", "--", "sh", "-c", f"{tell}; exit 9", check=False)
    told, *hosts = done.stdout.splitlines()
    (native,) = natives(unshared, unshared_site, job)["a"]
    assert (done.returncode, told) == (9, f"a s3cret {native}") and len(hosts) == 2, done.stderr
    unshared.kill_daemon()
    unshared.run("scancel", str(job))
    shown = unshared.until(job, "CANCELLED")
    assert {task["state"] for task in shown["tasks"]} == {"CANCELLED"}
    for task in ("a", "b"):
        until_said(unshared, job, task, "bye")
    until_nothing_left(unshared, unshared_site, job)
    until_clean(unshared, unshared_site)

"""The order of the queue on the local cluster. Rows MJ13 to MJ15 of docs/acceptance.md."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from overspan import Client

BLOCK = "while [ ! -e go ]; do sleep 0.02; done"
NOTE = "echo {} >> order"


def configure(span: Any, **settings: Any) -> None:
    """A cluster of one CPU."""
    local = {"kind": "local", "cpus": 1, "memory": "8G", "gpus": 0, **settings}
    span.config.write_text(json.dumps({"clusters": {"local": local}}))


@pytest.fixture
def client(span: Any) -> Any:
    """The client of the test's daemon, which is started now."""
    configure(span)
    with Client(environment=span.environment) as found:
        yield found


def read_order(span: Any) -> list[str]:
    """What the jobs wrote, in their order."""
    path = Path(span.folder, "order")
    return path.read_text().split() if path.exists() else []


def count_queued(span: Any) -> int:
    """How many jobs the cluster has in its queue: it says why each of them waits."""
    reasons = span.run("squeue", "-h", "-t", "PD", "-o", "%r").stdout.split()
    return len([reason for reason in reasons if reason in ("Resources", "Priority")])


def submit(client: Client, span: Any, name: str, **more: Any) -> int:
    job = {"name": name, "workdir": str(span.folder), "run": NOTE.format(name), **more}
    return client.submit(job).id


def test_higher_priority_starts_first_always(span: Any, client: Client) -> None:
    span.until(submit(client, span, "first", run=BLOCK), "RUNNING")
    for name, priority in (("low", 1), ("high", 30), ("none", None), ("middle", 20), ("later", 2), ("nice", 25)):
        job = submit(client, span, name, **({} if priority is None else {"priority": priority}))
        # What is shown is what the cluster has heard.
        if name == "later":
            client.update(str(job), {"priority": 40})
            span.wait_until(lambda job=job: span.job(job)["priority"] == 40, 20, "the priority")
        if name == "nice":
            client.update(str(job), {"nice": 10})
            span.wait_until(lambda job=job: span.job(job)["nice"] == 10, 20, "the nice value")
    span.wait_until(lambda: count_queued(span) == 6, 20, "all to be in the cluster's queue")
    (span.folder / "go").touch()
    span.wait_until(lambda: len(read_order(span)) == 6, 40, "all to have run")
    assert read_order(span) == ["later", "high", "middle", "nice", "low", "none"]


def test_equal_jobs_start_in_the_order_of_their_submission(span: Any, client: Client) -> None:
    submit(client, span, "first", run=BLOCK)
    names = [f"j{number}" for number in range(50)]
    for name in names:
        submit(client, span, name)
    (span.folder / "go").touch()
    span.wait_until(lambda: len(read_order(span)) == 50, 40, "all to have run")
    assert read_order(span) == names


def test_a_high_job_evicts_a_low_one_which_returns(span: Any) -> None:
    configure(span, preempt="requeue", preempt_grace=600)
    low = span.wrap(
        f'trap "echo term >> {span.folder}/order; exit" TERM; echo low-$SLURM_RESTART_COUNT >> {span.folder}/order;'
        f' [ "$SLURM_RESTART_COUNT" = 1 ] || while :; do sleep 0.02; done',
        "--priority=1",
        "--nice=0",
    )
    span.wait_until(lambda: read_order(span), 20, "the low job to run")
    equal = span.wrap("true", "--priority=1")
    high = span.wrap(f"echo high >> {span.folder}/order", "--priority=5")
    span.until(high, "COMPLETED")
    span.until(low, "COMPLETED")
    span.until(equal, "COMPLETED")
    assert read_order(span)[1:] == ["term", "high", "low-1"]
    shown = span.job(low)
    attempts = shown["tasks"][0]["attempts"]
    assert [attempt["state"] for attempt in attempts] == ["PREEMPTED", "COMPLETED"]
    assert any(row["text"] == f"PREEMPTED by job {high}" for row in span.timeline(low))
    notice = span.state / f"clusters/local/runs/{low}/notice"
    assert json.loads(notice.read_text().splitlines()[0])["kind"] == "preemption"


def test_a_limited_cluster_has_no_more_than_its_limit(span: Any, client: Client) -> None:
    configure(span, cpus=8, max_running=2)
    before = span.daemon
    span.run("shutdown", check=False)
    # The next one reads the new configuration.
    span.wait_until(lambda: span.daemon != before, 20, "another daemon")
    for name in ("a", "b", "c", "d"):
        submit(client, span, name, run=f"{NOTE.format(name)}; {BLOCK}", resources={"cpus": 1})
    span.wait_until(lambda: len(read_order(span)) == 2, 20, "two to run")
    span.wait_until(
        lambda: span.run("squeue", "-h", "-t", "PD", "-o", "%r").stdout.split() == ["AssocMaxJobsLimit"] * 2,
        20,
        "the others to say why they wait",
    )
    assert len(list((span.state / "clusters/local/tickets").iterdir())) == 2
    (span.folder / "go").touch()
    span.wait_until(lambda: len(read_order(span)) == 4, 20, "all to have run")

"""JG38: a group in a pool: one worker has all its members, which find each other by name and end in order."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest
from tests.system.pools import apply, await_ready, find_worker, node_of, show

pytestmark = pytest.mark.shared_daemon

Span = Any

GROUP = """
name: pair
execution: parallel
primary_tasks: [trainer]
termination_delay: 1s
---
name: trainer
needs: [server]
resources: {{cpus: 1, accelerators: "gpu:1"}}
run: |
  getent hosts server-0 server-0.pair server-1.pair >> {folder}/$OVERSPAN_JOB_ID.names
  echo "trainer has $CUDA_VISIBLE_DEVICES at $(hostname)"
  python3 -c "import urllib.request as u; print(u.urlopen('http://server-0.pair:8000/').status)"
  echo $$ >> {folder}/$OVERSPAN_JOB_ID.trainer
  until [ -e {folder}/done ]; do sleep 0.1; done
---
name: server
num_nodes: 2
ready: {{tcp: 8000}}
resources: {{cpus: 1}}
run: |
  trap 'echo $OVERSPAN_NODE_INDEX >> {folder}/$OVERSPAN_JOB_ID.left; exit 0' TERM
  cd {folder}; python3 -m http.server 8000 --bind server-$OVERSPAN_NODE_INDEX.pair & wait
"""
WORKER = 'pool: {workers: 1}\nresources: {cpus: 8, accelerators: "gpu:2"}\n'


def list_addresses(file: Path) -> list[str]:
    """The addresses that getent(1) has printed."""
    return [line.split()[0] for line in file.read_text().splitlines()]


def test_groups_of_one_name_run_beside_each_other_on_one_worker(span: Span, tmp_path: Path) -> None:
    apply(span, "pairs", WORKER)
    (worker,) = await_ready(span, "pairs", 1)
    text = GROUP.format(folder=tmp_path)
    groups = [span.submit(text, "-p", "pairs") for _ in range(2)]
    for group in groups:
        span.wait_until((tmp_path / f"{group}.trainer").exists, 20, "the trainer to have heard of its server")
    first, second = (list_addresses(tmp_path / f"{group}.names") for group in groups)
    # Each sees its own servers, the first one by two names.
    assert first[0] == first[1] and second[0] == second[1] and len({*first, *second}) == 4
    devices = {span.log(group, "trainer").split()[2] for group in groups}
    assert devices == {"0", "1"} and all("at trainer-0" in span.log(group, "trainer") for group in groups)
    assert set(node_of(span, groups[0]).split()) == {worker}
    third = span.submit(text, "-p", "pairs")
    # The daemon is killed meanwhile: nothing starts twice, and what is booked stays booked.
    span.kill_daemon()
    span.until(third, "PENDING")
    (tmp_path / "done").touch()
    for group in (*groups, third):
        ended = span.until(group, "COMPLETED")
        assert {task["name"]: task["reason"] for task in ended["tasks"]}["server"] == "PrimariesDone"
        assert (tmp_path / f"{group}.left").read_text().split() in (["0", "1"], ["1", "0"])
        assert len((tmp_path / f"{group}.trainer").read_text().split()) == 1


def test_a_group_whose_worker_is_lost_begins_again_as_a_whole_and_one_that_fits_nowhere_is_refused(
    span: Span, tmp_path: Path
) -> None:
    apply(span, "lost", WORKER)
    await_ready(span, "lost", 1)
    text = GROUP.format(folder=tmp_path).replace("needs: [server]", "needs: [server]\nmax_recoveries: 1")
    group = span.submit(text, "-p", "lost")
    trainer = tmp_path / f"{group}.trainer"
    span.wait_until(trainer.exists, 20, "the trainer")
    (row,) = show(span, "lost")["workers"]
    os.kill(find_worker(span, row["job"]), signal.SIGKILL)
    span.wait_until(lambda: len(trainer.read_text().split()) == 2, 40, "the group to begin on another worker")
    (tmp_path / "done").touch()
    ended = span.until(group, "COMPLETED")
    assert ended["restarts"] == 1

    file = span.folder / "pair.yaml"
    file.write_text(text)
    for words in (["-p", "lost"], ["-M", "lost"]):
        plan = span.run("plan", *words, str(file)).stdout
        assert "wanted: 3 CPU, 1 GPU for its 3 members on one worker\n# a worker has 8 CPU, 2 GPU: it fits" in plan
        assert "room for it" in plan and "  server-1.pair: 1 CPU" in plan
    file.write_text(text.replace("num_nodes: 2", "num_nodes: 20"))
    for verb in ("submit", "plan"):
        refused = span.run(verb, "-p", "lost", str(file), check=False)
        assert refused.returncode == 1
        assert "wanted 21 CPU, 1 GPU for its 21 members on one worker; a worker has 8 CPU" in refused.stderr
    script = span.run("sbatch", "--pool", "lost", "-N", "2", "--wrap", "true", check=False)
    assert "a batch script in a pool runs on one node" in script.stderr

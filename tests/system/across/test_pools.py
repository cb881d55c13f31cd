"""PL08, PL13 and PL15 on the rigs: workers in Slurm allocations and in pods share no folder with the daemon."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.rigs.kube import KubeRig
from tests.rigs.reach import find_address
from tests.system.across.conftest import Lab
from tests.system.across.pools import (
    BOTH,
    JOB,
    apply,
    configure,
    delete,
    find_holder,
    find_worker,
    list_ready,
    play_short_jobs,
    send,
)
from tests.system.watchers import find_own_address

TIMED = "name: j\nresources: {{cpus: 1}}\ntime: {time}s\ngrace_period: 1\nrun: 'true'\n"


@pytest.fixture
def pools(lab: Lab, kube_rig: KubeRig) -> Iterator[Lab]:
    """Both clusters, whose nodes and pods reach the daemon's port for jobs."""
    kube = {"image": "rig/python:1", "daemon_address": find_own_address(kube_rig.find_node_address(1))}
    configure(lab, kube=kube, leo={"daemon_address": find_own_address(find_address(lab.site.rig))})
    yield lab
    delete(lab)


@pytest.fixture
def behind_nat(lab: Lab) -> Iterator[Lab]:
    """Both clusters with a daemon that nobody can connect to: its own connections carry those of the workers."""
    kube = {"image": "rig/python:1", "daemon_address": "way-home:7434", "daemon_tunnel": True}
    configure(lab, kube=kube, leo={"daemon_address": "ctl:7434", "daemon_tunnel": True})
    yield lab
    delete(lab)
    lab.run("shutdown")
    configure(lab, kube={"daemon_tunnel": False}, leo={"daemon_tunnel": False})
    # What a tunnel has in a cluster stays for the next daemon.
    lab.kubectl("delete", "pod,service", "way-home", "--ignore-not-found")


def lose_nothing(lab: Lab, end_worker: Callable[[dict[str, Any]], None]) -> None:
    """The daemon dies while jobs run, and then a worker: one goes on, the other runs again elsewhere, each once."""
    kept = send(lab, "echo began; sleep 8; echo done")
    lost = send(lab, "echo began ${SLURM_RESTART_COUNT:-0}; [ ${SLURM_RESTART_COUNT:-0} = 1 ] || sleep 600")
    lab.until(kept, "RUNNING")
    lab.until(lost, "RUNNING")
    # The first may be over when the next daemon has heard of its worker.
    apart = find_holder(lab, kept)["name"]
    lab.kill_daemon()
    lab.run("squeue")
    lab.wait_until(lambda: len(list_ready(lab)) == 2, 60, "the workers again")
    holder = find_holder(lab, lost)
    assert holder["name"] != apart
    end_worker(holder)
    assert lab.until(kept, "COMPLETED", timeout=60)["restarts"] == 0
    assert lab.log(kept).split() == ["began", "done"]
    assert lab.until(lost, "COMPLETED", timeout=90)["state"] == "COMPLETED"
    assert lab.log(lost).split() == ["began", "1"]


def test_pods_are_workers(pools: Lab) -> None:
    apply(pools, 2, "cluster: kube\nresources: {cpus: 1}")
    assert {worker["cluster"] for worker in list_ready(pools)} == {"kube"}
    play_short_jobs(pools)

    def delete_pod(worker: dict[str, Any]) -> None:
        (pod,) = [name for name in pools.pods() if f"-{worker['job']}-" in f"{name}-"]
        pools.kubectl("delete", "pod", pod, "--grace-period=0", "--force")

    lose_nothing(pools, delete_pod)


def test_allocations_are_workers(pools: Lab) -> None:
    apply(pools, 2, "cluster: leo\nresources: {cpus: 1}")
    assert {worker["cluster"] for worker in list_ready(pools)} == {"leo"}
    play_short_jobs(pools)

    def cancel_natively(worker: dict[str, Any]) -> None:
        native = pools.job(worker["job"])["native_id"]
        assert pools.site.rig.run(["scancel", native]).rc == 0

    lose_nothing(pools, cancel_natively)


GROUP = """
name: pair
execution: parallel
primary_tasks: [trainer]
---
name: trainer
needs: [server]
max_recoveries: 1
resources: {cpus: 0.5}
run: |
  server=$(getent hosts server-0.pair | cut -d' ' -f1)
  echo "by name ${server:-none}, by address $OVERSPAN_SERVER_ADDRS"
  python3 -c "
  import os, socket
  address = os.environ['OVERSPAN_SERVER_ADDRS']
  print(socket.create_connection((address, 8000), 10).recv(100).decode())"
---
name: server
ready: {tcp: 8000}
resources: {cpus: 0.5}
run: |
  python3 -c "
  import os, socket
  listening = socket.create_server((os.environ['OVERSPAN_SERVER_ADDRS'], 8000))
  while True:
      connection, _ = listening.accept()
      connection.sendall(b'hello from the server of this group')
      connection.close()"
"""


def play_groups(lab: Lab) -> list[str]:
    """Two groups of one name on one worker, each with its own server; what their trainers have printed of names."""
    groups = [lab.submit(GROUP, "-p", "warm") for _ in range(2)]
    lines = []
    for group in groups:
        lab.until(group, "COMPLETED")
        first, second = lab.log(group, "trainer").splitlines()
        assert second == "hello from the server of this group"
        lines.append(first)
    assert len({line.rpartition(" ")[2] for line in lines}) == 2
    assert len({find_worker(lab, group) for group in groups}) == 1
    return lines


def test_groups_run_on_a_worker_in_an_allocation(pools: Lab) -> None:
    apply(pools, 1, "cluster: leo\nresources: {cpus: 2}")
    for line in play_groups(pools):
        words = line.replace(",", "").split()
        assert words[2] == words[-1] != "none"


def test_groups_run_on_a_worker_in_a_pod(pools: Lab) -> None:
    apply(pools, 1, "cluster: kube\nresources: {cpus: 2}")
    for line in play_groups(pools):
        words = line.replace(",", "").split()
        assert words[2] == words[-1] != "none"


def test_an_allocation_is_renewed_before_its_time_limit(pools: Lab) -> None:
    """PL16: a job that the worker's allocation would not outlive is for the next one, which is there in time."""
    apply(pools, 1, "cluster: leo\nresources: {cpus: 1}\ntime: 2m")
    pools.wait_until(lambda: list_ready(pools)[0]["ends_at"], 30, "the allocation's end to be known")
    (old,) = list_ready(pools)
    refused = pools.run("submit", "-p", "warm", "-", stdin=TIMED.format(time=300), check=False)
    assert "a worker lives 2:00" in refused.stderr
    pools.wait_until(lambda: time.time() > old["ends_at"] - 20, 130, "the allocation's last seconds")
    job = pools.submit(TIMED.format(time=20), "-p", "warm")
    assert pools.until(job, "COMPLETED", timeout=60)["restarts"] == 0
    (new,) = list_ready(pools)
    assert new["job"] != old["job"] and find_worker(pools, job) == new["name"]
    # Ended because it was replaced, not by its limit.
    assert pools.until(old["job"], "CANCELLED", timeout=30)["state"] == "CANCELLED"


def test_an_allocation_lives_as_long_as_its_partition_allows(pools: Lab) -> None:
    """The file names no time, and the partition `short` ends jobs after ten minutes."""
    apply(pools, 1, "cluster: leo\nresources: {cpus: 1}\nslurm: {partition: short}")
    pools.wait_until(lambda: list_ready(pools)[0]["ends_at"], 30, "the allocation's end to be known")
    (worker,) = list_ready(pools)
    assert 0 < worker["ends_at"] - time.time() < 600
    refused = pools.run("submit", "-p", "warm", "-", stdin=TIMED.format(time=900), check=False)
    assert "a worker lives 10:00" in refused.stderr
    assert pools.until(pools.submit(TIMED.format(time=60), "-p", "warm"), "COMPLETED", timeout=60)


def test_one_pool_has_workers_of_both_kinds(pools: Lab) -> None:
    """PL08, PL15: three fill Slurm, the fourth is a pod; what asks for four CPUs is Slurm's, and all is one queue."""
    apply(pools, 4, BOTH)
    assert sorted(worker["cluster"] for worker in list_ready(pools)) == ["kube", "leo", "leo", "leo"]
    large = [send(pools, "echo large; sleep 2", cpus=4) for _ in range(3)]
    small = send(pools, "echo small")
    assert pools.until(small, "COMPLETED") and pools.log(small) == "small\n"
    for job in large:
        pools.until(job, "COMPLETED")
    workers = {worker["name"]: worker["cluster"] for worker in list_ready(pools)}
    assert [workers[find_worker(pools, job)] for job in (*large, small)] == ["leo", "leo", "leo", "kube"]
    refused = pools.run("submit", "-", "-p", "warm", stdin=JOB.format(run="true", cpus=5), check=False)
    assert refused.returncode and "wanted 5 CPU; a worker has 4 CPU or 1 CPU" in refused.stderr, refused.stderr


def test_workers_reach_a_daemon_behind_nat(behind_nat: Lab) -> None:
    """Workers of both kinds by tunnels alone, also after the daemon was killed."""
    apply(behind_nat, 4, BOTH)
    assert sorted(worker["cluster"] for worker in list_ready(behind_nat)) == ["kube", "leo", "leo", "leo"]
    play_short_jobs(behind_nat)
    job = send(behind_nat, "echo began; sleep 5; echo done")
    behind_nat.until(job, "RUNNING")
    behind_nat.kill_daemon()
    behind_nat.run("squeue")
    assert behind_nat.until(job, "COMPLETED", timeout=90)["restarts"] == 0
    assert behind_nat.log(job).split() == ["began", "done"]


CLASSES = """
pool:
  max_workers: 4
  classes:
  - {name: node, min_workers: 1, max_workers: 2, weight: 2, resources: {infra: slurm/leo, cpus: 4}}
  - {name: pod, min_workers: 0, max_workers: 3, resources: {infra: kubernetes/kube, cpus: 1}}
"""


def count_ready(lab: Lab) -> dict[str, int]:
    """How many workers of each class are ready."""
    return dict(Counter(worker["class"] for worker in list_ready(lab)))


def test_each_class_has_numbers_of_its_own_on_its_cluster(pools: Lab) -> None:
    """PL08: what only Slurm's nodes can have starts those, up to their number; the rest of the queue starts pods."""
    file = pools.folder / "warm.yaml"
    file.write_text(CLASSES)
    pools.run("pool", "apply", "-p", "warm", str(file))
    pools.wait_until(lambda: count_ready(pools) == {"node": 1}, 120, "the lowest numbers")
    *large, last = [send(pools, run, cpus=4) for run in ("sleep 600", "sleep 600", "true")]
    pools.wait_until(lambda: count_ready(pools) == {"node": 2}, 120, "another allocation, and no pod")
    small = [send(pools, "sleep 4") for _ in range(3)]
    pools.wait_until(lambda: count_ready(pools) == {"node": 2, "pod": 2}, 120, "pods up to the pool's number")
    for job in small:
        pools.until(job, "COMPLETED", timeout=120)
    pools.run("scancel", *map(str, large))
    pools.until(last, "COMPLETED", timeout=120)
    workers = {worker["name"]: worker["class"] for worker in list_ready(pools)}
    assert [workers[find_worker(pools, job)] for job in (*large, last)] == ["node"] * 3
    assert [workers[find_worker(pools, job)] for job in small] == ["pod"] * 3
    file.write_text(CLASSES.replace("min_workers: 0, max_workers: 3", "workers: 1"))
    pools.run("pool", "apply", "-p", "warm", str(file))
    pools.wait_until(lambda: count_ready(pools) == {"node": 2, "pod": 1}, 120, "one pod less, and no node")
    file.write_text(CLASSES.replace("cpus: 4", "cpus: 400"))
    refused = pools.run("pool", "apply", "-p", "warm", str(file), check=False)
    assert refused.returncode and "the class node: " in refused.stderr, refused.stderr

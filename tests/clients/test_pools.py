"""Parsl and dask-jobqueue, unmodified, on the workers of a pool: SBATCH_POOL sends there what they give to sbatch."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.clients.conftest import Run, make_client
from tests.system.conftest import Span

PARSL = """
import json
import parsl
from parsl.config import Config
from parsl.executors import HighThroughputExecutor
from parsl.launchers import SimpleLauncher
from parsl.providers import SlurmProvider

@parsl.python_app
def double(number):
    return 2 * number

@parsl.python_app
def fail():
    raise ValueError("no luck")

provider = SlurmProvider(
    launcher=SimpleLauncher(), init_blocks=1, min_blocks=1, max_blocks=1, walltime="00:10:00", exclusive=False
)
executor = HighThroughputExecutor(label="htex", address="127.0.0.1", max_workers_per_node=2, provider=provider)
with parsl.load(Config(executors=[executor])):
    found = {"doubled": [future.result() for future in [double(number) for number in range(20)]]}
    try:
        fail().result()
    except ValueError as error:
        found["failure"] = str(error)
json.dump(found, open("found.json", "w"))
"""
DASK = """
import json
from dask.distributed import Client
from dask_jobqueue import SLURMCluster

def double(number):
    return 2 * number

if __name__ == "__main__":
    with SLURMCluster(cores=1, memory="500MB", processes=1, walltime="00:10:00", interface="lo") as cluster:
        cluster.scale(jobs=2)
        with Client(cluster) as client:
            client.wait_for_workers(2, timeout=120)
            doubled = client.gather(client.map(double, range(20)))
    json.dump({"doubled": doubled}, open("found.json", "w"))
"""


@pytest.fixture
def run_in_pool(span: Span, tmp_path: Path) -> Iterator[Run]:
    """Run a client's program where sbatch submits to a pool."""
    file = tmp_path / "pool.yaml"
    file.write_text("pool: {workers: 2}\nresources: {cpus: 2}\n")
    span.run("pool", "apply", "-p", "clients", str(file))
    span.environment["SBATCH_POOL"] = "clients"
    yield make_client(span, tmp_path)
    del span.environment["SBATCH_POOL"]
    span.run("pool", "delete", "clients", "--cancel")


def find(run: Run, span: Span, tmp_path: Path, client: str, program: str) -> Any:
    """What a program found; all of its jobs were in the pool."""
    (tmp_path / "program.py").write_text(program)
    run(client, "python", str(tmp_path / "program.py"))
    rows = json.loads(span.run("sacct", "-X", "--json").stdout)["jobs"]
    submitted = [row for row in rows if row["name"] != "clients-worker"]
    assert submitted and {row["cluster"] for row in submitted} == {"clients"}
    return json.loads((tmp_path / "found.json").read_text())


def test_parsl_s_own_workload(run_in_pool: Run, span: Span, tmp_path: Path) -> None:
    found = find(run_in_pool, span, tmp_path, "parsl", PARSL)
    assert found == {"doubled": [2 * number for number in range(20)], "failure": "no luck"}


def test_dask_s_own_workload(run_in_pool: Run, span: Span, tmp_path: Path) -> None:
    found = find(run_in_pool, span, tmp_path, "dask", DASK)
    assert found == {"doubled": [2 * number for number in range(20)]}

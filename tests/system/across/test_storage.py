"""Checkpoints that a trainer on Slurm writes into its folder of a store are evaluated by pods, from the store."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.rigs.reach import find_address
from tests.stores import TestStore, configure_store, run_store
from tests.system.across.conftest import Lab
from tests.system.slurm.conftest import Site
from tests.system.watchers import find_own_address

FILE = """
name: train
workdir: /home/researcher
resources: {cpus: 1, memory: 100M}
on_checkpoint:
  name: score
  path: s3://lab/run
  pattern: "step_{step:int}"
  ready: {marker: DONE}
  cluster: kube
  task:
    resources: {cpus: 0.1, image_id: "docker:rig/python:1"}
    file_mounts: {/checkpoint: "s3://lab/run/step_{step}"}
    run: |
      set -e
      [ "$(ls /checkpoint | wc -l)" = 3 ]
      echo "RESULT $(cat /checkpoint/value)"
file_mounts: {./out: {source: s3://lab/run, mode: MOUNT_CACHED}}
run: |
  for step in 1 2 3; do
    mkdir out/step_$step; head -c 3000000 /dev/zero > out/step_$step/weights
    echo 0.$step > out/step_$step/value; sleep 0.5; touch out/step_$step/DONE
  done
  mkdir out/step_4; echo 0.4 > out/step_4/value
"""


@pytest.fixture
def store(lab: Lab, site: Site, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestStore]:
    """moto's server, where nodes and pods reach it; the daemon knows it."""
    folder: Path = tmp_path_factory.mktemp("store")
    with run_store(folder, find_own_address(find_address(site.rig))) as store:
        store.make_bucket("lab")
        settings = json.loads(lab.config.read_text())
        settings["stores"] = configure_store(store, folder)
        lab.config.write_text(json.dumps(settings))
        yield store


def test_what_slurm_writes_is_evaluated_by_pods_when_it_is_whole(lab: Lab, store: TestStore) -> None:
    job = lab.submit(FILE, "-M", "leo")
    lab.until(job, "RUNNING", timeout=60)
    lab.kill_daemon()
    lab.until(job, "COMPLETED", timeout=120)
    assert store.texts("lab")["run/step_4/value"] == b"0.4\n"

    def scores() -> str:
        listed = lab.look("evals", str(job))
        return listed if all(score in listed for score in ("0.1", "0.2", "0.3")) else ""

    listed = lab.wait_until(scores, 120, "three evaluations")
    # No evaluation saw a part, and none was made of what has no marker.
    assert listed.count("COMPLETED") == 3 and "0.4" not in listed, listed

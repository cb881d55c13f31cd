"""Tasks of a group in an image on a real Slurm; a stand-in for apptainer binds as it does.

Like Apptainer it gives the image's own variables, puts those of APPTAINERENV_NAME in their place, and shows each bind
in a mount namespace of its own.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.system.conftest import Span
from tests.system.slurm.conftest import Site
from tests.system.slurm.groups import SMALL, connect, group, native_of, start, until_said
from tests.system.slurm.runtimes import STAND_IN
from tests.waiting import WaitUntil

TELL = "echo $IN_IMAGE $GREETING $BASE $OVERSPAN_NODE_INDEX; getent hosts b-0.g; echo kept >>/corpus/$OVERSPAN_TASK"


@pytest.fixture
def remote(site: Site, tmp_path: Path, wait_until: WaitUntil) -> Iterator[Span]:
    names = [name for name in site.rig.containers if name != "ctl" and name not in site.rig.variant.closed]
    for name in names:
        site.rig.put("/usr/local/bin/apptainer", STAND_IN, on=name)
        site.rig.run(["mkdir", "-p", "/corpus"], user="root", on=name)
    span = connect(site, tmp_path, wait_until)
    settings = json.loads(span.config.read_text())
    settings["clusters"]["rig"]["containers"] = "apptainer"
    span.config.write_text(json.dumps(settings))
    yield span
    span.close()
    for name in names:
        site.rig.run(["rm", "-r", "/usr/local/bin/apptainer", "/corpus"], user="root", on=name)


def until_named(span: Span, job: int, node: str) -> None:
    """Wait until a member has found another by its name."""
    span.wait_until(lambda: "b-0.g" in span.log(job, "a", "--node", node), 30, "a name in the image")


def test_members_run_in_their_image_with_names_variables_and_volumes(remote: Span, site: Site) -> None:
    image: dict[str, Any] = {
        "resources": {**SMALL, "image_id": "docker:lab/torch:2"},
        "envs": {"GREETING": "it's mine"},
        "volumes": {"/corpus": "corpus"},
        "slurm": {"exclude": "node3"},
    }
    wait = "while [ ! -e $OVERSPAN_RUN_DIR/stop ]; do sleep 0.1; done; exit 3"
    serve = "trap 'exit 0' TERM; echo out $IN_IMAGE; while :; do sleep 0.1; done"
    tasks = {
        "a": {**image, "num_nodes": 2, "run": f"{TELL}; {wait}"},
        "b": {"run": serve, "slurm": {"exclude": "node3"}},
    }
    job = start(remote, group(tasks, primary_tasks=["a"], hold_on_failure="10m"))
    for node in ("0", "1"):
        until_named(remote, job, node)
        assert remote.log(job, "a", "--node", node).splitlines()[0] == f"docker://lab/torch:2 it's mine image {node}"
    until_said(remote, job, "b", "out")
    assert remote.log(job, "b") == "out\n"
    # A shell is in the image too, beside a live member and beside an ended one.
    words = ("shell", f"{job}.a", "--node=1", "--", "sh", "-c")
    for _ in range(2):
        first, second = remote.run(*words, TELL).stdout.splitlines()
        assert first == "docker://lab/torch:2 it's mine image 1" and second.split()[1] == "b-0.g"
        # The members' end may be that of this shell too.
        remote.run(*words, "touch $OVERSPAN_RUN_DIR/stop", check=False)
        remote.wait_until(lambda: remote.job(job)["reason"] == "HeldOnFailure", 30, "the hold")
    remote.run("scancel", str(job))
    assert remote.until(job, "FAILED")["exit_code"] == 3
    assert site.slurm("sh", "-c", "cat ~/.overspan/volumes/corpus/a").split() == ["kept"] * 4
    native = native_of(remote, job)
    remote.wait_until(lambda: not site.slurm("squeue", "-hj", native), 30, "the nodes to be given back")

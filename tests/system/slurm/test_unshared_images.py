"""Tasks of a group in images where the machines share no folder; stand-ins for the plugin of srun and for apptainer."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from tests.system.conftest import Span
from tests.system.slurm.conftest import Site
from tests.system.slurm.groups import SERVE, SMALL, group, start
from tests.system.slurm.image_plugin import MAKE, SRUN, TASK
from tests.system.slurm.relays import until_clean
from tests.system.slurm.runtimes import STAND_IN

ROOT = "/srv/images/tiny"
FILES = {"/usr/local/bin/srun": SRUN, "/usr/local/bin/image-task": TASK, "/usr/local/bin/apptainer": STAND_IN}
# The third node allows no container.
WHERE = {"exclude": "node3"}
TELL = "echo $GREETING $BASE $OVERSPAN_NODE_INDEX; getent hosts b-0.g"
WAIT = "while [ ! -e $OVERSPAN_RUN_DIR/stop ]; do sleep 0.1; done; exit 3"


@pytest.fixture
def made(unshared_site: Site) -> Iterator[None]:
    """Nodes with both, and with a small image."""
    rig, names = unshared_site.rig, ("node1", "node2")
    for name in names:
        for path, text in FILES.items():
            rig.put(path, text, on=name)
        done = rig.run(["sh", "-c", MAKE, "sh", ROOT], user="root", on=name)
        assert done.rc == 0, done.stderr
    yield
    for name in names:
        rig.run(["rm", "-rf", *FILES, ROOT, "/tmp/up"], user="root", on=name)


@pytest.mark.parametrize("runtime", ["pyxis", "apptainer"])
@pytest.mark.usefixtures("made")
def test_members_run_in_their_image_on_their_nodes_own_disks(unshared: Span, unshared_site: Site, runtime: str) -> None:
    settings = json.loads(unshared.config.read_text())
    settings["clusters"]["rig"]["containers"] = runtime
    unshared.config.write_text(json.dumps(settings))
    image: dict[str, Any] = {"resources": {**SMALL, "image_id": ROOT}, "envs": {"GREETING": "mine"}, "slurm": WHERE}
    tasks: dict[str, dict[str, Any]] = {
        "a": {**image, "num_nodes": 2, "run": f"{TELL}; : >up; {WAIT}", "ready": {"file": "up"}},
        "b": {"run": SERVE, "slurm": WHERE},
        "c": {**image, "run": "echo $BASE after", "needs": ["ready:a"]},
    }
    job = start(unshared, group(tasks, primary_tasks=["a"], hold_on_failure="10m"))
    unshared.until(job, "COMPLETED", task="c")
    assert unshared.log(job, "c") == "image after\n"
    for node in ("0", "1"):
        first, second = unshared.wait_until(lambda node=node: read_lines(unshared, job, node), 20, "two lines")
        assert first == f"mine image {node}" and second.split()[1] == "b-0.g"
    words = ("shell", f"{job}.a", "--node=1", "--", "sh", "-c", TELL)
    first, second = unshared.run(*words).stdout.splitlines()
    assert first == "mine image 1" and second.split()[1] == "b-0.g"
    # The member's end may be that of this shell too.
    unshared.run(*words[:-1], ": >$OVERSPAN_RUN_DIR/stop", check=False)
    unshared.wait_until(lambda: unshared.job(job)["reason"] == "HeldOnFailure", 30, "the hold")
    after = unshared.run(*words, check=False)
    if runtime == "pyxis":
        assert "the container of a has ended" in after.stderr
    else:
        assert after.stdout.startswith("mine image 1\n"), after.stderr
    unshared.run("scancel", str(job))
    assert unshared.until(job, "FAILED")["exit_code"] == 3
    for node in ("node1", "node2"):
        unshared_site.rig.run(["rm", "-f", "/tmp/up"], on=node)
    until_clean(unshared, unshared_site)


def read_lines(span: Span, job: int, node: str) -> list[str]:
    """What a node of `a` has written, once it is all there."""
    lines = span.log(job, "a", "--node", node).splitlines()
    return lines if len(lines) > 1 else []


@pytest.mark.usefixtures("made")
def test_an_image_that_a_node_has_not_is_a_failed_start(unshared: Span, unshared_site: Site) -> None:
    settings = json.loads(unshared.config.read_text())
    settings["clusters"]["rig"]["containers"] = "pyxis"
    unshared.config.write_text(json.dumps(settings))
    missing = {"resources": {**SMALL, "image_id": "/srv/images/none"}, "slurm": WHERE}
    job = start(unshared, group({"a": {**missing, "run": "true"}, "b": {"run": SERVE, "slurm": WHERE}}))
    unshared.until(job, "FAILED")
    assert "[ERROR] No such file or directory: /srv/images/none" in str(unshared.timeline(job))
    until_clean(unshared, unshared_site)

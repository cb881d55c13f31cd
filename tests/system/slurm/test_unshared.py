"""A site where the machines share no folder at all: what runs there, and what is refused before anything was sent."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.rigs.plugin import rig_or_skip
from tests.rigs.reach import open_access
from tests.rigs.slurm import Variant
from tests.system.conftest import Span
from tests.system.slurm.conftest import Site
from tests.waiting import WaitUntil

REMEDY = "set `root` of the cluster to a folder that the compute nodes share"
WAIT = "echo up; while [ ! -e /tmp/stop-$SLURM_JOB_ID ]; do sleep 0.1; done; echo over"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A site whose machines have homes of their own."""
    folder = tmp_path_factory.mktemp("ssh")
    with rig_or_skip(Variant("unshared", shared_home=False)) as rig, open_access(rig, folder) as access:
        yield Site(access)


@pytest.fixture
def remote(site: Site, tmp_path: Path, wait_until: WaitUntil) -> Iterator[Span]:
    span = Span(tmp_path, wait_until)
    settings = {"kind": "slurm", "tick": 0.5, "shared_root": False, **site.access.settings}
    span.config.write_text(json.dumps({"clusters": {"rig": settings}}))
    yield span
    span.close()


def test_a_script_and_a_task_run_and_are_read_on_their_node(remote: Span, site: Site) -> None:
    words = ("sbatch", "--parsable", "-M", "rig", "--mem=50", "-w", "node2", "--wrap", WAIT)
    script = int(remote.run(*words).stdout.partition(";")[0])
    text = f"name: t\nresources: {{memory: 50M}}\nenvs: {{WORD: hello}}\nrun: echo $WORD in $PWD; {WAIT}\n"
    task = remote.submit(text, "-M", "rig")
    remote.wait_until(lambda: remote.log(script) == "up\n", 20, "the output of the script")
    remote.wait_until(lambda: remote.log(task) == "hello in /tmp\nup\n", 20, "the output of the task")
    for job in (script, task):
        shown = remote.job(job)
        path = f"/tmp/stop-{shown['native_id']}"
        assert site.rig.run(["touch", path], on=shown["tasks"][0]["node_list"]).rc == 0
    for job in (script, task):
        remote.until(job, "COMPLETED")
    told = remote.run("logs", str(script), check=False)
    assert told.returncode != 0 and "its node shares no folder with the login node" in told.stderr
    native = remote.job(script)["native_id"]
    assert site.rig.run(["cat", f"/tmp/slurm-{native}.out"], on="node2").stdout == "up\nover\n"


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("name: g\nexecution: parallel\nrestart: task\n---\nname: a\nrun: x\n---\nname: b\nrun: x\n", "a set"),
        ("name: t\nsecrets: {KEY: s3cret}\nrun: x\n", "`secrets:`"),
        ("name: t\nworkdir: here\nrun: x\n", "cannot be brought to nodes that share no folder"),
    ],
)
def test_what_needs_a_shared_folder_is_refused_at_once(remote: Span, site: Site, text: str, what: str) -> None:
    (remote.folder / "here").mkdir()
    file = remote.folder / "job.yaml"
    file.write_text(text)
    done = remote.run("submit", "-M", "rig", str(file), check=False)
    assert done.returncode != 0 and what in done.stderr and REMEDY in done.stderr
    assert not site.slurm("squeue", "--noheader")


def test_a_check_says_what_the_nodes_see(remote: Span) -> None:
    done = remote.run("check", "--json", "rig", check=False)
    found = {finding["what"]: finding for finding in json.loads(done.stdout)["findings"]}
    assert found["shared root"]["works"] and "sets and files are refused" in found["shared root"]["seen"]
    assert found["python"]["works"] and found["python (login)"]["works"]
    settings = json.loads(remote.config.read_text())
    del settings["clusters"]["rig"]["shared_root"]
    remote.config.write_text(json.dumps(settings))
    remote.run("shutdown")
    done = remote.run("check", "--json", "rig", check=False)
    found = {finding["what"]: finding for finding in json.loads(done.stdout)["findings"]}
    assert not found["shared root"]["works"] and "shared_root: false" in found["shared root"]["remedy"]

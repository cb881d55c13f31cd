"""A site where the machines share no folder at all: what runs there, what travels, and what is refused at once."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest
from tests.system.conftest import Span
from tests.system.slurm.conftest import Site
from tests.system.slurm.listings import list_all

REMEDY = "set `root` of the cluster to a folder that the compute nodes share"
NODES = ("node1", "node2", "node3")
WAIT = "echo up; while [ ! -e /tmp/stop-$SLURM_JOB_ID ]; do sleep 0.1; done; echo over"


@pytest.fixture
def site(unshared_site: Site) -> Site:
    return unshared_site


@pytest.fixture
def remote(unshared: Span) -> Span:
    return unshared


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
        ("name: t\nvolumes: {/data: kept}\nrun: x\n", "a volume by its name"),
        ("name: t\nworkdir: large\nrun: x\n", "the site takes 4.0 MiB of one (max_script_size)"),
    ],
)
def test_what_needs_a_shared_folder_is_refused_at_once(remote: Span, site: Site, text: str, what: str) -> None:
    (remote.folder / "large").mkdir()
    (remote.folder / "large" / "noise").write_bytes(os.urandom(4 << 20))
    file = remote.folder / "job.yaml"
    file.write_text(text)
    before = list_all(site)
    done = remote.run("submit", "-M", "rig", str(file), check=False)
    assert done.returncode != 0 and what in done.stderr and REMEDY in done.stderr
    assert list_all(site) <= before


def test_a_check_says_what_the_nodes_see(remote: Span) -> None:
    done = remote.run("check", "--json", "rig", check=False)
    found = {finding["what"]: finding for finding in json.loads(done.stdout)["findings"]}
    assert found["shared root"]["works"] and "files are streamed" in found["shared root"]["seen"]
    assert found["python"]["works"] and found["python (login)"]["works"]
    settings = json.loads(remote.config.read_text())
    del settings["clusters"]["rig"]["shared_root"]
    remote.config.write_text(json.dumps(settings))
    remote.run("shutdown")
    done = remote.run("check", "--json", "rig", check=False)
    found = {finding["what"]: finding for finding in json.loads(done.stdout)["findings"]}
    assert not found["shared root"]["works"] and "shared_root: false" in found["shared root"]["remedy"]


@pytest.fixture
def project(remote: Span) -> Path:
    """A folder of the submitter's with a program and data."""
    folder = remote.folder / "it's mine"
    folder.mkdir()
    (folder / "data").write_text("all of it\n")
    (folder / "run.sh").write_text(
        "#!/bin/bash\ntrap 'echo bye; exit 5' TERM\ntrap 'echo warned' USR1\n"
        "cat data; echo $KEY; stat -c %a ../../..; echo more >>data; echo up\n"
        "until [ -e /tmp/stop-$SLURM_JOB_ID ]; do sleep 0.1; done; echo over; exit ${1:-0}\n"
    )
    (folder / "run.sh").chmod(0o755)
    return folder


def list_left(site: Site) -> str:
    """What of ours is in the nodes' /tmp but for the output of jobs."""
    words = (
        "find",
        "/tmp",
        "-mindepth",
        "1",
        "-user",
        "researcher",
        "!",
        "-name",
        "slurm-*.out",
        "!",
        "-name",
        "stop-*",
    )
    return "".join(site.rig.run(words, on=node).stdout for node in NODES)


def stop(span: Span, site: Site, job: int | str) -> None:
    """Let a job of `run.sh` end by itself."""
    shown = span.job(job)
    node, native = shown["tasks"][0]["node_list"], shown["native_id"]
    assert site.rig.run(["touch", f"/tmp/stop-{native}"], on=node).rc == 0


def read_output(span: Span, site: Site, job: int | str) -> str:
    """What a single job that has ended left on its node."""
    shown = span.job(job)
    found = site.rig.run(["cat", f"/tmp/slurm-{shown['native_id']}.out"], on=shown["tasks"][0]["node_list"])
    assert found.rc == 0, found.stderr
    return found.stdout


def until_up(span: Span, job: int | str) -> None:
    span.wait_until(lambda: "up\n" in span.log(job), 30, "the program to be up")


HEAD = "name: t\nworkdir: it's mine\nresources: {memory: 50M}\n"


def test_a_folder_travels_in_the_script_and_is_gone_at_the_end(remote: Span, site: Site, project: Path) -> None:
    text = f"{HEAD}secrets: {{KEY: s3cret}}\nfile_mounts: {{/tmp/shown: it's mine/data}}\n"
    job = remote.submit(f"{text}run: cat /tmp/shown; ./run.sh 3\n", "-M", "rig")
    until_up(remote, job)
    shown = remote.job(job)
    native, node = str(shown["native_id"]), shown["tasks"][0]["node_list"]
    script = site.rig.run(["scontrol", "write", "batch_script", native, "-"]).stdout
    assert "OVERSPAN_FILES" in script and "s3cret" not in script
    for words in (("scontrol", "show", "job", "-dd", native), ("squeue", "-j", native, "-O", "ALL")):
        assert "s3cret" not in site.rig.run(words).stdout
    assert "overspan-files-" in list_left(site)
    assert "s3cret" not in site.rig.run(["ps", "-eo", "args"], on=node, user="root").stdout
    stop(remote, site, job)
    ended = remote.until(job, "FAILED")
    assert ended["tasks"][0]["exit_code"] == 3
    assert read_output(remote, site, job) == "all of it\nall of it\ns3cret\n700\nup\nover\n"
    remote.wait_until(lambda: not list_left(site), 20, "nothing to be left")


@pytest.mark.parametrize("how", ["span", "slurm"])
def test_a_cancelled_task_has_its_grace_and_leaves_no_files(remote: Span, site: Site, project: Path, how: str) -> None:
    job = remote.submit(f"{HEAD}run: exec ./run.sh\n", "-M", "rig")
    until_up(remote, job)
    if how == "span":
        remote.run("scancel", str(job))
    else:
        site.slurm("scancel", str(remote.job(job)["native_id"]))
    remote.until(job, "CANCELLED")
    assert "bye\n" in read_output(remote, site, job)
    remote.wait_until(lambda: not list_left(site), 20, "nothing to be left")


def test_signals_reach_the_program_behind_the_files_once(remote: Span, site: Site, project: Path) -> None:
    job = remote.submit(f"{HEAD}run: exec ./run.sh\n", "-M", "rig")
    until_up(remote, job)
    remote.run("scancel", "--signal=USR1", str(job))
    remote.wait_until(lambda: "warned\n" in remote.log(job), 20, "the signal")
    stop(remote, site, job)
    remote.until(job, "COMPLETED")
    assert read_output(remote, site, job).count("warned\n") == 1


def test_a_requeued_task_has_a_fresh_copy(remote: Span, site: Site, project: Path) -> None:
    job = remote.submit(f"{HEAD}run: echo run $SLURM_RESTART_COUNT; exec ./run.sh\n", "-M", "rig")
    until_up(remote, job)
    remote.run("scontrol", "requeue", str(job))
    remote.wait_until(lambda: re.search("run 1\n(.*\n)*up\n", remote.log(job)), 60, "the second run")
    stop(remote, site, job)
    remote.until(job, "COMPLETED", timeout=60)
    assert "more" not in read_output(remote, site, job)
    remote.wait_until(lambda: not list_left(site), 20, "nothing to be left")


def test_each_element_of_an_array_has_its_own_copy(remote: Span, site: Site, project: Path) -> None:
    run = "cat data; echo $SLURM_ARRAY_TASK_ID >>data; cat data >/tmp/slurm-element-$SLURM_ARRAY_TASK_ID.out"
    array = remote.submit(f"{HEAD}array: 1-3\nrun: {run}\n", "-M", "rig")
    for index in (1, 2, 3):
        shown = remote.until(f"{array}_{index}", "COMPLETED")
        path = f"/tmp/slurm-element-{index}.out"
        assert site.rig.run(["cat", path], on=shown["tasks"][0]["node_list"]).stdout == f"all of it\n{index}\n"
    remote.wait_until(lambda: not list_left(site), 20, "nothing to be left")


def test_files_travel_to_every_member_of_a_group(remote: Span, site: Site, project: Path) -> None:
    (project / "go.sh").write_text("cat data mine; echo $OVERSPAN_NODE_INDEX >>data; cat data; pwd\n")
    text = (
        "name: g\nexecution: parallel\n---\nname: a\nnum_nodes: 2\nworkdir: it's mine\nresources: {memory: 50M}\n"
        "file_mounts: {mine: it's mine/data}\nrun: sh go.sh\n---\nname: b\nresources: {memory: 50M}\n"
        "file_mounts: {there/mine: it's mine}\nrun: find -L . -name data; pwd >&2\n"
    )
    job = remote.submit(text, "-M", "rig")
    remote.until(job, "COMPLETED", timeout=60)
    for node in (0, 1):
        lines = remote.log(job, "a", "--node", str(node), "--stream", "output").splitlines()
        assert lines[:-1] == ["all of it", "all of it", "all of it", str(node)]
        assert lines[-1].endswith("/files/0/it's mine") and "overspan-nodes-" in lines[-1]
    assert remote.log(job, "b", "--stream", "output") == "./there/mine/data\n"
    assert "/work\n" in remote.log(job, "b", "--errors")
    remote.wait_until(lambda: not list_left(site), 20, "nothing to be left")

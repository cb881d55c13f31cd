"""Getting at a cluster from outside: files that travel, checks, jobs of others, links and paths that fail."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.system.conftest import Span
from tests.system.slurm.conftest import Site
from tests.system.slurm.gates import Gate
from tests.waiting import WaitUntil


@pytest.fixture
def remote(site: Site, tmp_path: Path, wait_until: WaitUntil) -> Iterator[Span]:
    """The commands of an installation that knows the rig."""
    span = Span(tmp_path, wait_until)
    settings = {"kind": "slurm", "tick": 0.5, **site.access.settings}
    text = {"clusters": {"rig": settings}, "ticks": {"retry": 1, "retry_limit": 1}}
    span.config.write_text(json.dumps(text))
    yield span
    span.close()


def submit(span: Span, *words: str, check: bool = True) -> Any:
    return span.run("sbatch", "--parsable", "-M", "rig", "--mem=50", *words, check=check)


def read_id(done: Any) -> int:
    return int(done.stdout.partition(";")[0])


def test_files_travel_once_and_each_job_has_its_own(remote: Span, site: Site, wait_until: WaitUntil) -> None:
    project = remote.folder / "project"
    (project / "sub").mkdir(parents=True)
    (project / "sub" / "data.txt").write_text("from here\n")
    (project / "left.log").write_text("x")
    (project / ".gitignore").write_text("*.log\n")
    text = (
        "name: staged\nworkdir: project\nfile_mounts: {input: project/sub}\nresources: {memory: 50M}\n"
        "run: |\n  cat sub/data.txt input/data.txt; ls; echo changed > sub/data.txt\n"
        "  until [ -e ~/go-staged ]; do sleep 0.1; done\n"
    )
    # Other tests on this rig have sent files too.
    before = list_archives(site)
    jobs = [remote.submit(text, "-M", "rig") for _ in range(2)]
    for job in jobs:
        remote.until(job, "RUNNING")
    archives = list_archives(site) - before
    assert len([name for name in archives if name.endswith(".tar.gz")]) == len(archives) == 2
    site.slurm("touch", "/home/researcher/go-staged")
    for job in jobs:
        remote.until(job, "COMPLETED")
        assert remote.log(job) == "from here\nfrom here\ninput\nsub\n"
    wait_until(lambda: not list_archives(site) & archives, 30)


def test_a_link_in_the_home_goes_with_the_last_job(remote: Span, site: Site, wait_until: WaitUntil) -> None:
    (remote.folder / "data").mkdir()
    (remote.folder / "data" / "file").write_text("from here\n")
    text = "name: linked\nfile_mounts: {~/linked: data}\nresources: {memory: 50M}\nrun: cat ~/linked/file\n"
    for number, group in enumerate(("", "num_nodes: 1\nmax_restarts_on_errors: 1\n")):
        job = remote.submit(text.replace("run:", f"{group}run:"), "-M", "rig")
        remote.until(job, "COMPLETED")
        assert remote.log(job) == "from here\n", number
        wait_until(lambda: "gone" in site.slurm("sh", "-c", "[ -L ~/linked ] || echo gone"), 30)


def list_archives(site: Site) -> set[str]:
    """The files that have travelled to the cluster."""
    return set(site.slurm("sh", "-c", "ls ~/.overspan/files 2>/dev/null || :").split())


def test_tasks_of_a_group_share_the_copy_of_their_folder(remote: Span) -> None:
    project = remote.folder / "project"
    project.mkdir()
    (project / "hello.sh").write_text("#!/bin/sh\necho hello from $1\n")
    (project / "hello.sh").chmod(0o755)
    task = "workdir: project\nresources: {memory: 50M}\n"
    text = (
        f"name: pair\n---\nname: one\n{task}run: ./hello.sh one; touch done\n"
        f"---\nname: two\n{task}file_mounts: {{mounted: project}}\n"
        "run: until [ -e done ]; do sleep 0.1; done; mounted/hello.sh two\n"
    )
    job = remote.submit(text, "-M", "rig")
    remote.until(job, "COMPLETED", timeout=60)
    assert remote.log(job, "one") == "hello from one\n"
    assert remote.log(job, "two") == "hello from two\n"


def test_files_that_are_missing_are_told_at_submission(remote: Span) -> None:
    file = remote.folder / "job.yaml"
    file.write_text("name: t\nworkdir: nowhere\nrun: hostname\n")
    done = remote.run("submit", "-M", "rig", str(file), check=False)
    assert done.returncode != 0 and f"there is no {remote.folder}/nowhere to send to the cluster" in done.stderr


def test_a_script_with_dos_line_ends_is_refused_in_slurms_words(remote: Span) -> None:
    script = remote.folder / "dos.sh"
    script.write_bytes(b"#!/bin/bash\r\necho x\r\n")
    done = submit(remote, str(script), check=False)
    assert done.returncode == 1 and "DOS line breaks" in done.stderr


def test_a_missing_output_folder_is_told_in_words(remote: Span) -> None:
    job = read_id(submit(remote, "--output=/no/such/folder/out.txt", "--wrap", "true"))
    remote.until(job, "FAILED")
    assert "is the folder of its output there" in remote.run("show", str(job)).stdout


def test_a_job_of_slurms_own_is_watched_and_ordered_about(remote: Span, site: Site) -> None:
    words = ["sbatch", "--parsable", "--mem=50", "--job-name=theirs"]
    gate = Gate(site)
    native, other = (site.slurm(*words, "--wrap", text).strip() for text in ("sleep 3600", f"{gate.wait}; exit 7"))
    done = remote.run("import", f"rig:{native}", f"rig:{other}")
    job, second = (int(line) for line in done.stdout.split())
    gate.open()
    assert remote.until(job, "RUNNING")["name"] == "theirs"
    again = remote.run("import", f"rig:{native}", check=False)
    assert again.returncode == 1 and f"rig:{native} is job {job}" in again.stderr
    remote.run("scancel", f"rig:{native}")
    remote.until(job, "CANCELLED")
    assert remote.until(second, "FAILED")["exit_code"] == 7
    unknown = remote.run("import", "rig:999999", check=False)
    assert unknown.returncode == 4 and "Slurm knows no job 999999" in unknown.stderr


def test_a_check_and_a_login(remote: Span) -> None:
    done = remote.run("check", "--json", "rig", check=False)
    found = {finding["what"]: finding for finding in json.loads(done.stdout)["findings"]}
    assert {name for name, finding in found.items() if not finding["works"]} <= {"clock"}
    assert {"reach", "Slurm", "submit", "hetjobs", "KillWait", "call budget", "python (login)", "root"} <= set(found)
    assert "another way" in found["bwrap"]["seen"] or found["bwrap"]["works"]
    assert "already open" in remote.run("login", "rig").stderr


def test_a_link_that_is_cut_makes_rows_stale_and_fails_nothing(remote: Span, site: Site) -> None:
    gate = Gate(site)
    job = read_id(submit(remote, "--wrap", f"{gate.wait}; exit 5"))
    remote.until(job, "RUNNING")
    site.rig.run(["pkill", "sshd"], user="root")
    try:
        remote.wait_until(lambda: remote.job(job).get("stale_since"), 20, "the row is stale")
        assert remote.job(job)["state"] == "RUNNING"
        assert "has not answered" in remote.run("squeue").stderr
        gate.open()
    finally:
        assert site.rig.run(["/usr/sbin/sshd"], user="root").rc == 0
    ended = remote.until(job, "FAILED")
    assert (ended["exit_code"], ended["stale_since"]) == (5, None)

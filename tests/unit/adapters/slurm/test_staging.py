"""Files that travel to a cluster of another file system: which, in what form, once for each content."""

from __future__ import annotations

import asyncio
import io
import os
import shutil
import subprocess
import tarfile
from collections.abc import Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import hypothesis.strategies as st
import pytest
from hypothesis import given
from tests.unit.adapters.slurm.links import Link
from tests.unit.adapters.slurm.samples import read_file, read_script

from overspan.adapters.abilities import Plan
from overspan.adapters.archives import describe_items, list_items, write_archive
from overspan.adapters.contract import ClusterConfig, Launch
from overspan.adapters.ignore_patterns import is_ignored, read_rules
from overspan.adapters.slurm import open_cluster
from overspan.adapters.slurm.commands.queries import Site
from overspan.adapters.slurm.rendering.renderer import Renderer
from overspan.adapters.slurm.settings import Settings
from overspan.adapters.slurm.transports.local import LocalTransport
from overspan.adapters.slurm.unshared.relocation import relocate, relocate_single
from overspan.adapters.slurm.unshared.staging import (
    Stager,
    check_sources,
    choose_local,
    find_sources,
    place_sources,
    render_part,
)
from overspan.bridge.model.errors import InvalidRequest, OverspanError
from overspan.bridge.model.evaluations import EvaluationOf
from overspan.bridge.model.job import Element, Job

T = TypeVar("T")
LIMIT = 1 << 20


def play(story: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(story)


def count_parts(link: Link) -> int:
    """How many parts of archives went over a link."""
    return sum(b"base64 -d" in program for program in link.programs)


class TestRules:
    @pytest.mark.parametrize(
        ("text", "path", "folder", "ignored"),
        [
            ("*.log", "a/b/x.log", False, True),
            ("/x.log", "a/x.log", False, False),
            ("/x.log", "x.log", False, True),
            ("data/", "a/data", True, True),
            ("data/", "a/data", False, False),
            ("a/*.txt", "a/b/x.txt", False, False),
            ("a/**/x", "a/x", False, True),
            ("a/**/x", "a/b/c/x", False, True),
            ("**/x", "a/b/x", False, True),
            ("a/**", "a/b/c", False, True),
            ("a/**", "a", True, False),
            ("*.log\n!keep.log", "keep.log", False, False),
            ("!keep.log\n*.log", "keep.log", False, True),
            ("\\#x", "#x", False, True),
            ("# x", "# x", False, False),
            ("x   ", "x", False, True),
            ("x[0-9]?", "x1y", False, True),
            ("x[!0-9]", "x1", False, False),
            ("x[]-]", "x]", False, True),
            ("a.b", "aXb", False, False),
            ("[", "[", False, True),
        ],
    )
    def test_patterns_are_gits(self, text: str, path: str, folder: bool, ignored: bool) -> None:
        assert is_ignored(read_rules(text), path, folder) is ignored

    def test_a_nested_file_is_about_its_own_folder(self) -> None:
        rules = read_rules("/x", "sub/")
        assert is_ignored(rules, "sub/x", False)
        assert not is_ignored(rules, "x", False)

    @given(st.text(max_size=30), st.text(min_size=1, max_size=20))
    def test_any_text_is_a_list_of_rules(self, text: str, path: str) -> None:
        is_ignored(read_rules(text), path, False)

    @pytest.mark.skipif(shutil.which("git") is None, reason="no git")
    def test_the_same_files_stay_behind_as_with_git(self, tmp_path: Path) -> None:
        names = ["a.log", "keep.log", "out/x", "sub/out/y", "sub/a.txt", "sub/deep/b.txt", "sub/deep/c", "build/z", "r"]
        for name in names:
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(name)
        (tmp_path / ".gitignore").write_text("*.log\n!keep.log\nout/\n/build\nsub/**/b.*\n")
        (tmp_path / "sub" / ".gitignore").write_text("a.txt\n!/deep/b.txt\n")
        environment = {**os.environ, "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_SYSTEM": "/dev/null"}
        subprocess.run(["git", "init", "-q", str(tmp_path)], check=True, env=environment)
        words = ["git", "-C", str(tmp_path), "ls-files", "--others", "--exclude-standard"]
        kept = subprocess.run(words, check=True, capture_output=True, text=True, env=environment).stdout.split()
        items = list_items(str(tmp_path), LIMIT)
        files = [item.name.partition("/")[2] for item in items if item.kind == tarfile.REGTYPE]
        assert files == sorted(kept)


class TestArchive:
    def test_it_depends_on_names_and_contents_only(self, tmp_path: Path) -> None:
        packed = []
        for copy in ("one", "two"):
            folder = tmp_path / copy / "project"
            (folder / "sub").mkdir(parents=True)
            for name in ("b", "a") if copy == "one" else ("a", "b"):
                (folder / "sub" / name).write_text(name)
            os.utime(folder / "sub" / "a", (1, 1 if copy == "one" else 2))
            file = io.BytesIO()
            packed.append((write_archive(list_items(str(folder), LIMIT), file), file.getvalue()))
        assert packed[0] == packed[1]
        (tmp_path / "two" / "project" / "sub" / "a").write_text("b")
        assert write_archive(list_items(str(tmp_path / "two" / "project"), LIMIT), io.BytesIO()) != packed[0][0]

    def test_links_stay_links_and_odd_files_stay_behind(self, tmp_path: Path) -> None:
        folder = tmp_path / "project"
        folder.mkdir()
        (folder / "out").symlink_to("/scratch/data")
        (folder / "folder").symlink_to("..")
        (folder / "run.sh").write_text("x")
        (folder / "run.sh").chmod(0o751)
        (folder / "plain").write_text("x")
        os.mkfifo(folder / "pipe")
        file = io.BytesIO()
        write_archive(list_items(str(folder), LIMIT), file)
        file.seek(0)
        with tarfile.open(fileobj=file) as archive:
            found = {entry.name: (entry.issym(), entry.linkname, oct(entry.mode)) for entry in archive}
        assert found == {
            "project": (False, "", "0o755"),
            "project/folder": (True, "..", "0o777"),
            "project/out": (True, "/scratch/data", "0o777"),
            "project/plain": (False, "", "0o644"),
            "project/run.sh": (False, "", "0o755"),
        }

    def test_skyignore_stands_in_place_of_gitignore(self, tmp_path: Path) -> None:
        for name in ("a", "b", ".git/HEAD"):
            (tmp_path / name).parent.mkdir(exist_ok=True)
            (tmp_path / name).write_text(name)
        (tmp_path / ".gitignore").write_text("a\n")
        names = [item.name.partition("/")[2] for item in list_items(str(tmp_path), LIMIT)]
        assert names == ["", ".gitignore", "b"]
        (tmp_path / ".skyignore").write_text("b\n")
        names = [item.name.partition("/")[2] for item in list_items(str(tmp_path), LIMIT)]
        assert names == ["", ".gitignore", ".skyignore", "a"]

    def test_too_much_is_refused_with_its_size(self, tmp_path: Path) -> None:
        (tmp_path / "large.bin").write_bytes(b"x" * 3000)
        with pytest.raises(InvalidRequest, match=r"the largest file is .*large\.bin") as caught:
            list_items(str(tmp_path), 2000)
        assert "max_staged" in caught.value.remedy
        assert list_items(str(tmp_path), 3000)

    def test_what_cannot_travel_is_named(self, tmp_path: Path) -> None:
        os.mkfifo(tmp_path / "pipe")
        for path in ("/", str(tmp_path / "pipe"), str(tmp_path / "missing")):
            with pytest.raises(InvalidRequest):
                list_items(path, LIMIT)

    def test_a_file_that_changes_meanwhile_is_not_sent(self, tmp_path: Path) -> None:
        (tmp_path / "a").write_text("four")
        for text in ("fo", "longer"):
            items = list_items(str(tmp_path), LIMIT)
            (tmp_path / "a").write_text(text)
            with pytest.raises(OverspanError, match="packed"):
                write_archive(items, io.BytesIO())

    def test_a_list_tells_whether_anything_changed(self, tmp_path: Path) -> None:
        (tmp_path / "a").write_text("1")
        before = describe_items(list_items(str(tmp_path), LIMIT))
        assert before == describe_items(list_items(str(tmp_path), LIMIT))
        os.utime(tmp_path / "a", (5, 5))
        assert before != describe_items(list_items(str(tmp_path), LIMIT))


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder of the submitter's."""
    folder = tmp_path / "here" / "it's mine"
    folder.mkdir(parents=True)
    (folder / "train.py").write_text("print()")
    return folder


def make_job(project: Path, number: int = 7) -> Job:
    text = f'name: t\nworkdir: "{project}"\nfile_mounts: {{data.txt: "{project}/train.py"}}\nrun: hostname\n'
    return read_file(text, number)


class TestStaging:
    def test_each_job_has_a_copy_of_its_own_and_the_content_travels_once(self, project: Path, tmp_path: Path) -> None:
        root, transport = f"{tmp_path}/root", Link()

        async def story() -> list[Launch]:
            stager = Stager(transport, LIMIT)
            first = await stager.stage(Launch("i-7-0", make_job(project)), root, "i-7")
            assert count_parts(transport) == 2
            asked = len(transport.programs)
            again = await stager.stage(Launch("i-7-0", make_job(project)), root, "i-7")
            assert len(transport.programs) == asked and again == first
            second = await stager.stage(Launch("i-8-0", make_job(project, 8)), root, "i-8")
            assert count_parts(transport) == 2
            return [first, second]

        one, two = (launch.job.spec.tasks[0] for launch in play(story()))
        assert one.workdir == f"{root}/runs/i-7/files/0/it's mine"
        assert one.file_mounts == {"data.txt": f"{root}/runs/i-7/files/1/train.py"}
        Path(one.workdir, "train.py").write_text("changed")
        assert Path(two.workdir, "train.py").read_text() == "print()"
        assert Path(two.file_mounts["data.txt"]).read_text() == "print()"
        assert len(os.listdir(f"{root}/files")) == 2
        for folder in (f"{root}/files", f"{root}/runs/i-7/files", f"{root}/runs/i-7/files/0"):
            assert os.stat(folder).st_mode & 0o777 == 0o700
        assert os.stat(one.workdir).st_mode & 0o777 == 0o755

    def test_a_later_launch_goes_on_with_what_the_first_left(self, project: Path, tmp_path: Path) -> None:
        root, job = f"{tmp_path}/root", make_job(project)
        first = play(Stager(LocalTransport(), LIMIT).stage(Launch("i-7-0", job), root, "i-7"))
        Path(first.job.spec.tasks[0].workdir, "checkpoint").write_text("1")
        shutil.rmtree(project)
        second = play(Stager(LocalTransport(), LIMIT).stage(Launch("i-7-1", job), root, "i-7"))
        assert Path(second.job.spec.tasks[0].workdir, "checkpoint").exists()

    def test_elements_of_an_array_share_a_copy(self, project: Path) -> None:
        job = make_job(project, 9)
        places = place_sources(replace(job, element=Element(7, 1)), "/r", "i-9")
        assert set(places.values()) == {"/r/runs/i-7/files/0", "/r/runs/i-7/files/1"}

    def test_an_archive_that_the_cluster_lost_is_sent_again(self, project: Path, tmp_path: Path) -> None:
        root, transport = f"{tmp_path}/root", Link()

        async def story() -> None:
            stager = Stager(transport, LIMIT)
            await stager.stage(Launch("i-7-0", make_job(project)), root, "i-7")
            shutil.rmtree(f"{root}/files")
            await stager.stage(Launch("i-8-0", make_job(project, 8)), root, "i-8")
            assert count_parts(transport) == 4

        play(story())
        assert Path(root, "runs", "i-8", "files", "0", "it's mine", "train.py").exists()

    def test_large_archives_travel_in_parts(self, tmp_path: Path) -> None:
        archive, data = tmp_path / "files" / "it's", os.urandom(1000)
        for number in range(4):
            program = render_part(str(archive), data[number * 250 : number * 250 + 250], number == 0)
            assert play(LocalTransport().run(["/bin/sh"], program.encode())).rc == 0
        assert archive.with_suffix(".part").read_bytes() == data

    def test_no_room_is_told_in_the_clusters_words(self, project: Path) -> None:
        with pytest.raises(OverspanError, match=r"cannot be written: .*\S") as caught:
            play(Stager(LocalTransport(), LIMIT).stage(Launch("i-7-0", make_job(project)), "/proc/nowhere", "i-7"))
        assert not caught.value.transient and "rights" in caught.value.remedy

    def test_what_is_not_here_is_the_clusters_own_unless_it_should_be_here(self, tmp_path: Path) -> None:
        assert choose_local(["/no/such/place", str(tmp_path)], "/home/ada") == (str(tmp_path),)
        with pytest.raises(InvalidRequest, match=r"there is no /home/nobody-here/src"):
            choose_local(["/home/nobody-here/src"], "/home/nobody-here")

    def test_what_cannot_travel_is_refused_at_submission(self, project: Path, tmp_path: Path) -> None:
        check_sources(make_job(project), LIMIT)
        with pytest.raises(InvalidRequest, match="are allowed"):
            check_sources(make_job(project), 5)
        job = read_file(f"name: t\nworkdir: {tmp_path}/gone\nrun: hostname\n")
        cluster = open_cluster(ClusterConfig("c", "slurm", {"host": "login"}))
        origin = replace(job.spec.origin, directory=str(tmp_path))
        refusal = play(cluster.admit(replace(job, spec=replace(job.spec, origin=origin))))
        assert refusal is not None and f"there is no {tmp_path}/gone" in refusal.message

    def test_nothing_is_asked_for_jobs_without_files(self) -> None:
        transport = Link()
        for job in (read_script("#!/bin/sh\ntrue\n"), read_file("name: t\nrun: hostname\n")):
            launch = Launch("i-7-0", job)
            assert find_sources(job) == ()
            assert play(Stager(transport, LIMIT).stage(launch, "/r", "i-7")) is launch
        assert not transport.programs and not transport.commands


class TestPlan:
    def test_a_plan_says_what_travels_and_sends_nothing(self, project: Path) -> None:
        cluster = open_cluster(ClusterConfig("c", "slurm", {"host": "login"}))
        assert isinstance(cluster, Plan)
        plan = cluster.plan(make_job(project))
        assert plan.startswith(f"# {project} travels to ~/.overspan/runs/N/files/0/it's mine\n")
        assert any("--chdir=" in line and "/runs/N/files/0/" in line for line in plan.splitlines())


class TestRendering:
    def test_a_staged_task_starts_in_its_copy_and_writes_into_its_run_directory(
        self, project: Path, tmp_path: Path
    ) -> None:
        site = Site((22, 5), {}, "ada", "/home/ada")
        launch = play(Stager(LocalTransport(), LIMIT).stage(Launch("i-7-0", make_job(project)), f"{tmp_path}/r", "i-7"))
        renderer = Renderer(Settings(shared=False), f"{tmp_path}/r")
        script = renderer.render(launch, site).call.stdin.decode()
        assert "/runs/i-7/files/0/it's mine" in script
        assert f"--output={tmp_path}/r/runs/i-7/slurm-%j.out" in script
        for known in (launch, Launch("i-7-0", make_job(project))):
            assert renderer.paths(known, 42, site) == (f"{tmp_path}/r/runs/i-7/slurm-42.out", "")

    def test_mounts_of_a_single_task_are_links(self, project: Path, tmp_path: Path) -> None:
        home = tmp_path / "home"
        home.mkdir()
        text = (
            f'name: t\nworkdir: "{project}"\nfile_mounts: {{deep/data: "{project}/train.py", ~/there: "{project}"}}\n'
            "run: cat deep/data ~/there/train.py\n"
        )
        body = Renderer(Settings()).render(Launch("i-7-0", read_file(text)), Site((22, 5), {}, "ada", "/h")).call.stdin
        for _ in range(2):
            done = subprocess.run(
                ["bash"],
                input=body,
                cwd=project,
                capture_output=True,
                check=False,
                env={**os.environ, "HOME": str(home)},
            )
            assert (done.stdout, done.returncode) == (b"print()print()", 0), done.stderr
        (project / "deep" / "data").unlink()
        (project / "deep" / "data").write_text("mine")
        done = subprocess.run(["bash"], input=body, cwd=project, capture_output=True, check=False)
        assert done.returncode == 1 and b"there is something else: deep/data" in done.stderr

    def test_an_output_that_is_named_stays(self) -> None:
        script = read_script("#!/bin/sh\ntrue\n", ("--output=a.txt", "x.sh"))
        assert relocate_single(script, "/r").spec.tasks[0].streams.output == "/r/a.txt"


def test_an_evaluation_keeps_what_it_is_told_of_its_checkpoint(tmp_path: Path) -> None:
    variables = {"OVERSPAN_CHECKPOINT": "/ckpt/step_1", "OVERSPAN_STEP": "1", "SLURM_CONF": "/etc/here"}
    job = make_job(tmp_path)
    job = replace(job, spec=replace(job.spec, tasks=(replace(job.spec.tasks[0], env=variables),)))
    assert not relocate(job, "/there").spec.tasks[0].env
    of = EvaluationOf(1, 1, 1, "quality", "step_1", "/ckpt/step_1", 1.0)
    moved = relocate(replace(job, spec=replace(job.spec, evaluation=of)), "/there")
    assert moved.spec.tasks[0].env == {"OVERSPAN_CHECKPOINT": "/ckpt/step_1", "OVERSPAN_STEP": "1"}

"""Files that travel in the batch script: what the script does with them on the node, as bash reads it."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from tests.unit.adapters.slurm.links import SITE
from tests.unit.adapters.slurm.samples import check_golden, read_file
from tests.waiting import wait_until

from overspan.adapters.contract import Launch
from overspan.adapters.slurm.rendering.renderer import ClusterFacts, Renderer
from overspan.adapters.slurm.settings import Settings
from overspan.adapters.slurm.transports.transport import Call
from overspan.adapters.slurm.unshared.inline_files import SCRIPT_LIMIT, InlineFiles, check_size, find_limit
from overspan.adapters.slurm.unshared.staging import InlinePacker, apply_staged, list_carried
from overspan.bridge.model.errors import InvalidRequest, Rejected
from overspan.bridge.model.job import Job

RENDERER = Renderer(Settings(shared=False, shared_root=False), "/r", "rig")
LIMIT = 1 << 20


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder of the submitter's."""
    folder = tmp_path / "here" / "it's mine"
    folder.mkdir(parents=True)
    (folder / "data").write_text("all of it\n")
    (folder / "run.sh").write_text("#!/bin/sh\necho ran in $PWD\n")
    (folder / "run.sh").chmod(0o700)
    return folder


@pytest.fixture
def node(tmp_path: Path) -> Path:
    """The disk of a node."""
    folder = tmp_path / "node"
    folder.mkdir()
    return folder


def render(job: Job, facts: ClusterFacts | None = None) -> Call:
    moved, inline = InlinePacker(LIMIT).pack(job)
    return RENDERER.render(Launch("i-7-0", moved), facts or ClusterFacts(SITE, inline=inline)).call


def surround(call: Call, node: Path, **more: str) -> Mapping[str, str]:
    return {"PATH": os.environ["PATH"], "TMPDIR": str(node), "HOME": str(node), **call.environment, **more}


def run(call: Call, node: Path, **more: str) -> subprocess.CompletedProcess[str]:
    script = node.parent / "script"
    script.write_bytes(call.stdin)
    words = ["bash", str(script)]
    return subprocess.run(words, env=surround(call, node, **more), cwd=node, capture_output=True, text=True, timeout=60)


@contextmanager
def start(call: Call, node: Path) -> Iterator[subprocess.Popen[str]]:
    """The script as Slurm runs it: a batch shell whose processes are told by their group."""
    script = node.parent / "script"
    script.write_bytes(call.stdin)
    with open(node.parent / "out", "w") as out:
        shell = subprocess.Popen(
            ["bash", str(script)],
            env=surround(call, node),
            cwd=node,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            text=True,
        )
    try:
        yield shell
    finally:
        try:
            os.killpg(shell.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        shell.wait(60)


def said(node: Path) -> str:
    return (node.parent / "out").read_text()


def until_said(node: Path, text: str) -> None:
    wait_until(lambda: text in said(node), 20, text)


def test_golden_script_with_files() -> None:
    text = "name: t\nworkdir: /home/ada/x\nfile_mounts: {data: /home/ada/d, /tmp/c: /home/ada/x}\nrun: ./run.sh\n"
    here = "@FOLDER@/files"
    job = apply_staged(read_file(text), {"/home/ada/x": f"{here}/0/x", "/home/ada/d": f"{here}/1/d"})
    check_golden("task-parcel.txt", RENDERER.plan(job, inline=InlineFiles(preview=True)))


def test_the_files_are_there_while_the_task_runs_and_gone_at_its_end(project: Path, node: Path) -> None:
    link = node / "shown"
    text = (
        f'name: t\nworkdir: "{project}"\nfile_mounts: {{mine: "{project}/data", "{link}": "{project}"}}\n'
        f"run: |\n  ./run.sh; cat mine '{link}/data'; stat -c %a ../../..; echo changed >data; exit 3\n"
    )
    call = render(read_file(text))
    for _ in range(2):
        done = run(call, node)
        assert done.returncode == 3, done.stderr
        first, *rest = done.stdout.splitlines()
        assert first.startswith(f"ran in {node}/overspan-files-") and first.endswith("/files/0/it's mine")
        assert rest == ["all of it", "all of it", "700"]
        assert not list(node.iterdir())
    assert b"#SBATCH --chdir=/tmp\n" in call.stdin


def test_a_task_without_a_folder_of_its_own_starts_in_an_empty_one(project: Path, node: Path) -> None:
    done = run(render(read_file(f'name: t\nfile_mounts: {{a/b: "{project}/data"}}\nrun: "ls -A; cat a/b"\n')), node)
    assert (done.returncode, done.stdout) == (0, "a\nall of it\n")
    assert not list(node.iterdir())


def test_the_program_has_its_input_and_all_its_signals(project: Path, node: Path) -> None:
    program = "import signal, sys; print(sys.stdin.readline(), signal.getsignal(2) is signal.default_int_handler)"
    call = render(read_file(f'name: t\nworkdir: "{project}"\nrun: |\n  python3 -c "{program}"; ls /proc/self/fd\n'))
    script = node.parent / "script"
    script.write_bytes(call.stdin)
    words = ["bash", str(script)]
    done = subprocess.run(words, env=surround(call, node), input="a line", capture_output=True, text=True, timeout=60)
    assert done.stdout.split() == ["a", "line", "True", "0", "1", "2", "3"]


@pytest.mark.parametrize(
    ("end", "code"), [("exit 0", 0), ("exit 255", 255), ("kill -KILL $$", -9), ("kill -TERM $$", -15)]
)
def test_the_script_ends_as_its_program(project: Path, node: Path, end: str, code: int) -> None:
    done = run(render(read_file(f'name: t\nworkdir: "{project}"\nrun: {end}\n')), node)
    assert done.returncode == code
    assert not list(node.iterdir())


COUNT = """\
#!/usr/bin/env python3
import os, signal, sys, time
heard = []
def hear(number, frame):
    heard.append(number)
    print("heard", signal.Signals(number).name, flush=True)
for number in (signal.SIGUSR1, signal.SIGTERM):
    signal.signal(number, hear)
print("up", flush=True)
while not os.path.exists("stop"):
    time.sleep(0.02)
print("over", len(heard))
sys.exit(5)
"""


def count(project: Path, more: str = "") -> str:
    """A task that counts signals until it is stopped, and ends with 5."""
    (project / "count").write_text(COUNT)
    (project / "count").chmod(0o700)
    return f'name: t\nworkdir: "{project}"\n{more}\nrun: ./count\n'


def stop(node: Path) -> None:
    (folder,) = node.glob("overspan-files-*/*/files/0/*")
    (folder / "stop").touch()


class TestSignals:
    def test_a_term_for_every_process_gives_the_program_its_time_and_clears_up(self, project: Path, node: Path) -> None:
        with start(render(read_file(count(project))), node) as shell:
            until_said(node, "up")
            os.killpg(shell.pid, signal.SIGTERM)
            until_said(node, "heard SIGTERM\n")
            assert shell.poll() is None
            stop(node)
            assert shell.wait(60) == 5
        assert said(node) == "up\nheard SIGTERM\nover 1\n"
        assert not list(node.iterdir())

    def test_a_term_while_nothing_has_started_clears_up_too(self, project: Path, node: Path) -> None:
        call = render(read_file(f'name: t\nworkdir: "{project}"\nrun: echo never\n'))
        script = call.stdin.replace(b"\ncd -- ", b"\necho unpacked; kill -TERM $$\ncd -- ", 1)
        done = run(replace(call, stdin=script), node)
        assert (done.returncode, done.stdout) == (143, "unpacked\n")
        assert not list(node.iterdir())

    def test_a_term_as_soon_as_the_program_is_there_leaves_it_its_time(self, project: Path, node: Path) -> None:
        call = render(read_file(f'name: t\nworkdir: "{project}"\nrun: "cat data; exit 3"\n'))
        script = call.stdin.replace(b" 9<&- &\n", b" 9<&- &\nkill -TERM $$\n", 1)
        assert script != call.stdin
        done = run(replace(call, stdin=script), node)
        assert (done.returncode, done.stdout) == (3, "all of it\n")
        assert not list(node.iterdir())

    def test_the_signal_before_the_limit_reaches_the_program_once(self, project: Path, node: Path) -> None:
        with start(render(read_file(count(project, "time: 5\nsignal: USR1@60"))), node) as shell:
            until_said(node, "up")
            os.kill(shell.pid, signal.SIGUSR1)
            until_said(node, "heard SIGUSR1\n")
            os.killpg(shell.pid, signal.SIGTERM)
            until_said(node, "heard SIGTERM\n")
            stop(node)
            assert shell.wait(60) == 5
        assert said(node) == "up\nheard SIGUSR1\nheard SIGTERM\nover 2\n"

    def test_a_signal_for_the_shell_alone_does_not_end_it(self, project: Path, node: Path) -> None:
        with start(render(read_file(count(project))), node) as shell:
            until_said(node, "up")
            os.kill(shell.pid, signal.SIGUSR1)
            os.killpg(shell.pid, signal.SIGTERM)
            until_said(node, "heard SIGTERM\n")
            stop(node)
            assert shell.wait(60) == 5
        assert said(node) == "up\nheard SIGTERM\nover 1\n"

    def test_what_a_killed_run_has_left_goes_with_the_next_one_on_the_node(self, project: Path, node: Path) -> None:
        link = node / "shown"
        text = count(project, f'file_mounts: {{"{link}": "{project}"}}')
        other = render(read_file(f'name: t\nworkdir: "{project}"\nrun: cat data\n'))
        with start(render(read_file(text)), node) as shell:
            until_said(node, "up")
            # A run that goes on loses nothing by another one.
            assert run(other, node).stdout == "all of it\n"
            assert len(list(node.glob("overspan-files-*/*/files/0/*"))) == 1
            os.killpg(shell.pid, signal.SIGKILL)
            shell.wait(60)
        assert link.is_symlink()
        assert run(other, node).returncode == 0
        assert list(node.iterdir()) == [link] and not link.exists()
        (project / "stop").touch()
        assert run(render(read_file(text)), node).stdout == "up\nover 0\n"
        assert not list(node.iterdir())


class TestWhatIsMissing:
    def test_a_node_without_tar_says_so(self, project: Path, node: Path) -> None:
        tools = node.parent / "bin"
        tools.mkdir()
        for name in ("bash", "base64", "gzip", "mktemp"):
            found = subprocess.run(["which", name], capture_output=True, text=True, check=True).stdout.strip()
            (tools / name).symlink_to(found)
        call = render(read_file(f'name: t\nworkdir: "{project}"\nrun: echo no\n'))
        done = run(call, node, PATH=str(tools))
        assert (done.returncode, done.stdout) == (1, "")
        assert "has no tar to unpack the job's files" in done.stderr

    def test_files_that_cannot_be_unpacked_are_an_error(self, project: Path, node: Path) -> None:
        call = render(read_file(f'name: t\nworkdir: "{project}"\nrun: echo no\n'))
        first = call.stdin.index(b"<<'OVERSPAN_FILES'")
        script = call.stdin[: first + 120] + b"\nA" + call.stdin[first + 140 :]
        done = run(replace(call, stdin=script), node)
        assert done.returncode == 1 and "cannot be unpacked" in done.stderr
        assert not list(node.iterdir())


class TestSecrets:
    TEXT = 'name: t\nsecrets: {KEY: "s\'3 $word"}\nrun: echo $KEY; env\n'

    def test_they_reach_the_task_as_a_variable_and_stand_in_no_script(self, node: Path) -> None:
        rendered = RENDERER.render(Launch("i-7-0", read_file(self.TEXT)), SITE)
        assert not rendered.files
        assert "$word" not in rendered.call.stdin.decode() and "$word" not in " ".join(rendered.call.argv)
        done = run(rendered.call, node)
        assert done.stdout.startswith("s'3 $word\n") and "KEY=s'3 $word\n" in done.stdout
        assert "OVERSPAN_SECRETS" not in done.stdout

    def test_a_job_that_comes_without_them_says_so(self, node: Path) -> None:
        call = RENDERER.render(Launch("i-7-0", read_file(self.TEXT)), SITE).call
        done = run(replace(call, environment={}), node)
        assert done.returncode == 1 and "have not come with it" in done.stderr

    def test_an_image_gets_them_as_the_others(self, node: Path) -> None:
        renderer = Renderer(RENDERER.settings.model_copy(update={"containers": "apptainer"}), "/r", "rig")
        job = read_file(f"{self.TEXT}resources: {{image_id: docker:a}}\n")
        call = renderer.render(Launch("i-7-0", job), SITE).call
        tool = node.parent / "apptainer"
        tool.write_text('#!/bin/sh\nwhile [ "$1" != /bin/sh ]; do shift; done\nexec env -u KEY "$@"\n')
        tool.chmod(0o700)
        done = run(call, node, PATH=f"{node.parent}:{os.environ['PATH']}")
        assert done.stdout.startswith("s'3 $word\n"), done.stderr

    def test_neither_trial_nor_plan_has_them(self) -> None:
        launch = Launch("i-7-0", read_file(self.TEXT))
        trial = RENDERER.render(launch, SITE, test_only=True).call
        assert not any("$word" in value for value in (*trial.environment.values(), trial.stdin.decode()))
        plan = RENDERER.plan(launch.job)
        assert "$word" not in plan and "variable OVERSPAN_SECRETS of sbatch" in plan

    def test_what_would_lose_them_is_refused(self) -> None:
        job = read_file(f"{self.TEXT}slurm: {{export: NONE}}\n")
        with pytest.raises(InvalidRequest, match="--export=NONE no `secrets` reach the job"):
            RENDERER.render(Launch("i-7-0", job), SITE)
        job = read_file(self.TEXT.replace("$word", "x" * 130_000))
        with pytest.raises(InvalidRequest, match="longer than 120 KiB"):
            RENDERER.render(Launch("i-7-0", job), SITE)


class TestLimits:
    def test_a_site_says_how_much_of_a_script_it_takes(self) -> None:
        assert find_limit({}) == SCRIPT_LIMIT
        assert find_limit({"SchedulerParameters": "bf_continue,max_script_size=1000,defer"}) == 1000

    def test_what_is_larger_is_refused_with_a_remedy(self, project: Path) -> None:
        (project / "noise").write_bytes(os.urandom(60_000))
        job = read_file(f'name: t\nworkdir: "{project}"\nrun: x\n')
        moved, inline = InlinePacker(LIMIT).pack(job)
        site = replace(SITE, config={**SITE.config, "SchedulerParameters": "max_script_size=50000"})
        with pytest.raises(Rejected, match="max_script_size") as caught:
            RENDERER.render(Launch("i-7-0", moved), ClusterFacts(site, inline=inline))
        assert "`root`" in caught.value.remedy and ".skyignore" in caught.value.remedy
        check_size(b"x" * 49_999, site.config)

    def test_the_clusters_own_paths_do_not_travel(self, project: Path) -> None:
        job = read_file("name: t\nworkdir: /nowhere/at/all\nrun: x\n")
        assert InlinePacker(LIMIT).pack(job) == (job, None)

    @pytest.mark.parametrize(
        ("more", "what"),
        [("resources: {image_id: docker:a}", "an image"), ("ready: {command: x}", "`ready: command`")],
    )
    def test_a_task_that_would_not_see_them_is_refused(self, project: Path, more: str, what: str) -> None:
        with pytest.raises(Rejected, match=what):
            list_carried(read_file(f'name: t\nworkdir: "{project}"\n{more}\nrun: x\n'))

    def test_a_folder_that_has_not_changed_is_packed_once(self, project: Path) -> None:
        packer = InlinePacker(LIMIT)
        job = read_file(f'name: t\nworkdir: "{project}"\nfile_mounts: {{a: "{project}"}}\nrun: x\n')
        first = packer.pack(job)[1]
        assert first is not None and packer.pack(job)[1] is first
        (project / "data").write_text("another")
        assert packer.pack(job)[1] != first
        assert packer.pack(read_file(f'name: t\nworkdir: "{project}"\nrun: x\n'))[1] == packer.pack(job)[1]

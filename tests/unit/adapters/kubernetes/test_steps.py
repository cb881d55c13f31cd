"""Steps from outside of a job: their program, what it takes with it, and what holds the pods; run by sh."""

from __future__ import annotations

import asyncio
import os
import subprocess
import time
from pathlib import Path

import pytest
from tests.unit.adapters.kubernetes.pods import placed, running
from tests.unit.adapters.kubernetes.samples import configure, make_launch, read_file, read_script

from overspan.adapters.abilities import StepRequest
from overspan.adapters.kubernetes import steps
from overspan.adapters.kubernetes.launches.gang import GangBackend
from overspan.adapters.kubernetes.manifests.exporting import choose_step_variables
from overspan.adapters.kubernetes.manifests.rendering import plan_launch
from overspan.adapters.kubernetes.manifests.scripts import COMMANDS_DIR, HOLD_PODS, RUN_DIR
from overspan.adapters.kubernetes.settings import Settings
from overspan.adapters.kubernetes.steps import StepSource, prepare_step, render_step
from overspan.bridge.model.allocations import GIVE_BACK, GIVE_BACK_AS_STEPS, HOLD_SCRIPT
from overspan.bridge.model.errors import Conflict, InvalidRequest
from overspan.bridge.model.job import Job

SRUN = """#!/bin/sh
echo "$PWD $(umask) [$GREETING] [${OVERSPAN_END_MARK-none}]"
for word; do echo "<$word>"; done
exit ${CODE:-0}
"""


def allocation() -> Job:
    """An allocation without a script, as it is launched."""
    return plan_launch(make_launch(read_script(HOLD_SCRIPT)), configure(), GangBackend.SOFT).job


class Pod:
    """A folder that stands for the file system of a pod."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.run_dir = root / "run"
        (root / "commands").mkdir(parents=True)
        self.run_dir.mkdir()
        srun = root / "commands/srun"
        srun.write_text(SRUN)
        srun.chmod(0o755)

    def place(self, text: str) -> str:
        """A text with the pod's paths in this folder."""
        return text.replace(COMMANDS_DIR, str(self.root / "commands")).replace(RUN_DIR, str(self.run_dir))

    def step(self, request: StepRequest, **environment: str) -> subprocess.CompletedProcess[str]:
        folder = self.run_dir / "step.1"
        folder.mkdir(exist_ok=True)
        task = allocation().spec.tasks[0]
        (folder / "step").write_text(self.place(render_step(f"{RUN_DIR}/step.1", request, task, Settings())))
        words = ["/bin/sh", str(folder / "step")]
        given = {"PATH": os.environ["PATH"], "OVERSPAN_END_MARK": "secret", **environment}
        return subprocess.run(words, env=given, capture_output=True, text=True, timeout=30)


@pytest.fixture
def pod(tmp_path: Path) -> Pod:
    return Pod(tmp_path)


def ask(*words: str, **environment: str) -> StepRequest:
    return StepRequest("lab/inst-7-0", words, environment, "/home/u", umask=0o027)


def test_a_step_has_the_users_words_variables_and_umask(pod: Pod) -> None:
    done = pod.step(ask("-n", "2", "sh", "-c", "it's\n$HOME", GREETING="a \"b\"\n'c' $HOME", CODE="3"))
    assert done.returncode == 3, done.stderr
    first, rest = done.stdout.split("]\n", 1)[0], done.stdout
    assert first.startswith(f"{pod.run_dir} 0027 [a \"b\"\n'c' $HOME") and "[none]" in rest
    assert rest.endswith("<-n>\n<2>\n<sh>\n<-c>\n<it's\n$HOME>\n")
    assert not (pod.run_dir / "step.1/step").exists() and not (pod.run_dir / "step.1/pid").exists()


@pytest.mark.parametrize(
    ("codes", "signal", "wanted"),
    [
        ((), GIVE_BACK_AS_STEPS, 0),
        ((0, 0), GIVE_BACK_AS_STEPS, 0),
        ((3, 9, 4), GIVE_BACK_AS_STEPS, 9),
        ((3, 9, 4), GIVE_BACK, 0),
    ],
)
def test_an_allocation_ends_with_the_highest_code_of_its_steps(
    pod: Pod, codes: tuple[int, ...], signal: str, wanted: int
) -> None:
    held = subprocess.Popen(["/bin/sh", "-c", pod.place(HOLD_PODS)], start_new_session=True)
    try:
        for code in codes:
            assert pod.step(ask("true", CODE=str(code))).returncode == code
        # It may not have set its traps yet, and would end by the signal then.
        wait_for = time.monotonic() + 10
        while (
            "sleep"
            not in subprocess.run(["ps", "-o", "args=", "-s", str(held.pid)], capture_output=True, text=True).stdout
        ):
            assert time.monotonic() < wait_for
        subprocess.run(["kill", "-s", signal, str(held.pid)], check=True)
        assert held.wait(10) == wanted
    finally:
        subprocess.run(["pkill", "-KILL", "-s", str(held.pid)])
        held.wait()


def test_the_guard_passes_signals_on_and_ends_what_is_left(pod: Pod) -> None:
    trapped = "#!/bin/sh\ntrap 'echo heard >&2' USR1\necho ready >&2\nwhile :; do sleep 0.05; done\n"
    (pod.root / "commands/srun").write_text(trapped)
    folder = pod.run_dir / "step.1"
    folder.mkdir()
    task = allocation().spec.tasks[0]
    (folder / "step").write_text(pod.place(render_step(f"{RUN_DIR}/step.1", ask("x"), task, Settings())))
    pipe = subprocess.PIPE
    step = subprocess.Popen(["/bin/sh", str(folder / "step")], stderr=pipe, start_new_session=True)
    guard = subprocess.Popen(["/bin/sh", "-c", steps._GUARD, "guard", str(folder)], stdin=pipe)
    try:
        assert guard.stdin is not None and step.stderr is not None
        assert step.stderr.readline() == b"ready\n"
        guard.stdin.write(b"USR1\n")
        guard.stdin.flush()
        assert step.stderr.readline() == b"heard\n"
        guard.stdin.close()
        assert step.wait(15) == 128 + 15
        assert guard.wait(15) == 0 and not folder.exists()
    finally:
        for each in (step, guard):
            each.kill()
            each.communicate()


def test_what_describes_another_machine_or_allocation_stays() -> None:
    given = {
        "PATH": "/x",
        "HOME": "/h",
        "SLURM_JOB_ID": "7",
        "SLURM_NTASKS": "2",
        "OVERSPAN_TASK": "t",
        "LD_PRELOAD": "p",
        "WORD": "w",
        "BASH_FUNC_f%%": "() { :; }",
        "DISPLAY": ":0",
        "SSH_AUTH_SOCK": "/s",
    }
    assert choose_step_variables(given, ["true"], Settings()) == {"SLURM_NTASKS": "2", "WORD": "w"}
    named = choose_step_variables(given, ["--export=ALL,DISPLAY,LD_PRELOAD=p", "true"], Settings())
    assert sorted(named) == ["DISPLAY", "LD_PRELOAD", "SLURM_NTASKS", "WORD"]


def test_a_folder_that_both_sides_share_is_the_steps() -> None:
    task = allocation().spec.tasks[0]
    volume = {"path": "/home", "shared": True, "hostPath": {"path": "/home"}}
    settings = Settings.model_validate({"volumes": {"home": volume}})
    text = render_step("/f", ask("true"), task, settings)
    assert "cd /home/u || exit 1" in text
    assert f"cd {RUN_DIR} || exit 1" in render_step("/f", ask("true"), task, Settings())


class FakeConnection:
    """Answers every command with one exit code."""

    def __init__(self, code: int = 0) -> None:
        self.code = code
        self.line = b""

    async def run(self, function: object, command: object, timeout: float) -> tuple[int, str]:
        self.line = command.line  # type: ignore[attr-defined]
        return self.code, "no space\nleft"

    execute = None


@pytest.mark.parametrize(
    ("code", "error", "said"),
    [
        (3, InvalidRequest, "have no srun: its script does not name it"),
        (4, InvalidRequest, "no python3"),
        (1, Conflict, "did not take the step: no space left"),
    ],
)
def test_what_a_pod_cannot_run_is_said(code: int, error: type[Exception], said: str) -> None:
    job = allocation()
    source = StepSource(job, [running(job.spec.tasks[0].name)], Settings())
    with pytest.raises(error, match=said):
        asyncio.run(prepare_step(ask("true"), source, FakeConnection(code)))  # type: ignore[arg-type]


def test_words_and_variables_are_in_no_command_line() -> None:
    job, connection = allocation(), FakeConnection()
    source = StepSource(job, [running(job.spec.tasks[0].name)], Settings(context="c"))
    found = asyncio.run(prepare_step(ask("run-this", TOKEN="s3cret"), source, connection))  # type: ignore[arg-type]
    assert b"s3cret" in connection.line and b"run-this" in connection.line
    for words in (found.words, found.guard):
        assert (
            words[:3] == ("kubectl", "--context", "c") and "s3cret" not in str(words) and "run-this" not in str(words)
        )


def test_a_group_and_a_pod_that_does_not_run_take_no_steps() -> None:
    group = read_file("name: one\nrun: echo\n")
    with pytest.raises(InvalidRequest, match="a group takes no steps"):
        asyncio.run(prepare_step(ask("true"), StepSource(group, [], Settings()), FakeConnection()))  # type: ignore[arg-type]
    job = allocation()
    with pytest.raises(Conflict, match="does not run"):
        asyncio.run(prepare_step(ask("true"), StepSource(job, [placed()], Settings()), FakeConnection()))  # type: ignore[arg-type]

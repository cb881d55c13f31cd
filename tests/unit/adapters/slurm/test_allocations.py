"""Allocations without a script: the native job that holds the nodes, and the program of a step."""

from __future__ import annotations

import os
import signal
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from tests.unit.adapters.slurm.samples import NOW, read_script

from overspan.adapters.contract import Launch
from overspan.adapters.slurm.access.allocations import (
    GUARD,
    HOLDING,
    StepAccess,
    choose_variables,
    render_step,
    step_words,
)
from overspan.adapters.slurm.commands.queries import Site
from overspan.adapters.slurm.handles import make_handle
from overspan.adapters.slurm.rendering.renderer import Renderer
from overspan.adapters.slurm.rendering.script import RenderContext, render_job
from overspan.adapters.slurm.settings import PARAMIKO, Settings
from overspan.bridge.model.allocations import GIVE_BACK, GIVE_BACK_AS_STEPS, HOLD_SCRIPT, KEEP_SCRIPT
from overspan.bridge.model.errors import InvalidRequest
from overspan.bridge.model.job import Job, new_job
from overspan.bridge.readers.submission import Submission, read_submission

PATH = "/usr/bin:/bin"


def read_allocation(*command: str, text: str = HOLD_SCRIPT) -> Job:
    """The job of a command line of srun's or salloc's."""
    request = Submission(
        "script", text, command[0], argv=("--output=/dev/null",), command=command, environment={"A": "1"}, user="ada"
    )
    return new_job(8, replace(read_submission(request, now=NOW), name=command[0]), NOW)


class TestHolding:
    @pytest.mark.parametrize("text", [HOLD_SCRIPT, KEEP_SCRIPT])
    def test_the_native_job_waits_and_asks_for_what_the_user_asked(self, text: str) -> None:
        words = ("srun", "-N2", "-r", "1", "-l", "--mem", "1G", "-p", "it's", "--pty", "-Afoo", "-t5", "sh", "-c", "x")
        submission = render_job(read_allocation(*words, text=text), RenderContext("8.0"))
        assert submission.argv[:2] == ("sbatch", "--parsable")
        assert set(submission.argv[2:]) >= {
            *("--nodes=2", "--mem=1G", "--partition=it's", "--account=foo", "--time=5"),
            *("--output=/dev/null", "--no-requeue", "--job-name=srun"),
        }
        assert not any("relative" in word or "pty" in word or word == "sh" for word in submission.argv)
        assert submission.script == HOLDING and submission.variables == {}

    def test_a_cancel_leaves_the_script_no_time(self) -> None:
        assert make_handle(read_allocation("salloc"), 40).grace == 0
        assert make_handle(read_script("#!/bin/sh\n"), 40).grace > 0

    @pytest.mark.parametrize("option", ["--x11", "-I5", "--uid=0"])
    def test_what_is_not_carried_is_named(self, option: str) -> None:
        with pytest.raises(InvalidRequest, match="is not carried to a Slurm cluster"):
            render_job(read_allocation("salloc", option), RenderContext("8.0"))

    def test_components_are_not_carried(self) -> None:
        with pytest.raises(InvalidRequest, match="components"):
            render_job(read_allocation("salloc", "-n1", ":", "-n1"), RenderContext("8.0"))

    def test_there_has_to_be_a_terminal(self) -> None:
        launch, site = Launch("i-8-0", read_allocation("salloc")), Site((), {}, "", "/home/ada")
        assert Renderer(Settings(transport="ssh", host="leo")).render(launch, site).call.argv[0] == "sbatch"
        with pytest.raises(InvalidRequest, match="leo is reached by paramiko, which has no terminal"):
            Renderer(Settings(transport=PARAMIKO, host="leo")).render(launch, site)

    @pytest.mark.parametrize(
        ("name", "told", "code"),
        [
            (GIVE_BACK, "3:0", 0),
            (GIVE_BACK_AS_STEPS, "3:0", 3),
            (GIVE_BACK_AS_STEPS, "0:15", 143),
            (GIVE_BACK_AS_STEPS, "0:0", 1),
        ],
    )
    def test_the_script_ends_when_it_is_told(self, tmp_path: Path, name: str, told: str, code: int) -> None:
        _write(
            tmp_path / "scontrol", f'#!/bin/sh\n[ "$*" = "--details show job 40" ] && echo " DerivedExitCode={told} "\n'
        )
        # The first wait tells that the script waits for signals.
        _write(tmp_path / "sleep", "#!/bin/sh\n[ $1 = 0.5 ] && exit; echo waits; exec /bin/sleep 60\n")
        environment = {"PATH": f"{tmp_path}:{PATH}", "SLURM_JOB_ID": "40"}
        with subprocess.Popen(
            ["/bin/sh", "-c", HOLDING], env=environment, stdout=subprocess.PIPE, text=True, start_new_session=True
        ) as process:
            try:
                assert process.stdout is not None and process.stdout.readline() == "waits\n"
                process.send_signal(getattr(signal, f"SIG{name}"))
                assert process.wait(60) == code
            finally:
                subprocess.run(["kill", "-KILL", "--", f"-{process.pid}"], check=False)


class TestSteps:
    def test_what_the_allocation_has_had_is_left_out(self) -> None:
        words = [
            "-M",
            "leo",
            "-p",
            "gpu",
            "-N2",
            "-t5",
            "--exclusive",
            "-l",
            "--export=A,B=2",
            "-o",
            "it's",
            "sh",
            "-c",
        ]
        assert step_words(40, words, own=True) == [
            *("srun", "--jobid=40", "--nodes=2", "--label", "--export=A,B=2", "--output=it's", "sh", "-c"),
        ]
        assert {"--time=5", "--exclusive"} <= set(step_words(40, words, own=False))

    def test_another_jobs_id_does_not_count(self) -> None:
        assert step_words("40_3", ["--jobid=7", "true"], own=False) == ["srun", "--jobid=40_3", "true"]

    def test_what_is_not_carried_is_named(self) -> None:
        for words in (["--x11", "true"], ["-n1", "true", ":", "-n1", "true"]):
            with pytest.raises(InvalidRequest, match="not carried"):
                step_words(40, words, own=False)

    def test_variables_tell_nothing_of_this_side(self) -> None:
        given = {
            "A": "1",
            "B": "2",
            "SLURM_NTASKS": "4",
            "SLURM_JOB_ID": "7",
            "SPAN_STATE_DIR": "/s",
            "SLURM_CONF": "/c",
        }
        assert choose_variables(given, ["true"], shared=True) == {"A": "1", "B": "2", "SLURM_NTASKS": "4"}
        assert choose_variables(given, ["--export=ALL,B", "true"], shared=False) == {"B": "2", "SLURM_NTASKS": "4"}

    def test_the_program_becomes_srun_where_the_user_is(self, tmp_path: Path) -> None:
        folder, commands, place = tmp_path / "it's a step", tmp_path / "bin", tmp_path / "a 'place'"
        for path in (folder, commands, place):
            path.mkdir()
        told = [
            "echo $$",
            "pwd",
            "umask",
            'echo "$A"',
            "tr '\\0' '\\n' </proc/$$/environ | grep odd",
            'printf "%s." "$@"',
        ]
        _write(commands / "srun", "\n".join(["#!/bin/sh", *told, ""]))
        words = ["srun", "--jobid=40", "sh", "-c", "echo 'x' \"$y\""]
        text = render_step(str(folder), words, {"A": "it's\n$x", "odd%%": "1"}, (str(place), str(commands), "0027"))
        (folder / "step").write_text(text)
        done = subprocess.run(
            ["/bin/sh", folder / "step"], env={"PATH": PATH}, capture_output=True, text=True, timeout=60
        )
        pid, *rest = done.stdout.splitlines()
        assert done.stderr == "" and (folder / "pid").read_text().split() == [pid, os.uname().nodename]
        assert rest == [str(place), "0027", "it's", "$x", "odd%%=1", "--jobid=40.sh.-c.echo 'x' \"$y\"."]
        assert not (folder / "step").exists()

    def test_commands_in_a_step_have_files_of_their_own(self, tmp_path: Path) -> None:
        folder, commands = tmp_path / "it's a step", tmp_path / "bin"
        for path in (folder, commands):
            path.mkdir()
        _write(commands / "srun", '#!/bin/sh\nspan "$@"; cat "$SPAN_JOB_ACCESS"; umask\n')
        access = StepAccess('{"token": "it\'s $x %s"}', '#!/bin/sh\necho asks "$@"\n')
        text = render_step(str(folder), ["srun", "squeue"], {"PATH": PATH}, ("", str(commands), "0022"), access)
        (folder / "step").write_text(text)
        words = ["/bin/sh", str(folder / "step")]
        done = subprocess.run(words, env={"PATH": PATH}, capture_output=True, text=True, timeout=60)
        assert (done.stdout, done.stderr) == ("asks squeue\n" + access.document + "0022\n", "")
        modes = [path.stat().st_mode & 0o777 for path in (folder / "access.json", folder / "commands" / "span")]
        assert modes == [0o600, 0o700]

    def test_a_folder_that_is_gone_starts_nothing(self, tmp_path: Path) -> None:
        text = render_step(str(tmp_path / "gone"), ["srun", "true"], {}, ("", "", ""))
        done = subprocess.run(["/bin/sh", "-c", text], env={"PATH": PATH}, capture_output=True, text=True, timeout=60)
        assert done.returncode == 1 and "gone/pid" in done.stderr


class TestGuard:
    @pytest.mark.parametrize(("said", "left"), [(b"", b"term"), (b"USR1\n", b"usr1 term")])
    def test_signals_are_handed_on_and_their_end_ends_srun(self, tmp_path: Path, said: bytes, left: bytes) -> None:
        """The srun here writes down each signal, and ends by a TERM."""
        folder = tmp_path / "it's a step"
        folder.mkdir()
        traps = "trap 'echo usr1' USR1\ntrap 'echo term; exit' TERM"
        _write(tmp_path / "srun", f"#!/bin/sh\n{traps}\necho up\nwhile :; do read -r x || :; done\n")
        _write(tmp_path / "sleep", "#!/bin/sh\nexec /bin/sleep 0.05\n")
        pipe = subprocess.PIPE
        with subprocess.Popen([tmp_path / "srun"], stdin=pipe, stdout=pipe) as srun:
            assert srun.stdout is not None and srun.stdout.readline() == b"up\n"
            (folder / "pid").write_text(f"{srun.pid} {os.uname().nodename}\n")
            words, environment = ["/bin/sh", "-c", GUARD, "guard", str(folder)], {"PATH": f"{tmp_path}:{PATH}"}
            done = subprocess.run(words, input=said, env=environment, timeout=60)
            assert done.returncode == 0 and not folder.exists()
            assert srun.communicate(timeout=60)[0].split() == left.split()

    def test_what_is_no_srun_of_this_machine_is_left_alone(self, tmp_path: Path) -> None:
        folder = tmp_path / "step"
        with subprocess.Popen(["/bin/sleep", "60"]) as other:
            for host in (os.uname().nodename, "elsewhere"):
                folder.mkdir()
                (folder / "pid").write_text(f"{other.pid} {host}\n")
                subprocess.run(["/bin/sh", "-c", GUARD, "guard", str(folder)], input=b"TERM\n", timeout=60, check=True)
                assert other.poll() is None and not folder.exists()
            other.kill()


def _write(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o755)

"""What a single job is given so that `span` in it reaches the daemon."""

from __future__ import annotations

import asyncio
import os
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from tests.unit.adapters.slurm.links import SITE
from tests.unit.adapters.slurm.samples import read_script

from overspan.adapters.contract import Launch
from overspan.adapters.slurm.rendering.renderer import ClusterFacts, Renderer
from overspan.adapters.slurm.settings import Settings
from overspan.adapters.slurm.transports.local import LocalTransport
from overspan.adapters.slurm.transports.transport import Call
from overspan.bridge.runtime.core.job_access import render_command

SCRIPT = "#!/bin/sh\n#SBATCH --mem=50\nspan squeue\n"
ACCESS = '{"token":"7.secret"}'


def make_launch(access: str = ACCESS) -> Launch:
    return Launch("i-7-0", read_script(SCRIPT, number=7), access=access)


def test_a_job_has_the_file_and_span_in_front_of_its_path() -> None:
    found = Renderer(Settings(python="python3.11"), "/r", "rig").render(make_launch(), SITE)
    files = {file.path: file for file in found.files}
    (run_dir,) = {path.rpartition("/access.json")[0] for path in files if path.endswith("/access.json")}
    access, command = files[f"{run_dir}/access.json"], files[f"{run_dir}/commands/span"]
    assert (access.data.decode(), access.mode, command.mode) == (ACCESS, 0o600, 0o700)
    assert "exec 'python3.11' " in command.data.decode() and "'command' \"$@\"" in command.data.decode()
    assert found.call.environment["SPAN_JOB_ACCESS"] == access.path
    assert found.call.path == f"{run_dir}/commands"
    # The token is nowhere else.
    assert "secret" not in str((found.call.argv, found.call.environment, found.call.stdin))


def drop_access(launch: Launch) -> tuple[Launch, Settings, ClusterFacts, bool]:
    return replace(launch, access=""), Settings(), ClusterFacts(SITE), False


def try_out(launch: Launch) -> tuple[Launch, Settings, ClusterFacts, bool]:
    return launch, Settings(), ClusterFacts(SITE), True


@pytest.mark.parametrize("change", [drop_access, try_out])
def test_others_have_nothing_of_it(change: object) -> None:
    assert callable(change)
    launch, settings, facts, trial = change(make_launch())
    found = Renderer(settings, "/r", "rig").render(launch, facts, test_only=trial)
    assert not any("access" in file.path or "commands" in file.path for file in found.files)
    assert "SPAN_JOB_ACCESS" not in found.call.environment and not found.call.path


def test_a_folder_comes_first_in_the_path_of_one_command_alone(tmp_path: Path) -> None:
    commands = tmp_path / "it's"
    commands.mkdir()
    own = commands / "own"
    own.write_text("#!/bin/sh\necho own\n")
    own.chmod(0o700)
    calls = [
        Call(["sh", "-c", "own; env"], path=str(commands), environment={"PATH": os.environ["PATH"], "OTHER": "x"}),
        Call(["sh", "-c", "own"], environment={"PATH": os.environ["PATH"]}),
    ]
    first, second = asyncio.run(LocalTransport().run_all(calls))
    assert (
        first is not None and first.text.startswith("own\n") and f"PATH={commands}:{os.environ['PATH']}\n" in first.text
    )
    assert second is not None and second.rc == 127


def test_the_command_is_a_program_for_sh_whatever_the_folders_are_called(tmp_path: Path) -> None:
    folder = tmp_path / "it's a $HOME"
    text = render_command(("/bin/sh", "-c", 'echo "$OVERSPAN_RUN_DIR|$*"', "sh"), str(folder))
    done = subprocess.run(["sh", "-s", "a b"], input=text, capture_output=True, text=True, check=True)
    assert done.stdout == f"{folder}|command a b\n"

"""The words of a node run in an image, and the variables that go along."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from overspan.bridge.model.spec import TaskSpec
from overspan.bridge.runtime.core import isolation
from overspan.bridge.runtime.slurm.agent import prepare_launch
from overspan.bridge.runtime.slurm.channel import RemoteLaunch, decode_launch
from overspan.bridge.runtime.slurm.images import HOME, HOSTS, carry_variables, list_carried, wrap_words

IMAGE = ("apptainer", "exec", f"--bind={HOSTS}:/etc/hosts", f"--bind=/m:{HOME}/m", "docker://a")
MEMBERS = (("192.0.2.7", ("b-0.g", "b-0")),)


def test_the_node_fills_in_what_it_knows() -> None:
    words = wrap_words(IMAGE, ("/bin/bash", "x.run"), "/home/ada", "/tmp/f/hosts")
    assert words[2:5] == ("--bind=/tmp/f/hosts:/etc/hosts", "--bind=/m:/home/ada/m", "docker://a")
    assert words[5:7] == ("/bin/sh", "-c") and words[-2:] == ("/bin/bash", "x.run")


@pytest.mark.parametrize("argv", [("/bin/bash", "-c", "exit $#", "x", "a b", "*"), ("sh", "-c", "exit 2")])
def test_the_program_gets_its_words_whole(argv: tuple[str, ...]) -> None:
    assert subprocess.run(wrap_words((), argv, "", ""), timeout=120).returncode == 2


def test_the_tasks_variables_win_over_the_images() -> None:
    spec = TaskSpec("a", env={"PATH": "/own", "HOME": "/x"}, secrets={"KEY": "s"})
    environment = {"PATH": "/own", "KEY": "s", "HOME": "/x", "OVERSPAN_TASK": "a", "SLURM_JOB_ID": "4", "LANG": "C"}
    names = list_carried(spec, environment)
    assert names == ("KEY", "OVERSPAN_TASK", "PATH")
    carried = carry_variables(environment, (*names, "GONE"))
    assert {name for name in carried if name not in environment} == {f"APPTAINERENV_{name}" for name in names}


def test_an_image_has_its_hosts_file_whatever_the_node_allows(tmp_path: Path) -> None:
    launch = RemoteLaunch("a.0.0.0", ("prog",), {"HOME": "/h", "KEY": "s"}, "/", members=MEMBERS, image=IMAGE)
    prepared = prepare_launch(launch._replace(carried=("KEY",)), str(tmp_path))
    assert prepared.isolation == isolation.Isolation()
    assert f"--bind={tmp_path}/image-hosts:/etc/hosts" in prepared.argv and "--bind=/m:/h/m" in prepared.argv
    assert prepared.env["APPTAINERENV_KEY"] == "s"
    assert "192.0.2.7\tb-0.g b-0\n" in (tmp_path / "image-hosts").read_text()


def test_a_launch_of_an_earlier_version_has_no_image() -> None:
    assert decode_launch({"key": "k", "argv": ["x"], "environment": {}, "cwd": "/"}).image == ()

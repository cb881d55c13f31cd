"""Files that cannot be run or used, and what a user is told of them."""

from __future__ import annotations

import json
import os
from typing import Any

import pytest

pytestmark = pytest.mark.shared_daemon


def test_a_missing_interpreter_is_named(span: Any) -> None:
    script = span.folder / "script.sh"
    script.write_text("#!/bin/nonexist -x\ntrue\n")
    job = int(span.run("sbatch", "--parsable", "-o", "none", str(script)).stdout)
    span.run("wait", str(job), check=False)
    assert "its first line names /bin/nonexist, which is not there" in json.dumps(span.timeline(job))
    task = span.submit("name: t\nresources: {cpus: 0.1}\nrun: |\n  #!/bin/nonexist\n  true\n")
    span.run("wait", str(task), check=False)
    assert "/bin/nonexist" in json.dumps(span.timeline(task))


def test_a_folder_is_no_script(span: Any) -> None:
    done = span.run("sbatch", str(span.folder), check=False)
    assert done.returncode == 1
    assert done.stderr.splitlines() == ["sbatch: error: Batch script is empty!", f"  {span.folder} is a directory"]


def test_a_crontab_s_errors_name_its_file_and_the_column(span: Any) -> None:
    file = span.folder / "mine"
    file.write_text("@daily true\n  0 5 * 13 * true\n")
    done = span.run("cron", str(file), check=False)
    assert done.returncode == 2 and f"{file}:2:9: '13' is no month" in done.stderr
    file.write_text("#SCRON --no-such\n@daily true\n")
    assert f"{file}:1" in span.run("cron", str(file), check=False).stderr


MOUNTS = """\
name: m
resources: {cpus: 0.1}
file_mounts:
  ./a: missing-a
  ./b: missing-b
run: 'true'
"""


def test_sources_that_are_missing_are_refused_with_their_lines(span: Any) -> None:
    file = span.folder / "mounts.yaml"
    file.write_text(MOUNTS)
    done = span.run("submit", str(file), check=False)
    folder = span.folder
    assert done.returncode == 2
    assert done.stderr.splitlines()[:2] == [
        f"span: error: {file}:4:8: there is no {folder}/missing-a to mount",
        f"span: error: {file}:5:8: nor {folder}/missing-b",
    ]


def test_a_secret_in_a_missing_source_is_not_shown(span: Any) -> None:
    file = span.folder / "mounts.yaml"
    file.write_text("name: m\nsecrets: {WHERE: hidden-away}\nfile_mounts:\n  ./a: ./${WHERE}/x\nrun: 'true'\n")
    done = span.run("submit", str(file), check=False)
    assert done.returncode == 2 and f"there is no {span.folder}/***/x to mount" in done.stderr
    assert "hidden-away" not in done.stdout + done.stderr


def test_a_source_that_an_earlier_task_makes_may_be_missing(span: Any) -> None:
    (span.folder / "work").mkdir()
    text = (
        f"name: make\nresources: {{cpus: 0.1}}\nrun: echo made > {span.folder}/fresh\n---\n"
        f"name: use\nworkdir: {span.folder}/work\nresources: {{cpus: 0.1}}\n"
        f"file_mounts: {{./in: {span.folder}/fresh}}\nrun: cat in\n"
    )
    job = span.submit(text)
    assert span.run("wait", str(job)).returncode == 0
    assert "made" in span.run("logs", str(job), "use").stdout


def test_a_path_behind_a_link_is_the_file_system_s(span: Any) -> None:
    (span.folder / "far" / "inner").mkdir(parents=True)
    (span.folder / "link").symlink_to(span.folder / "far" / "inner")
    job = int(span.run("sbatch", "--parsable", "-o", "link/../o.txt", "--wrap", "echo here").stdout)
    assert span.run("wait", str(job)).returncode == 0
    assert (span.folder / "far" / "o.txt").read_text() == "here\n"


def test_variables_that_are_no_text_are_noted(span: Any) -> None:
    environment = {**span.environment, "ODD": os.fsdecode(b"\xff")}
    done = span.run("sbatch", "--wrap", "true", environment=environment)
    assert done.stderr == "sbatch: variables that are not UTF-8 text are left out: ODD\n"


@pytest.mark.own_daemon
def test_a_configuration_that_is_not_there_is_said(span: Any) -> None:
    missing = span.folder / "nowhere.yaml"
    done = span.run("config", environment={**span.environment, "SPAN_CONFIG": str(missing)})
    assert f"span: SPAN_CONFIG names {missing}, which is not there: it says nothing\n" in done.stderr
    span.config.write_text("clusters:\n  mine: {kind: locall}\n")
    done = span.run("ping", check=False)
    assert (
        done.returncode and f"{span.config}:2:16: no adapter is installed for clusters of kind 'locall'" in done.stderr
    )
    span.config.write_text("")

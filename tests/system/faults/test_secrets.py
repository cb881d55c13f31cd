"""A secret's value is for the task alone: in its environment, the store and the plan; nowhere else, and 0600 there."""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path
from typing import Any

VALUES = ("hush-from-file-4711", "hush-from-option-4712", "hush-from-environment-4713")
JOB = """\
name: quiet
secrets: {{IN_FILE: {0}, GIVEN: null, OUTER: null}}
resources: {{cpus: 0.1}}
run: |
  test "$IN_FILE/$GIVEN/$OUTER" = {1} || exit 9
  echo right
  while ! test -e {2}; do sleep 0.05; done
"""
ALLOWED = ("overspan.db", "overspan.db-wal", "plan.0.json")


def process_texts(me: bytes) -> list[str]:
    """Command lines of every process."""
    found = []
    for folder in Path("/proc").iterdir():
        try:
            if folder.name.isdigit() and (text := (folder / "cmdline").read_bytes()) and me not in text:
                found.append(text.decode(errors="replace").replace("\0", " "))
        except OSError:
            continue
    return found


def list_below(folder: Path) -> list[tuple[Path, os.stat_result]]:
    """What is under a folder; the daemon makes and removes files meanwhile."""
    found = []
    for place, folders, files in os.walk(folder):
        for name in folders + files:
            with contextlib.suppress(FileNotFoundError):
                path = Path(place, name)
                found.append((path, path.lstat()))
    return found


def holders(folder: Path, value: str) -> list[tuple[Path, os.stat_result]]:
    """Files under a folder that hold a text."""
    word = value.encode()
    found = []
    for path, facts in list_below(folder):
        with contextlib.suppress(FileNotFoundError):
            if stat.S_ISREG(facts.st_mode) and word in path.read_bytes():
                found.append((path, facts))
    return found


def test_secrets_stay_where_they_belong(span: Any) -> None:
    go = span.folder / "go"
    file = span.folder / "quiet.yaml"
    file.write_text(JOB.format(VALUES[0], '"$(cat expected)"', go))
    (span.folder / "expected").write_text("/".join(VALUES))
    environment = {"OUTER": VALUES[2]}
    words = (f"--secret=GIVEN={VALUES[1]}", "--secret", "OUTER", "--parsable")
    (span.folder / "plan.yaml").write_text(f"name: p\nrun: 'true'\nsecrets: {{IN_FILE: {VALUES[0]}}}\n")
    plan = span.run("plan", str(span.folder / "plan.yaml"))
    job = span.run("submit", str(file), *words, environment=environment).stdout.strip()
    span.wait_until(lambda: span.log(job) == "right\n", 20, "the task to have its secrets")
    seen = [plan.stdout, *process_texts(str(span.folder / "nothing").encode())]
    for verb in (
        ("show", job),
        ("show", job, "--json"),
        ("timeline", job, "--json"),
        ("squeue", "--json"),
        ("squeue", "-O", "all"),
        ("sacct", "--json"),
        ("scontrol", "show", "job", job),
        ("scontrol", "-dd", "show", "job", job),
        ("logs", job, "--list", "--json"),
    ):
        done = span.run(*verb, check=False)
        seen.append(done.stdout + done.stderr)
    go.touch()
    span.run("wait", job)
    seen.append(span.run("show", job, "--json").stdout)
    for value in VALUES:
        assert not [text for text in seen if value in text]
        check_files(span.state, value)
        others = {path.name for path, _ in holders(span.folder, value) if span.state not in path.parents}
        assert others <= {"expected", "quiet.yaml", "plan.yaml"}


def check_files(state: Path, value: str) -> None:
    """Only the store and the plan have it, closed to others."""
    found = holders(state, value)
    assert {path.name for path, _ in found} <= set(ALLOWED), found
    assert any(path.name.startswith("overspan.db") for path, _ in found)
    for path, facts in found:
        assert stat.S_IMODE(facts.st_mode) == 0o600 and facts.st_uid == os.geteuid(), path


def test_every_file_of_the_state_folder_is_private(span: Any) -> None:
    before = os.umask(0o000)
    try:
        job = span.wrap("echo out; echo err >&2")
        span.run("wait", str(job))
        group = span.submit("name: g\n---\nname: a\nrun: 'true'\n---\nname: b\nrun: 'true'\n")
        span.run("wait", str(group))
    finally:
        os.umask(before)
    found = [(span.state, span.state.lstat()), *list_below(span.state)]
    open_ones = [path for path, facts in found if not stat.S_ISLNK(facts.st_mode) and facts.st_mode & 0o077]
    # The state folder itself is closed, so what is below it is too; scripts and logs may carry the job's own umask.
    assert span.state not in open_ones
    assert [path for path in open_ones if "plan" in path.name or path.suffix in (".db", ".jsonl", ".log")] == []

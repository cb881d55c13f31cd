"""What travels to nodes that share no folder, and the program that unpacks it there."""

from __future__ import annotations

import io
import os
import random
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from overspan.bridge.runtime.slurm.bootstrap import (
    MOST,
    entry_words,
    pack_application,
    pack_documents,
    select_sources,
    take_documents,
)
from overspan.bridge.runtime.zip_application import build_archive


def test_documents_travel_in_parts_that_fit_into_variables_and_leave_nothing() -> None:
    documents = {"plan.0.json": random.Random(1).randbytes(300 << 10), "other": b"\xff\x00{}"}
    variables = pack_documents(documents)
    assert len(variables) > 3 and all(len(name) + len(part) < 128 << 10 for name, part in variables.items())
    environment = {**variables, "HOME": "/h"}
    assert take_documents(environment) == documents
    assert environment == {"HOME": "/h"}


def test_too_much_is_refused_and_too_little_is_noticed() -> None:
    with pytest.raises(ValueError, match=f"where {MOST} can travel"):
        pack_documents({"plan.0.json": random.Random(1).randbytes(MOST)})
    variables = pack_documents({"plan.0.json": random.Random(1).randbytes(200 << 10)})
    del variables[max(variables)]
    for environment in ({}, variables):
        with pytest.raises(ValueError, match="has not come"):
            take_documents(environment)


def test_the_application_is_unpacked_without_a_name_and_reads_on(tmp_path: Path) -> None:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("__main__.py", "import os, sys, late\nprint(sys.argv[1:], os.read(0, 99), late.NAME)\n")
        archive.writestr("late.py", "NAME = 'late'\n")
    words = entry_words(sys.executable, "node", "word")
    data = pack_application(file.getvalue()) + b"the rest\n"
    done = subprocess.run(words, input=data, capture_output=True, env={"TMPDIR": str(tmp_path)}, timeout=300)
    assert done.stdout == b"['node', 'word'] b'the rest\\n' late\n", done.stderr
    assert not list(tmp_path.iterdir())


def test_a_cut_application_is_not_run() -> None:
    data = pack_application(b"x" * 1000)
    done = subprocess.run(entry_words(sys.executable, "node"), input=data[:-1], capture_output=True, timeout=300)
    assert done.returncode == 70


def test_the_selected_sources_are_an_application_that_keeps_its_file_to_itself(tmp_path: Path) -> None:
    whole = Path(build_archive(str(tmp_path))).read_bytes()
    selected = select_sources(whole)
    assert len(selected) < len(whole) / 3
    assert len(pack_application(selected)) < 280 << 10
    names = zipfile.ZipFile(io.BytesIO(selected)).namelist()
    assert "__main__.py" in names and not any(name.endswith(".pyc") for name in names)
    # Without a supervisor the sender says so; it got that far with what it had.
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    words = [*entry_words(sys.executable, "node")]
    done = subprocess.run(words, input=pack_application(selected), capture_output=True, env=environment, timeout=300)
    assert (done.returncode, done.stderr) == (1, b"")

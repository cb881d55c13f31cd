"""The text of a batch script: #SBATCH lines, and what sbatch does not take at all."""

from __future__ import annotations

import pytest

from overspan.bridge.model.errors import InvalidRequest
from overspan.bridge.readers.sbatch.directives import check_script, scan_directives


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("#!/bin/sh\n#SBATCH -n4\n", ["ntasks"]),
        ("#!/bin/sh\n#SBATCH\t-n4 -t 5\n", ["ntasks", "time"]),
        ("#!/bin/sh\n #SBATCH -n4\n", []),
        ("#!/bin/sh\n# SBATCH -n4\n##SBATCH -n4\n#sbatch -n4\n", []),
        ("#!/bin/sh\n#SBATCH-n4\n   # words\n#SBATCH -t5\n", ["ntasks", "time"]),
        ("#!/bin/sh\n#SBATCH -n\n#SBATCH 4\n", ["ntasks"]),
        ("#!/bin/sh\n#SBATCH --wrap=ls --help -V -n 4\n", ["ntasks"]),
        ("#!/bin/sh\n\n   \n# words\n#SBATCH -n4\n", ["ntasks"]),
        ("#!/bin/sh\necho\n#SBATCH -n4\n", []),
        ("#!/bin/sh\n#SBATCH -n4 # -t 5\n", ["ntasks"]),
        ("#SBATCH -n4\n", ["ntasks"]),
    ],
)
def test_directive_lines(text: str, names: list[str]) -> None:
    found = scan_directives(text, "f")
    assert [sorted(part) for part in found.components] == [sorted(names)]


def test_lines_of_other_systems_are_noted() -> None:
    found = scan_directives("#!/bin/sh\n#PBS -l nodes=2\n#SBATCH -n 4\n", "f")
    assert found.notes == ["f:2: #PBS lines are not read; write #SBATCH"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "Batch script is empty!"),
        (" \n\n", "Batch script contains only whitespace!"),
        ("echo hi\n", "This does not look like a batch script."),
        (" #!/bin/sh\n", "This does not look like a batch script."),
        ("#!/bin/sh\r\necho\r\n", "Batch script contains DOS line breaks (\\r\\n)"),
        ("#!/bin/sh\n\0", "NULL character"),
        ("#!/bin/sh\n" + "x" * (4 * 1024 * 1024), "exceeds size"),
    ],
    ids=lambda value: repr(value)[:30],
)
def test_refused_scripts(text: str, message: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        check_script(text, "job.sh")
    assert caught.value.message.startswith(f"sbatch: error: {message}") or message in caught.value.message
    assert caught.value.exit_code == 1


def test_a_job_file_is_for_another_command() -> None:
    with pytest.raises(InvalidRequest) as caught:
        check_script("name: x\n", "x.yaml")
    assert caught.value.remedy == "for a job file: span submit x.yaml"

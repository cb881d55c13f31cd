"""Any bytes as a command line, variables and a script of sbatch: it is read, or refused with sbatch's codes.

`python tests/fuzz/sbatch_target.py FOLDER -max_total_time=60` runs it under atheris; FOLDER keeps what it finds.
"""

from __future__ import annotations

import sys
from importlib import import_module

from overspan.bridge.model.errors import InvalidRequest
from overspan.bridge.model.options.sbatch import OPTIONS
from overspan.bridge.readers.submission import Submission, read_submission

VARIABLES = sorted({variable for option in OPTIONS for variable in option.environment})
CLUSTERS = {"local": "local", "hpc": "slurm"}
CODES = (1, 2, 255)
MAX_WORDS = 8


def read_bytes(data: bytes) -> bool:
    """Read the bytes as a submission; whether it was taken. Any error but InvalidRequest is a fault.

    Zero bytes part the words of the command line; an empty one ends it, and what follows is the script. Words that
    begin with a tab are variables: the next letter's number chooses which.
    """
    head, _, script = data.decode("utf-8", "replace").partition("\0\0")
    words = head.split("\0")[:MAX_WORDS]
    environment = {
        VARIABLES[ord(word[1]) % len(VARIABLES)]: word[2:] for word in words if word.startswith("\t") and len(word) > 1
    }
    argv = tuple(word for word in words if word and not word.startswith("\t"))
    request = Submission(
        "script",
        script,
        file="job.sh",
        argv=argv,
        environment={"PATH": "/bin", **environment},
        directory="/work",
    )
    try:
        read_submission(request, CLUSTERS, 1_800_000_000.0)
    except InvalidRequest as error:
        assert int(error.exit_code) in CODES, error.exit_code
        assert error.message
        return False
    return True


def main() -> None:
    """Run under atheris until it is told to stop."""
    atheris = import_module("atheris")
    atheris.instrument_all()
    atheris.Setup(sys.argv, read_bytes_of_any_kind)
    atheris.Fuzz()


def read_bytes_of_any_kind(data: bytes) -> None:
    """What atheris calls: it wants no answer."""
    read_bytes(data)


if __name__ == "__main__":
    main()

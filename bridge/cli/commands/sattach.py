"""`span sattach`: there so that the name answers; the output of a job is read with `span logs`."""

from __future__ import annotations

from overspan.bridge.cli.call import Call
from overspan.bridge.cli.output import write
from overspan.bridge.model.errors import InvalidRequest

_HELP = """\
usage: span sattach JOB.STEP

A step that runs cannot be attached to here. `span logs -f JOB` shows what a job writes.
"""


def run(call: Call) -> int:
    """Run one command line."""
    if "-V" in call.words or "--version" in call.words:
        from overspan.bridge.cli.commands.version import slurm_version

        write(slurm_version())
        return 0
    if {"-h", "--help", "--usage"} & set(call.words):
        write(_HELP)
        return 0
    raise InvalidRequest("a running step cannot be attached to", remedy="`span logs -f JOB` shows what the job writes")

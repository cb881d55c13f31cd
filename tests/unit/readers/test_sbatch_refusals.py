"""What sbatch refuses, in its words and with its exit codes."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.unit.readers.scripts import CONTEXT, read

from overspan.bridge.model.errors import InvalidRequest

REFUSALS: list[tuple[str, int, str]] = [
    ("--x", 255, "sbatch: unrecognized option '--x'"),
    ("-t soon", 255, "sbatch: error: Invalid --time specification"),
    ("-t 1h", 255, "sbatch: error: Invalid --time specification"),
    ("--mem=1.5G", 255, "sbatch: error: Invalid --mem specification"),
    ("--begin=whenever", 255, "sbatch: error: Invalid --begin specification"),
    ("--signal=NOPE", 255, "sbatch: error: Invalid --signal specification"),
    ("--open-mode=x", 255, "sbatch: error: Invalid --open-mode specification"),
    ("-n x", 1, 'sbatch: error: Invalid numeric value "x" for --ntasks.'),
    ("-n 0", 1, 'sbatch: error: Invalid numeric value "0" for --ntasks.'),
    ("-N 9999999", 1, "Batch job submission failed: Node count specification invalid"),
    ("-p ''", 1, "sbatch: error: invalid partition specified: (null)"),
    ("--gres=", 1, "Batch job submission failed: Invalid Trackable RESource (TRES) specification"),
    ("--deadline=now+2days -b now+3days", 1, "sbatch: error: Incompatible begin and deadline time specification"),
    ("--gid=5", 255, "sbatch: error: --gid only permitted by root user"),
    ("-N 4-2", 255, "sbatch: error: Maximum node count 2 is less than minimum node count 4"),
    ("-N 2-x", 255, 'sbatch: error: "x" is not a valid node count'),
    ("-n 9000000 --ntasks-per-node=1", 1, "Node count specification invalid"),
    ("--gpus=x:y", 1, "sbatch: error: Invalid generic resource (gres) specification"),
    ("--gres=gpu::", 1, "sbatch: error: Invalid generic resource (gres) specification"),
    ("stray", 255, "sbatch: error: Invalid directive found in batch script: stray"),
    ("-n4 -- -t 5", 255, "sbatch: error: Invalid directive found in batch script: -t"),
    ("stray --unknown", 255, "sbatch: unrecognized option '--unknown'"),
    ("-n1 : -n2", 1, "sbatch: fatal: job.sh: line 2: Unexpected `:` in ["),
    ("--mem=1G\n--mem-per-cpu=2G", 1, "sbatch: fatal: --mem, --mem-per-cpu, and --mem-per-gpu are mutually exclusive."),
    ("--deadline=2001-01-01", 1, "Requested time limit is invalid"),
    ("-t 10 --time-min=20", 1, "Invalid time-min specification (exceeds job's time or other limits)"),
    ("--job-group=x", 2, "'x' is not the id of a group"),
    ("--nice=-5", 1, "sbatch: error: Batch job submission failed: Invalid --nice value"),
    ("--reboot", 1, "sbatch: error: rebooting of nodes is only allowed for admins"),
    ("-d expand:5", 1, "Batch job submission failed: Requested operation not supported on this system"),
    ("-d 'afterok:5 '", 1, "Job dependency problem"),
    ("--nice=x", 255, "sbatch: error: Invalid --nice value"),
    ("--priority=-1", 255, "sbatch: error: Priority must be >= 0"),
    ("-a 3-1", 1, "sbatch: error: Batch job submission failed: Invalid job array specification"),
    ("-d none", 1, "sbatch: error: Batch job submission failed: Job dependency problem"),
    ("-d afterok:1,2?3", 1, "Job dependency problem"),
    ("--mem=1G --mem-per-cpu=1G", 1, "mutually exclusive"),
    ("--gres=gpu:1g", 1, "Invalid generic resource (gres) specification"),
    ("--gpus-per-task=999999999 -n 9", 1, "Invalid generic resource (gres) specification"),
    ("--gpus=a:1,b:1", 1, "Invalid generic resource (gres) specification"),
    ("--uid=5", 255, "sbatch: error: --uid only permitted by root user"),
    ("--container=x", 1, "--container is not supported"),
    ("-M mars", 1, "'mars' can't be reached now"),
    ("-n 4 -J 'a b", 1, "sbatch: fatal: job.sh: line 2: Unmatched `'` in [ 'a b]"),
    ("-a 1-2\nhetjob\n-n 2", 1, "Invalid job array specification"),
]


@pytest.mark.parametrize(("directives", "code", "message"), REFUSALS)
def test_refused_options(directives: str, code: int, message: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        read(directives)
    assert message in caught.value.message
    assert caught.value.exit_code == code


def test_refused_options_are_located() -> None:
    with pytest.raises(InvalidRequest) as caught:
        read("-n 4\n-N 1 -t soon")
    assert str(caught.value.place) == "dir/job.sh:3:14"
    assert "write" in caught.value.remedy


def test_a_wrong_line_counts_although_the_command_line_replaces_it() -> None:
    with pytest.raises(InvalidRequest, match="Invalid --time specification"):
        read("-t soon", "-t", "5")
    context = replace(CONTEXT, environment={"SBATCH_TIMELIMIT": "soon"})
    with pytest.raises(InvalidRequest, match="Invalid --time specification"):
        read("", "-t", "5", context=context)

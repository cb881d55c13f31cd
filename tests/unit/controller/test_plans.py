"""What `span plan` says of when and how often a job runs."""

from __future__ import annotations

from overspan.bridge.controller.views.plans import describe_conditions
from overspan.bridge.model.durations import format_timestamp
from overspan.bridge.model.job import new_job
from overspan.bridge.readers.submission import Submission, read_submission

NOW = 1_800_000_000.0
FILE = """\
name: sweep
array: 0-9:3%2
begin: now+1hour
deadline: now+1day
needs: [afterok:12, afterany:13]
priority: 7
hold: true
ready: {tcp: 8000, timeout: 90s}
max_restarts_on_errors: 2
recover_on_exit_codes: [42, 43]
backoff: {first: 5}
time: 1h
signal: B:USR1@90
run: 'true'
"""


def describe(submission: Submission) -> list[str]:
    return describe_conditions(new_job(1, read_submission(submission, now=NOW), NOW)).splitlines()


def test_everything_that_a_job_file_says_is_there() -> None:
    assert describe(Submission("job_file", FILE, "j.yaml")) == [
        "# array: 0,3,6,9, 4 jobs, at most 2 at once",
        "# held: it waits for a release",
        f"# begin: not before {format_timestamp(NOW + 3600)}",
        f"# deadline: over by {format_timestamp(NOW + 86400)}",
        "# needs: afterok:12,afterany:13",
        "# priority: 7",
        "# sweep: ready: tcp 8000, tried every 0.5 s, within 90 s",
        "# sweep: restarts: 2 after errors, always after exit code 42, 43, 20 after lost nodes, 50 in all,"
        " waits of 5 s, each 2 times as long, up to 300 s",
        "# sweep: signal: USR1 to the batch shell alone 90 s before the time limit",
    ]


def test_what_a_group_says_of_files_and_auxiliaries_is_there() -> None:
    text = """\
name: g
execution: parallel
primary_tasks: [t]
termination_delay: {default: 5s, s: 30s}
---
name: t
volumes: {/v: {name: data, sub_path: q}}
run: 'true'
---
name: s
file_mounts: {/x: /data}
on_failure: fail_group
notice_signal: USR1
run: 'true'
"""
    assert describe(Submission("job_file", text, "g.yaml")) == [
        "# t: volume: /v is data/q",
        "# s: termination_delay: 30 s after the end of the primaries",
        "# s: notice_signal: USR1 at the end of the primaries",
        "# s: on_failure: fail_group",
        "# s: file mount: /x is /data",
    ]


def test_a_secret_in_a_path_is_not_told() -> None:
    text = "name: a\nsecrets: {T: hush}\nfile_mounts: {/x: '/d/${T}'}\nvolumes: {/v: '${T}'}\nrun: 'true'\n"
    assert describe(Submission("job_file", text, "a.yaml")) == ["# a: file mount: /x", "# a: volume: /v"]


def test_what_a_script_says_is_there_too() -> None:
    text = "#!/bin/sh\n#SBATCH -o out-%j -e err\n#SBATCH --open-mode=append -d singleton\ntrue\n"
    lines = describe(Submission("script", text, "s.sh", argv=("s.sh",)))
    assert lines == ["# needs: singleton", "# batch: files: output /out-%j, error /err, appended to"]


def test_a_plain_job_has_no_such_lines() -> None:
    assert describe(Submission("job_file", "name: a\nrun: 'true'\n", "a.yaml")) == []


def test_a_path_with_a_line_break_adds_no_line() -> None:
    text = "#!/bin/sh\ntrue\n"
    (line,) = describe(Submission("script", text, "s.sh", argv=("-o", "a\nrm -rf b", "s.sh")))
    assert line == "# batch: files: output /a rm -rf b"

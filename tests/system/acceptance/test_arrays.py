"""Arrays as users have them: one handle, a throttle, elements with their own numbers, logs and ends."""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

import pytest

from overspan.bridge.model.ids import parse_array

pytestmark = pytest.mark.shared_daemon

Span = Any


def queue(span: Span, *words: str) -> list[str]:
    """Lines of squeue."""
    lines: list[str] = span.run("squeue", "-h", *words).stdout.split("\n")
    return [line.strip() for line in lines if line.strip()]


def test_an_array_is_one_handle_and_its_elements_know_who_they_are(span: Span, tmp_path: Path) -> None:
    """MJ12, CC03: one id, each element its own numbers, file and end."""
    script = tmp_path / "sweep.sh"
    script.write_text(
        "#!/bin/bash\n#SBATCH --array=1-9:4%2 -o out-%A_%a.txt\n"
        "echo $SLURM_ARRAY_JOB_ID $SLURM_ARRAY_TASK_ID $SLURM_ARRAY_TASK_COUNT $SLURM_ARRAY_TASK_MIN "
        "$SLURM_ARRAY_TASK_MAX $SLURM_ARRAY_TASK_STEP $SLURM_JOB_ID\n"
        "exit $((SLURM_ARRAY_TASK_ID == 5 ? 3 : 0))\n"
    )
    array = int(span.run("sbatch", "--parsable", str(script)).stdout)
    done = span.run("wait", str(array), check=False)
    assert done.returncode == 3
    raw = {}
    for index in (1, 5, 9):
        words = (tmp_path / f"out-{array}_{index}.txt").read_text().split()
        assert words[:6] == [str(array), str(index), "3", "1", "9", "4"]
        raw[index] = words[6]
    assert len({*raw.values(), str(array)}) == 4
    lines = span.run("sacct", "-X", "-n", "-P", "-j", str(array), "-o", "JobID,JobIDRaw,State,ExitCode").stdout.split()
    assert sorted(lines) == sorted(
        f"{array}_{index}|{raw[index]}|{'FAILED|3:0' if index == 5 else 'COMPLETED|0:0'}" for index in (1, 5, 9)
    )


def test_a_waiting_array_is_one_row_that_can_be_split_and_cancelled_in_parts(span: Span) -> None:
    """MJ12: 10,000 elements, collapsed and split, one cancel."""
    array = int(span.run("sbatch", "--parsable", "--hold", "--array=0-9999%10", "--wrap", "true").stdout)
    assert queue(span, "-o", "%i %t %r") == [f"{array}_[0-9999%10] PD JobHeldUser"]
    assert len(queue(span, "-r", "-o", "%i")) == 10_000
    span.run("scancel", f"{array}_[100-9999]", f"{array}_7")
    assert queue(span, "-o", "%i") == [f"{array}_[0-6,8-99%10]"]
    assert queue(span, "-j", f"{array}_9", "-o", "%i %K %F %t") == [f"{array}_9 9 {array} PD"]
    span.run("scancel", str(array))
    assert queue(span) == []
    assert span.job(array)["state"] == "CANCELLED"


def test_the_throttle_holds_and_can_be_changed(span: Span, tmp_path: Path) -> None:
    """MJ12: never more than the throttle at once, changed live."""
    os.mkfifo(tmp_path / "gate")
    array = int(span.run("sbatch", "--parsable", "--array=0-5%2", "--wrap", f"read < {tmp_path}/gate").stdout)
    span.wait_until(lambda: len(queue(span, "-t", "R")) == 2, 20, "two to run")
    waiting = [f"{array}_[2-5%2] JobArrayTaskLimit"]
    span.wait_until(lambda: queue(span, "-t", "PD", "-o", "%i %r") == waiting, 20, "the others to say why they wait")
    span.run("scontrol", "update", f"jobid={array}", "ArrayTaskThrottle=4")
    span.wait_until(lambda: len(queue(span, "-t", "R")) == 4, 20, "four to run")
    span.run("scancel", str(array))
    span.wait_until(lambda: not queue(span), 20, "the end")


def test_the_daemon_is_killed_at_twenty_points(span: Span, tmp_path: Path) -> None:
    """MJ19: elements, single jobs and one that waits for them: none is lost, none runs twice, none fails."""
    ran = tmp_path / "ran"
    ran.touch()
    # Six elements may end before each kill, so that every kill meets some that run and some that wait.
    gate = f"until [ -e {tmp_path}/go-$((SLURM_ARRAY_TASK_ID / 6)) ]; do sleep 0.2; done"
    record = f"{gate}; echo $SLURM_JOB_NAME.$SLURM_ARRAY_TASK_ID >> {ran}"
    chance = random.Random(20)
    jobs = [span.run("sbatch", "--parsable", "-J", "sweep", "--array=0-119%12", "--wrap", record).stdout.strip()]
    for number in range(20):
        jobs.append(span.run("sbatch", "--parsable", "-J", f"one{number}", "--wrap", record).stdout.strip())
        (tmp_path / f"go-{number}").touch()
        wanted = 6 * number + chance.randint(0, 6)
        span.wait_until(lambda wanted=wanted: len(ran.read_text().split()) >= wanted, 30, f"{wanted} ends")
        span.kill_daemon()
    last = span.run("sbatch", "--parsable", "-J", "last", "-d", f"afterok:{':'.join(jobs)}", "--wrap", record).stdout
    span.run("wait", last.strip(), timeout=600)
    names = ran.read_text().split()
    assert sorted(names[:-1]) == sorted([*(f"sweep.{index}" for index in range(120)), *(f"one{n}." for n in range(20))])
    assert names[-1] == "last."


@pytest.mark.parametrize("words", [("--array=3-1",), ("--array=a",), ("--array=1-2-3",)])
def test_bad_arrays_are_refused_in_slurms_words(span: Span, words: tuple[str, ...]) -> None:
    """CC01."""
    done = span.run("sbatch", *words, "--wrap", "true", check=False)
    assert done.returncode == 1 and "Batch job submission failed: Invalid job array specification" in done.stderr


def test_arrays_of_groups_are_refused(span: Span) -> None:
    """An array is of a single-task job."""
    file = span.folder / "group.yaml"
    file.write_text("name: g\nexecution: parallel\narray: 0-3\n---\nname: a\nrun: true\n---\nname: b\nrun: true\n")
    done = span.run("submit", str(file), check=False)
    assert done.returncode == 2 and "an array of a job with several tasks is refused" in done.stderr


def test_a_job_file_can_be_an_array(span: Span) -> None:
    """MJ12 by job file."""
    array = span.submit("name: sweep\narray: 0-2\nrun: echo index $SLURM_ARRAY_TASK_ID\n")
    span.run("wait", str(array))
    assert span.log(f"{array}_2") == "index 2\n"


def test_an_array_is_summed_up_and_what_failed_of_it_runs_again(span: Span, tmp_path: Path) -> None:
    """UX12: tally, failed indices, a new array of those with the same script and environment."""
    command = f"echo $COLOUR >>{tmp_path}/ran-$SLURM_ARRAY_TASK_ID; [ $((SLURM_ARRAY_TASK_ID % 2)) = 0 ]"
    words = ("sbatch", "--parsable", "-a", "1-5", "--wrap", command)
    array = int(span.run(*words, environment={"COLOUR": "blue"}).stdout)
    span.run("wait", str(array), check=False)
    shown = span.run("show", str(array)).stdout.splitlines()
    table = [line.split() for line in shown[-5:-2]]
    assert [(row[0], row[1], row[2], row[-1]) for row in table[1:]] == [
        ("2", "COMPLETED", "0:0", "2,4"),
        ("3", "FAILED", "1:0", "1,3,5"),
    ]
    assert shown[-1] == f"failed: 1,3,5; `span resubmit {array} --failed` runs these again"
    some = span.run("show", f"{array}_[1,4]").stdout
    assert [line.split()[1] for line in some.splitlines() if line.startswith("Element:")] == [
        f"{array}_1",
        f"{array}_4",
    ]
    again = int(span.run("resubmit", "--parsable", str(array), "--failed").stdout)
    span.run("wait", str(again), check=False)
    assert span.job(again)["array"]["elements"]["failed"] == "1,3,5"
    ran = {index: (tmp_path / f"ran-{index}").read_text().split() for index in range(1, 6)}
    assert ran == {1: ["blue"] * 2, 2: ["blue"], 3: ["blue"] * 2, 4: ["blue"], 5: ["blue"] * 2}
    for ref, indices in ((f"{array}_[2,5]", "2,5"), (f"{array}_4", "4"), (f"{array}_[1-4]", "1-4")):
        part = int(span.run("resubmit", "--parsable", ref).stdout)
        span.run("wait", str(part), check=False)
        told = [row["indices"] for row in span.job(part)["array"]["elements"]["states"]]
        assert sorted(parse_array(",".join(told)).indices()) == list(parse_array(indices).indices())
    good = span.wrap(f"echo $SLURM_JOB_ID >>{tmp_path}/single")
    span.run("wait", str(good))
    refused = span.run("resubmit", str(good), "--failed", check=False)
    assert refused.returncode == 1 and f"job {good} has not failed" in refused.stderr
    more = int(span.run("resubmit", "--parsable", str(good)).stdout)
    span.run("wait", str(more))
    assert (tmp_path / "single").read_text().split() == [str(good), str(more)]

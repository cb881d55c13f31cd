"""What `span logs` prints: of arrays, of jobs that printed nothing, and of progress bars."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from tests.system.conftest import Span

pytestmark = pytest.mark.shared_daemon


def test_logs_of_an_array_are_merged_and_followed_through_elements_that_start_later(span: Span) -> None:
    """JG31: each element's lines begin with its id."""
    script = "echo hello $SLURM_ARRAY_TASK_ID; exit $((SLURM_ARRAY_TASK_ID == 2))"
    array = span.wrap(script, "--hold", "-a", "1-3%1")
    assert f"job {array} has not started: PENDING (JobHeldUser)" in span.run("logs", str(array), check=False).stderr
    span.run("release", str(array))
    expected = [f"{array}_{index} | hello {index}" for index in (1, 2, 3)]
    assert span.run("logs", "-f", str(array)).stdout.splitlines() == expected
    assert span.run("logs", str(array)).stdout.splitlines() == expected
    assert span.run("logs", f"{array}_[1,3]").stdout.splitlines() == [expected[0], expected[2]]
    assert span.run("logs", f"{array}_2").stdout == "hello 2\n"
    listed = span.run("logs", "--list", str(array)).stdout.splitlines()
    assert [line.split()[0] for line in listed] == [f"{array}_{index}" for index in (1, 2, 3)]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("-D", "/nonexistent"), "did not start: cannot enter the working directory /nonexistent"),
        (("-o", "none"), "has no output: it goes to /dev/null"),
    ],
)
def test_a_job_without_output_says_why(span: Span, words: tuple[str, ...], told: str) -> None:
    job = span.wrap("echo hi", *words)
    span.run("wait", str(job), check=False)
    for follow in ((), ("-f",)):
        done = span.run("logs", *follow, str(job), check=False)
        assert (done.returncode, done.stdout) == (4, "") and done.stderr.startswith(f"span: error: job {job} {told}")


def test_whoever_follows_a_job_that_waits_is_told_what_for(span: Span) -> None:
    first = span.wrap("sleep 4")
    second = span.wrap("true", "-d", f"afternotok:{first}", "--kill-on-invalid-dep=yes")
    done = span.run("logs", "-f", str(second), check=False)
    begin, end, _ = done.stderr.splitlines()
    assert begin == f"span: job {second} has not started: PENDING (Dependency)"
    assert end.startswith(f"span: error: job {second} did not start: CANCELLED") and done.returncode == 4


def test_a_progress_bar_of_a_group_is_shown_while_it_moves(span: Span, tmp_path: Path) -> None:
    bar = f"printf '\\r 50%%'; until [ -e {tmp_path}/go ]; do sleep 0.1; done; printf '\\r100%%\\n'"
    job = span.submit(f"name: g\nexecution: parallel\n---\nname: a\nrun: |\n  {bar}\n---\nname: b\nrun: echo b\n")
    with subprocess.Popen(
        ["span", "logs", "-f", str(job)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=span.environment
    ) as follower:
        assert follower.stdout is not None
        lines = [follower.stdout.readline() for _ in range(2)]
        # The task goes on only after its first state was seen.
        (tmp_path / "go").touch()
        lines += follower.stdout.readlines()
    assert sorted(lines) == [b"a-0 |  50%\n", b"a-0 | 100%\n", b"b-0 | b\n"]


def test_logs_of_a_group_are_in_the_order_of_time_and_dated(span: Span, tmp_path: Path) -> None:
    """JG31: what is read afterwards is as it was followed."""

    def step(place: int, word: str) -> str:
        return f"until [ -e {tmp_path}/{place} ]; do sleep 0.05; done; {word}; "

    job = span.submit(
        "name: g\nexecution: parallel\n---\nname: a\n"
        f"run: {step(0, 'echo one')}{step(2, 'echo three')}{step(4, 'echo five')}\n"
        f"---\nname: b\nrun: {step(1, 'echo two')}{step(3, 'echo four')}{step(4, 'true')}\n"
    )
    for place, word in enumerate(("one", "two", "three", "four", "five")):
        (tmp_path / str(place)).touch()
        times = Path(span.state) / f"clusters/local/runs/{job}/times.jsonl"
        if word != "five":
            # The supervisor looks once a second.
            span.wait_until(
                lambda place=place, times=times: times.exists() and len(times.read_text().splitlines()) > place,
                20,
                "a note of what was printed",
            )
    span.run("wait", str(job))
    expected = ["a-0 | one", "b-0 | two", "a-0 | three", "b-0 | four", "a-0 | five"]
    assert span.run("logs", str(job)).stdout.splitlines() == expected
    dated = [line.split(" ", 1) for line in span.run("logs", "-t", str(job)).stdout.splitlines()]
    assert [text for _, text in dated] == expected
    times_told = [time for time, _ in dated]
    assert times_told == sorted(times_told) and len(set(times_told)) >= 4
    assert span.run("logs", "--since", times_told[3], str(job)).stdout.splitlines()[-2:] == expected[3:]
    assert span.run("logs", "--since", "1h", str(job)).stdout.splitlines() == expected
    assert span.run("logs", "--since", "now", str(job)).stdout == ""

"""`span map`: a command over the lines of a file, in order, resumed after any end, with failed lines apart."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.shared_daemon

Span = Any


@pytest.fixture
def pool(span: Span, tmp_path: Path) -> Iterator[Span]:
    """A pool of two workers of this machine."""
    file = tmp_path / "pool.yaml"
    file.write_text("pool: {workers: 2}\nresources: {cpus: 2}\n")
    span.run("pool", "apply", "-p", "lines", str(file))
    yield span
    span.run("pool", "delete", "lines", "--cancel")


def write_lines(tmp_path: Path, *texts: str) -> Path:
    """A file of lines."""
    path = tmp_path / "in.jsonl"
    path.write_text("".join(f"{text}\n" for text in texts))
    return path


def read_failed(path: Path) -> list[dict[str, Any]]:
    """The lines that have failed."""
    return [json.loads(line) for line in (path.with_name("in.jsonl.map") / "failed.jsonl").read_text().splitlines()]


def read_results(path: Path) -> list[str]:
    """The results in their order."""
    return (path.with_name("in.jsonl.map") / "results.jsonl").read_text().splitlines()


def start(span: Span, path: Path, *words: str) -> subprocess.Popen[str]:
    """Begin a map."""
    words = ("span", "map", "-p", "lines", "--over", str(path), *words)
    return subprocess.Popen(words, env=span.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


class TestModes:
    def test_one_process_a_line_in_order_and_failed_lines_apart(self, pool: Span, tmp_path: Path) -> None:
        path = write_lines(tmp_path, "a b", "it's", '{"x": 1}', "bad", "two", "")
        command = (
            'line=$(cat); case $line in bad) echo wrong >&2; exit 7 ;; two) echo 1; echo 2 ;; *) echo "<$line>" ;; esac'
        )
        done = pool.run("map", "-p", "lines", "--over", str(path), "--chunk", "2", command, check=False)
        assert done.returncode == 1
        assert "2 of 6 lines failed" in done.stderr
        assert read_results(path) == ["<a b>", "<it's>", '<{"x": 1}>', "", "", "<>"]
        failed = read_failed(path)
        assert [(row["line"], row["input"], row["code"]) for row in failed] == [(4, "bad", 7), (5, "two", 0)]
        assert failed[0]["error"] == "wrong\n" and "several lines" in failed[1]["error"]

    def test_a_line_in_the_command_is_quoted(self, pool: Span, tmp_path: Path) -> None:
        path = write_lines(tmp_path, "a b", "$(touch evil)", "it's; exit 3")
        assert pool.run("map", "-p", "lines", "--over", str(path), "printf '[%s]' {}").returncode == 0
        assert read_results(path) == ["[a b]", "[$(touch evil)]", "[it's; exit 3]"]

    def test_a_batch_that_fails_is_split_down_to_the_line_at_fault(self, pool: Span, tmp_path: Path) -> None:
        path = write_lines(tmp_path, *map(str, range(40)), "x", *map(str, range(40)))
        command = "while read n; do case $n in x) exit 3;; esac; echo $((n * 2)); done"
        done = pool.run("map", "-p", "lines", "--over", str(path), "--batch", "16", command, check=False)
        assert done.returncode == 1
        doubled = [str(2 * number) for number in range(40)]
        assert read_results(path) == [*doubled, "", *doubled]
        assert [(row["line"], row["code"]) for row in read_failed(path)] == [(41, 3)]

    def test_one_long_lived_process_a_worker(self, pool: Span, tmp_path: Path) -> None:
        path = write_lines(tmp_path, *map(str, range(10)), "die", *map(str, range(50)))
        command = f"echo x >> {tmp_path}/starts; while read n; do [ $n != die ] || exit 5; echo $n-$$; done"
        done = pool.run("map", "-p", "lines", "--over", str(path), "--serve", command, check=False)
        assert done.returncode == 1
        results = read_results(path)
        assert [result.partition("-")[0] for result in results] == [*map(str, range(10)), "", *map(str, range(50))]
        # One for each of two workers, and one after the death of a server.
        assert len((tmp_path / "starts").read_text().split()) == 3
        assert [(row["line"], row["code"]) for row in read_failed(path)] == [(11, 5)]


class TestResuming:
    def test_whoever_is_killed_each_line_is_told_once(self, pool: Span, tmp_path: Path) -> None:
        """PL19: the command, the daemon and a worker are killed; a line that a killed worker was at is run again."""
        texts = [f"line {number}" for number in range(60)]
        path, ran = write_lines(tmp_path, *texts), tmp_path / "ran"
        words = ("--chunk", "10", f"echo {{}} >> {ran}; sleep 0.1; echo done {{}}")
        first = start(pool, path, *words)
        pool.wait_until(lambda: ran.exists() and len(ran.read_text().splitlines()) > 8, 30, "some lines")
        first.kill()
        first.communicate()
        pool.kill_daemon()
        second = start(pool, path, *words)
        pool.wait_until(lambda: len(ran.read_text().splitlines()) > 25, 30, "more lines")
        worker = json.loads(pool.look("pool", "show", "lines", "--json"))["pools"][0]["workers"][0]
        pool.run("scancel", "--signal=KILL", str(worker["job"]))
        _, error = second.communicate(timeout=120)
        assert second.returncode == 0, error
        assert read_results(path) == [f"done {text}" for text in texts]
        times = Counter(ran.read_text().splitlines())
        assert set(times) == set(texts)
        # Two jobs at most were at a line each when their worker was killed.
        assert sum(times.values()) <= len(texts) + 2
        # Given again, nothing runs.
        assert pool.run("map", "-p", "lines", "--over", str(path), *words).returncode == 0
        assert len(ran.read_text().splitlines()) == sum(times.values())

    def test_an_interrupt_says_how_to_go_on(self, pool: Span, tmp_path: Path) -> None:
        path = write_lines(tmp_path, *map(str, range(20)))
        run = start(pool, path, "--cancel", "--chunk", "5", f"touch {tmp_path}/begun; sleep 60")
        pool.wait_until(lambda: (tmp_path / "begun").exists(), 30, "the first line")
        run.send_signal(signal.SIGINT)
        _, error = run.communicate(timeout=30)
        assert run.returncode == 130
        assert "20 lines are not done; 4 jobs are cancelled. The same command goes on with them" in error


class TestRefusals:
    @pytest.mark.parametrize(
        ("text", "words", "why"),
        [
            (None, (), "cannot be read: No such file"),
            (b"", (), "has no lines"),
            (b"a\n\xff\n", (), "is not UTF-8 at byte 2"),
            (b"a\n", ("--batch", "0"), "--batch 0 is no number of lines"),
        ],
    )
    def test_what_is_no_file_of_lines(
        self, pool: Span, tmp_path: Path, text: bytes | None, words: tuple[str, ...], why: str
    ) -> None:
        path = tmp_path / "in.jsonl"
        if text is not None:
            path.write_bytes(text)
        done = pool.run("map", "-p", "lines", "--over", str(path), *words, "cat", check=False)
        assert done.returncode == 2 and why in done.stderr

    def test_another_command_for_the_same_folder_and_no_such_pool(self, pool: Span, tmp_path: Path) -> None:
        path = write_lines(tmp_path, "a")
        pool.run("map", "-p", "lines", "--over", str(path), "cat")
        done = pool.run("map", "-p", "lines", "--over", str(path), "tac", check=False)
        assert done.returncode == 2 and "its command is not the same" in done.stderr
        done = pool.run("map", "-p", "nowhere", "--over", str(path), "cat", check=False)
        assert "there is no pool 'nowhere'" in done.stderr

    def test_a_job_that_gets_nowhere_is_not_tried_for_ever(self, pool: Span, tmp_path: Path) -> None:
        path = write_lines(tmp_path, "a", "b")
        began = time.monotonic()
        done = pool.run("map", "-p", "lines", "--over", str(path), "kill -9 $PPID", check=False)
        assert done.returncode == 1 and time.monotonic() - began < 60
        failed = read_failed(path)
        assert len(failed) == 2 and "ended as FAILED" in failed[0]["error"]

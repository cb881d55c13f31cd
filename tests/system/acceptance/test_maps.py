"""`span map`: a command over the lines of a file, in order, resumed after any end, with failed lines apart."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from overspan import Client
from overspan.bridge.model.errors import InvalidRequest

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


def start(span: Span, path: Path, *words: str, stderr: int = subprocess.PIPE) -> subprocess.Popen[str]:
    """Begin a map."""
    words = ("span", "map", "-p", "lines", "--over", str(path), *words)
    return subprocess.Popen(words, env=span.environment, stdout=subprocess.PIPE, stderr=stderr, text=True)


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
        serve = "while read n; do [ $n != die ] || { echo no >&2; exit 5; }; echo $n-$$; done"
        command = f"echo x >> {tmp_path}/starts; {serve}"
        done = pool.run("map", "-p", "lines", "--over", str(path), "--serve", command, check=False)
        assert done.returncode == 1
        results = read_results(path)
        assert [result.partition("-")[0] for result in results] == [*map(str, range(10)), "", *map(str, range(50))]
        # One for each of two workers, one that is given the line of a dead server again, and one for the rest.
        assert len((tmp_path / "starts").read_text().split()) == 4
        assert [(row["line"], row["code"], row["error"]) for row in read_failed(path)] == [(11, 5, "no\n")]

    def test_a_server_that_ends_after_some_lines_costs_none(self, pool: Span, tmp_path: Path) -> None:
        path = write_lines(tmp_path, *map(str, range(9)))
        done = pool.run("map", "-p", "lines", "--over", str(path), "--serve", "read a; echo $a; read b; echo $b")
        assert done.returncode == 0
        assert read_results(path) == list(map(str, range(9)))

    def test_a_server_that_says_more_than_it_is_asked_shifts_no_result(self, pool: Span, tmp_path: Path) -> None:
        path = write_lines(tmp_path, *"abc")
        command = "while read n; do case $n in b) printf '1\\n2\\n' ;; *) echo $n ;; esac; done"
        pool.run("map", "-p", "lines", "--over", str(path), "--serve", command, check=False)
        assert read_results(path) == ["a", "", "c"]
        assert "several lines" in read_failed(path)[0]["error"]

    def test_a_bar_on_a_terminal(self, pool: Span, tmp_path: Path) -> None:
        path = write_lines(tmp_path, *map(str, range(4)))
        own, other = os.openpty()
        with os.fdopen(own, "rb", buffering=0) as terminal:
            run = start(pool, path, "sleep 0.2; echo {}", stderr=other)
            os.close(other)
            assert run.communicate(timeout=60)[0].endswith("in.jsonl.map/results.jsonl\n")
            shown = terminal.read(1 << 16).decode()
        assert " of 4 (" in shown and shown.endswith("\r\x1b[K")


class TestPython:
    def test_a_client_maps_lines_and_files_and_tries_failed_lines_again(self, pool: Span, tmp_path: Path) -> None:
        client, out = Client(environment=pool.environment), tmp_path / "out"
        assert client.map("tr a-z A-Z", ["a b", "c"], "lines") == ["A B", "C"]
        command = f"[ {{}} != bad ] || [ -e {tmp_path}/mended ] && echo {{}}"
        assert client.map(command, ["x", "bad", "y"], "lines", out=str(out), batch=0) == ["x", None, "y"]
        (tmp_path / "mended").touch()
        assert client.map(command, ["x", "bad", "y"], "lines", out=str(out)) == ["x", None, "y"]
        assert client.map(command, ["x", "bad", "y"], "lines", out=str(out), retry_failed=True) == ["x", "bad", "y"]
        path = write_lines(tmp_path, "a", "b")
        assert client.map("cat", path, "lines", job={"resources": {"cpus": 2}}) == ["a", "b"] == read_results(path)
        with pytest.raises(InvalidRequest, match="line 2 has a newline"):
            client.map("cat", ["a", "b\nc"], "lines")
        client.close()


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

    def test_a_daemon_that_is_killed_meanwhile_costs_nothing(self, pool: Span, tmp_path: Path) -> None:
        path, ran = write_lines(tmp_path, *map(str, range(30))), tmp_path / "ran"
        run = start(pool, path, "--chunk", "5", f"echo {{}} >> {ran}; sleep 0.1; echo {{}}")
        pool.wait_until(ran.exists, 30, "the first line")
        pool.kill_daemon()
        _, error = run.communicate(timeout=60)
        assert run.returncode == 0, error
        assert read_results(path) == list(map(str, range(30)))
        assert sorted(map(int, ran.read_text().split())) == list(range(30))

    def test_an_interrupt_says_how_to_go_on_and_the_same_command_does(self, pool: Span, tmp_path: Path) -> None:
        path = write_lines(tmp_path, *map(str, range(20)))
        command = f"touch {tmp_path}/begun; test -e {tmp_path}/free || sleep 60; echo {{}}"
        run = start(pool, path, "--cancel", "--chunk", "5", command)
        pool.wait_until(lambda: (tmp_path / "begun").exists(), 30, "the first line")
        run.send_signal(signal.SIGINT)
        _, error = run.communicate(timeout=30)
        assert run.returncode == 130
        assert "20 lines are not done; 4 jobs are cancelled. The same command goes on with them" in error
        (tmp_path / "free").touch()
        assert pool.run("map", "-p", "lines", "--over", str(path), "--chunk", "5", command).returncode == 0
        assert read_results(path) == list(map(str, range(20)))

    def test_a_job_that_is_cancelled_by_hand_ends_the_map_until_it_is_given_again(
        self, pool: Span, tmp_path: Path
    ) -> None:
        path = write_lines(tmp_path, *map(str, range(4)))
        command = f"touch {tmp_path}/begun; test -e {tmp_path}/free || sleep 60; echo {{}}"
        run = start(pool, path, command)
        pool.wait_until(lambda: (tmp_path / "begun").exists(), 30, "the first line")
        pool.run("scancel", "--pool", "lines")
        _, error = run.communicate(timeout=30)
        assert run.returncode == 1 and "was cancelled" in error and "the same command goes on" in error
        (tmp_path / "free").touch()
        assert pool.run("map", "-p", "lines", "--over", str(path), command).returncode == 0
        assert read_results(path) == list(map(str, range(4)))


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

    def test_a_line_that_no_command_can_be_given(self, pool: Span, tmp_path: Path) -> None:
        path = write_lines(tmp_path, "a", "b\0c", "z" * 200_000, os.urandom(3_000_000).hex())
        done = pool.run("map", "-p", "lines", "--over", str(path), "printf %s {} | wc -c", check=False)
        assert done.returncode == 1 and read_results(path) == ["1", "", "", ""]
        nul, argument, job = read_failed(path)
        assert (nul["code"], argument["code"]) == (126, 126)
        assert "null byte" in nul["error"] and "Argument list too long" in argument["error"]
        assert "too long for a job: write it into a file" in job["error"]

    @pytest.mark.parametrize("words", [(), ("--batch", "4")])
    def test_a_line_that_ends_its_own_job_is_the_only_one_that_fails(
        self, pool: Span, tmp_path: Path, words: tuple[str, ...]
    ) -> None:
        path = write_lines(tmp_path, *map(str, range(10)), "die", *map(str, range(10)))
        command = "while read n; do test $n != die || kill -9 $PPID; echo $n; done"
        done = pool.run("map", "-p", "lines", "--over", str(path), "--chunk", "30", *words, command, check=False)
        assert done.returncode == 1
        assert read_results(path) == [*map(str, range(10)), "", *map(str, range(10))]
        assert "ended as FAILED" in read_failed(path)[0]["error"]

    def test_a_job_that_gets_nowhere_is_not_tried_for_ever(self, pool: Span, tmp_path: Path) -> None:
        path = write_lines(tmp_path, *map(str, range(100)))
        began = time.monotonic()
        done = pool.run("map", "-p", "lines", "--over", str(path), "--chunk", "100", "kill -9 $PPID", check=False)
        assert done.returncode == 1 and time.monotonic() - began < 60
        failed = read_failed(path)
        assert len(failed) == 100 and "ended as FAILED" in failed[0]["error"]

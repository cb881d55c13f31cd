"""Containers that a step of its own holds: the environment in there, the srun that holds one, the agent's wait."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.waiting import WaitUntil

from overspan.bridge.runtime.core.streams import NodeKey
from overspan.bridge.runtime.slurm.channel import RemoteLaunch, encode_launch, encode_line
from overspan.bridge.runtime.slurm.container_holders import ContainerHolder, ContainerHolders, holder_words
from overspan.bridge.runtime.slurm.containers import HOLD_WORDS, MARK, find_holder, merge_image, read_variables
from overspan.bridge.runtime.slurm.images import FOLDER, HOME, HOSTS, wrap_words
from overspan.bridge.runtime.slurm.placement import NodeSlot

KEY = NodeKey("a", 0, 0, 0)
IMAGE = ("--overlap", "--container-image=tiny", f"--container-mounts=/m:{HOME}/m,{HOSTS}:/etc/hosts,{FOLDER}:{FOLDER}")


class TestVariables:
    def test_the_images_win_over_the_tasks_and_those_of_the_task_itself_over_both(self) -> None:
        task = {"PATH": "/own", "GREETING": "mine", "LANG": "de", "SLURM_JOB_ID": "4", "EDITOR": "vi"}
        outside = {"PATH": "/image", "LANG": "C", "EDITOR": "ed", "SLURM_STEP_ID": "1", "PWD": "/x"}
        inside = {**outside, "GREETING": "image", "LANG": "en", "SLURM_STEP_ID": "2", "PWD": "/y", MARK: "m"}
        merged = merge_image(task, inside, outside, ("GREETING", "GONE"))
        assert merged == {"PATH": "/image", "GREETING": "mine", "LANG": "en", "SLURM_JOB_ID": "4", "EDITOR": "vi"}

    def test_a_path_of_the_tasks_own_is_kept(self) -> None:
        assert merge_image({"PATH": "/own"}, {"PATH": "/image"}, {}, ("PATH",)) == {"PATH": "/own"}

    @pytest.mark.parametrize("folder", ["/nowhere", ""])
    def test_a_temporary_folder_that_the_image_has_not_is_not_told(self, folder: str) -> None:
        words = wrap_words((), ("/bin/sh", "-c", "echo ${TMPDIR-none}"), "", "")
        done = subprocess.run(words, env={"TMPDIR": folder}, capture_output=True, text=True, timeout=120)
        assert done.stdout == ("none\n" if folder else "\n")


def test_the_srun_of_a_container_is_asked_for_like_the_agents() -> None:
    slot = NodeSlot(1, "n7", ("--exact", "--mem=9M"), IMAGE)
    words = holder_words(slot, 2, {"home": "/h", "hosts": "/tmp/f/image-hosts", "folder": "/tmp/f"})
    assert words[:6] == ("srun", "--het-group=1", "--nodes=1", "--ntasks=1", "--nodelist=n7", "--exact")
    assert words[-5:-3] == (
        "--container-image=tiny",
        "--container-mounts=/m:/h/m,/tmp/f/image-hosts:/etc/hosts,/tmp/f:/tmp/f",
    )
    assert words[-3:] == HOLD_WORDS


class Held:
    """A holder whose srun is any local program."""

    def __init__(self, wait_until: WaitUntil) -> None:
        self.poller = select.poll()
        self.lines: list[str] = []
        self.holders = ContainerHolders(self.poller, self.lines.append)
        self._wait_until = wait_until

    def open(self, *words: str) -> ContainerHolder:
        return self.holders.open(KEY, words, os.environ, 0o077)

    def until(self, look: Callable[[], Any], what: str) -> Any:
        def turn() -> Any:
            self.holders.handle([fd for fd, _ in self.poller.poll(20)])
            return look()

        return self._wait_until(turn, 30, what)


@pytest.fixture
def held(wait_until: WaitUntil) -> Iterator[Held]:
    made = Held(wait_until)
    yield made
    made.holders.close_all()
    made.until(lambda: not made.holders.reap(), "all holders to be gone")


class TestHolders:
    def test_a_container_is_told_once_and_ends_with_its_input(self, held: Held) -> None:
        holder = held.open(*HOLD_WORDS)
        assert held.until(held.holders.take_new, "the container") == [(KEY, holder.mark)]
        assert held.holders.take_new() == [] and holder.held and not holder.lost
        held.holders.close(KEY)
        assert held.holders.find(KEY) is None
        held.until(lambda: not held.holders.reap(), "its end")

    @pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1])
    def test_what_slurm_signals_does_not_end_it(self, held: Held, number: int) -> None:
        holder = held.open(*HOLD_WORDS)
        held.until(held.holders.take_new, "the container")
        holder.srun.signal(number)
        assert holder.srun.send(b"still there\n") and not holder.lost
        held.holders.close(KEY)
        held.until(lambda: holder.srun.status is not None, "its end")
        assert holder.srun.status == 0

    def test_an_image_that_is_still_fetched_is_given_up_at_once(self, held: Held) -> None:
        holder = held.open("sleep", "600")
        held.holders.close(KEY)
        held.until(lambda: holder.srun.status is not None, "its end")
        assert holder.srun.status == -signal.SIGTERM

    def test_one_that_cannot_be_had_says_why(self, held: Held) -> None:
        holder = held.open("sh", "-c", "echo 'error: no such image' >&2; exit 1")
        held.until(lambda: holder.lost, "its end")
        assert list(holder.srun.said) == ["error: no such image"]
        assert held.lines == ["a.0.0.0: image: error: no such image"] and not holder.held


class Agent:
    """An agent on this machine, and what it says."""

    def __init__(self, home: Path) -> None:
        code = "from overspan.bridge.runtime.slurm.agent import main; raise SystemExit(main())"
        environment = {**os.environ, "TMPDIR": str(home), "HOME": str(home)}
        pipe = subprocess.PIPE
        self.process = subprocess.Popen([sys.executable, "-c", code], stdin=pipe, stdout=pipe, env=environment)
        launch = RemoteLaunch("a.0.0.0", ("sh", "-c", "exit 4"), {"HOME": "/h"}, "/", image=IMAGE)
        self.send(encode_launch(launch))

    def send(self, line: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line)
        self.process.stdin.flush()

    def read(self) -> Mapping[str, Any]:
        assert self.process.stdout is not None
        document = json.loads(self.process.stdout.readline())
        assert isinstance(document, dict)
        return document

    def end(self) -> Mapping[str, Any]:
        """Its last message, once it has ended."""
        message = self.read()
        assert self.read_rest() == b"" and self.process.wait(120) is not None
        ended = message["ended"]
        assert isinstance(ended, dict)
        return ended

    def read_rest(self) -> bytes:
        assert self.process.stdout is not None
        return self.process.stdout.read()


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[Agent]:
    made = Agent(tmp_path)
    yield made
    made.process.kill()
    made.process.communicate()


class TestAgent:
    def test_it_asks_for_its_container_with_the_nodes_paths(self, agent: Agent) -> None:
        wanted = agent.read()["wanted"]
        assert wanted["home"] == "/h" and Path(wanted["hosts"]).read_text().count("localhost") >= 1
        agent.send(encode_line({"signal": int(signal.SIGUSR1), "scope": "tree"}))
        agent.send(encode_line({"signal": int(signal.SIGTERM), "scope": "tree"}))
        assert agent.end()["signal"] == signal.SIGTERM
        assert not Path(wanted["hosts"]).exists()

    def test_its_wait_ends_with_the_channel(self, agent: Agent) -> None:
        agent.read()
        assert agent.process.stdin is not None
        agent.process.stdin.close()
        assert agent.end()["signal"] == signal.SIGTERM
        agent.process.stdin = None

    def test_slurms_own_term_ends_its_wait(self, agent: Agent) -> None:
        agent.read()
        children = Path(f"/proc/{agent.process.pid}/task/{agent.process.pid}/children").read_text().split()
        os.kill(int(children[0]), signal.SIGTERM)
        assert "told" in agent.read()
        assert agent.end()["told"]

    def test_a_container_that_is_not_there_is_a_failed_start(self, agent: Agent) -> None:
        agent.read()
        agent.send(encode_line({"container": {"mark": "none"}}))
        ended = agent.end()
        assert ended["failed_at"] == "isolation" and "container" in ended["error"]


def test_a_holder_is_found_by_its_mark_in_another_mount_namespace_only(wait_until: WaitUntil) -> None:
    pipe = subprocess.PIPE
    environment = {**os.environ, MARK: "0f", "WHAT": "inside"}
    with subprocess.Popen(HOLD_WORDS, stdin=pipe, stdout=pipe, env=environment) as holder:
        assert holder.stdout is not None and holder.stdin is not None
        assert json.loads(holder.stdout.readline()) == {"held": {}}
        assert find_holder("0f") == 0 and read_variables(holder.pid)["WHAT"] == "inside"
        holder.stdin.close()
        assert holder.wait(120) == 0

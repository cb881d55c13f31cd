"""Programs for sh, and everything that goes through them, on this machine."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings
from tests.unit.adapters.slurm.overdue import overrun, stay

from overspan.adapters.slurm.transports.local import LocalTransport
from overspan.adapters.slurm.transports.openssh import Address, OpenSsh, make_folder, socket_path
from overspan.adapters.slurm.transports.paramiko_ssh import read_jump
from overspan.adapters.slurm.transports.programs import read_answers, render_calls
from overspan.adapters.slurm.transports.transport import Call, Done, Interrupted
from overspan.bridge.model.errors import Denied, NotFound, OverspanError, Unreachable

T = TypeVar("T")
HOUR, PATIENCE = 3600.0, 60.0
STAYS = f"sleep 98{os.getpid()}"
"""A command without end, told apart from those of others."""


def play(story: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(story)


class TestCommands:
    def test_output_error_and_code_are_kept_apart(self) -> None:
        done = play(LocalTransport().run(["sh", "-c", "echo out; echo err >&2; exit 3"]))
        assert done == Done(3, b"out\n", b"err\n")

    @settings(max_examples=25, deadline=None)
    @given(st.lists(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))), st.binary(max_size=80))
    def test_words_and_input_arrive_as_they_are(self, words: list[str], stdin: bytes) -> None:
        stdin = stdin.replace(b"\0", b"")
        done = play(LocalTransport().run(["sh", "-c", 'printf "%s\\0" "$@"; cat', "sh", "mark", *words], stdin))
        assert done.out == b"".join(word.encode() + b"\0" for word in ["mark", *words]) + stdin

    def test_variables_do_not_decide_where_the_command_is_found(self) -> None:
        variables = {"PATH": "/nowhere", "GREETING": "it's\n$HOME", "BASH_FUNC_f%%": "() { echo from a function; }"}
        words = ["bash", "-c", 'echo "$PATH|$GREETING"; f']
        # env(1) itself is found by the job's PATH only where that is a real one.
        done = play(LocalTransport().run(words, environment={**variables, "PATH": os.environ["PATH"]}))
        assert done.text == f"{os.environ['PATH']}|it's\n$HOME\nfrom a function\n"
        del variables["BASH_FUNC_f%%"]
        assert play(LocalTransport().run(["printenv", "PATH"], environment=variables)).text == "/nowhere\n"

    def test_the_daemons_own_variables_are_no_jobs(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("SECRET_OF_THE_DAEMON", "x")
        monkeypatch.setenv("SLURM_JOB_ID", "1")
        assert "SECRET_OF_THE_DAEMON" not in (text := play(LocalTransport().run(["env"])).text)
        assert "SLURM_JOB_ID" not in text

    def test_commands_run_in_order_with_their_own_umask_and_folder(self, tmp_path: Path) -> None:
        calls = [
            Call(["sh", "-c", f"umask > {tmp_path}/a"], umask=0o027, folder=f"{tmp_path}/made/deep"),
            Call(["no-such-command"]),
            Call(["cat", f"{tmp_path}/a"]),
        ]
        first, second, third = play(LocalTransport().run_all(calls))
        assert first is not None and first.rc == 0
        assert second is not None and second.rc == 127
        assert third is not None and third.text.strip() == "0027"
        assert (tmp_path / "made" / "deep").stat().st_mode & 0o777 == 0o700

    def test_commands_do_not_eat_the_program(self) -> None:
        first, second = play(LocalTransport().run_all([Call(["cat"]), Call(["echo", "there"])]))
        assert first == Done(0, b"", b"")
        assert second == Done(0, b"there\n", b"")

    def test_what_has_no_end_in_time_is_not_known(self, tmp_path: Path) -> None:
        calls = [Call(["echo", "one"]), stay(tmp_path / "two"), Call(["echo", "three"])]
        answers = play(overrun(LocalTransport(), calls, tmp_path / "two"))
        assert answers == [Done(0, b"one\n", b""), None, None]
        with pytest.raises(Interrupted):
            play(LocalTransport().run(["sleep", "60"], timeout=0.2))

    def test_a_folder_of_commands_comes_first(self, tmp_path: Path) -> None:
        command = tmp_path / "squeue"
        command.write_text("#!/bin/sh\necho mine\n")
        command.chmod(0o700)
        assert play(LocalTransport(str(tmp_path)).run(["squeue"])).text == "mine\n"

    def test_noise_around_the_output_is_left_out(self) -> None:
        program = render_calls([Call(["true"])], "m")
        assert b"printf" in program
        out = b"Welcome!\n\x1em 0\x1eyes\n\x1em 0 4\x1ebye"
        err = b"motd\n\x1em 0\x1ewrong\n"
        assert read_answers(out, err, "m", 2) == [Done(4, b"yes\n", b"wrong\n"), None]


class TestHeldPipes:
    """A process of another session holds the pipes of a call, as ssh's master does and a daemon that sbatch starts."""

    def test_a_call_that_hangs_ends_at_its_time_out_whoever_holds_its_pipes(self) -> None:
        async def story() -> None:
            async with asyncio.timeout(PATIENCE):
                with pytest.raises(Interrupted):
                    await LocalTransport().run(["sh", "-c", f"setsid {STAYS} & {STAYS}"], timeout=0.2)

        play(watch_descriptors(story()))

    def test_a_call_is_answered_when_its_command_has_ended_whoever_holds_its_pipes(self) -> None:
        async def story() -> None:
            async with asyncio.timeout(PATIENCE):
                done = await LocalTransport().run(["sh", "-c", f"setsid {STAYS} & echo done; exit 3"], timeout=HOUR)
            assert done == Done(3, b"done\n", b"")

        play(watch_descriptors(story()))

    def test_a_call_that_is_given_up_leaves_nothing(self) -> None:
        async def story() -> None:
            call = asyncio.ensure_future(LocalTransport().run(["sh", "-c", f"setsid {STAYS} & {STAYS}"], b"x" * 10**6))
            await asyncio.sleep(0)
            call.cancel()
            async with asyncio.timeout(PATIENCE):
                await asyncio.wait([call])
            assert call.cancelled()

        play(watch_descriptors(story()))


async def watch_descriptors(story: Coroutine[Any, Any, None]) -> None:
    """Play a story, which leaves no descriptor and no task behind."""
    await LocalTransport().run(["true"])
    before = set(os.listdir("/proc/self/fd"))
    try:
        await story
        assert set(os.listdir("/proc/self/fd")) == before
        assert asyncio.all_tasks() == {asyncio.current_task()}
    finally:
        await LocalTransport().run(["pkill", "-x", "-f", STAYS])


class TestFiles:
    @settings(max_examples=10, deadline=None)
    @given(st.binary(max_size=300))
    def test_bytes_are_written_and_read(self, tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
        path = str(tmp_path_factory.mktemp("files") / "a folder" / "it's")

        async def story() -> None:
            transport = LocalTransport()
            await transport.write(path, data)
            assert await transport.read(path, 0, 1000) == (data, len(data))
            assert await transport.read(path, 2, 3) == (data[2:5], len(data))
            assert await transport.read(path, len(data) + 5, 3) == (b"", len(data))

        play(story())
        assert os.stat(path).st_mode & 0o777 == 0o600
        assert os.listdir(os.path.dirname(path)) == ["it's"]

    def test_what_is_no_file_is_not_read(self, tmp_path: Path) -> None:
        for path in (tmp_path / "missing", tmp_path):
            with pytest.raises(NotFound):
                play(LocalTransport().read(str(path), 0, 10))

    def test_a_write_that_fails_says_why(self) -> None:
        with pytest.raises(OverspanError, match="cannot be written"):
            play(LocalTransport().write("/proc/nowhere/file", b"x"))

    def test_names_of_a_folder(self, tmp_path: Path) -> None:
        (tmp_path / "b\nc").write_text("four")
        (tmp_path / "a").mkdir()
        items = play(LocalTransport().list(str(tmp_path)))
        assert [(item.name, item.folder) for item in items] == [("a", True), ("b\nc", False)]
        assert items[1].size == 4
        with pytest.raises(NotFound):
            play(LocalTransport().list(f"{tmp_path}/missing"))


class TestSsh:
    @pytest.mark.skipif(shutil.which("ssh") is None, reason="no OpenSSH client")
    def test_a_host_that_does_not_answer_is_unreachable_and_asked_seldom(self, tmp_path: Path) -> None:
        config = tmp_path / "config"
        config.write_text("Host there\n  HostName 127.0.0.1\n  Port 9\n")

        async def story() -> None:
            transport = OpenSsh("c", Address("there", config=str(config)), folder=str(tmp_path / "sockets"))
            for _ in range(2):
                with pytest.raises(Unreachable, match=r"there: .*refused"):
                    await transport.run(["true"])
            await transport.close()

        play(story())

    def test_the_folder_of_sockets_is_the_users_own(self, tmp_path: Path) -> None:
        make_folder(str(tmp_path / "mine"))
        (tmp_path / "open").mkdir(mode=0o755)
        with pytest.raises(Denied):
            make_folder(str(tmp_path / "open"))
        (tmp_path / "link").symlink_to(tmp_path / "mine")
        with pytest.raises(Denied):
            make_folder(str(tmp_path / "link"))

    def test_sockets_of_clusters_differ_and_are_short(self) -> None:
        paths = {socket_path("/run/user/1000/overspan", name, Address("h", user)) for name in "ab" for user in "xy"}
        assert len(paths) == 4
        assert max(map(len, paths)) < 80

    def test_jump_hosts(self) -> None:
        assert read_jump("ada@gate:2222") == Address("gate", "ada", 2222)
        assert read_jump("gate") == Address("gate")


def test_no_variable_of_the_user_s_hides_a_command() -> None:
    async def story() -> None:
        calls = [Call(["ls", "-d", "/"], environment={"c": "x", "PATH": "/nowhere"}), Call(["printf", "%s", "there"])]
        answers = await LocalTransport().run_all(calls)
        assert [None if one is None else one.text for one in answers] == ["/\n", "there"]

    asyncio.run(story())

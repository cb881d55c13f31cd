"""Links that break, controllers that ask for patience, clocks that differ, disks that are full."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Coroutine, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar

import pytest
from tests.fakes.slurm_transport import Trouble
from tests.fakes.slurm_world import SlurmWorld
from tests.unit.adapters.slurm.overdue import overrun, stay
from tests.unit.adapters.slurm.samples import NOW, read_script

from overspan.adapters.slurm.commands.errors import FailureKind, read_failure
from overspan.adapters.slurm.commands.listings import ExitStatus
from overspan.adapters.slurm.commands.states import read_state
from overspan.adapters.slurm.handles import NOTHING, Cursor, make_handle
from overspan.adapters.slurm.observation.outcomes import judge
from overspan.adapters.slurm.observation.projection import NativeView, project
from overspan.adapters.slurm.transports.local import LocalTransport
from overspan.adapters.slurm.transports.openssh import Address, OpenSsh
from overspan.adapters.slurm.transports.paramiko_ssh import ParamikoSsh
from overspan.adapters.slurm.transports.rate_limit import (
    DEFAULT,
    HANG_SECONDS,
    Bucket,
    RateLimit,
    RateLimited,
    asks_controller,
    read_limit,
)
from overspan.adapters.slurm.transports.reconnection import LONGEST_REFUSED, LONGEST_WAIT, ReconnectDelay
from overspan.adapters.slurm.transports.transport import Call, Done, Interrupted
from overspan.bridge.lifecycle.reduction import reduce
from overspan.bridge.model.errors import OverspanError, Unreachable
from overspan.bridge.model.states import State

T = TypeVar("T")

# Stands in for ssh(1): the control socket is a plain file; `mode` in its folder says how the link is.
SSH = """\
#!/bin/sh
here=${0%/*}
mode=$(cat "$here/mode")
for word; do
  case $word in ControlPath=*) socket=${word#ControlPath=} ;; esac
  case $word in check|exit) request=$word ;; -fNT) request=open ;; esac
done
echo "$request" >>"$here/requests"
case $mode in
down) echo "ssh: connect to host there port 22: No route to host" >&2; exit 255 ;;
esac
case $request in
check) [ -e "$socket" ] && exit 0; exit 255 ;;
exit) rm -f "$socket"; exit 0 ;;
open) : >"$socket"; exit 0 ;;
esac
case $mode in
cut)
  /bin/sh 2>/dev/null | head -c "$(cat "$here/bytes")"
  echo "Connection to there closed by remote host." >&2; exit 255 ;;
hang) /bin/sh; exec sleep 600 ;;
dead) rm -f "$socket"; echo "mux_client_request_session: session request failed: Broken pipe" >&2; exit 255 ;;
esac
exec /bin/sh
"""


class Link:
    """A link with that ssh, and how it is at the moment."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        (folder / "bin").mkdir()
        (folder / "bin" / "ssh").write_text(SSH)
        (folder / "bin" / "ssh").chmod(0o755)
        monkeypatch.setenv("PATH", f"{folder}/bin:{os.environ['PATH']}")
        self.be("up")
        self.transport = OpenSsh("c", Address("there"), folder=f"{folder}/sockets")

    def be(self, mode: str, bytes_back: int = 0) -> None:
        (self.folder / "bin" / "mode").write_text(mode)
        (self.folder / "bin" / "bytes").write_text(str(bytes_back))

    @property
    def opened(self) -> int:
        return (self.folder / "bin" / "requests").read_text().split().count("open")


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SlurmWorld:
    return SlurmWorld(tmp_path, monkeypatch)


@pytest.fixture
def link(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Link:
    return Link(tmp_path, monkeypatch)


def play(story: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(story)


class TestHangs:
    def test_one_that_hangs_delays_no_other_and_is_named(self, link: Link, tmp_path: Path) -> None:
        async def story() -> None:
            await link.transport.run(["true"])
            (link.folder / "bin" / "squeue").symlink_to("/bin/sleep")
            hanging = asyncio.ensure_future(link.transport.run(["timeout", "900", "squeue", "900"], timeout=0.5))
            async with asyncio.timeout(60):
                assert (await link.transport.run(["echo", "other"])).text == "other\n"
                with pytest.raises(Interrupted, match=r"there: no answer within 0.5 s \(squeue\)"):
                    await hanging

        play(story())

    def test_a_call_waits_no_longer_than_its_time_for_a_connection(self, link: Link, tmp_path: Path) -> None:
        (link.folder / "bin" / "ssh").write_text("#!/bin/sh\nexec sleep 900\n")

        async def story() -> None:
            async with asyncio.timeout(60):
                with pytest.raises(Unreachable, match=r"no connection was free within 0.2 s") as caught:
                    await link.transport.run(["true"], timeout=0.2)
                # It surely was not made.
                assert not isinstance(caught.value, Interrupted)
                link.transport._opened = False
                await link.transport.close()
            assert asyncio.all_tasks() == {asyncio.current_task()}

        play(story())

    def test_paramiko_s_calls_end_in_time_although_the_other_side_says_nothing(self) -> None:
        paramiko = pytest.importorskip("paramiko")
        channel, transport = Mute(), ParamikoSsh(Address("there"))
        client = SimpleNamespace(
            get_transport=lambda: SimpleNamespace(is_active=lambda: True, open_session=lambda timeout: channel),
            close=lambda: None,
        )
        transport._clients.append(client)

        async def story() -> None:
            async with asyncio.timeout(60):
                with pytest.raises(Interrupted, match=r"there: no answer within 0.2 s \(sbatch\)"):
                    await transport.run(["sbatch"], timeout=0.2)
                await asyncio.to_thread(channel.closed_at_last.wait)
                await transport.close()

        play(story())
        assert paramiko

    def test_a_command_that_hangs_is_told_while_others_answer(self, world: SlurmWorld) -> None:
        world.transport.fail("sbatch", Trouble.HANGS)

        async def story() -> None:
            paced = RateLimited(world.transport, world.loop.time)
            await paced.run_all([Call(["date"]), Call(["sbatch", "x"]), Call(["scancel", "1"])], 60)
            await paced.run(["squeue"])
            assert paced.hang == "sbatch has not answered within 60 s"
            await asyncio.sleep(HANG_SECONDS + 1)
            assert paced.hang == ""

        world.play(story())


class Mute:
    """A channel on which nothing comes back; what waits for it goes on when it is closed."""

    def __init__(self) -> None:
        self.closed_at_last = threading.Event()

    def settimeout(self, seconds: float) -> None:
        """As paramiko's, which does not heed it here."""

    def exec_command(self, command: str) -> None:
        self.closed_at_last.wait()
        raise EOFError

    def close(self) -> None:
        self.closed_at_last.set()


class TestLink:
    def test_one_connection_for_all(self, link: Link) -> None:
        async def story() -> None:
            for _ in range(3):
                assert await link.transport.run(["echo", "x"]) == Done(0, b"x\n", b"")
            await link.transport.close()

        play(story())
        assert link.opened == 1

    def test_a_cut_in_the_middle_leaves_what_had_ended_and_doubts_the_rest(self, link: Link, tmp_path: Path) -> None:
        calls = [Call(["echo", "first"]), Call(["sh", "-c", f"touch {tmp_path}/effect; echo second"])]

        async def story() -> None:
            await link.transport.run(["true"])
            # Enough for the marks and the output of the first.
            link.be("cut", 70)
            first, second = await link.transport.run_all(calls)
            assert first == Done(0, b"first\n", b"") and second is None
            link.be("cut", 3)
            with pytest.raises(Interrupted, match="closed by remote host"):
                await link.transport.run(["echo", "x"])
            link.be("up")
            assert (await link.transport.run(["echo", "back"])).text == "back\n"

        play(story())
        assert (tmp_path / "effect").exists()

    def test_a_link_that_was_gone_before_had_no_effect(self, link: Link) -> None:
        async def story() -> None:
            await link.transport.run(["true"])
            link.be("dead")
            with pytest.raises(Unreachable) as caught:
                await link.transport.run(["echo", "x"])
            assert not isinstance(caught.value, Interrupted)
            link.be("up")
            assert (await link.transport.run(["echo", "back"])).rc == 0

        play(story())
        assert link.opened == 2

    def test_a_host_that_is_down_is_asked_seldom(self, link: Link) -> None:
        async def story() -> None:
            # However long the questions take, no time goes by.
            link.transport._attempts = ReconnectDelay(lambda: 0.0)
            link.be("down")
            for _ in range(5):
                with pytest.raises(Unreachable, match="No route to host"):
                    await link.transport.run(["true"])

        play(story())
        assert link.opened == 1

    def test_a_login_makes_up_for_the_wait(self, link: Link) -> None:
        async def story() -> None:
            link.be("down")
            with pytest.raises(Unreachable):
                await link.transport.run(["true"])
            link.be("up")
            is_open, words = await link.transport.invite()
            assert not is_open and words
            # As `span login` does on the terminal.
            process = await asyncio.create_subprocess_exec(*words)
            assert await process.wait() == 0
            assert await link.transport.invite() == (True, [])
            assert (await link.transport.run(["echo", "x"])).text == "x\n"

        play(story())

    def test_no_end_in_time_is_no_answer(self, link: Link, tmp_path: Path) -> None:
        async def story() -> None:
            await link.transport.run(["true"])
            link.be("hang")
            calls = [Call(["echo", "x"]), stay(tmp_path / "second")]
            first, second = await overrun(link.transport, calls, tmp_path / "second")
            assert first == Done(0, b"x\n", b"") and second is None

        play(story())


class TestAttempts:
    def test_a_host_that_is_away_is_tried_every_few_seconds_however_long_it_was(self) -> None:
        now, tries = [0.0], []
        attempts = ReconnectDelay(lambda: now[0])
        while now[0] < 600:
            try:
                attempts.check()
            except Unreachable as error:
                assert error.message == "there: Connection timed out"
            else:
                tries.append(now[0])
                attempts.fail("there: Connection timed out")
            now[0] += 0.25
        assert tries[:4] == [0, 1, 3, 7]
        assert {later - sooner for sooner, later in pairwise(tries[3:])} == {LONGEST_WAIT}

    @pytest.mark.parametrize(
        "said",
        [
            "ada@there: Permission denied (publickey,keyboard-interactive).",
            "Host key verification failed.",
            "Authentication failed.",
            "Server 'there' not found in known_hosts",
        ],
    )
    def test_a_host_that_lets_nobody_in_is_left_alone_for_longer(self, said: str) -> None:
        now = [0.0]
        attempts = ReconnectDelay(lambda: now[0])
        for _ in range(9):
            attempts.fail(f"there: {said}")
        now[0] = LONGEST_REFUSED - 1
        with pytest.raises(Unreachable):
            attempts.check()
        now[0] = LONGEST_REFUSED
        attempts.check()

    def test_an_open_connection_that_breaks_is_opened_again_at_once(self) -> None:
        attempts = ReconnectDelay(lambda: 0.0)
        attempts.fail("there: Connection refused")
        attempts.succeed()
        attempts.check()

    def test_a_dead_host_is_found_out_soon_where_the_daemon_can_open_the_connection_again(self) -> None:
        transport = OpenSsh("c", Address("there", options=("-o", "ServerAliveInterval=60")), folder="/nowhere")
        opened, login = transport.control_words("check"), transport.login_words()
        # The first of several counts (ssh_config(5)): what the user wrote.
        assert find_value(opened, "ServerAliveInterval") == ["60", "5"]
        assert find_value(login, "ServerAliveInterval") == ["60", "15"]
        assert find_value(opened, "ServerAliveCountMax") == find_value(login, "ServerAliveCountMax") == ["3"]


def find_value(words: Sequence[str], option: str) -> list[str]:
    return [word.partition("=")[2] for word in words if word.startswith(f"{option}=")]


RATE = "idle,rl_enable,rl_bucket_size=4,rl_refill_rate=6,rl_refill_period=3"


class TestPace:
    def test_the_sites_own_limit_is_read(self) -> None:
        assert read_limit(f"SlurmctldParameters     = {RATE}\n") == RateLimit(4, 2)
        assert read_limit("SlurmctldParameters = rl_enable\n") == DEFAULT
        assert read_limit("SlurmctldParameters = rl_enable,rl_bucket_size=x,rl_refill_rate=0\n") == DEFAULT
        assert read_limit("SlurmctldParameters = (null)\n") is None
        assert read_limit("") is None

    def test_a_bucket_lets_through_what_it_has_and_then_its_rate(self) -> None:
        now = [0.0]
        bucket = Bucket(RateLimit(4, 2), lambda: now[0])
        assert [bucket.take(1) for _ in range(4)] == [0, 0, 0, 0]
        assert bucket.take(1) == 0.5
        now[0] = 100.0
        # Never more than it holds, however long nobody asks.
        assert bucket.take(5) == 0.5
        now[0] = 102.0
        bucket.drain()
        assert bucket.take(2) == 1.0

    def test_questions_wait_for_their_turn(self, world: SlurmWorld) -> None:
        now, waits = [0.0], []
        world.slurm.site.parameters = RATE

        async def sleep(seconds: float) -> None:
            waits.append(seconds)
            now[0] += seconds

        async def story() -> None:
            paced = RateLimited(world.transport, lambda: now[0], sleep)
            assert paced.bucket is None and paced.describe_left() == ""
            await paced.run_all([Call(["env", "-u", "X", "scontrol", "show", "config"])])
            assert paced.describe_left() == "4 of 4, 2/s"
            for _ in range(6):
                await paced.run_all([Call(["env", "LC_ALL=C", "squeue", "--me"])])
            await paced.run_all([Call(["cat", "file"]), Call(["sacct"])])
            await paced.run_all([Call(["sbatch"])] * 10)

            assert paced.describe_left() == "0 of 4, 2/s"

        world.play(story())
        assert waits == [0.5, 0.5, 5.0]

    @pytest.mark.parametrize(
        "said",
        [
            "slurm_load_jobs error: Rate limit exceeded, please retry\n",
            "squeue: error: RPC rate limit exceeded\n",
            "slurm_load_jobs error: user exceeded the rate limit\n",
        ],
    )
    def test_a_cluster_that_asks_for_patience_gets_it(self, world: SlurmWorld, said: str) -> None:
        waits: list[float] = []
        world.transport.fail("squeue", Done(1, b"", said.encode()), 1)

        async def sleep(seconds: float) -> None:
            waits.append(seconds)

        async def story() -> None:
            paced = RateLimited(world.transport, lambda: 0.0, sleep)
            await paced.run_all([Call(["squeue"])])
            assert paced.bucket is not None and paced.bucket.limit == DEFAULT
            await paced.run_all([Call(["squeue"])])

        world.play(story())
        assert waits == [0.5]
        assert read_failure(said, 1).kind is FailureKind.BUSY

    def test_other_failures_are_no_limits(self, world: SlurmWorld) -> None:
        world.transport.fail("squeue", Trouble.DROPPED)

        async def story() -> None:
            paced = RateLimited(world.transport)
            await paced.run_all([Call(["squeue"])])
            assert paced.bucket is None

        world.play(story())

    def test_which_commands_ask_the_controller(self) -> None:
        assert asks_controller(["timeout", "20", "scancel", "42"])
        assert asks_controller(["/opt/slurm/bin/squeue"])
        assert not asks_controller(["sacct", "--jobs=1"])
        assert not asks_controller(["/bin/sh", "-c", "true"])


class TestClocks:
    @pytest.mark.parametrize("skew", [-7200, -30, 30, 7200])
    def test_a_story_of_another_clock_is_told_whole(self, skew: int) -> None:
        job = replace(read_script("#!/bin/sh\ntrue\n"), submitted_at=NOW)
        handle, cursor = make_handle(job, 42), Cursor()
        running = judge(read_state("RUNNING"))
        ended = judge(read_state("FAILED"), "NonZeroExitCode", ExitStatus(3, 0))
        begin, end = NOW + 5 + skew, NOW + 9 + skew
        for outcome, over in ((running, None), (ended, end)):
            view = NativeView(outcome, "None", ("n1",), begin, over, None, NOW + 10)
            told = project(handle, view, cursor, [], {})
            cursor = told.cursor
            for event in told.events:
                job = reduce(job, event)
        assert (job.state, job.late, job.started_at, job.ended_at) == (State.FAILED, 0, begin, end)
        assert cursor.phase != NOTHING


class TestDisks:
    def test_a_full_home_is_a_sentence_with_a_remedy(self, tmp_path: Path) -> None:
        for said in ("No space left on device", "Disk quota exceeded"):
            (tmp_path / "base64").write_text(f'#!/bin/sh\necho "base64: write error: {said}" >&2\nexit 1\n')
            (tmp_path / "base64").chmod(0o755)
            with pytest.raises(OverspanError, match=rf"/new/file cannot be written: .*{said}") as caught:
                play(LocalTransport(str(tmp_path)).write(f"{tmp_path}/new/file", b"x"))
            assert "make room" in caught.value.remedy and not caught.value.transient
            assert os.listdir(tmp_path / "new") == []

    def test_the_controllers_own_disk(self) -> None:
        said = "sbatch: error: Batch job submission failed: I/O error writing script/environment to file\n"
        assert "tell the site" in read_failure(said, 1).remedy

    def test_an_output_that_could_not_be_opened_is_told_in_words(self) -> None:
        outcome = judge(read_state("FAILED"), "JobLaunchFailure", ExitStatus(0, 53))
        assert outcome.detail.startswith("FAILED (JobLaunchFailure): Slurm could not open the job's output")
        assert "output" not in judge(read_state("FAILED"), "NonZeroExitCode", ExitStatus(53, 0)).detail

    def test_dos_line_ends_are_slurms_own_words(self) -> None:
        said = (
            "sbatch: error: Batch script contains DOS line breaks (\\r\\n)\n"
            "sbatch: error: instead of expected UNIX line breaks (\\n).\n"
        )
        failure = read_failure(said, 1)
        assert failure.kind is FailureKind.REJECTED and "dos2unix" in failure.remedy
        assert failure.message.startswith("Batch script contains DOS line breaks")

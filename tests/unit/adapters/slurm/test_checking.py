"""What `span check` says of a Slurm cluster, answer by answer, and what `span login` runs."""

from __future__ import annotations

import asyncio
import os
import shutil
from pathlib import Path

import pytest
from tests.fakes.slurm_transport import Trouble
from tests.fakes.slurm_world import SlurmWorld

from overspan.adapters.abilities import Finding
from overspan.adapters.contract import ClusterConfig
from overspan.adapters.slurm import open_cluster
from overspan.adapters.slurm.cluster import SlurmCluster, invite
from overspan.adapters.slurm.commands.queries import Queries, Site
from overspan.adapters.slurm.diagnosis.checking import check_cluster
from overspan.adapters.slurm.diagnosis.findings import (
    describe_unreachable,
    judge_compute,
    judge_hetjobs,
    judge_kill_wait,
    judge_login,
    judge_pace,
    judge_trial,
    judge_version,
    read_probe,
)
from overspan.adapters.slurm.settings import Settings
from overspan.adapters.slurm.transports.local import LocalTransport
from overspan.adapters.slurm.transports.openssh import Address, OpenSsh
from overspan.adapters.slurm.transports.reconnection import ReconnectDelay
from overspan.adapters.slurm.transports.transport import Done
from overspan.bridge.model.errors import Unreachable


def site(**config: str) -> Site:
    return Site((22, 5, 8), config, "ada", "/home/ada")


class TestFindings:
    def test_what_fails_has_a_remedy(self) -> None:
        answers = [
            judge_version(Site((19, 5), {}, "ada", "/h")),
            judge_version(Site((), {}, "ada", "/h")),
            judge_hetjobs(site(SchedulerType="sched/builtin")),
            judge_trial(Done(1, b"", b"sbatch: error: x\nallocation failure: Invalid account\n"), Settings()),
            *judge_login({"host": "login", "free": "3"}, "/r"),
            *judge_login({"host": "login", "python": "3.6.8"}, "/r"),
            *judge_compute({"host": "n1"}, "/r"),
            *judge_compute({"host": "n1", "bwrap": "yes", "shared": "yes", "python": "3.9.1"}, "/r"),
        ]
        failed = [finding for finding in answers if not finding.works]
        assert len(failed) == 12
        for finding in failed:
            assert finding.remedy and finding.seen, finding

    def test_a_node_that_mounts_nothing_gets_copies(self) -> None:
        found = {"host": "n1", "userns": "yes", "fuse": "yes", "shared": "yes", "python": "3.9.1"}
        assert judge_compute(found, "/r", fuse=True)[-1] == Finding(
            "MOUNT", True, "buckets are read through the store on n1"
        )
        del found["fuse"]
        finding = judge_compute(found, "/r", fuse=True)[-1]
        assert finding.works and "copied" in finding.seen and finding.remedy.endswith("a /dev/fuse with mode 0666")
        assert "MOUNT" not in [each.what for each in judge_compute(found, "/r")]

    def test_hetjobs(self) -> None:
        assert not judge_hetjobs(site(SchedulerType="sched/builtin")).works
        switched = judge_hetjobs(site(SchedulerType="sched/backfill", SchedulerParameters="a,disable_hetjob_steps"))
        assert switched.works and "disable_hetjob_steps" in switched.seen
        assert judge_hetjobs(site(SchedulerType="sched/backfill")) == Finding("hetjobs", True, "sched/backfill")

    def test_the_pace_and_the_sites_own_limit(self) -> None:
        parameters = "idle_on_node_suspend,rl_enable,rl_refill_rate=4"
        seen = judge_pace(site(SlurmctldParameters=parameters), Settings(tick=5)).seen
        assert "each 5 s" in seen and "rl_enable, rl_refill_rate=4" in seen
        assert "limits" not in judge_pace(site(), Settings()).seen

    def test_kill_wait(self) -> None:
        assert judge_kill_wait(site(KillWait="30 sec")).seen.startswith("30 s;")
        assert judge_kill_wait(site()).seen == "not shown"

    def test_rights_to_submit(self) -> None:
        assert judge_trial(Done(0, b"", b"sbatch: Job 5 to start at x\n"), Settings()).works
        # What sbatch lets wait is taken.
        busy = b"allocation failure: Requested node configuration is not available\n"
        assert judge_trial(Done(1, b"", busy), Settings()).works
        refused = b"sbatch: error: Invalid account or account/partition combination specified\nallocation failure: x\n"
        finding = judge_trial(Done(1, b"", refused), Settings(partition="gpu", account="lab"))
        assert not finding.works and finding.seen.startswith("partition gpu, account lab: Invalid account")
        assert not judge_trial(Done(1, b"", b"sbatch: error: Rate limit exceeded\n"), Settings()).works

    def test_a_compute_node_that_was_not_free_is_no_failure(self) -> None:
        (finding,) = judge_compute({}, "/r")
        assert finding.works and "when it starts" in finding.seen

    def test_a_probe_is_read_by_names(self) -> None:
        assert read_probe("host=n1\npython=3.11.2\nfree=\n\n") == {"host": "n1", "python": "3.11.2", "free": "", "": ""}


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SlurmWorld:
    return SlurmWorld(tmp_path, monkeypatch)


class TestCheck:
    def check(self, world: SlurmWorld, root: str) -> dict[str, Finding]:
        found: dict[str, Finding] = {}

        async def story() -> None:
            findings = await check_cluster(Queries(world.transport, 60), Settings(), root)
            found.update((finding.what, finding) for finding in findings)

        world.play(story())
        return found

    def test_everything_is_tried(self, world: SlurmWorld) -> None:
        world.transport.fail("sinfo", Trouble.REFUSED)
        root = world.folder / "root"
        found = self.check(world, str(root))
        assert [name for name, finding in found.items() if not finding.works and name not in ("bwrap",)] == ["nodes"]
        assert {"reach", "Slurm", "submit", "accounting", "clock", "hetjobs", "KillWait", "call budget"} <= set(found)
        assert {"python (login)", "root", "python", "shared root"} <= set(found)
        assert "ms" in found["reach"].seen and found["clock"].works
        assert "MiB left" in found["root"].seen
        assert list(root.iterdir()) == []

    def test_a_cluster_that_cannot_be_reached_has_one_line(self, world: SlurmWorld) -> None:
        world.transport.fail("scontrol", Done(127, b"", b""))
        found = self.check(world, "/r")
        assert list(found) == ["reach"] and found["reach"].remedy

    @pytest.mark.parametrize(
        ("message", "remedy"),
        [
            ("rig: Can't open user config file /x: No such file or directory", "`ssh_config`"),
            ("rig: Could not resolve hostname rig: Name or service not known", "set `host`"),
            ("rig: Host key verification failed.", "compare the host's key"),
            ("rig: ada@rig: Permission denied (publickey).", "the right user and key; `span login`"),
            ("rig: connect to host rig port 22: Connection refused", "whether the host answers"),
            ("sh: scontrol: not found", "`path`"),
            ("Unable to contact slurm controller (connect failure)", "scontrol ping"),
            ("rig: something new", "try `ssh"),
        ],
    )
    def test_each_cause_has_its_own_remedy_and_the_host_is_named_once(self, message: str, remedy: str) -> None:
        settings = Settings(transport="ssh", host="rig", user="ada", port=2222, ssh_config="~/my config")
        seen, found = describe_unreachable(Unreachable(message), settings)
        assert seen.startswith("rig: ") and not seen.startswith("rig: rig:")
        assert remedy in found and "{" not in found
        assert "`ssh " not in found or "`ssh -F '~/my config' -l ada -p 2222 rig" in found

    def test_this_machine_is_not_reached_by_ssh(self) -> None:
        for message in ("sh: scontrol: not found", "Unable to contact slurm controller", "timed out", "else"):
            seen, found = describe_unreachable(Unreachable(message), Settings())
            assert seen == f"this machine: {message}" and found and "ssh " not in found.replace("by ssh", "")

    def test_a_check_tells_what_is_so_now(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
        transport = OpenSsh("c", Address("rig"), folder=f"{tmp_path}/sockets")
        # No time goes by: the daemon itself would not try again.
        transport._attempts = ReconnectDelay(lambda: 0.0)
        cluster = SlurmCluster(ClusterConfig("c", "slurm", {"transport": "ssh", "host": "rig"}), transport)

        async def story() -> None:
            for said in ("Permission denied (publickey).", "connect to host rig port 22: Connection refused"):
                (tmp_path / "ssh").write_text(f'#!/bin/sh\necho "{said}" >&2\nexit 255\n')
                (tmp_path / "ssh").chmod(0o755)
                (finding,) = await cluster.check()
                assert finding.seen == f"rig: {said}"

        asyncio.run(story())

    def test_a_root_that_cannot_be_written(self, world: SlurmWorld) -> None:
        found = self.check(world, "/proc/nowhere")
        assert not found["root"].works and "cannot be written" in found["root"].seen
        assert "shared root" not in found


class TestLogin:
    @pytest.mark.skipif(shutil.which("ssh") is None, reason="no OpenSSH client")
    def test_ssh_is_opened_on_the_terminal_by_the_daemons_own_socket(self, tmp_path: Path) -> None:
        settings = Settings(transport="ssh", host="login.site")
        transport = OpenSsh("leo", Address("login.site", "ada"), folder=f"{tmp_path}/sockets")
        invitation = asyncio.run(invite("leo", transport, settings))
        assert invitation.words[-2:] == ("--", "login.site")
        assert "BatchMode=no" in invitation.words and "BatchMode=yes" not in invitation.words
        socket = next(word for word in invitation.words if word.startswith("ControlPath="))
        assert socket in invitation.check and "check" in invitation.check
        assert "login.site" in invitation.message and os.stat(f"{tmp_path}/sockets").st_mode & 0o777 == 0o700

    def test_others_are_told_why_there_is_nothing_to_do(self) -> None:
        assert "nothing to log in to" in asyncio.run(invite("c", LocalTransport(), Settings())).message
        invitation = asyncio.run(invite("c", LocalTransport(), Settings(transport="paramiko", host="login")))
        assert not invitation.words and "transport: ssh" in invitation.message

    def test_the_adapter_has_the_abilities(self) -> None:
        cluster = open_cluster(ClusterConfig("c", "slurm"))
        assert cluster.traits.login == cluster.login and cluster.traits.find_job == cluster.find_job

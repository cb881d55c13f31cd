"""The words of a shell on a Slurm cluster, by transport and by form."""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path

import pytest

from overspan.adapters.abilities import ShellRequest
from overspan.adapters.contract import Decider
from overspan.adapters.slurm.access.shells import (
    NativeAllocation,
    choose_allocation,
    list_allocations,
    list_parts,
    member_program,
    open_terminal,
    remote_shell_program,
    render_command,
    step_words,
)
from overspan.adapters.slurm.groups.handles import GroupHandle, GroupPart
from overspan.adapters.slurm.settings import PARAMIKO, Settings
from overspan.adapters.slurm.transports.local import LocalTransport
from overspan.adapters.slurm.transports.openssh import Address, OpenSsh
from overspan.adapters.slurm.transports.paramiko_ssh import ParamikoSsh
from overspan.bridge.model.errors import Conflict, InvalidRequest

TOLD = "40+0|RUNNING|n1|/w\n40+1|RUNNING|n[2-3]|/w\n"
REQUEST = ShellRequest("g.40.7.0.30.%2Fr", "b", 1, "n3")
HANDLE = GroupHandle(7, 0, 30, "/r/runs/i-7", (GroupPart(40),))


class TestAllocations:
    def test_the_component_with_the_members_node_is_entered(self) -> None:
        found = choose_allocation(list_allocations(TOLD), REQUEST, "40")
        assert found == NativeAllocation("40+1", "RUNNING", ("n2", "n3"), "/w")

    def test_a_folder_may_have_any_name_and_a_site_may_talk(self) -> None:
        assert list_allocations("welcome\n7|RUNNING|n1|/a|b\n")[0].text == "/a|b"

    @pytest.mark.parametrize(
        ("told", "text"),
        [
            (TOLD.replace("+1|RUNNING", "+1|COMPLETED"), "is COMPLETED, RUNNING for Slurm"),
            ("40|PENDING||/w\n", "is PENDING for Slurm"),
            ("", "not in Slurm's queue any more"),
        ],
    )
    def test_what_slurm_has_not_given_cannot_be_entered(self, told: str, text: str) -> None:
        with pytest.raises(Conflict, match=text):
            choose_allocation(list_allocations(told), REQUEST, "40")

    def test_the_newest_job_of_a_sets_task_is_entered(self) -> None:
        handle = GroupHandle(7, 0, 30, "/r/runs/i-7", (GroupPart(40, "b", 2),), Decider.DAEMON, True, "i-7-0")
        told = "40|COMPLETING|n3|overspan=i-7-0/b/0\n41|RUNNING|n3|mine a|b overspan=i-7-0/b/2\n"
        told += "42|RUNNING|n3|overspan=i-7-0/a/0\n43|RUNNING|n3|(null)\n44|RUNNING|n3|overspan=i-8-0/b/5\n"
        parts = list_parts(list_allocations(told), handle, "b")
        assert [(first, part.name) for first, part in parts] == [(2, "41"), (0, "40")]
        program = member_program(("x.pyz",), handle, REQUEST, "members/b/2")
        assert program == ["x.pyz", "shell", "/r/runs/i-7", "0", "members/b/2", "b", "1"]


class TestWords:
    def test_a_member_is_entered_by_the_application(self) -> None:
        allocation = list_allocations(TOLD)[1]
        request = ShellRequest(REQUEST.handle, "b", 1, "n3", ("ls", "-l"), terminal=False)
        program = member_program(("python3", "x.pyz"), HANDLE, request)
        assert shlex.join(step_words(allocation, request, program)) == (
            "srun --jobid=40 --het-group=1 --overlap --nodes=1 --ntasks=1 --mem=0 --nodelist=n3 --job-name=shell"
            " python3 x.pyz shell /r/runs/i-7 0 '' b 1 ls -l"
        )

    def test_where_nodes_share_no_folder_the_application_takes_itself_there(self) -> None:
        step = step_words(list_allocations(TOLD)[1], REQUEST, ())
        words = remote_shell_program(("python3", "x.pyz"), HANDLE, REQUEST, ("", "40", "/opt/python3"), step)
        assert shlex.join(words) == (
            "python3 x.pyz remote-shell /r/runs/i-7 0 '' 40 b 1 /opt/python3"
            " srun --jobid=40 --het-group=1 --overlap --nodes=1 --ntasks=1 --mem=0 --nodelist=n3 --job-name=shell"
            " --pty --"
        )

    def test_a_terminal_and_an_old_release(self) -> None:
        words = step_words(list_allocations("40|RUNNING|n1|/w")[0], REQUEST, ["bash"])
        assert words[:3] == ["srun", "--jobid=40", "--overlap"]
        assert words[-2:] == ["--pty", "bash"]
        assert "--overlap" not in step_words(list_allocations(TOLD)[0], REQUEST, ["bash"], (20, 2, 7))

    def test_ssh_goes_over_the_master_with_a_terminal(self, tmp_path: Path) -> None:
        transport = OpenSsh("leo", Address("login.leo", "ada", config="/c"), "", str(tmp_path))
        words = open_terminal(transport, Settings(host="login.leo"), ["srun", "it's"], True).words
        assert words[:3] == ("ssh", "-F", "/c") and "-t" in words and words[-2] == "login.leo"
        assert any(word.startswith(f"ControlPath={tmp_path}/") for word in words)
        assert "BatchMode=yes" not in words and "ProxyCommand=false" not in words
        assert shlex.split(words[-1])[:3] == ["exec", "/bin/sh", "-c"]
        assert "-T" in open_terminal(transport, Settings(host="login.leo"), ["srun"], False).words

    def test_paramiko_has_no_terminal(self) -> None:
        settings = Settings(transport=PARAMIKO, host="login.leo")
        with pytest.raises(InvalidRequest, match="has no terminal") as caught:
            open_terminal(ParamikoSsh(Address("login.leo")), settings, ["srun", "--pty"], True)
        assert caught.value.remedy == "set `transport: ssh`, or run there: srun --pty"

    def test_a_job_around_the_terminal_does_not_count(self) -> None:
        words = open_terminal(LocalTransport(), Settings(path="/opt/x y"), ["sh", "-c", "env; echo $PATH"], True).words
        assert words[-1] == render_command(["sh", "-c", "env; echo $PATH"], "/opt/x y")
        variables = {"SLURM_JOB_ID": "4", "SRUN_X": "1", "SLURM_CONF": "/c", "OTHER": "a\nb=c", "PATH": "/usr/bin:/bin"}
        done = subprocess.run(words, env=variables, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0 and done.stderr == ""
        assert "SLURM_JOB_ID" not in done.stdout and "SRUN_X" not in done.stdout
        assert "SLURM_CONF=/c" in done.stdout and done.stdout.splitlines()[-1] == "/opt/x y:/usr/bin:/bin"

"""The Slurm rig does what its users count on."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace

import pytest
from tests.rigs.engine import RigMissing
from tests.rigs.slurm import PROBE, SILENT, SlurmRig, check_packets, render_lines, render_nodes


class TestLines:
    def test_replaces_the_line_that_begins_so(self) -> None:
        assert render_lines("A=1\nB=2\n", {"B=": "B=3"}) == "A=1\nB=3\n"

    def test_adds_a_line_that_is_not_there(self) -> None:
        assert render_lines("A=1\n", {"C=": "C=3"}) == "A=1\nC=3\n"

    def test_an_empty_line_removes(self) -> None:
        assert render_lines("P=x a\nP=y b\n", {"P=y": ""}) == "P=x a\n"


class TestNodes:
    @pytest.mark.parametrize(("count", "all_of_them", "short"), [(3, "node[1-3]", "node[1-2]"), (1, "node1", "node1")])
    def test_only_those_that_run_are_in_the_configuration(self, count: int, all_of_them: str, short: str) -> None:
        text = "NodeName=node[1-3] CPUs=4\nPartitionName=short Nodes=node[1-2]\n"
        assert render_nodes(text, count) == f"NodeName={all_of_them} CPUs=4\nPartitionName=short Nodes={short}\n"


class TestPackets:
    @pytest.mark.parametrize(
        ("rules", "said"),
        [("-P FORWARD DROP\n-A FORWARD -j DOCKER-USER\n", "iptables -P FORWARD ACCEPT"), ("", "firewall's rules")],
    )
    def test_a_machine_that_drops_the_containers_packets_is_told_at_once(self, rules: str, said: str) -> None:
        node = SimpleNamespace(exec_run=lambda words: (SILENT, b""))
        with pytest.raises(RigMissing, match=f"get no packets from each other.*{said}"):
            check_packets(node, lambda: rules)

    def test_who_is_refused_gets_packets_and_who_has_no_way_does_not(self) -> None:
        def probe(host: str) -> int:
            return subprocess.run([sys.executable, "-c", PROBE, host]).returncode

        # A machine always refuses itself; an address of a multicast group has no connections.
        assert (probe("127.0.0.1"), probe("224.0.0.1")) == (0, SILENT)


class TestSlurmRig:
    def test_its_containers_get_packets(self, slurm_rig: SlurmRig) -> None:
        check_packets(slurm_rig.containers["node1"], lambda: "")

    def test_commands_have_input_environment_folder_and_user(self, slurm_rig: SlurmRig) -> None:
        done = slurm_rig.run(
            ["sh", "-c", "cat; pwd; id -un; echo $A; exit 3"], stdin="in\n", env={"A": "b"}, cwd="/tmp"
        )
        assert (done.rc, done.stdout) == (3, "in\n/tmp\nresearcher\nb\n")

    def test_a_job_over_all_nodes(self, slurm_rig: SlurmRig) -> None:
        done = slurm_rig.run(["srun", "-N3", "hostname"])
        assert sorted(done.stdout.split()) == ["node1", "node2", "node3"], done.stderr

    def test_homes_are_shared(self, slurm_rig: SlurmRig) -> None:
        slurm_rig.run(["sh", "-c", "echo here > shared"])
        assert slurm_rig.run(["cat", "shared"], on="node2").stdout == "here\n"

    @pytest.mark.parametrize(("node", "allowed"), [("node1", True), ("node3", False)])
    def test_user_namespaces_on_open_nodes_only(self, slurm_rig: SlurmRig, node: str, allowed: bool) -> None:
        done = slurm_rig.run(["unshare", "--user", "true"], on=node)
        assert (done.rc == 0) is allowed, done.stderr

    def test_accounting(self, slurm_rig: SlurmRig) -> None:
        assert slurm_rig.run(["sacct", "-n", "-j", "999999"]) == (0, "", "")

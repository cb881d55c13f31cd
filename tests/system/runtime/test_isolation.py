"""Members find their names in real processes, as root and as an ordinary user."""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from overspan.bridge.runtime.core import isolation, kernel, shim_control
from overspan.bridge.runtime.core.isolation import ENV, NAMESPACE, NSS_WRAPPER, Isolation, IsolationProbe

if TYPE_CHECKING:
    from tests.system.runtime.conftest import Forked, Nodes

MEMBERS = [("127.81.0.1", ["trainer-0.rlhf", "trainer-0"]), ("127.81.0.2", ["rollout-1.rlhf", "rollout-1"])]
KEY = "rollout.1.0.0"
ASK = """
id -u; id -g; hostname; hostname -f; echo $HOSTNAME
getent hosts trainer-0.rlhf
getent ahosts rollout-1 | head -1
grep -E '^Cap(Prm|Eff|Amb)' /proc/self/status
"""

needs_getent = pytest.mark.skipif(shutil.which("getent") is None, reason="getent is not installed")


@pytest.fixture
def open_nodes(nodes: Nodes, open_folder: Path) -> Nodes:
    """Nodes in a folder that every user may write."""
    nodes.folder, nodes.directory = open_folder, str(open_folder)
    return nodes


def _ask(nodes: Nodes, probed: IsolationProbe) -> list[str]:
    member = isolation.prepare_isolation(nodes.directory, probed, MEMBERS)._replace(hostname="rollout-1")
    record = nodes.run(KEY, ASK, isolation=member)
    assert (record.error, record.exit_code) == ("", 0), nodes.text("err")
    return [" ".join(line.split()) for line in nodes.text().splitlines()]


def _need(method: str) -> IsolationProbe:
    probed = isolation.probe()
    if probed.method != method:
        pytest.skip(f"names by {probed.method} here: {probed.reason}")
    return probed


@needs_getent
def test_names_in_namespaces(open_nodes: Nodes) -> None:
    host = socket.gethostname()
    machine = Path("/etc/hosts").read_text()
    lines = _ask(open_nodes, _need(NAMESPACE))
    assert lines[:5] == [str(os.getuid()), str(os.getgid()), "rollout-1", "rollout-1.rlhf", "rollout-1"]
    assert lines[5] == "127.81.0.1 trainer-0.rlhf trainer-0"
    assert lines[6].startswith("127.81.0.2 ")
    # Nothing of it is seen outside.
    assert (socket.gethostname(), Path("/etc/hosts").read_text()) == (host, machine)
    assert str(open_nodes.folder) not in Path("/proc/self/mountinfo").read_text()


@needs_getent
def test_names_in_namespaces_as_nobody(open_nodes: Nodes, as_nobody: Forked) -> None:
    def run() -> None:
        probed = isolation.probe()
        assert probed.method == NAMESPACE, probed.reason
        lines = _ask(open_nodes, probed)
        assert lines[:5] == [str(os.getuid()), str(os.getgid()), "rollout-1", "rollout-1.rlhf", "rollout-1"]
        assert lines[5] == "127.81.0.1 trainer-0.rlhf trainer-0"
        none = "0" * 16
        assert lines[7:] == [f"CapPrm: {none}", f"CapEff: {none}", f"CapAmb: {none}"]

    as_nobody(run)


def test_signals_reach_a_namespace_from_outside(open_nodes: Nodes, as_nobody: Forked) -> None:
    def run() -> None:
        member = isolation.prepare_isolation(open_nodes.directory, isolation.probe(), MEMBERS)
        script = "(setsid sleep 300 &); trap 'exit 8' TERM; touch up; while :; do sleep 0.02; done"
        shim = open_nodes.shell(KEY, script, isolation=member)
        open_nodes.wait_until((open_nodes.folder / "up").exists, what="up")
        assert shim_control.send(shim, 15)
        assert open_nodes.end(shim).exit_code == 8

    as_nobody(run)


@needs_getent
def test_names_follow_the_hosts_file(nodes: Nodes) -> None:
    member = isolation.prepare_isolation(nodes.directory, _need(NAMESPACE), MEMBERS)
    script = "touch up; until getent hosts late-0.rlhf; do sleep 0.02; done"
    shim = nodes.shell(KEY, script, isolation=member)
    nodes.wait_until((nodes.folder / "up").exists, what="up")
    text = isolation.render_hosts("", [*MEMBERS, ("127.81.0.3", ["late-0.rlhf"])])
    isolation.write_hosts(member.hosts, text)
    assert nodes.end(shim).exit_code == 0
    assert nodes.text().split() == ["127.81.0.3", "late-0.rlhf"]


def test_mounts_stay_inside_where_mounts_are_shared(nodes: Nodes, forked: Forked) -> None:
    if os.getuid() != 0:
        pytest.skip("only root can share mounts with what it starts")
    member = isolation.prepare_isolation(nodes.directory, _need(NAMESPACE), MEMBERS)
    shared = 1 << 20  # MS_SHARED, as systemd mounts everything

    def run() -> None:
        kernel.unshare(kernel.CLONE_NEWNS)
        kernel.detach_mounts()
        kernel.mount("none", "/", kernel.MS_REC | shared)
        machine = Path("/etc/hosts").read_text()
        shim = nodes.shell(KEY, "grep -c rlhf /etc/hosts; until [ -e go ]; do sleep 0.02; done", isolation=member)
        nodes.wait_until(lambda: nodes.running(KEY) and nodes.text().strip(), what="the node sees its hosts")
        assert Path("/etc/hosts").read_text() == machine
        (nodes.folder / "go").touch()
        assert nodes.end(shim).exit_code == 0
        assert nodes.text() == "2\n"

    forked(run)


def test_failed_isolation_is_no_users_error(nodes: Nodes) -> None:
    member = Isolation(NAMESPACE, hosts="/no/such/hosts")
    record = nodes.run(KEY, "touch ran", isolation=member)
    assert record.failed_at == "isolation" and record.exit_code is None
    assert record.error.startswith("cannot give this node its names: ")
    assert not (nodes.folder / "ran").exists()


def test_resolver_settings_and_cache_are_covered(nodes: Nodes, forked: Forked) -> None:
    _need(NAMESPACE)
    (nodes.folder / "nsswitch").write_text("hosts: files dns\n# shown\n")
    (nodes.folder / "run").mkdir()
    (nodes.folder / "run" / "socket").touch()
    (nodes.folder / "none").mkdir()
    hosts = nodes.folder / "hosts"
    isolation.write_hosts(str(hosts), isolation.render_hosts("", MEMBERS))
    member = Isolation(NAMESPACE, str(hosts), "", str(nodes.folder / "nsswitch"), str(nodes.folder / "none"))

    def run() -> None:
        isolation._NSCD = (str(nodes.folder / "run"), "/no/such/folder")
        record = nodes.run(KEY, "grep -c shown /etc/nsswitch.conf; ls run | wc -l", isolation=member)
        assert record.exit_code == 0
        assert nodes.text().split() == ["1", "0"]

    forked(run)


@needs_getent
def test_names_by_nss_wrapper(nodes: Nodes) -> None:
    library = isolation.ask_child(isolation._find_library)
    if not library:
        pytest.skip("libnss_wrapper.so is not installed")
    lines = _ask(nodes, IsolationProbe(NSS_WRAPPER, "", library))
    assert lines[2] == lines[4] == "rollout-1"
    assert lines[5].startswith("127.81.0.1 trainer-0.rlhf")
    assert lines[6].startswith("127.81.0.2 ")


def test_env_changes_nothing(nodes: Nodes) -> None:
    member = isolation.prepare_isolation(nodes.directory, IsolationProbe(ENV, ""), MEMBERS)._replace(
        hostname="rollout-1"
    )
    assert nodes.run(KEY, "hostname; echo $HOSTNAME", isolation=member).exit_code == 0
    assert "rollout-1" not in nodes.text()
    assert not (nodes.folder / "hosts").exists()


@pytest.mark.skipif(os.getuid() != 0, reason="only root can be the root of a container")
def test_the_root_of_a_container_gives_names_in_a_user_namespace(tmp_path: Path) -> None:
    """Its bounding set lacks CAP_SYS_ADMIN, as in a pod."""
    _need(NAMESPACE)
    (tmp_path / "hosts").write_text("127.81.0.1 trainer-0.rlhf\n")
    program = f"""
import os, socket, sys
from overspan.bridge.runtime.core import isolation
# The library comes first: with it, files of other users stay root's to change.
assert isolation._find_library().startswith("/") == (isolation.probe().method == "nss_wrapper"), isolation.probe()
isolation._find_library = lambda: ""
assert isolation.probe().method == "namespace", isolation.probe()
isolation.enter_isolation(isolation.Isolation("namespace", {str(tmp_path / "hosts")!r}, "trainer-0"))
print(os.getuid(), socket.gethostname(), socket.gethostbyname("trainer-0.rlhf"))
"""

    def lose_administration() -> None:
        drop, administration = 24, 21  # PR_CAPBSET_DROP, CAP_SYS_ADMIN
        assert ctypes.CDLL(None).prctl(drop, administration, 0, 0, 0) == 0

    told = subprocess.run(
        [sys.executable, "-c", program], preexec_fn=lose_administration, capture_output=True, text=True, check=False
    )
    assert told.stdout.split() == ["0", "trainer-0", "127.81.0.1"], told.stderr
    assert "rlhf" not in Path("/etc/hosts").read_text()


def test_probe_without_user_namespaces(as_nobody: Forked) -> None:
    def run() -> None:
        # In a user namespace of its own nobody may set the limit to 0 for what is below.
        isolation.enter_namespaces()
        Path("/proc/sys/user/max_user_namespaces").write_text("0")
        probed = isolation.probe()
        assert probed.method in (NSS_WRAPPER, ENV)
        assert "user.max_user_namespaces" in probed.reason
        assert (probed.method == NSS_WRAPPER) == probed.library.startswith("/")

    as_nobody(run)


def test_probe_leaves_nothing(forked: Forked) -> None:
    def look() -> tuple[object, ...]:
        return Path("/proc/self/mountinfo").read_text(), socket.gethostname(), kernel.read_children(os.getpid())

    def run() -> None:
        # What others mount meanwhile stays out, where that can be had.
        with contextlib.suppress(PermissionError):
            kernel.unshare(kernel.CLONE_NEWNS)
            kernel.mount("none", "/", kernel.MS_REC | 1 << 18)  # MS_PRIVATE
        before = look()
        isolation.probe()
        assert look() == before

    forked(run)

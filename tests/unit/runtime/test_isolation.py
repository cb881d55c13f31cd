"""Hosts files, nsswitch files and environments as text."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from overspan.bridge.runtime.core import kernel
from overspan.bridge.runtime.core.isolation import (
    ENV,
    NAMESPACE,
    NSS_WRAPPER,
    Isolation,
    IsolationProbe,
    explain,
    extend_environment,
    prepare_isolation,
    probe,
    render_hosts,
    render_nsswitch,
    write_hosts,
)
from overspan.bridge.runtime.core.shortages import is_shortage

MEMBERS = [("127.81.0.1", ["trainer-0.rlhf", "trainer-0"]), ("127.81.0.2", ["rollout-0.rlhf"])]


def test_hosts_extend_the_machines_own() -> None:
    base = "# machine\n127.0.0.1\tlocalhost\n::1 localhost ip6-localhost\n10.0.0.5 node5 # rack 2"
    assert render_hosts(base, MEMBERS) == (
        "# machine\n127.0.0.1\tlocalhost\n::1 localhost ip6-localhost\n10.0.0.5 node5 # rack 2\n"
        "127.81.0.1\ttrainer-0.rlhf trainer-0\n127.81.0.2\trollout-0.rlhf\n"
    )


@pytest.mark.parametrize("base", ["", "\n", "# nothing\n", "10.0.0.5 node5\n"])
def test_hosts_always_have_localhost(base: str) -> None:
    lines = render_hosts(base, MEMBERS).splitlines()
    assert lines[:2] == ["127.0.0.1\tlocalhost", "::1\tlocalhost"]


def test_hosts_add_the_missing_family_only() -> None:
    assert render_hosts("::1 localhost\n", []) == "127.0.0.1\tlocalhost\n::1 localhost\n"
    assert render_hosts("127.0.0.1 localhost\n", []) == "::1\tlocalhost\n127.0.0.1 localhost\n"


def test_a_members_name_wins() -> None:
    base = "10.0.0.1 Trainer-0 gate\n10.0.0.2 trainer-0.rlhf\n"
    lines = render_hosts(base, MEMBERS).splitlines()
    assert "10.0.0.1\tgate" in lines
    assert not any(line.startswith("10.0.0.2") for line in lines)


@pytest.mark.parametrize(
    ("hosts", "expected"),
    [
        ("files dns", None),
        ("files [NOTFOUND=return] dns", None),
        ("dns files", "files dns"),
        ("dns", "files dns"),
        ("", "files"),
        ("resolve [!UNAVAIL=return] files", "files resolve [!UNAVAIL=return]"),
        (
            "mymachines resolve [!UNAVAIL=return] files myhostname dns",
            "files mymachines resolve [!UNAVAIL=return] myhostname dns",
        ),
        ("dns files [NOTFOUND=return SUCCESS=merge] mdns", "files dns mdns"),
        ("dns [ NOTFOUND=return ] files", "files dns [ NOTFOUND=return ]"),
        ("myhostname files # a comment", "files myhostname"),
    ],
)
def test_files_come_first(hosts: str, expected: str | None) -> None:
    base = f"passwd: files systemd\nhosts:   {hosts}\nnetworks: files\n"
    result = None if expected is None else f"passwd: files systemd\nhosts: {expected}\nnetworks: files\n"
    assert render_nsswitch(base) == result


def test_no_hosts_line_stays_the_librarys_choice() -> None:
    assert render_nsswitch("") is None
    assert render_nsswitch("passwd: files\n#hosts: dns\n") is None


@pytest.mark.parametrize("text", ["longer than before\n", "short\n", "old content\n", ""])
def test_hosts_are_written_in_place(tmp_path: Path, text: str) -> None:
    path = tmp_path / "hosts"
    path.write_text("old content\n")
    inode = path.stat().st_ino
    write_hosts(str(path), text)
    assert (path.read_text(), path.stat().st_ino) == (text, inode)


def test_full_disk_keeps_the_old_hosts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "hosts"
    path.write_text("old\n")

    def refuse(fd: int, offset: int, length: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", refuse)
    with pytest.raises(OSError, match="No space"):
        write_hosts(str(path), "new and longer\n")
    assert path.read_text() == "old\n"


def test_environment_of_each_method() -> None:
    base = {"HOSTNAME": "vm", "LD_PRELOAD": "mine.so"}
    assert extend_environment(Isolation(ENV, hostname="a-0"), base) == base
    assert extend_environment(Isolation(NAMESPACE, "/h", "a-0"), base) == {"HOSTNAME": "a-0", "LD_PRELOAD": "mine.so"}
    wrapped = extend_environment(Isolation(NSS_WRAPPER, "/h", "a-0", library="/l/w.so"), base)
    assert wrapped == {
        "HOSTNAME": "a-0",
        "LD_PRELOAD": "/l/w.so:mine.so",
        "NSS_WRAPPER_HOSTS": "/h",
        "NSS_WRAPPER_HOSTNAME": "a-0",
    }
    assert base == {"HOSTNAME": "vm", "LD_PRELOAD": "mine.so"}


def test_preparation_writes_what_the_method_needs(tmp_path: Path) -> None:
    assert prepare_isolation(str(tmp_path), IsolationProbe(ENV, "no"), MEMBERS) == Isolation()
    assert list(tmp_path.iterdir()) == []
    prepared = prepare_isolation(str(tmp_path), IsolationProbe(NSS_WRAPPER, "", "/l/w.so"), MEMBERS)
    assert prepared == Isolation(NSS_WRAPPER, str(tmp_path / "hosts"), library="/l/w.so")
    assert (tmp_path / "hosts").read_text().endswith("127.81.0.2\trollout-0.rlhf\n")


def test_exhausted_namespaces_are_no_full_disk() -> None:
    text = explain(OSError(errno.ENOSPC, "unshare: No space left on device"))
    assert "user namespaces" in text and "space left" not in text


def test_a_probe_that_can_have_no_child_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    def fork() -> int:
        raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    before = os.listdir("/proc/self/fd")
    monkeypatch.setattr(os, "fork", fork)
    with pytest.raises(BlockingIOError):
        probe()
    assert os.listdir("/proc/self/fd") == before


def test_what_a_probe_is_short_of_is_no_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    def unshare(flags: int) -> None:
        raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))

    monkeypatch.setattr(kernel, "unshare", unshare)
    with pytest.raises(OSError, match="cannot be tried now") as caught:
        probe()
    assert is_shortage(caught.value)


@pytest.mark.parametrize("number", [errno.EPERM, errno.ENOSPC])
def test_what_is_not_allowed_is_a_finding(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    def unshare(flags: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(kernel, "unshare", unshare)
    found = probe()
    assert found.method != NAMESPACE and "namespaces" in found.reason

"""A user's way into the rig from outside: ssh to the controller, with a key and a configuration of its own."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.rigs.slurm import SlurmRig

_CONFIG = """\
Host rig
  HostName {address}
  User researcher
  IdentityFile {folder}/key
  IdentitiesOnly yes
  StrictHostKeyChecking accept-new
  UserKnownHostsFile {folder}/known_hosts
  LogLevel ERROR
"""


@dataclass(frozen=True)
class SshAccess:
    """A running rig, and the folder with the key and the ssh configuration that lead there."""

    rig: SlurmRig
    folder: Path

    @property
    def config(self) -> Path:
        """The configuration file; its host is `rig`."""
        return self.folder / "config"

    @property
    def settings(self) -> dict[str, Any]:
        """Settings of a cluster that is reached that way."""
        return {"host": "rig", "ssh_config": str(self.config)}


@contextlib.contextmanager
def open_access(rig: SlurmRig, folder: Path) -> Iterator[SshAccess]:
    """Let a new key in; skips where this machine has no ssh."""
    if shutil.which("ssh") is None:
        pytest.skip("no OpenSSH client on this machine")
    key = folder / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
    public = key.with_suffix(".pub").read_text()
    script = "umask 077; mkdir -p ~/.ssh; cat >> ~/.ssh/authorized_keys"
    done = rig.run(["sh", "-c", script], stdin=public)
    assert done.rc == 0, done.stderr
    (folder / "config").write_text(_CONFIG.format(address=find_address(rig), folder=folder))
    yield SshAccess(rig, folder)


def find_address(rig: SlurmRig, name: str = "ctl") -> str:
    """The address of one machine of the rig."""
    container = rig.containers[name]
    container.reload()
    networks = container.attrs["NetworkSettings"]["Networks"].values()
    return next(str(network["IPAddress"]) for network in networks)

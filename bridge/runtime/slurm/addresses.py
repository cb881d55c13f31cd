"""The addresses by which the nodes of an allocation reach each other."""

from __future__ import annotations

import re
import socket
import subprocess
from typing import Callable, Optional

_SCONTROL_SECONDS = 20.0


class AddressBook:
    """Looks each node up once: by its name, else by what Slurm knows of it."""

    def __init__(self, own: str, ask_slurm: Optional[Callable[[str], str]] = None) -> None:
        self._own = own
        self._ask_slurm = ask_slurm or show_address
        self._known: dict[str, str] = {}

    def find(self, node: str) -> str:
        """The address of a node, IPv4 where it has one. ValueError when neither resolver nor Slurm knows it."""
        if node not in self._known:
            self._known[node] = self._look_up(node)
        return self._known[node]

    def _look_up(self, node: str) -> str:
        found = resolve(node)
        outside = [address for address in found if not is_loopback(address)]
        if outside:
            return outside[0]
        # Some systems give the machine's own name a loopback address.
        told = self._ask_slurm(node)
        if told and told != node:
            outside = [address for address in resolve(told) if not is_loopback(address)]
            if outside:
                return outside[0]
        own = find_own_address() if node == self._own else ""
        if own or found:
            return own or found[0]
        raise ValueError(f"the node {node} has no address: neither its name nor `scontrol show node {node}` gives one")


def resolve(name: str) -> list[str]:
    """The addresses of a name, IPv4 first; none where it is not known."""
    try:
        rows = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except OSError:
        return []
    ordered = sorted(rows, key=lambda row: row[0] != socket.AF_INET)
    return list(dict.fromkeys(str(row[4][0]) for row in ordered))


def is_loopback(address: str) -> bool:
    """Whether an address leads nowhere but to the machine itself."""
    return address.startswith("127.") or address == "::1"


def find_own_address() -> str:
    """The address of this machine's default route; nothing is sent. Empty where there is none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            # An address for documentation (RFC 5737).
            probe.connect(("192.0.2.1", 9))
        except OSError:
            return ""
        return str(probe.getsockname()[0])


def show_address(node: str) -> str:
    """NodeAddr of `scontrol show -o node NODE`: a name or an address; empty where Slurm does not answer."""
    try:
        done = subprocess.run(
            ["scontrol", "show", "-o", "node", node],
            capture_output=True,
            text=True,
            timeout=_SCONTROL_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    found = re.search(r"\bNodeAddr=(\S+)", done.stdout)
    return found[1] if found else ""

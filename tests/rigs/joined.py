"""Ways between the Slurm rig's containers and the Kubernetes rig's pods, as machines of one site have them.

The containers are on an internal network of their engine, which drops what goes elsewhere: rules before the engine's
let packets between the two pass, and each side gets a route by this machine.
"""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

from tests.rigs.kube import KubeRig
from tests.rigs.slurm import SlurmRig


@contextlib.contextmanager
def join_networks(slurm: SlurmRig, kube: KubeRig, *, pods: bool = True) -> Iterator[None]:
    """Let containers and nodes reach each other by their addresses; as root.

    Without `pods` no container has a way to pods, nor any answer for them: they are on an overlay network.
    """
    nodes, inner = kube.networks
    reached = kube.networks if pods else (nodes,)
    here = nodes.replace(".0/24", ".1")
    with contextlib.ExitStack() as undo:
        for container in slurm.containers.values():
            container.reload()
        attributes = next(iter(slurm.containers.values())).attrs["NetworkSettings"]["Networks"]
        (name,) = attributes
        network = slurm.client.networks.get(name)
        (address,) = network.attrs["IPAM"]["Config"]
        subnet, bridge = address["Subnet"], f"br-{network.id[:12]}"
        gateway = address.get("Gateway") or _find_address(bridge)
        for there in reached:
            _change(undo, ("filter", "FORWARD", "-i", bridge, "-d", there))
            _change(undo, ("filter", "FORWARD", "-o", bridge, "-s", there))
            _change(undo, ("raw", "PREROUTING", "-s", there, "-d", subnet))
        for interface in (bridge, f"ospk{kube.slot}"):
            # Both go with their rigs.
            Path(f"/proc/sys/net/ipv4/conf/{interface}/forwarding").write_text("1\n")
        for container in slurm.containers.values():
            pid = str(container.attrs["State"]["Pid"])
            for there in reached:
                _run("nsenter", "-t", pid, "-n", "ip", "route", "replace", there, "via", gateway)
                undo.callback(_try, "nsenter", "-t", pid, "-n", "ip", "route", "del", there)
            if not pods:
                _run("nsenter", "-t", pid, "-n", "ip", "route", "replace", "unreachable", inner)
                undo.callback(_try, "nsenter", "-t", pid, "-n", "ip", "route", "del", "unreachable", inner)
        inside = ("ip", "netns", "exec", kube.network)
        _run(*inside, "ip", "route", "replace", subnet, "via", here)
        undo.callback(_try, *inside, "ip", "route", "del", subnet)
        yield


def _change(undo: contextlib.ExitStack, rule: tuple[str, ...]) -> None:
    table, chain, *match = rule
    _run("iptables", "-w", "-t", table, "-I", chain, "1", *match, "-j", "ACCEPT")
    undo.callback(_try, "iptables", "-w", "-t", table, "-D", chain, *match, "-j", "ACCEPT")


def _find_address(interface: str) -> str:
    shown = _run("ip", "-4", "-o", "addr", "show", "dev", interface)
    return shown.split()[3].partition("/")[0]


def _run(*words: str) -> str:
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout


def _try(*words: str) -> None:
    subprocess.run(words, check=False, capture_output=True)

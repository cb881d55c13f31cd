"""One network for both rigs: Slurm's nodes and Kubernetes' pods reach each other by their addresses."""

from __future__ import annotations

import contextlib
import ipaddress
import subprocess
from collections.abc import Iterator
from typing import Any

from tests.rigs.kube import KubeRig
from tests.rigs.slurm import SlurmRig


@contextlib.contextmanager
def link_rigs(kube: KubeRig, slurm: SlurmRig) -> Iterator[None]:
    """Put the Kubernetes rig, as a router, on the Slurm rig's Docker network, and give Slurm's machines the routes.

    The machine's own forwarding is not used, so it works with Docker networks that lead nowhere else.
    """
    network = _find_network(slurm)
    subnet = ipaddress.ip_network(network.attrs["IPAM"]["Config"][0]["Subnet"])
    # Docker gives addresses from the low end.
    router = subnet.broadcast_address - 1
    bridge, outer, inner = f"br-{network.id[:12]}", f"ospl{kube.slot}", "slurm0"
    with contextlib.ExitStack() as undo:
        _run("ip", "link", "add", outer, "type", "veth", "peer", "name", inner, "netns", kube.network)
        undo.callback(_run, "ip", "link", "delete", outer)
        _run("ip", "link", "set", outer, "master", bridge, "up")
        _run("ip", "-n", kube.network, "addr", "add", f"{router}/{subnet.prefixlen}", "dev", inner)
        _run("ip", "-n", kube.network, "link", "set", inner, "up")
        for one, other in ((str(subnet), "10.213.0.0/15"), ("10.213.0.0/15", str(subnet))):
            _let_pass(undo, bridge, one, other)
        for container in slurm.containers.values():
            for destination in kube.networks:
                _route(undo, container.attrs["State"]["Pid"], destination, str(router))
        yield


def _find_network(slurm: SlurmRig) -> Any:
    controller = slurm.containers["ctl"]
    controller.reload()
    (name,) = controller.attrs["NetworkSettings"]["Networks"]
    return slurm.client.networks.get(name)


def _let_pass(undo: contextlib.ExitStack, bridge: str, source: str, destination: str) -> None:
    """An engine that keeps a firewall would drop what comes from other networks; one without has no such chain."""
    rule = ["DOCKER-USER", "-i", bridge, "-o", bridge, "-s", source, "-d", destination, "-j", "ACCEPT"]
    with contextlib.suppress(OSError, subprocess.CalledProcessError):
        _run("iptables", "--insert", *rule)
        undo.callback(_run, "iptables", "--delete", *rule)


def _route(undo: contextlib.ExitStack, pid: int, destination: str, router: str) -> None:
    enter = ["nsenter", "--net", "--target", str(pid), "ip", "route"]
    _run(*enter, "replace", destination, "via", router)
    undo.callback(_run, *enter, "delete", destination)


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, timeout=30)

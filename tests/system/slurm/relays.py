"""The end of what stands beside groups without a shared folder."""

from __future__ import annotations

from tests.system.conftest import Span
from tests.system.slurm.conftest import Site

NODES = ("node1", "node2", "node3")


def list_left(site: Site) -> str:
    """What is in the nodes' /tmp, and which of our programs run on any machine."""
    found = [site.rig.run(["find", "/tmp", "-mindepth", "1", "-user", "researcher"], on=node).stdout for node in NODES]
    running = [site.rig.run(["pgrep", "-fl", "overspan|span-"], on=node).stdout for node in ("ctl", *NODES)]
    return "".join([*found, *running])


def until_clean(span: Span, site: Site) -> None:
    """Wait until nothing of ours is left on any machine."""
    span.wait_until(lambda: not list_left(site), 20, f"nothing to be left, but there is {list_left(site)}")

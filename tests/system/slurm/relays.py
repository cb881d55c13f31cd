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


def kill_relay(span: Span, site: Site, job: int) -> None:
    """Kill daemon and relay; any command starts the daemon, and that another relay."""
    before = list_relays(site)
    assert before
    span.kill_daemon()
    assert site.rig.run(["kill", "-KILL", *before]).rc == 0
    span.wait_until(lambda: span.job(job) and set(list_relays(site)) - set(before), 30, "another relay")


def list_relays(site: Site) -> list[str]:
    """The pids of relays on the login node; what starts one, and soon ends, has its words too."""
    return site.rig.run(["pgrep", "-f", r"^[^ ]*python3 -I -S [^ ]*supervisor-[0-9a-f]*\.pyz relay"]).stdout.split()

"""Clocks that differ: the daemon's, that of Slurm's controller and login node, and one of each compute node's own."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.rigs.plugin import rig_or_skip
from tests.rigs.reach import open_access
from tests.rigs.slurm import Variant
from tests.system.conftest import Span
from tests.system.slurm.conftest import Site
from tests.system.slurm.gates import Gate
from tests.system.slurm.groups import SERVE, group, start, until_said
from tests.waiting import WaitUntil

FOLDER = "/srv"
HOUR = 3600
# Containers have the machine's clock, so the commands' answers are shifted: every time in a listing, and every time
# that is asked for.
COMMAND = """\
#!/usr/bin/python3
import os, re, subprocess, sys, time
skew = int(open("/srv/seconds").read())
name = os.path.basename(sys.argv[0])
words = [re.sub(r"(?<=uts)\\d+", lambda found: str(int(found[0]) - skew), word) for word in sys.argv[1:]]
if name == "date":
    words = ["-d", f"@{time.time() + skew:.3f}", *words]
done = subprocess.run(["/usr/bin/" + name, *words], stdout=subprocess.PIPE)
shifted = re.sub(rb"(?<=\\x1f)1\\d{9}(?=[\\x1f\\x1e])", lambda found: b"%d" % (int(found[0]) + skew), done.stdout)
sys.stdout.buffer.write(shifted)
sys.exit(done.returncode)
"""
# The Python of supervisors and agents, with a clock of each node's own.
PYTHON = """\
#!/bin/sh
exec /usr/bin/python3 -I -S -c '
import runpy, socket, sys, time
skew = int(open("/srv/seconds").read()) * {"node1": -1, "node2": 2}.get(socket.gethostname(), 0)
clock = time.time
time.time = lambda: clock() + skew
sys.argv = [word for word in sys.argv[1:] if word not in ("-I", "-S")]
runpy.run_path(sys.argv[0], run_name="__main__")' "$@"
"""
FILES = {f"{FOLDER}/{name}": COMMAND for name in ("squeue", "sacct", "date")} | {f"{FOLDER}/python": PYTHON}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Two nodes whose clocks go apart from each other's too, and an accounting that has to tell what has ended."""
    files = {**FILES, f"{FOLDER}/seconds": "0\n"}
    variant = Variant("clocks", {"MinJobAge=": "MinJobAge=2"}, files, nodes=2)
    with rig_or_skip(variant) as rig, open_access(rig, tmp_path_factory.mktemp("ssh")) as access:
        yield Site(access)


@pytest.fixture(params=[HOUR, -HOUR], ids=["ahead", "behind"])
def skew(site: Site, request: pytest.FixtureRequest) -> int:
    """By how many seconds the cluster is ahead of the daemon."""
    for name in site.rig.containers:
        site.rig.put(f"{FOLDER}/seconds", f"{request.param}\n", on=name)
    return int(request.param)


@pytest.fixture
def remote(site: Site, skew: int, tmp_path: Path, wait_until: WaitUntil) -> Iterator[Span]:
    span = Span(tmp_path, wait_until)
    own = {"kind": "slurm", "tick": 0.5, **site.access.settings, "path": FOLDER, "python": f"{FOLDER}/python"}
    span.config.write_text(json.dumps({"clusters": {"rig": own}}))
    yield span
    span.close()


def submit(span: Span, command: str) -> str:
    return span.run("sbatch", "--parsable", "-M", "rig", "--mem=50", "--wrap", command).stdout.partition(";")[0]


def test_single_jobs_have_the_clusters_times_and_their_own_ends(remote: Span, skew: int) -> None:
    before = time.time()
    ends, ordered = submit(remote, "sleep 1; exit 5"), submit(remote, "echo up; sleep 600")
    until_said(remote, ordered, "", "up")
    remote.run("scancel", ordered)
    shown = remote.until(ends, "FAILED")
    assert shown["exit_code"] == 5
    assert remote.until(ordered, "CANCELLED")["state"] == "CANCELLED"
    # Half of what the clocks differ tells whose time it is, however slow this machine.
    assert abs(shown["started_at"] - before - skew) < HOUR / 2
    assert 0 < shown["ended_at"] - shown["started_at"] < HOUR / 2


def test_a_group_on_nodes_with_clocks_of_their_own_ends_by_its_rules(remote: Span, site: Site) -> None:
    gate = Gate(site)
    tasks: dict[str, dict[str, Any]] = {"trainer": {"num_nodes": 2, "run": gate.wait}, "server": {"run": SERVE}}
    job = start(remote, group(tasks, primary_tasks=["trainer"], termination_delay="1s"))
    until_said(remote, job, "server", "up")
    gate.open()
    shown = remote.until(job, "COMPLETED", timeout=60)
    assert {task["name"]: task["reason"] for task in shown["tasks"]}["server"] == "PrimariesDone"
    kept = start(remote, group({"a": {"num_nodes": 2, "run": SERVE}, "b": {"run": SERVE}}))
    until_said(remote, kept, "b", "up")
    remote.run("scancel", str(kept))
    assert {task["state"] for task in remote.until(kept, "CANCELLED", timeout=60)["tasks"]} == {"CANCELLED"}


def test_a_check_tells_of_the_clock(remote: Span, skew: int) -> None:
    found = json.loads(remote.run("check", "--json", "rig", check=False).stdout)["findings"]
    (clock,) = [finding for finding in found if finding["what"] == "clock"]
    assert not clock["works"] and clock["seen"].startswith("+" if skew > 0 else "-") and "NTP" in clock["remedy"]

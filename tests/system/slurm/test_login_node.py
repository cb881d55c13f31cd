"""Overspan on the login node itself: Slurm's own commands, no ssh, files that the jobs see too."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest
from tests.system.slurm.conftest import Site
from tests.system.slurm.groups import group
from tests.system.slurm.packages import PACKAGES, pack
from tests.waiting import WaitUntil

HOME = "/home/researcher"


class LoginNode:
    """The commands as a user types them there."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.environment = {"PYTHONPATH": PACKAGES, "SPAN_CONFIG": f"{HOME}/span.yaml"}

    def run(self, *words: str, stdin: str = "") -> str:
        """Run `span WORDS`; gives its output."""
        command = ["python3", "-m", "overspan.bridge.cli", *words]
        done = self.site.rig.run(command, stdin=stdin, env=self.environment)
        assert done.rc == 0, f"{words}: {done.stdout}{done.stderr}"
        return done.stdout

    def job(self, ref: str) -> dict[str, Any]:
        shown: dict[str, Any] = json.loads(self.run("show", ref, "--json"))
        found: dict[str, Any] = shown.get("job", shown)
        return found


@pytest.fixture
def login(site: Site) -> LoginNode:
    version = f"Python {sys.version_info[0]}.{sys.version_info[1]}."
    if version not in site.slurm("python3", "-V"):
        pytest.skip(f"the rig's Python is not this one, {version}x")
    site.rig.containers["ctl"].put_archive("/", pack())
    site.rig.put(f"{HOME}/span.yaml", json.dumps({"clusters": {"rig": {"kind": "slurm", "tick": 0.5}}}))
    return LoginNode(site)


def test_a_single_job_and_a_group_without_ssh(login: LoginNode, wait_until: WaitUntil) -> None:
    try:
        single = login.run("sbatch", "--parsable", "-M", "rig", "--mem=50", "--wrap", "echo $PWD; exit 3").split(";")[0]
        tasks = {name: {"run": f"getent ahostsv4 {name}-0.g; pwd", "spread": True} for name in ("a", "b")}
        login.site.rig.put(f"{HOME}/group.yaml", group(tasks))
        many = login.run("submit", "group.yaml", "-M", "rig", "--parsable").strip()
        for ref in (single, many):
            wait_until(lambda ref=ref: login.job(ref)["ended_at"], 30, "its end")  # type: ignore[misc]
        assert (login.job(single)["state"], login.job(single)["exit_code"]) == ("FAILED", 3)
        assert login.job(many)["state"] == "COMPLETED"
        assert login.run("logs", single) == f"{HOME}\n"
        for name in tasks:
            said = login.run("logs", many, name)
            assert f"{name}-0.g" in said and said.endswith(f"{HOME}\n")
    finally:
        login.run("shutdown")

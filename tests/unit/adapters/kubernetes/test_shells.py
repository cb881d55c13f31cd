"""The command that enters a pod."""

from __future__ import annotations

import pytest
from tests.unit.adapters.kubernetes.pods import ended, placed, running

from overspan.adapters.abilities import ShellRequest
from overspan.adapters.kubernetes.settings import Settings
from overspan.adapters.kubernetes.shells import enter_pod
from overspan.bridge.model.errors import Conflict


def test_a_shell_is_an_exec_into_the_members_newest_pod() -> None:
    pods = [ended("rollout", 1), running("rollout", 1, attempt=1), running("rollout", 0)]
    request = ShellRequest("lab/inst-7-0", "rollout", 1)
    words = enter_pod(request, pods, Settings(kubeconfig="/k", context="c")).words
    assert words[:9] == ("kubectl", "--kubeconfig", "/k", "--context", "c", "--namespace", "lab", "exec", "-i")
    assert words[9:15] == ("-t", "demo-rollout-1-a1", "-c", "main", "--", "/bin/sh")


def test_a_command_without_a_terminal_has_none() -> None:
    request = ShellRequest("lab/inst-7-0", "trainer", command=("nvidia-smi", "-L"), terminal=False)
    words = enter_pod(request, [running()], Settings()).words
    assert words == (
        *("kubectl", "--namespace", "lab", "exec", "-i", "demo-trainer-0-a0"),
        *("-c", "main", "--", "nvidia-smi", "-L"),
    )


def test_what_does_not_run_cannot_be_entered() -> None:
    for pod in (placed(), ended()):
        with pytest.raises(Conflict, match="does not run"):
            enter_pod(ShellRequest("lab/inst-7-0", "trainer"), [pod], Settings())

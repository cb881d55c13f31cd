"""kill -9 of the daemon at random moments while groups are made, run, fail, are tried again and end as pods.

Every start of a user's program appends a line to one file on a volume of the nodes.
"""

from __future__ import annotations

import json
import random
import threading
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import yaml
from tests.system.kills import KILLS, kill_daemons
from tests.system.kubernetes.conftest import KubeSpan

pytestmark = pytest.mark.timeout(2700)

GROUPS = max(4, 2 * KILLS // 5)
SEED = 19
CODES = (0, 0, 3)


@dataclass(frozen=True)
class Answered:
    """A group whose id was printed: the lines that its tasks write, and the exit code that it has to have."""

    id: int
    lines: tuple[str, ...]
    code: int


@dataclass
class Load:
    """Submits groups one after the other; a submission that failed may or may not run."""

    kube: KubeSpan
    starts: Path
    seed: int
    answered: list[Answered] = field(default_factory=list)
    tried: list[str] = field(default_factory=list)
    failure: str = ""

    def run(self) -> None:
        """Submit until enough were answered."""
        chance = random.Random(self.seed)
        try:
            for number in range(20 * GROUPS):
                if len(self.answered) == GROUPS:
                    return
                self._submit(f"g{number}", chance.choice(CODES), chance.uniform(1, 3))
        except AssertionError as error:
            self.failure = str(error)

    def _submit(self, name: str, code: int, seconds: float) -> None:
        file = self.kube.folder / f"{name}.yaml"
        file.write_text(write_group(name, code, seconds))
        lines = tuple(f"{name}.{place}" for place in ("trainer.0.0", "trainer.1.0", "server.0.0", "server.0.1"))
        self.tried += lines
        done = self.kube.run("submit", str(file), "--parsable", check=False)
        if done.returncode == 0:
            self.answered.append(Answered(int(done.stdout), lines, code))
        elif not done.stderr:
            self.failure = f"exit code {done.returncode} without a word"

    def check(self) -> None:
        """Each answered group ran as its file says, each attempt once, and ended truly; nothing ran twice."""
        assert not self.failure, self.failure
        counts = Counter(self.starts.read_text().split())
        assert {line: count for line, count in counts.items() if count > 1} == {}
        assert set(counts) <= set(self.tried)
        assert len({group.id for group in self.answered}) == GROUPS
        for group in self.answered:
            shown = self.kube.job(group.id)
            told = json.dumps(shown, indent=1)
            assert [counts[line] for line in group.lines] == [1] * len(group.lines), f"{group}\n{told}"
            assert (shown["state"], shown["exit_code"]) == ("FAILED" if group.code else "COMPLETED", group.code), told
            attempts = {task["name"]: [one["exit_code"] for one in task["attempts"]] for task in shown["tasks"]}
            assert attempts["trainer"] == [group.code], told
            assert attempts["server"][0] == 4 and len(attempts["server"]) == 2, told


def write_group(name: str, code: int, seconds: float) -> str:
    """A trainer of two nodes that ends with the code, and a server whose first attempt fails."""
    say = f"echo {name}.$OVERSPAN_TASK.$OVERSPAN_NODE_INDEX.$OVERSPAN_ATTEMPT >> /starts/starts"
    seen = f"grep -q '^{name}.server.0.1$' /starts/starts"
    small = {"resources": {"cpus": 0.02, "memory": "16M"}, "grace_period": "2s"}
    documents = [
        {"name": name, "execution": "parallel", "primary_tasks": ["trainer"], "termination_delay": "1s"},
        {
            "name": "trainer",
            "num_nodes": 2,
            # It ends when the server's second attempt has begun.
            "run": f"{say}; sleep {seconds:.1f}; until {seen}; do sleep 0.2; done; exit {code}",
            **small,
        },
        {
            "name": "server",
            "on_failure": "restart",
            "backoff": {"first": 0.2},
            "run": f"trap 'exit 0' TERM; {say}; [ $OVERSPAN_ATTEMPT -gt 0 ] || exit 4; while :; do sleep 0.1; done",
            **small,
        },
    ]
    return str(yaml.safe_dump_all(documents, sort_keys=False))


def test_the_daemon_is_killed_at_random_moments_of_groups_lives(kube: KubeSpan) -> None:
    print(f"seed {SEED}")
    folder = kube.folder / "starts"
    folder.mkdir(mode=0o777)
    kube.connect(kube.rig, kube.namespace, volumes={"starts": {"hostPath": {"path": str(folder)}, "path": "/starts"}})
    load = Load(kube, folder / "starts", SEED)
    submitting = threading.Thread(target=load.run)
    submitting.start()
    assert kill_daemons(kube, KILLS, SEED) == KILLS
    submitting.join(max(900, 50 * KILLS))
    assert not submitting.is_alive()
    kube.wait_until(lambda: not kube.run("squeue", "--noheader").stdout.strip(), 60, "all groups to end")
    load.check()
    kube.until_empty(60)

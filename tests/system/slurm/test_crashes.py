"""kill -9 of the daemon at random moments of the lives of groups and single jobs on a real Slurm.

Each run of a user's program appends a line of its own to one file there, and holds a lock for as long as it lives.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.system.conftest import Span
from tests.system.kills import KILLS, kill_daemons
from tests.system.slurm.conftest import Site
from tests.system.slurm.groups import connect, group
from tests.system.slurm.load import Answered, Load
from tests.waiting import WaitUntil

GROUPS = max(3, KILLS // 3)
SEED = 19


@pytest.fixture
def remote(site: Site, tmp_path: Path, wait_until: WaitUntil) -> Iterator[Span]:
    span = connect(site, tmp_path, wait_until)
    yield span
    span.close()


class Submitter:
    """Submits groups and single jobs, while the daemon is killed: a submission that failed may or may not run."""

    def __init__(self, load: Load) -> None:
        self.load = load
        self.failure = ""

    def run(self) -> None:
        """Submit until enough groups were answered."""
        groups = 0
        try:
            for number in range(20 * GROUPS):
                if groups == GROUPS:
                    return
                groups += self._submit_group(f"g{number}")
                self.load.submit_single(f"s{number}")
        except AssertionError as error:
            self.failure = str(error)

    def _submit_group(self, word: str) -> bool:
        load, code = self.load, self.load.chance.choice((0, 3))
        tasks = {
            name: {"run": load.line(f"{word}-{name}", end), "spread": name == "b", "backoff": {"first": 0.1}}
            for name, end in (("a", 0), ("b", code))
        }
        file = load.span.folder / f"{word}.yaml"
        file.write_text(group(tasks, name=word))
        done = load.span.run("submit", str(file), "-M", "rig", "--parsable", check=False)
        if done.returncode == 0:
            load.answered.append(Answered(done.stdout.strip(), (f"{word}-a", f"{word}-b"), code))
        elif not done.stderr:
            self.failure = f"exit code {done.returncode} without a word"
        return done.returncode == 0


def test_the_daemon_is_killed_at_random_moments_of_groups_lives(remote: Span, site: Site) -> None:
    print(f"seed {SEED}")
    load = Load(remote, site, SEED)
    submitter = Submitter(load)
    submitting = threading.Thread(target=submitter.run)
    submitting.start()
    kill_daemons(remote, KILLS, SEED, longest=2.5)
    submitting.join(max(450, 25 * KILLS))
    assert not submitting.is_alive() and not submitter.failure, submitter.failure
    remote.wait_until(lambda: not remote.run("squeue", "--noheader").stdout.strip(), 60, "all jobs to end")
    load.check(lost=False)
    assert sum(len(job.words) == 2 for job in load.answered) == GROUPS

"""What a real Slurm makes of one command for many native jobs of a set, some of which have started."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.rigs.slurm import Done
from tests.system.slurm.conftest import Site
from tests.waiting import WaitUntil

from overspan.adapters.slurm.groups.ordering import withdraw_parts_words


class Queue:
    """Native jobs of the test's own: those that wait and those that run."""

    def __init__(self, site: Site, wait_until: WaitUntil) -> None:
        self.site = site
        self.wait_until = wait_until
        self.numbers: list[str] = []

    def add(self, *words: str) -> str:
        number = self.site.slurm("sbatch", "--parsable", "--mem=50M", *words, "--wrap", "sleep 3600").strip()
        self.numbers.append(number)
        return number

    def wait(self, count: int) -> list[str]:
        return [self.add("--begin=now+1hour") for _ in range(count)]

    def run(self, count: int) -> list[str]:
        numbers = [self.add() for _ in range(count)]
        self.wait_until(lambda: self.states(numbers) == {"RUNNING"}, 30, "jobs that run")
        return numbers

    def states(self, numbers: list[str]) -> set[str]:
        return set(self.site.slurm("squeue", "-ht", "all", "-j", ",".join(numbers), "-o", "%T").split())

    def withdraw(self, names: list[str], together: bool) -> Done:
        return self.site.rig.run(list(withdraw_parts_words(names, together)))


@pytest.fixture
def queue(site: Site, wait_until: WaitUntil) -> Iterator[Queue]:
    queue = Queue(site, wait_until)
    yield queue
    site.rig.run(["scancel", *queue.numbers])


def test_a_set_that_has_started_stays(queue: Queue) -> None:
    running = queue.run(2)
    done = queue.withdraw(running, True)
    assert done.rc == 1 and "no longer pending" in done.stderr
    assert queue.states(running) == {"RUNNING"}


def test_what_waits_goes_back_where_tasks_start_by_themselves(queue: Queue) -> None:
    waiting, running = queue.wait(2), queue.run(1)
    done = queue.withdraw([*waiting, *running], False)
    assert done.rc == 1 and "no longer pending" in done.stderr
    queue.wait_until(lambda: queue.states([*waiting, *running]) == {"RUNNING"}, 60, "the start of what was put off")


def test_all_go_where_one_has_not_started(queue: Queue) -> None:
    waiting, running = queue.wait(2), queue.run(1)
    over = queue.add("--begin=now+1hour")
    assert queue.site.rig.run(["scancel", over]).rc == 0
    assert queue.withdraw([waiting[0], over, *running, waiting[1]], True).rc == 0
    queue.wait_until(lambda: queue.states([*waiting, *running]) == {"CANCELLED"}, 30, "their end")


def test_all_that_wait_go(queue: Queue) -> None:
    waiting = queue.wait(3)
    assert queue.withdraw(waiting, False) == Done(0, "", "")
    assert queue.states(waiting) == {"CANCELLED"}


def test_a_release_reaches_what_is_held_beside_what_has_started(queue: Queue) -> None:
    running, held = queue.run(1), queue.add("--hold")
    queue.site.rig.run(["scontrol", "release", f"{running[0]},{held}"])
    queue.wait_until(lambda: queue.states([held]) == {"RUNNING"}, 60, "the start of what was held")

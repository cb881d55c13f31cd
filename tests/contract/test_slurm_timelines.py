"""The fake Slurm lives as the real one does: the same states, reasons and restarts, in the same order, about when."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import pytest
from tests.fakes.slurm_commands import COMMANDS, Asked
from tests.fakes.slurm_controller import FakeSlurm, Site
from tests.fakes.slurm_lives import ACCOUNTS_FORMAT, KILL_WAIT, LIVES, QUEUE_FORMAT, Life, read_timelines
from tests.fakes.slurm_nodes import FakeNode

BEGIN = 1_800_000_000.0
LOOK = 0.5
"""Seconds between two looks at the fake."""
BRIEF, SCHEDULING = 2.0, 5.0
"""What lasts no longer is not seen each time; so long the real scheduler may take to look."""
SCHEDULER = ("None", "Priority", "Resources", "ReqNodeNotAvail", "Nodes required", "JobArrayTaskLimit")
"""Reasons that change with each look of the real scheduler; they count as one."""

Rows = Sequence[Sequence[Any]]


class Moment(NamedTuple):
    """From when on a job is shown so."""

    second: float
    state: str
    reason: str
    restarts: str


class Player:
    """Plays one life on the fake, and keeps what it shows as the recorder does."""

    def __init__(self, slurm: FakeSlurm, life: Life, given: Rows) -> None:
        self.slurm, self.life = slurm, life
        words = ("--parsable", "--mem=100", f"--job-name={life.name}", *life.options)
        done = COMMANDS["sbatch"](slurm, Asked(words, f"#!/bin/sh\n{life.script}\n"))
        assert done.rc == 0, done.err
        self.job, self.began = done.out.strip(), slurm.now
        # A command is given when it was given to the real one.
        self.steps = [(at, step.words) for (at, _), step in zip(given, life.steps, strict=True)]
        self.said: list[str] = []
        self.queue: list[list[Any]] = []
        self.accounts: Rows = []

    def look(self) -> None:
        """Note what is shown; give the commands that are due."""
        second = self.slurm.now - self.began
        if second > self.life.seconds:
            return
        shown = self._ask(
            "squeue", "--array", "--states=all", f"--jobs={self.job},{self.job}", f"--Format={QUEUE_FORMAT}"
        )
        rows = [line.split("|")[:4] for line in shown.splitlines()]
        self.queue.append([second, [[row[0].replace(self.job, "J", 1), *row[1:]] for row in rows]])
        kept = self._ask("sacct", "--duplicates", f"--jobs={self.job}", f"--format={ACCOUNTS_FORMAT}")
        self.accounts = [line.replace(self.job, "J", 1).split("|") for line in kept.splitlines()]
        while self.steps and self.steps[0][0] <= second:
            name, *words = [word.replace("{}", self.job) for word in self.steps.pop(0)[1]]
            done = COMMANDS[name](self.slurm, Asked(words, environment={"USER": "root"}))
            self.said.append((done.out + done.err).strip())

    def _ask(self, name: str, *words: str) -> str:
        return COMMANDS[name](self.slurm, Asked(words)).out


def play_all() -> dict[str, Player]:
    """All lives, in the stages in which they were recorded."""
    slurm = FakeSlurm(BEGIN, Site(kill_wait=KILL_WAIT), [FakeNode(f"node{n}", 64, 64000) for n in (1, 2, 3)])
    behaviours = {life.name: life.behaviour for life in LIVES}
    slurm.behave = lambda job: behaviours[job.request.name]
    recorded = read_timelines()
    players: dict[str, Player] = {}
    for stage in sorted({life.stage for life in LIVES}):
        lives = [life for life in LIVES if life.stage == stage]
        own = [Player(slurm, life, recorded[life.name]["steps"]) for life in lives]
        while slurm.now < own[0].began + max(life.seconds for life in lives):
            for player in own:
                player.look()
            slurm.catch_up(slurm.now + LOOK)
        COMMANDS["scancel"](slurm, Asked(["--user=ada"]))
        slurm.catch_up(slurm.now + 60)
        players |= {player.life.name: player for player in own}
    return players


@pytest.fixture(scope="module")
def players() -> Iterator[dict[str, Player]]:
    yield play_all()


@pytest.mark.parametrize("life", LIVES, ids=lambda life: life.name)
class TestLives:
    def test_it_shows_the_same_in_the_same_order(self, life: Life, players: dict[str, Player]) -> None:
        real = read_moments(read_timelines()[life.name]["queue"], life.seconds)
        fake = read_moments(players[life.name].queue, life.seconds)
        assert {name: [one[1:] for one in found] for name, found in fake.items()} == {
            name: [one[1:] for one in found] for name, found in real.items()
        }
        for name, found in real.items():
            for one, other in zip(found, fake[name], strict=True):
                assert abs(one.second - other.second) <= life.tolerance, (name, one, other)

    def test_the_accounting_keeps_the_same_runs(self, life: Life, players: dict[str, Player]) -> None:
        real = read_timelines()[life.name]["accounts"][-1][1]
        assert read_runs(players[life.name].accounts) == read_runs(real)

    def test_commands_say_the_same(self, life: Life, players: dict[str, Player]) -> None:
        said = [words.partition(" for job")[0] for _, words in read_timelines()[life.name]["steps"]]
        assert [words.partition(" for job")[0] for words in players[life.name].said] == said


def read_moments(looks: Rows, seconds: float) -> dict[str, list[Moment]]:
    """What each job or element showed and when it began, without what was too brief to be seen each time."""
    found: dict[str, list[Moment]] = {}
    for second, rows in looks:
        for name, state, reason, restarts, *_ in rows:
            waits = state == "PENDING" and reason.startswith(SCHEDULER)
            moment = Moment(second, state, "the scheduler" if waits else reason, restarts)
            kept = found.setdefault(name, [])
            if not kept or kept[-1][1:] != moment[1:]:
                kept.append(moment)
    return {name: drop_brief(moments, seconds) for name, moments in found.items()}


def drop_brief(moments: Sequence[Moment], seconds: float) -> list[Moment]:
    """Those that lasted; what is the same before and after is one."""
    kept: list[Moment] = []
    for moment, end in zip(moments, [*(one.second for one in moments[1:]), seconds], strict=True):
        least = SCHEDULING if moment.reason == "the scheduler" and moment is not moments[-1] else BRIEF
        if end - moment.second >= least and not (kept and kept[-1][1:] == moment[1:]):
            kept.append(moment)
    return kept


def read_runs(rows: Rows) -> list[tuple[str, ...]]:
    """Name, state, exit code and nodes of each run; the rest of an array is told late, so its indices do not count."""
    runs = [(name.partition("[")[0], state.partition(" by ")[0], code, nodes) for name, state, _, code, nodes in rows]
    return sorted(runs)

"""Crontabs: entries that become schedules, as a whole or not at all."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from tests.unit.controller.fakes import Bench
from tests.unit.controller.schedule_scenes import dues, facts, finish, pass_hours, play, quiet

from overspan.bridge.controller.submission.submitter import ParsedSubmission
from overspan.bridge.model.errors import Conflict, InvalidRequest, NotFound
from overspan.bridge.readers.submission import Submission

CRONTAB = "A=1\n#SCRON -t 5\n0 * * * * first x\n@daily second\n"


def base(**more: Any) -> Submission:
    return Submission(
        "script", "", user="me", directory="/", environment={"HOME": "/home/me", "SLURM_JOB_ID": "4"}, **more
    )


def crontab_reader(bench: Bench) -> list[Submission]:
    """Let the controller read scripts, and keep what it reads."""
    seen: list[Submission] = []
    good = bench.controller.submitter.reader

    def reader(submission: Submission, kinds: Mapping[str, str], now: float) -> ParsedSubmission:
        seen.append(submission)
        return good(replace(submission, text="one"), kinds, now)

    bench.controller.submitter.reader = reader
    return seen


def test_a_crontab_is_one_schedule_an_entry() -> None:
    async def scene(bench: Bench) -> None:
        seen = crontab_reader(bench)
        assert await bench.controller.crontabs.install(CRONTAB, base()) == [1, 2]
        assert await bench.controller.crontabs.show("me") == CRONTAB
        await pass_hours(bench, 0.5)
        assert dues(bench) == [0]
        submission = seen[-1]
        assert (submission.argv, submission.directory) == (("--job-name=first", "-t", "5"), "/home/me")
        assert dict(submission.environment) == {"HOME": "/home/me", "A": "1"}
        assert submission.text.endswith("\nfirst x\n")

    play(scene)


def test_an_unchanged_entry_stays_what_it_was() -> None:
    async def scene(bench: Bench) -> None:
        crontab_reader(bench)
        await bench.controller.crontabs.install(CRONTAB, base())
        await pass_hours(bench, 0.5)
        assert await bench.controller.crontabs.install("# new\n" + CRONTAB.replace("second", "third"), base()) == [1, 3]
        await quiet(bench)
        assert sorted(bench.repository.schedule_rows) == [1, 3]
        assert (facts(bench).runs, facts(bench).first_line) == (1, 3)
        await finish(bench, 1)
        await pass_hours(bench, 1)
        assert dues(bench) == [0, 1]

    play(scene)


def test_a_wrong_crontab_changes_nothing() -> None:
    async def scene(bench: Bench) -> None:
        crontab_reader(bench)
        await bench.controller.crontabs.install(CRONTAB, base())
        bench.cluster.impossible = "no such partition"
        with pytest.raises(InvalidRequest, match="no such partition") as caught:
            await bench.controller.crontabs.install("\n@daily other\n", base())
        assert str(caught.value.place) == "crontab:2"
        assert await bench.controller.crontabs.show("me") == CRONTAB
        assert sorted(bench.repository.schedule_rows) == [1, 2]

    play(scene)


def test_a_paused_entry_is_shown_as_disabled_and_deleted_by_its_line_only() -> None:
    async def scene(bench: Bench) -> None:
        crontab_reader(bench)
        await bench.controller.crontabs.install(CRONTAB, base())
        await bench.controller.schedules.pause(1, "me")
        text = await bench.controller.crontabs.show("me")
        assert text.splitlines()[1:3] == ["#DISABLED: #SCRON -t 5", "#DISABLED: 0 * * * * first x"]
        with pytest.raises(Conflict, match="an entry of the crontab"):
            await bench.controller.schedules.delete(1, "me")
        await bench.controller.crontabs.remove("me")
        with pytest.raises(NotFound, match="no crontab for me"):
            await bench.controller.crontabs.show("me")
        assert bench.repository.schedule_rows == {} and bench.clock.due() == {}

    play(scene)

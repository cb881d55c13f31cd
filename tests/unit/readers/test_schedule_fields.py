"""The key `cron` of a job file."""

from __future__ import annotations

import pytest

from overspan.bridge.model.errors import InvalidRequest
from overspan.bridge.model.schedule import Missed, Overlap, Schedule
from overspan.bridge.model.spec import JobSpec
from overspan.bridge.readers.job_file import read_job_file
from overspan.bridge.readers.read_context import ReadContext

GROUP = "name: g\nexecution: parallel\n{}\n---\nname: a\nrun: x\n---\nname: b\nrun: x\n"


def read(text: str) -> JobSpec:
    return read_job_file(text, "j.yaml", context=ReadContext())


@pytest.mark.parametrize("text", ["run: x\n{}\n", GROUP])
def test_times_alone_or_with_policies(text: str) -> None:
    assert read(text.format("cron: 0 3 * * mon")).cron == Schedule("0 3 * * mon")
    full = "cron: {schedule: '@daily', timezone: Asia/Tokyo, missed: all, overlap: replace}"
    job = read(text.format(full))
    assert job.cron == Schedule("@daily", "Asia/Tokyo", Missed.ALL, Overlap.REPLACE)
    assert job.later == {}
    assert read("run: x\n").cron is None


@pytest.mark.parametrize(
    ("value", "place", "why"),
    [
        ("'* * *'", "j.yaml:2:7", "is not a schedule"),
        ("{missed: once}", "j.yaml:2:7", "needs the key 'schedule'"),
        ("{schedule: '@daily', missed: twice}", "j.yaml:2:36", "'twice' is none of skip, once, all"),
        ("{schedule: '@daily', timezone: Moon}", "j.yaml:2:38", "no time zone 'Moon'"),
        ("{schedule: '@daily', zone: UTC}", "j.yaml:2:28", "unknown key 'zone'"),
        ("['@daily']", "j.yaml:2:7", "is wanted here"),
    ],
)
def test_what_is_wrong_is_told_with_its_place(value: str, place: str, why: str) -> None:
    with pytest.raises(InvalidRequest, match=why) as caught:
        read(f"run: x\ncron: {value}\n")
    assert str(caught.value.place) == place

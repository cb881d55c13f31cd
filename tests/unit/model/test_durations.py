"""Durations and points in time: the forms of sbatch(1), squeue(1), sacct(1) and SkyPilot."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from overspan.bridge.model import durations


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1", 60),
        ("90", 5400),
        ("0090", 5400),
        ("1:30", 90),
        ("0:200000", 200_000),
        ("0:1", 1),
        ("1:02:03", 3723),
        ("100:00:00", 360_000),
        ("0:90:0", 5400),
        ("2-", 172_800),
        ("1-12", 129_600),
        ("1-12:30", 131_400),
        ("1-12:30:05", 131_405),
        ("0-0:1", 60),
        ("1-30", 194_400),
    ],
)
def test_time_limit(text: str, seconds: int) -> None:
    assert durations.parse_time_limit(text) == seconds


@pytest.mark.parametrize("text", ["0", "-1", "INFINITE", "unlimited", "Unlimited", "0:0", "0-0", "00:00:00"])
def test_no_time_limit(text: str) -> None:
    assert durations.parse_time_limit(text) is None


@pytest.mark.parametrize(
    "text",
    ["", "5.5", "1h", "5min", "5 ", " 5", "-", "-5", "-2", "1:", ":30", "1-:30", "1-2:", "1::2", "1:2:3:4", "1-2-3",
     "1:2-3", "٣", "5\n", "NONE", "99999999999", "1e3"],
)  # fmt: skip
def test_time_limit_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"time limit"):
        durations.parse_time_limit(text)


@pytest.mark.parametrize(("seconds", "minutes"), [(0, 0), (1, 1), (59, 1), (60, 1), (61, 2), (200_000, 3334)])
def test_slurm_minutes_round_up(seconds: int, minutes: int) -> None:
    assert durations.slurm_minutes(seconds) == minutes


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("90s", 90),
        ("30m", 1800),
        ("2h", 7200),
        ("1d", 86_400),
        ("1w", 604_800),
        ("2H", 7200),
        (30, 1800),
        ("30", 1800),
        ("12:00", 720),
        ("1-0", 86_400),
        ("UNLIMITED", None),
        (0, None),
        (-1, None),
        ("0s", None),
    ],
)
def test_wall_time(value: str | int, seconds: int | None) -> None:
    assert durations.parse_wall_time(value) == seconds


@pytest.mark.parametrize("value", ["1.5h", "1m30s", "-5m", "", "h", True, 1.5, None, -2, "2 h", "99999999999w"])
def test_wall_time_refused(value: object) -> None:
    with pytest.raises(ValueError, match=r"wall time|time limit"):
        durations.parse_wall_time(value)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("value", "seconds"),
    [(0, 0), (30, 30), ("30", 30), ("0", 0), ("45s", 45), ("5m", 300), ("2h", 7200), ("1d", 86_400), ("1w", 604_800)],
)
def test_delay(value: str | int, seconds: int) -> None:
    assert durations.parse_delay(value) == seconds


@pytest.mark.parametrize("value", ["", "1.5", "1m30s", "-5", -5, 1.0, True, False, None, "5x", "5 m", "m", "5ms"])
def test_delay_refused(value: object) -> None:
    with pytest.raises(ValueError, match="is not a delay"):
        durations.parse_delay(value)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("seconds", "squeue", "sacct"),
    [
        (0, "0:00", "00:00:00"),
        (5, "0:05", "00:00:05"),
        (5.9, "0:05", "00:00:05"),
        (59 * 60 + 59, "59:59", "00:59:59"),
        (3600, "1:00:00", "01:00:00"),
        (3723, "1:02:03", "01:02:03"),
        (86_399, "23:59:59", "23:59:59"),
        (86_400, "1-00:00:00", "1-00:00:00"),
        (93_784, "1-02:03:04", "1-02:03:04"),
        (-1, "INVALID", "INVALID"),
    ],
)
def test_elapsed(seconds: float, squeue: str, sacct: str) -> None:
    assert durations.format_elapsed(seconds) == squeue
    assert durations.format_limit(seconds) == squeue
    assert durations.format_elapsed_long(seconds) == sacct


def test_unlimited() -> None:
    assert durations.format_limit(None) == "UNLIMITED"
    assert durations.format_elapsed_long(None) == "UNLIMITED"


@given(st.integers(min_value=1, max_value=10**9))
def test_formats_read_back(seconds: int) -> None:
    assert durations.parse_time_limit(durations.format_elapsed(seconds)) == seconds
    assert durations.parse_time_limit(durations.format_elapsed_long(seconds)) == seconds


@pytest.fixture
def berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[float]:
    """Local time of Berlin by rule, so that no zone files are needed; gives 2026-11-21T12:30:00 there."""
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "CET-1CEST,M3.5.0,M10.5.0/3")
        time.tzset()
        yield 1795260600.0
    time.tzset()


def test_timestamp(berlin: float) -> None:
    assert durations.format_timestamp(berlin) == "2026-11-21T12:30:00"
    assert durations.format_timestamp(berlin + 0.9) == "2026-11-21T12:30:00"
    assert durations.format_timestamp(0) == "N/A"
    assert durations.format_timestamp(None, "Unknown") == "Unknown"


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("now", "2026-11-21T12:30:00"),
        ("now+1hour", "2026-11-21T13:30:00"),
        ("now+2hours", "2026-11-21T14:30:00"),
        ("now + 1 hour", "2026-11-21T13:30:00"),
        ("NOW+60", "2026-11-21T12:31:00"),
        ("now+90seconds", "2026-11-21T12:31:30"),
        ("now-2days", "2026-11-19T12:30:00"),
        ("now+1week", "2026-11-28T12:30:00"),
        ("today", "2026-11-21T00:00:00"),
        ("Tomorrow", "2026-11-22T00:00:00"),
        ("midnight", "2026-11-22T00:00:00"),
        ("noon", "2026-11-22T12:00:00"),
        ("teatime", "2026-11-21T16:00:00"),
        ("tomorrow noon", "2026-11-22T12:00:00"),
        ("noon tomorrow", "2026-11-22T12:00:00"),
        ("16:05", "2026-11-21T16:05:00"),
        ("9:05", "2026-11-22T09:05:00"),
        ("12:30", "2026-11-22T12:30:00"),
        ("12:30:59", "2026-11-22T12:30:59"),
        ("1225", "2026-12-25T00:00:00"),
        ("0101", "2027-01-01T00:00:00"),
        ("122527", "2027-12-25T00:00:00"),
        ("12/25", "2026-12-25T00:00:00"),
        ("1/5", "2027-01-05T00:00:00"),
        ("12/25/27", "2027-12-25T00:00:00"),
        ("12/25/27-08:15", "2027-12-25T08:15:00"),
        ("1121", "2027-11-21T00:00:00"),
        ("11/21 13:00", "2026-11-21T13:00:00"),
        ("11/21 12:30", "2027-11-21T12:30:00"),
        ("2026-12-24", "2026-12-24T00:00:00"),
        ("2026-12-24T18:00", "2026-12-24T18:00:00"),
        ("2026-12-24T18:00:07", "2026-12-24T18:00:07"),
        ("2026-07-01T12:00:00", "2026-07-01T12:00:00"),
        ("1970-01-01-01:00:01", "1970-01-01T01:00:01"),
        ("2028-02-29", "2028-02-29T00:00:00"),
        ("2000-02-29", "2000-02-29T00:00:00"),
    ],
)
def test_when(berlin: float, text: str, moment: str) -> None:
    assert durations.format_timestamp(durations.parse_when(text, berlin)) == moment


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("9:05", "2026-11-21T09:05:00"),
        ("16:05", "2026-11-21T16:05:00"),
        ("midnight", "2026-11-21T00:00:00"),
        ("0101", "2026-01-01T00:00:00"),
        ("1225", "2025-12-25T00:00:00"),
        ("1130", "2026-11-30T00:00:00"),
        ("now-2days", "2026-11-19T12:30:00"),
    ],
)
def test_when_past(berlin: float, text: str, moment: str) -> None:
    assert durations.format_timestamp(durations.parse_when(text, berlin, past=True)) == moment


def test_now_keeps_the_fraction(berlin: float) -> None:
    """`sacct -E now` must not lose what began in this very second."""
    assert durations.parse_when("now", berlin + 0.75) == berlin + 0.75


@pytest.mark.parametrize(
    "text",
    ["", "T", "soon", "now+", "now+1h", "now+5s", "now+1hourx", "now+1.5hours", "25:00", "12:60", "12:00:60", "1300",
     "0230", "2026-02-30", "2027-02-29", "2100-02-29", "0229", "2026-13-01", "2026-1", "12:00 13:00", "today tomorrow",
     "12/25/2026", "12:00pmx", "1:2:3", "123", "now now", "2026-12-24T18"],
)  # fmt: skip
def test_when_refused(berlin: float, text: str) -> None:
    with pytest.raises(ValueError, match=r"point in time|no such|calendar"):
        durations.parse_when(text, berlin)


@given(st.integers(min_value=1, max_value=4_000_000_000))
def test_timestamps_read_back(epoch: int) -> None:
    text = durations.format_timestamp(epoch)
    # Equal as text: in the hour that is repeated in autumn two epochs have one name.
    assert durations.format_timestamp(durations.parse_when(text, 0.0)) == text


@given(st.text(alphabet="0123456789:-/T nowday+", max_size=20))
def test_any_text_is_read_or_refused(text: str) -> None:
    for parse in (durations.parse_time_limit, lambda value: durations.parse_when(value, 1.8e9)):
        try:
            parse(text)
        except ValueError as error:
            assert str(error)


def test_words_and_halves_of_the_day() -> None:
    now = time.mktime((2026, 3, 4, 8, 0, 0, 0, 0, -1))
    clocks = {"elevenses": 11, "noon": 12, "fika": 15, "teatime": 16, "1:30pm": 13.5, "12:00 am": 24, "12:00PM": 12}
    for text, hour in clocks.items():
        assert durations.parse_when(text, now) == now + (hour - 8) * 3600, text
    for text in ("13:00pm", "0:30am", "2031-1-1", "1pm"):
        with pytest.raises(ValueError):
            durations.parse_when(text, now)

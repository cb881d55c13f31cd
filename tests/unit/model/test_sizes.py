"""Amounts of memory by the rules of sbatch(1) and of SkyPilot."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from overspan.bridge.model.sizes import (
    Memory,
    format_memory,
    format_memory_option,
    parse_memory,
    parse_skypilot_memory,
    shorten_memory,
)


@pytest.mark.parametrize(
    ("text", "mib"),
    [("0", 0), ("4000", 4000), ("4000M", 4000), ("4000mb", 4000), ("4G", 4096), ("4gB", 4096), ("1T", 1_048_576),
     ("1K", 1), ("1024K", 1), ("1025k", 2), ("0K", 0)],
)  # fmt: skip
def test_slurm_memory(text: str, mib: int) -> None:
    assert parse_memory(text) == mib


@pytest.mark.parametrize("text", ["", "1.5G", "1Gi", "1GiB", "100B", "G", "-1", "+1", "4 G", "4G ", "4GBB", "٤G", "4P"])
def test_slurm_memory_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not an amount of memory"):
        parse_memory(text)


@pytest.mark.parametrize(
    ("value", "memory"),
    [
        (32, Memory(mib=32_768)),
        ("32", Memory(mib=32_768)),
        ("32+", Memory(mib=32_768, at_least=True)),
        ("0.5", Memory(mib=512)),
        (0.5, Memory(mib=512)),
        ("0.1", Memory(mib=103)),
        ("1.0000", Memory(mib=1024)),
        ("2x", Memory(mib_per_cpu=2048)),
        ("0.5X", Memory(mib_per_cpu=512)),
        ("512MB", Memory(mib=512)),
        ("4Gi", Memory(mib=4096)),
        ("4GiB+", Memory(mib=4096, at_least=True)),
        ("1T", Memory(mib=1_048_576)),
        ("1K", Memory(mib=1)),
    ],
)
def test_skypilot_memory(value: str | int | float, memory: Memory) -> None:
    assert parse_skypilot_memory(value) == memory


@pytest.mark.parametrize("value", ["", "x", "+", "-1", -1, "0", 0, "0x", "2x+", "2Gx", "1,5", True, None, [1], 1e300])
def test_skypilot_memory_refused(value: object) -> None:
    with pytest.raises(ValueError, match="memory"):
        parse_skypilot_memory(value)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("mib", "text"),
    [(0, "0"), (100, "100M"), (4000, "4000M"), (4096, "4G"), (1024, "1G"), (1536, "1.50G"), (1300, "1300M"),
     (512, "512M"), (1_048_576, "1T"), (1_572_864, "1.50T"), (1025, "1025M")],
)  # fmt: skip
def test_format_memory(mib: int, text: str) -> None:
    assert format_memory(mib) == text


@pytest.mark.parametrize(
    ("mib", "text"),
    [(0, "0"), (512, "512M"), (1024, "1G"), (1536, "1.5G"), (262144, "256G"), (2097152, "2T"), (1500000, "1.4T")],
)
def test_memory_is_short(mib: int, text: str) -> None:
    assert shorten_memory(mib) == text


@given(st.integers(min_value=0, max_value=10**12))
def test_memory_option_reads_back(mib: int) -> None:
    assert parse_memory(format_memory_option(mib)) == mib


@given(st.integers(min_value=1, max_value=10**9), st.integers(min_value=0, max_value=999))
def test_skypilot_memory_covers_what_is_asked(whole: int, thousandths: int) -> None:
    """Never less than asked, and less than a MiB more."""
    memory = parse_skypilot_memory(f"{whole}.{thousandths:03d}")
    assert memory.mib is not None
    assert 0 <= memory.mib * 1000 - (whole * 1000 + thousandths) * 1024 < 1000

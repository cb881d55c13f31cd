"""Amounts in words: bytes in the unit that people would say."""

from __future__ import annotations

_UNITS = ("MiB", "GiB", "TiB", "PiB")


def format_mebibytes(amount: float) -> str:
    """`512 GiB`, `1.5 GiB`, `900 MiB`: at most one digit behind the point, and never more than there is."""
    place = 0
    while amount >= 1024 and place < len(_UNITS) - 1:
        amount /= 1024
        place += 1
    return f"{int(amount * 10) / 10:g} {_UNITS[place]}"


def count(number: float, thing: str) -> str:
    """`1 node`, `0.5 GPUs`."""
    return f"{number:g} {thing}{'s' * (number != 1)}"

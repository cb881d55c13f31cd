"""Amounts of memory: read by Slurm's rules and by SkyPilot's, written as Slurm writes them. Mebibytes inside."""

from __future__ import annotations

import re

from overspan.bridge.model.records import NamedTuple

KIB_PER_MIB = 1024

_MIB = {"": 1, "M": 1, "G": 1024, "T": 1024 * 1024}
_KIB = {"K": 1, "M": 1024, "G": 1024 * 1024, "T": 1024 * 1024 * 1024}
_SLURM = r"([0-9]{1,15})(?:([KMGT])B?)?"
_SKYPILOT = r"([0-9]{1,15})(?:\.([0-9]{1,15}))?(?:([KMGT])i?B?)?([+x])?"


class Memory(NamedTuple):
    """An amount for one node: either `mib`, or `mib_per_cpu` for each of its CPUs; `at_least` allows more."""

    mib: int | None = None
    mib_per_cpu: int | None = None
    at_least: bool = False


def parse_memory(text: str) -> int:
    """Read a --mem value: MiB, rounded up; 0 means all memory of the node.

    An integer with an optional K, M, G or T (either case) and an optional B; M is the default. Fractions,
    `1Gi` and `100B` are refused, as sbatch does (measured on 22.05). Raises ValueError.
    """
    match = re.fullmatch(_SLURM, text, re.IGNORECASE)
    if not match:
        raise ValueError(f"{text!r} is not an amount of memory; write a whole number with K, M, G or T, such as 4000M")
    number, unit = int(match[1]), (match[2] or "").upper()
    if unit == "K":
        return -(-number // KIB_PER_MIB)
    return number * _MIB[unit]


def parse_skypilot_memory(value: str | int | float) -> Memory:
    """Read a job file's `memory`: GB as a number, with `+` for at least, with `x` for times the CPUs.

    A unit (K, M, G, T, also as GB, Gi or GiB) may stand in place of GB; all are powers of 1024, as Slurm's
    are. Rounded up to a MiB. Raises ValueError, for zero too.
    """
    match = None
    if not isinstance(value, bool) and isinstance(value, (str, int, float)):
        match = re.fullmatch(_SKYPILOT, str(value).strip(), re.IGNORECASE)
    if not match or (match[4] in ("x", "X") and match[3]):
        raise ValueError(f"{value!r} is not an amount of memory; write GB such as 32, 0.5, 32+, or 2x for 2 GB per CPU")
    whole, fraction, unit, mark = match[1], match[2] or "", (match[3] or "G").upper(), match[4]
    # Exact: a float product would round 0.1 GB differently from 102.4 MiB.
    kib = int(whole + fraction) * _KIB[unit]
    mib = -(-kib // (KIB_PER_MIB * 10 ** len(fraction)))
    if mib == 0:
        raise ValueError(f"{value!r} is no memory; leave `memory` out for the cluster's default")
    if mark in ("x", "X"):
        return Memory(mib_per_cpu=mib)
    return Memory(mib=mib, at_least=mark == "+")


def format_memory(mib: int) -> str:
    """Write MiB as squeue and scontrol do: 4G, 4000M, 1.50G; 0 is `0`.

    The next unit is taken while the amount is a multiple of half of it. For reading, not for --mem, which
    refuses fractions: use format_memory_option there.
    """
    if mib == 0:
        return "0"
    amount = float(mib)
    units = "MGTP"
    step = 0
    while step < len(units) - 1 and amount >= 1024 and int(amount) % 512 == 0:
        amount /= 1024
        step += 1
    if amount == int(amount):
        return f"{int(amount)}{units[step]}"
    return f"{amount:.2f}{units[step]}"


def shorten_memory(mib: float) -> str:
    """An amount of memory in at most five letters: 512M, 1.5G, 250G, 2T."""
    if mib <= 0:
        return "0"
    amount = float(mib)
    for unit in "MGT":
        if amount < 1000 or unit == "T":
            break
        amount /= 1024
    text = f"{amount:.1f}" if amount < 10 else f"{amount:.0f}"
    return text.removesuffix(".0") + unit


def format_memory_option(mib: int) -> str:
    """Write MiB as a value that --mem reads back unchanged."""
    return f"{mib // 1024}G" if mib and mib % 1024 == 0 else f"{mib}M"


def format_bytes(count: int) -> str:
    """Write an amount of data for reading: 345 bytes, 12.3 MiB."""
    amount, unit = float(count), "bytes"
    for following in ("KiB", "MiB", "GiB", "TiB"):
        if amount < 1024:
            break
        amount, unit = amount / 1024, following
    return f"{count} bytes" if unit == "bytes" else f"{amount:.1f} {unit}"

"""Kubernetes' quantities, and what pods ask for. Pure.

Facts: apimachinery's resource.Quantity; KEP-753 (sidecar containers) for how init containers count.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

MIB = 1 << 20
_SCALES = {"": 1.0, "n": 1e-9, "u": 1e-6, "m": 1e-3, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18} | {
    f"{letter}i": 1024.0**power for power, letter in enumerate("KMGTPE", 1)
}
_FORM = re.compile(r"([+-]?\d+\.?\d*|[+-]?\.\d+)(?:([numkMGTPE]|[KMGTPE]i)|[eE]([+-]?\d+))?")

Amounts = dict[str, float]


def parse_quantity(value: Any) -> float:
    """A quantity such as 100m, 1.5, 2Gi or 1e3; ValueError for anything else."""
    match = _FORM.fullmatch(str(value))
    if match is None:
        raise ValueError(f"{value!r} is not a quantity")
    return float(match[1]) * (10.0 ** int(match[3]) if match[3] else _SCALES[match[2] or ""])


def read_amounts(document: Any) -> Amounts:
    """Quantities by resource; those that cannot be read are left out."""
    amounts = {}
    for name, value in document.items() if isinstance(document, Mapping) else ():
        try:
            amounts[str(name)] = parse_quantity(value)
        except ValueError:
            continue
    return amounts


def write_amount(name: str, value: float) -> str:
    """An amount of a resource for people: `cpu 1.5`, `memory 2Gi`."""
    in_bytes = name == "ephemeral-storage" or name == "memory" or name.startswith("hugepages-")
    return f"{name} {value / (1 << 30):.3g}Gi" if in_bytes else f"{name} {value:.3g}"


def add_amounts(parts: Iterable[Mapping[str, float]]) -> Amounts:
    """Their sum."""
    total: Amounts = {}
    for part in parts:
        for name, value in part.items():
            total[name] = total.get(name, 0.0) + value
    return total


def sum_requests(spec: Mapping[str, Any]) -> Amounts:
    """What the scheduler counts for a pod: its containers and sidecars, or its largest init container, and overhead."""
    main = add_amounts(_requests(item) for item in spec.get("containers") or [])
    sidecars: Amounts = {}
    peak: Amounts = {}
    for item in spec.get("initContainers") or []:
        if item.get("restartPolicy") == "Always":
            sidecars = add_amounts((sidecars, _requests(item)))
        else:
            peak = _larger(peak, add_amounts((sidecars, _requests(item))))
    total = _larger(add_amounts((main, sidecars)), peak)
    # The pod's own requests stand for those of its containers (KEP-2837).
    total |= _requests(spec)
    return add_amounts((total, read_amounts(spec.get("overhead"))))


def _requests(item: Mapping[str, Any]) -> Amounts:
    resources = item.get("resources") or {}
    return read_amounts(resources.get("limits")) | read_amounts(resources.get("requests"))


def _larger(one: Mapping[str, float], other: Mapping[str, float]) -> Amounts:
    return {name: max(one.get(name, 0.0), other.get(name, 0.0)) for name in {**one, **other}}

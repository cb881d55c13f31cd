"""Validation of a cluster's settings, value by value. Each adapter has a table: key, field of its record, reader."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from overspan.adapters.contract import ClusterConfig
from overspan.bridge.model.errors import InvalidRequest

Readers = Mapping[str, tuple[str, Callable[[Any], Any]]]
"""Field and reader by key. A reader raises ValueError with a sentence."""


def read_values(config: ClusterConfig, kind: str, readers: Readers) -> dict[str, Any]:
    """The values by field of what is given; raises InvalidRequest that names the key. `kind` is in words."""
    for key in config.settings:
        if key not in readers:
            raise InvalidRequest(
                f"clusters.{config.name}: {key!r} is not a setting of a {kind} cluster",
                remedy=f"use {', '.join(readers)}",
            )
    values: dict[str, Any] = {}
    for key, (field, read) in readers.items():
        if config.settings.get(key) is not None:
            try:
                values[field] = read(config.settings[key])
            except ValueError as error:
                raise InvalidRequest(f"clusters.{config.name}.{key}: {error}") from None
    return values


def read_seconds(least: float, most: float) -> Callable[[Any], float]:
    """A reader of seconds in a range."""

    def read(value: Any) -> float:
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not least <= value <= most:
            raise ValueError(f"{value!r} is not a number of seconds from {least:g} to {most:g}")
        return float(value)

    return read

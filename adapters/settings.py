"""Settings of a cluster: what every adapter's model is made of, and the reading of its entry in the configuration.

An adapter, a third party's too, writes its keys down once, as a model, and reads them with `read_cluster_settings`:

    class Settings(DocumentModel):
        host: Text = ""
        tick: Annotated[Real, between(0.2, 3600)] = 10.0

`read_cluster_settings(Settings, config)` refuses what does not fit, with file, line, column and the nearest known key.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, NoReturn, TypeVar

from pydantic import AfterValidator, BeforeValidator, Field, Strict

from overspan.adapters.contract import ClusterConfig
from overspan.bridge.model.durations import parse_delay, parse_wall_time
from overspan.bridge.model.errors import InvalidRequest
from overspan.bridge.model.sizes import parse_memory
from overspan.bridge.validation.models import DocumentModel, between, read_model


def _check_text(text: str) -> str:
    if not text or not text.isprintable():
        raise ValueError(f"{text!r} is not a name")
    return text


def _parse_memory(value: Any) -> int:
    mib = parse_memory(str(value)) if isinstance(value, (str, int)) and not isinstance(value, bool) else 0
    if mib <= 0:
        raise ValueError(f"{value!r} is not an amount of memory; write one such as 16G")
    return mib


def _fill_entries(value: Any) -> Any:
    """A mapping of names whose entries may be left empty."""
    if not isinstance(value, Mapping):
        return value
    return {name: {} if entry is None else entry for name, entry in value.items()}


Text = Annotated[str, Strict(), AfterValidator(_check_text)]
"""A name: printable, not empty."""
Texts = dict[Annotated[str, Field(min_length=1)], Annotated[str, Strict()]]
"""Names and texts."""
Mebibytes = Annotated[int, BeforeValidator(_parse_memory)]
"""Memory as --mem has it, as MiB."""
Delay = Annotated[int, BeforeValidator(parse_delay)]
"""Seconds, or a whole number with s, m, h, d or w."""
KeepTime = Annotated[Delay, between(1, 3660 * 86400)]
"""How long data is kept, in seconds."""
WallTime = Annotated[int | None, BeforeValidator(parse_wall_time)]
"""A wall time in seconds; None for no limit. A bare number is minutes, as in Slurm."""
Nullable = BeforeValidator(_fill_entries)
"""For a mapping of names to models: an entry without a value has the defaults."""

M = TypeVar("M", bound=DocumentModel)


def to_bytes(mebibytes: int | None) -> int | None:
    """A size of a setting in bytes; None where it says nothing."""
    return None if mebibytes is None else mebibytes << 20


def read_cluster_settings(model: type[M], config: ClusterConfig) -> M:
    """Check and read the settings of one cluster; raises InvalidRequest that names key, place and remedy.

    Where the model declares `name` or `root` as `outside`, they are the cluster's.
    """
    settings = read_model(model, config.settings, config.positions, ("clusters", config.name))
    own = {"name": config.name, "root": config.root}
    return settings.model_copy(update={key: own[key] for key in model.outside & own.keys()})


def refuse_setting(config: ClusterConfig, key: str, message: str, remedy: str = "") -> NoReturn:
    """Raise InvalidRequest for a setting that only the whole configuration shows to be wrong."""
    place = config.positions.value((key,))
    raise InvalidRequest(f"clusters.{config.name}.{key}: {message}", remedy=remedy, place=place)


def name_entries(entries: dict[str, M]) -> dict[str, M]:
    """Models that have their key in a mapping as their `name`."""
    return {name: entry.model_copy(update={"name": name}) for name, entry in entries.items()}
